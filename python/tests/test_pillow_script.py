"""stokehold.pillow in a script with handlers of signals, threads and forks, and with code that looks at classes."""

from __future__ import annotations

import copy
import inspect
import io
import os
import pickle
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import in_fork, needs_torch, photo, wait_for

pytest.importorskip("PIL", reason="Pillow is not installed in this environment")

from PIL import Image, ImageEnhance, ImageOps, JpegImagePlugin  # noqa: E402

import stokehold.pillow as ours  # noqa: E402


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    ours.uninstall()
    ours._state.tested = ours._state.has_differed = False
    assert ours.install(0)
    yield
    ours.uninstall()


PHOTO = photo()


def opened() -> Any:
    return Image.open(io.BytesIO(PHOTO))


def rgb() -> Any:
    return opened().convert("RGB")


# Handlers of signals.


class Late(ValueError):
    pass


def late(*_: Any) -> Any:
    raise Late("the time is over")


class LateObject:
    def __call__(self, *_: Any) -> Any:
        late()


def ring(*_: Any, **__: Any) -> Any:
    """A signal arrives here."""
    signal.raise_signal(signal.SIGUSR1)
    return 0


class Rings:
    """A signal arrives when somebody looks into this."""

    __iter__ = __getitem__ = __len__ = __getattr__ = ring  # type: ignore[assignment]


class RingingNumber(int):
    __float__ = ring


class RingingFile(io.BytesIO):
    rings = False

    def read(self, size: Any = -1) -> bytes:
        return ring() if self.rings else super().read(size)


def read_while_it_rings() -> None:
    file = RingingFile(PHOTO)
    image = Image.open(file)
    file.rings = True
    image.convert("RGB")


def make_while_it_rings(method: str) -> None:
    image = rgb()
    source, ops = image._recorded
    image._recorded = source, (RingingNumber(1), *ops)
    getattr(image, method)()


def give_up_while_it_rings(monkeypatch: Any) -> None:
    image = rgb()
    source, ops = image._recorded
    monkeypatch.setattr(ours._state, "damaged", (source, "damage", None))
    monkeypatch.setattr(ours, "_by_pillow", ring)
    ours._give_up(image, source, ops)


def fork_while_it_rings(monkeypatch: Any) -> None:
    image = rgb()
    monkeypatch.setattr(ours, "_become", ring)
    ours._make_all()
    assert image


def install_while_it_rings(monkeypatch: Any) -> None:
    ours.uninstall()
    ours._state.tested = False
    monkeypatch.setattr(ours, "_differences", ring)
    ours.install(0)


def watch_while_it_rings(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(get_default_dtype=ring))
    ours._watch_torchvision()


def border_while_it_rings(monkeypatch: Any) -> None:
    image = rgb()
    monkeypatch.setattr(Image, "new", ring)
    ImageOps.expand(image, 3)


MOMENTS: dict[str, Callable[[Any], Any]] = {
    "crop": lambda _: rgb().crop(Rings()),
    "resize": lambda _: rgb().resize(Rings()),
    "reduce": lambda _: rgb().reduce(2, Rings()),
    "transform": lambda _: rgb().transform((9, 9), 0, Rings()),
    "pad": lambda _: ImageOps.pad(rgb(), (90, 20), centering=Rings()),  # type: ignore[arg-type]
    "border": border_while_it_rings,
    "read": lambda _: read_while_it_rings(),
    "bytes": lambda _: make_while_it_rings("tobytes"),
    "pixels": lambda _: make_while_it_rings("getextrema"),
    "damage": give_up_while_it_rings,
    "fork": fork_while_it_rings,
    "install": install_while_it_rings,
    "torchvision": watch_while_it_rings,
}


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no signals")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("handler", [late, LateObject()])
def test_an_exception_of_a_handler_reaches_the_script(handler: Any, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    left = ours.counts()["left"]
    try:
        with monkeypatch.context() as patches, pytest.raises(Late, match="the time is over"):
            MOMENTS[moment](patches)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ours.counts()["left"] == left and not ours._state.refused
    # Nothing remains of it.
    assert ours.install(0) and rgb().crop((2, 3, 9, 9)).size == (7, 6)


# Threads and forks.


class SlowFile(io.BytesIO):
    """A file whose reader has to wait, in the thread that is called `reader`."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.is_read, self.may_continue = threading.Event(), threading.Event()

    def read(self, size: Any = -1) -> bytes:
        if threading.current_thread().name == "reader":
            self.is_read.set()
            assert self.may_continue.wait(60)
        return super().read(size)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("work", ["convert", "load"])
def test_a_fork_while_a_thread_reads_an_image_has_the_image(work: str) -> None:
    file = SlowFile(PHOTO)
    image = Image.open(file)
    expected, pixels = rgb().tobytes(), []
    reader = threading.Thread(target=lambda: pixels.append(image.convert("RGB").tobytes()), name="reader")
    reader.start()
    assert file.is_read.wait(60)

    def child() -> None:
        signal.alarm(45)
        if work == "load":
            image.load()
        assert image.convert("RGB").tobytes() == expected
        assert ours.counts()["made"] == 1 and not ours._reading

    try:
        assert in_fork(child) == 0
    finally:
        file.may_continue.set()
        reader.join(60)
    assert pixels == [expected] and not ours._reading


@pytest.mark.skipif(not hasattr(os, "mkfifo") or not hasattr(os, "fork"), reason="this system has no fork or no pipes with names")
@pytest.mark.parametrize("way", ["path", "file"])
def test_a_fork_while_a_thread_waits_for_a_disk_opens_the_file_again(way: str, tmp_path: Path) -> None:
    """The thread has the lock of Python's file object, too."""
    path = tmp_path / "a.jpg"
    path.write_bytes(PHOTO)
    image = Image.open(str(path)) if way == "path" else Image.open(path.open("rb"))
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    disk = os.open(tmp_path / "pipe", os.O_RDONLY)
    # What is read from here on comes from a pipe that is empty.
    kept = os.dup(image.fp.fileno())
    os.dup2(disk, image.fp.fileno())
    begun: list[Any] = []
    reader = threading.Thread(target=lambda: (begun.append(1), image.fp.read1(), begun.append(2)), daemon=True)
    ours._reading[id(image)] = image, threading.RLock()
    reader.start()
    wait_for(lambda: bool(begun) and is_asleep(reader), "a read of the pipe")

    def child() -> None:
        signal.alarm(45)
        assert image.convert("RGB").tobytes() == rgb().tobytes()

    try:
        assert in_fork(child) == 0 and begun == [1]
    finally:
        os.write(writer, b"end")
        reader.join(60)
        ours._reading.clear()
        for number in (kept, writer, disk):
            os.close(number)


def is_asleep(thread: threading.Thread) -> bool:
    stat = Path(f"/proc/self/task/{thread.native_id}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_while_a_thread_decodes_an_image_has_the_image() -> None:
    data = photo(width=3000, height=2000)
    expected = Image.open(io.BytesIO(data)).crop((5, 5, 9, 9)).tobytes()
    # From now on the first look at an image keeps all of its pixels, and has its lock for as long as they are decoded.
    small = opened()
    assert len({small.crop((0, 0, n, 9)).tobytes() for n in range(1, 65)}) == 64
    forks = 0
    for _ in range(3):
        image = Image.open(io.BytesIO(data))
        decoder = threading.Thread(target=image.tobytes)
        decoder.start()
        wait_for(lambda: bool(ours._decoding), "a thread that decodes")

        def child(image: Any = image) -> None:
            signal.alarm(45)
            assert image.crop((5, 5, 9, 9)).tobytes() == expected
            assert image.convert("L").tobytes()

        forks += bool(ours._decoding)
        assert in_fork(child) == 0
        decoder.join(60)
    assert forks and not ours._decoding


# Names.

MISTAKES: list[Callable[[Any], Any]] = [
    lambda image: image.nothing,
    lambda image: image(),
    lambda image: image[0],
    lambda image: len(image),
    lambda image: image + 1,
    lambda image: image / 255,
    lambda image: image < image,
    lambda image: hash(image),
    lambda image: [1][image],
    lambda image: open(image),
    lambda image: setattr(image, "size", (1, 1)),
    lambda image: image.crop(1, 2, 3, 4),
    lambda image: image.crop(bx=(1, 2, 3, 4)),
    lambda image: image.resize((3, 3), interpolation=2),
    lambda image: image.resize((3, 3), 99),
    lambda image: image.reduce(),
    lambda image: image.transpose(1, 2),
    lambda image: image.transform(),
    lambda image: image.convert("junk"),
    lambda image: image.copy(1),
    lambda image: image.tobytes(nothing="raw"),
    lambda image: image.load(1),
    lambda image: image.load()(1),
    lambda image: iter(image.load()),
    lambda image: image.load().nothing,
    lambda image: pickle.dumps(image.load()),
    lambda image: pickle.dumps((image, lambda: 0)),
    lambda image: np.asarray(image, dtype="junk"),
    lambda image: ImageOps.equalize(image, 3, 3),
    lambda image: ImageOps.invert(image, 3),
    lambda image: ImageOps.autocontrast(image, nothing=3),
]
FACTS: list[Callable[[Any], Any]] = [
    lambda image: (type(image).__name__, type(image).__qualname__, type(image).__module__, type(image).__doc__, repr(type(image))),
    lambda image: (image.__class__, image.__module__, image.__doc__, repr(image).split(" at ")[0]),
    lambda image: (isinstance(image, Image.Image), isinstance(image, JpegImagePlugin.JpegImageFile), issubclass(type(image), Image.Image)),
    lambda image: pickle.loads(pickle.dumps(type(image))),
    lambda image: b"stokehold" in pickle.dumps([image, type(image)]),
    lambda image: [str(inspect.signature(getattr(image, name))) for name in ("copy", "crop", "resize", "reduce", "transpose", "transform", "convert", "tobytes", "load")],
    lambda image: (image.crop.__qualname__, image.resize.__doc__, image.load.__module__),
    lambda image: (type(image.load()).__name__, type(image.load()).__module__, repr(image.load()).split(" at ")[0]),
    lambda image: (copy.copy(image) == image, copy.deepcopy(image) == image, image == 1, image != np.zeros(3)),
]


@pytest.mark.parametrize("mode", ["opened", "RGB", "L"])
def test_names_and_messages_are_pillows(mode: str) -> None:
    def found(look: Callable[[Any], Any]) -> Any:
        try:
            return look(opened() if mode == "opened" else opened().convert(mode))
        except Exception as error:
            return type(error), str(error).partition(" at 0x")[0]

    for look in (*MISTAKES, *FACTS):
        ours.uninstall()
        expected = found(look)
        ours.install(0)
        assert found(look) == expected


# Raw modes.

#: The modes that Pillow packs, and one that does not exist.
RAW_MODES = (
    "1 1;I L L;I L;R L;16 L;16B LA LA;L P P;4 PA RGB RGB;L RGB;16B RGBX RGBX;L RGBA RGBA;L RGBa RGBaX BGR BGR;15 BGR;16 BGRX BGRA XRGB XBGR ARGB "
    "ABGR R G B A X CMYK CMYK;I CMYK;L C M Y K YCbCr YCbCrX Cb Cr LAB HSV H S V I I;16 I;16B F F;32F junk"
).split()
MADE: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda image: image,
    "RGB": lambda image: image.convert("RGB"),
    "L": lambda image: image.convert("L"),
    "L and back": lambda image: image.convert("L").convert("RGB"),
    "drafted": lambda image: (image.draft("L", (20, 20)), image)[1],
    "border": lambda image: image.crop((-3, -4, 60, 50)),
    "expand": lambda image: ImageOps.expand(image.convert("RGB"), 3, "red"),
    "expand by black": lambda image: ImageOps.expand(image.convert("RGB"), 3),
    "expand by nothing": lambda image: ImageOps.expand(image.convert("RGB"), 3, None),  # type: ignore[arg-type]
    "pad": lambda image: ImageOps.pad(image.convert("RGB"), (50, 50)),
    "pad with grey": lambda image: ImageOps.pad(image.convert("L"), (50, 50), color=3),
    "rotate": lambda image: image.convert("RGB").rotate(13),
    "rotate on black": lambda image: image.convert("RGB").rotate(13, fillcolor=(0, 0, 0)),
    "rotate on blue": lambda image: image.convert("RGB").rotate(13, 2, fillcolor=(1, 2, 253)),
    "equalize": lambda image: ImageOps.equalize(image.convert("RGB")),
    "brightness": lambda image: ImageEnhance.Brightness(image.convert("RGB")).enhance(0.5),
    "color": lambda image: ImageEnhance.Color(image.convert("RGB")).enhance(1.5),
    "sharpness": lambda image: ImageEnhance.Sharpness(image.convert("RGB")).enhance(0),
}


def same_as_pillow(function: Callable[[], Any], what: Any) -> None:
    found = []
    for install in (ours.uninstall, ours.install):
        install()
        try:
            found.append(function())
        except Exception as error:
            found.append((type(error), str(error)))
    assert found[0] == found[1], what


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_raw_modes_have_pillows_bytes(mode: str) -> None:
    data = photo(width=40, height=30, mode=mode)
    for name, make in MADE.items():
        for raw in RAW_MODES:
            same_as_pillow(lambda make=make, raw=raw: make(Image.open(io.BytesIO(data))).tobytes("raw", raw), (name, raw))
        for other in (("raw", ("RGBX",)), ("raw", "RGBX", 0, -1), ("raw", "L", 0, -1), ("zip", "RGBX"), ("junk",)):
            same_as_pillow(lambda make=make, other=other: make(Image.open(io.BytesIO(data))).tobytes(*other), (name, other))
        same_as_pillow(lambda make=make: make(Image.open(io.BytesIO(data))).getcolors(9999), name)
        same_as_pillow(lambda make=make: make(Image.open(io.BytesIO(data))).quantize(9).tobytes(), name)


# Tensors.


@needs_torch
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_tensors_of_a_pixel_have_torchvisions_strides(mode: str) -> None:
    from torchvision import transforms as T
    from torchvision.transforms import functional as F

    numbers = [0.5] * len(mode)
    for size in ((1, 1), (1, 2), (2, 1)):
        for convert in (F.to_tensor, F.pil_to_tensor, T.Compose([T.ToTensor(), T.Normalize(numbers, numbers)])):
            same_as_pillow(lambda size=size, convert=convert: (lambda made: (made.tolist(), made.shape, made.stride()))(convert(opened().convert(mode).resize(size))), size)


def test_a_function_that_was_imported_before_is_still_pickled() -> None:
    ours.uninstall()
    functions = [ImageOps.equalize, ImageOps.invert, ImageOps.autocontrast, ImageOps.posterize, ImageOps.pad]
    names = [(function.__module__, function.__qualname__) for function in functions]
    ours.install(0)
    pickled = pickle.dumps(functions)
    assert pickle.loads(pickled) == functions
    ours.uninstall()
    assert [(function.__module__, function.__qualname__) for function in functions] == names
    # Another process has Pillow's.
    assert pickle.loads(pickled) == functions
