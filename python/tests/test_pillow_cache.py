"""stokehold.pillow with an image cache: the same pixels, from files that were packed before."""

from __future__ import annotations

import io
import os
import platform
import random
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import in_fork, needs_torch, photo, wait_for

pytest.importorskip("PIL", reason="Pillow is not installed in this environment")

from PIL import Image  # noqa: E402
from test_pillow import KINDS, drawn_chain, looked_at, outcome, performed, run_in, started  # noqa: E402

import stokehold  # noqa: E402
import stokehold.pillow as ours  # noqa: E402
from stokehold import _cache  # noqa: E402

PACKS = platform.machine() == "x86_64" and "avx2" in Path("/proc/cpuinfo").read_text()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """JPEGs of all kinds, old enough to have a version."""
    folder = tmp_path_factory.mktemp("files") / "photos"
    folder.mkdir()
    for number, options in enumerate(KINDS * 2):
        (folder / f"{number}.jpg").write_bytes(photo(number, 90 + 9 * number, 120 - 3 * number, **options))
    time.sleep(3.05)
    return sorted(folder.iterdir())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache that packs at once."""
    place = tmp_path / "kept"
    monkeypatch.setenv("STOKEHOLD_IMAGE_CACHE", f"{place}:50MB")
    loader = stokehold.Loader([(str(path), 0) for path in files], "imagenet-train", batch_size=2, num_workers=1, cache_share=1.0)
    ours._state.tested = False
    again()
    yield place
    ours.uninstall()
    del loader


def again() -> None:
    """As in a process that has just begun."""
    ours.uninstall()
    _cache._state.opened, _cache._state.cache = False, None
    assert ours.install(0)


def read(path: Path, chain: Any = (), how: int = 2, start: int = 7) -> Any:
    with open(path, "rb") as file:
        image = performed(started(file, start), chain)
    return image.size, sorted(map(repr, image.info)), looked_at(image, how)


def fill(paths: list[Path]) -> None:
    def is_full() -> bool:
        before = ours.counts()["cached"]
        for path in paths:
            read(path)
        return bool(ours.counts()["cached"] - before == len(paths))

    if not PACKS:
        pytest.skip("this processor has no AVX2, without which nothing is packed")
    wait_for(is_full, "all files in the cache")


def test_pixels_from_the_cache_are_pillows(files: list[Path]) -> None:
    fill(files)
    draws, cached = random.Random(5), 0
    for path in files * 8:
        start, how = draws.randrange(8), draws.randrange(4)
        ours.uninstall()
        chain = drawn_chain(draws, *started(path, start).size)

        def run(path: Path = path, chain: Any = chain, how: int = how, start: int = start) -> Any:
            return read(path, chain, how, start)

        expected = outcome(run)
        assert ours.install(0)
        assert outcome(run) == expected, (path, start, chain)
        cached += ours.counts()["cached"]
    # Inks that no one has converted are Pillow's.
    assert cached > 6 * len(files)
    # What Pillow makes itself, from a file that is made of what was packed.
    for path in files:
        ours.uninstall()
        expected = np.asarray(Image.open(path)).tobytes()
        assert ours.install(1)
        assert np.asarray(Image.open(path)).tobytes() == expected
        assert read(path)[2] == Image.open(path).convert("RGB").tobytes()
        assert ours.counts()["cached"] == 3 and ours.counts()["different"] == 0


def test_a_loader_fills_it(files: list[Path]) -> None:
    loader = stokehold.Loader([(str(path), 0) for path in files], "imagenet-train", batch_size=2, num_workers=1, cache_share=1.0)
    for _ in loader:
        pass
    wait_for(lambda: loader.cache["waiting"] == 0, "packed files")
    assert loader.cache["added"] == (len(files) if PACKS else 0)
    for path in files:
        read(path)
    assert ours.counts()["cached"] == loader.cache["added"]


def test_a_file_that_was_changed_is_another_one(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(files[0].read_bytes())
    time.sleep(3.05)
    fill([path])
    facts = path.stat()
    begun = Image.open(path)
    other = bytearray(path.read_bytes())
    other[-40:-20] = bytes(20)
    path.write_bytes(other)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    ours.uninstall()
    expected = read(path)
    again()
    assert read(path) == expected and ours.counts()["cached"] == 0
    # One that is opened under its old name is the old file.
    os.replace(path, tmp_path / "old.jpg")
    path.write_bytes(photo(77))
    assert begun.convert("RGB").tobytes() == expected[2]


def test_bytes_from_before_a_change_are_not_kept_for_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    old, new = photo(76, 400, 300), photo(77, 400, 300)
    assert len(new) > 8192, "smaller ones leave nothing in the buffer"
    size = max(len(old), len(new))
    path.write_bytes(old.ljust(size, bytes(1)))
    time.sleep(3.05)
    with open(path, "rb", 1 << 17) as file:
        image = Image.open(file)
        path.write_bytes(new.ljust(size, bytes(1)))
        time.sleep(3.05)
        # The file object has read all of the old file.
        image.convert("RGB").tobytes()
    # Long enough to pack a file.
    time.sleep(0.5)
    assert read(path)[2] == Image.open(io.BytesIO(new)).convert("RGB").tobytes()


def test_a_file_without_its_end_is_pillows(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "cut.jpg"
    path.write_bytes(files[0].read_bytes()[:-2])
    time.sleep(3.05)
    loader = stokehold.Loader([(str(path), 0)], "imagenet-train", batch_size=1, num_workers=1, cache_share=1.0)
    for _ in range(3):
        for _ in loader:
            pass
        wait_for(lambda: loader.cache["waiting"] == 0, "an empty queue")
    assert loader.cache["added"] == 0
    with pytest.raises(OSError, match="truncated"):
        read(path)


def test_damage_to_the_cache_is_not_seen(files: list[Path], cache: Path) -> None:
    fill(files)
    ours.uninstall()
    expected = [read(path) for path in files]
    again()
    for segment in cache.glob("*.skcache"):
        bytes_ = bytearray(segment.read_bytes())
        for at in range(100, len(bytes_), 700):
            bytes_[at] ^= 16
        segment.write_bytes(bytes_)
    assert [read(path) for path in files] == expected
    assert ours.counts()["cached"] < len(files)


def test_a_fork_has_a_cache_of_its_own(files: list[Path]) -> None:
    fill(files[:6])
    ours.uninstall()
    expected = [read(path) for path in files]
    assert ours.install(0)
    mine = _cache._state.cache

    def epoch() -> None:
        assert [read(path) for path in files] == expected
        assert ours.counts()["cached"] >= 6
        assert _cache._state.cache is not mine
        time.sleep(0.2)

    assert in_fork(epoch) == 0
    assert [read(path) for path in files] == expected


@needs_torch
def test_workers_read_what_workers_have_packed(files: list[Path], tmp_path: Path) -> None:
    import torch
    from torchvision import transforms as T
    from torchvision.datasets import ImageFolder

    transform = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])

    class Counted(ImageFolder):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            image, _ = super().__getitem__(index)
            return image, ours.counts().get("cached", 0)

    def epoch() -> tuple[Any, int]:
        torch.manual_seed(9)
        batches = list(torch.utils.data.DataLoader(Counted(str(files[0].parent.parent), transform), 2, shuffle=True, num_workers=2))
        return [image.numpy().tobytes() for image, _ in batches], sum(int(cached.max()) for _, cached in batches)

    ours.uninstall()
    expected, _ = epoch()
    again()
    # The first epochs pack next to nothing in so short a time.
    assert epoch()[0] == expected
    fill(files)
    images, cached = epoch()
    assert images == expected and cached > len(files)


def test_a_share_packs_while_cores_are_busy(files: list[Path], tmp_path: Path) -> None:
    if not PACKS:
        pytest.skip("this processor has no AVX2, without which nothing is packed")
    code = (
        f"import time, stokehold.pillow as p\nfrom PIL import Image\nend, paths = time.time() + 60, {list(map(str, files))}\n"
        "while time.time() < end and p.counts()['cached'] < len(paths):\n  for path in paths: Image.open(path).convert('RGB').tobytes()\n"
        "print(p.counts()['cached'] >= len(paths))\n"
    )
    ran = run_in(code, STOKEHOLD_IMAGE_CACHE=str(tmp_path / "new"), STOKEHOLD_IMAGE_CACHE_SHARE="1")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\n", ""), ran


@pytest.mark.parametrize(
    ("setting", "share", "why"),
    [
        ("kept:7 apples", "", "STOKEHOLD_IMAGE_CACHE=kept:7 apples"),
        ("/dev/null/kept", "", "the cache's folder"),
        ("kept", "1.5", "STOKEHOLD_IMAGE_CACHE_SHARE=1.5: it is a number from 0 to 1"),
        ("kept", "nan", "STOKEHOLD_IMAGE_CACHE_SHARE=nan: it is a number from 0 to 1"),
    ],
)
def test_a_wrong_setting_is_said_once(files: list[Path], setting: str, share: str, why: str) -> None:
    code = (
        f"import os, stokehold.pillow as p\nfrom PIL import Image\nfor _ in range(3):\n  for path in {list(map(str, files[:3]))}: Image.open(path).convert('RGB').tobytes()\n"
        "  child = os.fork()\n  if child == 0: os._exit(len(Image.open(path).convert('RGB').tobytes()) == 0)\n  assert os.waitpid(child, 0)[1] == 0\n"
        "assert p.counts()['made'] == 9 and p.counts()['cached'] == 0\n"
    )
    ran = run_in(code, STOKEHOLD_IMAGE_CACHE=setting, STOKEHOLD_IMAGE_CACHE_SHARE=share)
    assert ran.returncode == 0 and ran.stderr.count("RuntimeWarning: ") == 1 and why in ran.stderr, ran


def test_a_cache_that_takes_nothing_says_so_once(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        open = classmethod(lambda kind: kind())
        read = offer = lambda self, *of: None

        def news(self) -> list[str]:
            return ["the cache takes no images now: its disk is full"]

    monkeypatch.setattr(_cache, "ImageCache", Full)
    again()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for path in files:
            read(path)

    def epoch() -> None:
        warnings.simplefilter("error")
        _cache.begin_process()
        read(files[0])

    assert in_fork(epoch) == 0
    assert len(said) == 1 and "its disk is full" in str(said[0].message)
