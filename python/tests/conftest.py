"""Pictures to load, and what every test module needs."""

from __future__ import annotations

import importlib.util
import io
import os
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed in this environment")
without_torch = pytest.mark.skipif(HAS_TORCH, reason="torch is installed in this environment")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """With STOKEHOLD_REQUIRE_ALL=1 a test that is skipped fails, but for those that another environment runs."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.skipped and os.environ.get("STOKEHOLD_REQUIRE_ALL") == "1":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not reason.endswith("in this environment"):
            report.outcome = "failed"
            report.longrepr = f"{reason}: STOKEHOLD_REQUIRE_ALL=1 lets no test be skipped"


def write_png(path: Path, pixels: np.ndarray) -> None:
    """A PNG of (height, width, 3) bytes."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels.astype(np.uint8))

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")
    )


def picture(number: int, height: int = 20, width: int = 24) -> np.ndarray:
    """Pixels that tell one picture from another."""
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


def photo(seed: int = 1, width: int = 150, height: int = 110, mode: str = "RGB", **options: Any) -> bytes:
    """A JPEG of smooth shapes and some noise."""
    from PIL import Image

    draws = np.random.default_rng(seed)
    coarse = draws.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((width, height), 3)
    noisy = np.asarray(image).astype(int) + draws.integers(-12, 13, (height, width, 3))
    file = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).convert(mode).save(file, "JPEG", **{"quality": 88, **options})
    return file.getvalue()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train/ and val/ with classes ant (12 and 3 pictures), bee (9 and 2) and cat (16 and 4)."""
    root = tmp_path_factory.mktemp("pictures")
    number = 0
    for part, counts in (("train", (12, 9, 16)), ("val", (3, 2, 4))):
        for name, count in zip(("ant", "bee", "cat"), counts):
            for each in range(count):
                write_png(root / part / name / f"{each:03}.png", picture(number))
                number += 1
    return root


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 generated photographs, of which some are for validation."""
    folder = tmp_path_factory.mktemp("photographs")
    made = subprocess.run(
        [sys.executable, "-m", "stokehold", "dataset", "synth", str(folder), "--images", "24", "--classes", "2"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return folder


def plain(array: object) -> np.ndarray:
    """A copy as a NumPy array, of torch tensors and arrays alike."""
    return np.asarray(array).copy()


def wait_for(done: Callable[[], bool], what: str) -> None:
    """Looks again and again for up to a minute."""
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, f"a minute passed without {what}"
        time.sleep(0.01)


def in_fork(work: Callable[[], None]) -> int:
    """Does something in a forked process; its exit code, 1 where it raised, or -9 where it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    status: list[int] = []

    def ended() -> bool:
        pid, how = os.waitpid(child, os.WNOHANG)
        if pid:
            status.append(how)
        return bool(pid)

    try:
        wait_for(ended, "the end of a forked process")
    except AssertionError:
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise
    return os.waitstatus_to_exitcode(status[0])
