"""stokehold.decoders against the installed libraries: pixels to the bit, behaviour, exceptions."""

from __future__ import annotations

import copy
import importlib
import inspect
import io
import os
import pickle
import random
import re
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_torch, photo, picture, write_png

PIL = pytest.importorskip("PIL", reason="Pillow is not installed in this environment")

from PIL import Image  # noqa: E402

import stokehold.decoders as ours  # noqa: E402


def library(name: str, package: str) -> Any:
    """A library, where it is installed."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError, OSError):
        pytest.skip(f"{package} is not installed in this environment")


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    ours.uninstall()
    ours._state.refused.clear()
    ours._state.has_differed = False


def segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def with_exif(data: bytes, *blocks: bytes) -> bytes:
    return data[:2] + b"".join(segment(0xE1, b"Exif\0\0" + block) for block in blocks) + data[2:]


def exif(orientation: int, order: str = "<", kind: int = 3, others: tuple[tuple[int, int, int, int], ...] = ()) -> bytes:
    entries = [struct.pack(f"{order}HHI", 0x112, kind, 1) + struct.pack(f"{order}HH", orientation, 0)]
    entries += [struct.pack(f"{order}HHII", *entry) for entry in others]
    head = b"II*\0" if order == "<" else b"MM\0*"
    return head + struct.pack(f"{order}IH", 8, len(entries)) + b"".join(entries) + bytes(20)


PHOTO = photo()
SERVED: dict[str, bytes] = {
    "plain": PHOTO,
    "one by one": photo(2, 1, 1),
    "odd": photo(3, 37, 53),
    "4:4:4": photo(4, subsampling=0),
    "4:2:2": photo(5, subsampling=1),
    "progressive": photo(6, progressive=True),
    "restarts": photo(7, restart_marker_blocks=4),
    "grey": photo(8, mode="L"),
    "grey, progressive": photo(9, mode="L", progressive=True),
    "kept RGB": photo(10, keep_rgb=True),
    "with bytes behind it": PHOTO + b"more",
    "with many bytes after it": PHOTO + bytes(5000),
    "comment": PHOTO[:2] + segment(0xFE, b"hello") + PHOTO[2:],
    "text of XMP": PHOTO[:2] + segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>") + PHOTO[2:],
    **{f"orientation {number}": with_exif(photo(20 + number, 61, 40), exif(number, "<>"[number % 2])) for number in range(1, 9)},
    "orientation 0": with_exif(photo(31, 61, 40), exif(0)),
    "the same orientation twice": with_exif(photo(32, 61, 40), exif(6, others=((0x112, 3, 1, 6),))),
    "grey, orientation 6": with_exif(photo(30, 61, 40, mode="L"), exif(6)),
}
#: What the libraries do themselves.
LEFT: dict[str, bytes] = {
    "nothing": b"",
    "two bytes": b"\xff\xd8",
    "text": b"no image at all",
    "four inks": photo(11, mode="CMYK"),
    "cut": PHOTO[: len(PHOTO) // 2],
    "cut in its header": PHOTO[:100],
    "without an end": PHOTO[:-2],
    "a comment after its scan": PHOTO[:-2] + segment(0xFE, b"abc") + PHOTO[-2:],
    "stray bytes before the end": PHOTO[:-2] + b"stray" + PHOTO[-2:],
    "stray bytes in its header": PHOTO[:2] + b"stray" + PHOTO[2:],
    "another JFIF": PHOTO.replace(b"JFIF\0\1", b"JFIF\0\3", 1),
    "a second start before the end": PHOTO[:-2] + b"\xff\xd8" + PHOTO[-2:],
    "tables after the last scan": PHOTO[:-2] + segment(0xDB, b"\5" + bytes(64)) + PHOTO[-2:],
    "an unknown segment after the last scan": PHOTO[:-2] + segment(0x02, b"") + PHOTO[-2:],
    "damaged": PHOTO[:-400] + b"\xff\xd3" + PHOTO[-400:],
    "not zero for a mark": PHOTO[:-300] + b"\xff" + PHOTO[-300:],
}
#: EXIF on which readers differ, or might.
STRANGE_EXIF: dict[str, bytes] = {
    "two blocks": with_exif(PHOTO, exif(6), exif(3)),
    "text of XMP first": PHOTO[:2] + segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>") + with_exif(PHOTO, exif(6))[2:],
    "of another name": PHOTO[:2] + segment(0xE1, b"exif\0\0" + exif(6)) + PHOTO[2:],
    "a long number": with_exif(PHOTO, exif(6, kind=4)),
    "orientation 9": with_exif(PHOTO, exif(9)),
    "two orientations": with_exif(PHOTO, exif(6, others=((0x112, 3, 1, 3),))),
    "a resolution of another kind": with_exif(PHOTO, exif(6, others=((0x11A, 3, 1, 72),))),
    "a value beyond it": with_exif(PHOTO, exif(6, others=((0x10F, 2, 50, 900),))),
    "cut": with_exif(PHOTO, exif(6)[:12]),
    "no TIFF": with_exif(PHOTO, b"XX" + exif(6)[2:]),
}


def plainly(value: Any) -> Any:
    """A result in a form that can be compared."""
    if isinstance(value, np.ndarray):
        return "array", value.shape, value.strides, str(value.dtype), value.flags.writeable, value.flags.owndata, value.tobytes()
    if type(value).__name__ == "Tensor":
        return "tensor", tuple(value.shape), value.stride(), str(value.dtype), value.numpy().tobytes()
    return value


def outcome(function: Callable[[], Any]) -> Any:
    """A result, or the exception, and the warnings."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = plainly(function())
        except Exception as error:
            # Some messages have addresses of objects, and Python names a function that was replaced as pickle does.
            result = type(error), re.sub("0x[0-9a-f]+|torchvision/io/image:", "", str(error))
    return result, [(one.category, str(one.message)) for one in warned]


def both(function: Callable[[], Any]) -> tuple[Any, Any, dict[str, Any]]:
    """What the library does, what is seen with this module, and the counts of the latter."""
    ours.uninstall()
    expected = outcome(function)
    assert ours.install(0), ours._state.refused
    ours._state.clear()
    seen = outcome(function)
    return expected, seen, ours.counts()


def check(function: Callable[[], Any], made: int, what: Any = "") -> None:
    expected, seen, counts = both(function)
    assert seen == expected, (what, seen[1], expected[1])
    assert (counts["made"], counts["left"]) == (made, 1 - made), (what, counts)
    assert len(counts["reasons"]) == 1 - made


def array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


# cv2.


def flags_of(cv2: Any) -> dict[str, int]:
    return {name: getattr(cv2, name) for name in dir(cv2) if name.startswith("IMREAD_")}


def test_cv2_has_its_pixels(tmp_path: Path) -> None:
    cv2 = library("cv2", "cv2")
    known = set(ours._cv2_forms())
    if not hasattr(cv2, "IMREAD_COLOR_RGB"):
        known -= {flags for flags in known if flags > 0 and flags & 256}
    path = tmp_path / "photo.jpg"
    for name, data in SERVED.items():
        path.write_bytes(data)
        for flags in [*flags_of(cv2).values(), 128, 129, 145, 3, 6, 384]:
            made = int(flags in known)
            if "kept RGB" in name and ours._cv2_forms().get(flags, ("",))[0] == "grey":
                made = 0
            check(lambda: cv2.imdecode(array(data), flags), made, (name, flags))  # noqa: B023
            check(lambda: cv2.imread(str(path), flags), made, (name, flags))  # noqa: B023


def test_cv2_does_the_rest_itself(tmp_path: Path) -> None:
    cv2 = library("cv2", "cv2")
    path = tmp_path / "photo.jpg"
    for name, data in LEFT.items():
        path.write_bytes(data)
        twice = [outcome(lambda: cv2.imdecode(array(data), 1)) for _ in range(2)]  # noqa: B023
        if twice[0] == twice[1]:
            # Some versions fill what is missing with what happens to be in their memory.
            check(lambda: cv2.imdecode(array(data), 1), 0, name)  # noqa: B023
            check(lambda: cv2.imread(str(path)), 0, name)  # noqa: B023
    for name, data in STRANGE_EXIF.items():
        check(lambda: cv2.imdecode(array(data), cv2.IMREAD_COLOR), 0, name)  # noqa: B023
        check(lambda: cv2.imdecode(array(data), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION), 1, name)  # noqa: B023


def test_cv2_takes_names_and_bytes_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cv2 = library("cv2", "cv2")
    path = tmp_path / "phöto.jpg"
    path.write_bytes(PHOTO)
    monkeypatch.chdir(tmp_path)
    check(lambda: cv2.imread("phöto.jpg"), 1)
    check(lambda: cv2.imread(filename=str(path)), 0)
    check(lambda: cv2.imread(str(path), flags=0), 1)
    check(lambda: cv2.imread(str(tmp_path / "none.jpg")), 0)
    check(lambda: cv2.imread(str(tmp_path)), 0)
    check(lambda: cv2.imread(""), 0)
    check(lambda: cv2.imread("a\0b"), 0)
    check(lambda: cv2.imread(None), 0)
    check(lambda: cv2.imread(), 0)
    check(lambda: cv2.imread(str(path), 1, 2, 3), 0)
    check(lambda: cv2.imread(str(path), "1"), 0)
    check(lambda: cv2.imread(str(path), np.int64(1)), 0)
    check(lambda: cv2.imread(bytes(path)), 0)
    if outcome(lambda: cv2.imread(path))[0][0] == "array":
        check(lambda: cv2.imread(path), 1)
    png = tmp_path / "picture.png"
    write_png(png, picture(1))
    check(lambda: cv2.imread(str(png)), 0)
    deep = tmp_path / "deep.png"
    assert cv2.imwrite(str(deep), np.arange(600, dtype=np.uint16).reshape(20, 30) * 100)
    check(lambda: cv2.imread(str(deep), cv2.IMREAD_UNCHANGED), 0)
    for data, made in (
        (array(PHOTO).copy(), 1),
        (array(PHOTO).reshape(1, -1), 1),
        (array(PHOTO).reshape(-1, 1), 1),
        (array(PHOTO).view(np.int8), 0),
        (np.repeat(array(PHOTO), 2)[::2], 0),
        (array(PHOTO).astype(np.float32), 0),
        (np.zeros(0, np.uint8), 0),
        (PHOTO, 0),
        (bytearray(PHOTO), 0),
        (list(PHOTO), 0),
        (None, 0),
    ):
        check(lambda: cv2.imdecode(data, 1), made, type(data))  # noqa: B023
    check(lambda: cv2.imdecode(array(PHOTO), flags=1), 1)
    check(lambda: cv2.imdecode(buf=array(PHOTO), flags=1), 0)
    check(lambda: cv2.imdecode(array(PHOTO)), 0)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    cv2 = library("cv2", "cv2")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert ours.install(0)
    read, write = os.pipe()
    os.close(read)
    # No one writes: what opened it would wait.
    with pytest.raises(ours._Left, match="no regular file"):
        ours._file(str(pipe))
    os.close(write)
    assert cv2.imread is not None


def test_cv2_leaves_images_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    library("cv2", "cv2")
    monkeypatch.setenv("OPENCV_IO_MAX_IMAGE_PIXELS", "100")
    with pytest.warns(RuntimeWarning, match="OPENCV_IO_MAX_IMAGE_PIXELS is set"):
        ours.install(0)
    assert "cv2" not in ours._state.served


def test_a_cv2_of_other_pixels_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cv2 = library("cv2", "cv2")
    imdecode = cv2.imdecode

    def other(data: Any, flags: int) -> Any:
        pixels = imdecode(data, flags)
        pixels[3, 4] ^= 1
        return pixels

    monkeypatch.setattr(cv2, "imdecode", other)
    with pytest.warns(RuntimeWarning, match="leaves cv2 .* alone: it decodes other pixels"):
        ours.install(0)
    assert cv2.imdecode is other and "cv2" not in ours._state.served
    assert "cv2: it decodes other pixels" in ours.counts()["reasons"]


def test_one_flag_of_other_pixels_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cv2 = library("cv2", "cv2")
    imdecode = cv2.imdecode
    monkeypatch.setattr(cv2, "imdecode", lambda data, flags: imdecode(data, flags) // (2 if flags == 0 else 1))
    assert ours.install(0)
    ours._state.clear()
    assert cv2.imdecode(array(PHOTO), 0).max() < 128
    assert cv2.imdecode(array(PHOTO), 1).max() > 128
    assert (ours.counts()["made"], ours.counts()["left"]) == (1, 1)
    ours.uninstall()


# torchvision.


def tensor(data: bytes) -> Any:
    import torch

    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)


@needs_torch
def test_torchvision_has_its_pixels(tmp_path: Path) -> None:
    tvio = library("torchvision.io", "torchvision")
    modes = tvio.ImageReadMode
    path = tmp_path / "photo.jpg"
    for name, data in SERVED.items():
        path.write_bytes(data)
        for mode in (modes.UNCHANGED, modes.RGB, modes.GRAY, modes.GRAY_ALPHA, modes.RGB_ALPHA):
            made = int(mode in (modes.UNCHANGED, modes.RGB, modes.GRAY) and (name, mode) != ("kept RGB", modes.GRAY))
            check(lambda: tvio.decode_jpeg(tensor(data), mode), made, (name, mode))  # noqa: B023
            check(lambda: tvio.decode_image(tensor(data), mode=mode), made, (name, mode))  # noqa: B023
            check(lambda: tvio.read_image(str(path), mode), made, (name, mode))  # noqa: B023
        check(lambda: tvio.decode_jpeg(tensor(data)), 1, name)  # noqa: B023
        check(lambda: tvio.decode_jpeg(tensor(data), modes.RGB, "cpu", True), 1, name)  # noqa: B023
        check(lambda: tvio.read_image(str(path), apply_exif_orientation=True), 1, name)  # noqa: B023


@needs_torch
def test_torchvision_does_the_rest_itself(tmp_path: Path) -> None:
    import torch

    tvio = library("torchvision.io", "torchvision")
    modes = tvio.ImageReadMode
    path = tmp_path / "photo.jpg"
    for name, data in LEFT.items():
        path.write_bytes(data)
        check(lambda: tvio.decode_jpeg(tensor(data), modes.RGB), 0, name)  # noqa: B023
        check(lambda: tvio.decode_image(tensor(data), modes.RGB), 0, name)  # noqa: B023
        if data:
            check(lambda: tvio.read_image(str(path)), 0, name)  # noqa: B023
    for name, data in STRANGE_EXIF.items():
        check(lambda: tvio.decode_jpeg(tensor(data), apply_exif_orientation=True), 0, name)  # noqa: B023
        check(lambda: tvio.decode_jpeg(tensor(data)), 1, name)  # noqa: B023
    path.write_bytes(PHOTO)
    whole = tensor(PHOTO)
    check(lambda: tvio.decode_image(path), 1)
    check(lambda: tvio.decode_image(str(path)), 1)
    check(lambda: tvio.decode_image(str(tmp_path / "none.jpg")), 0)
    check(lambda: tvio.read_image(path), int(outcome(lambda: tvio.read_image(path))[0][0] == "tensor"))
    check(lambda: tvio.read_image(path=str(path)), 1)
    check(lambda: tvio.read_image(str(tmp_path / "none.jpg")), 0)
    check(lambda: tvio.read_image(whole), 0)
    check(lambda: tvio.decode_jpeg(whole, "rgb"), 1)
    check(lambda: tvio.decode_jpeg(whole, "nothing"), 0)
    check(lambda: tvio.decode_jpeg(whole, device=torch.device("cpu")), 1)
    check(lambda: tvio.decode_jpeg(whole, device="nowhere"), 0)
    check(lambda: tvio.decode_jpeg(input=whole), 1)
    check(lambda: tvio.decode_jpeg(whole, modes.RGB, "cpu", 1), 0)
    check(lambda: tvio.decode_jpeg(whole, what=1), 0)
    check(lambda: tvio.decode_jpeg(), 0)
    check(lambda: tvio.decode_jpeg(whole[::1].repeat_interleave(2)[::2]), 0)
    check(lambda: tvio.decode_jpeg(whole[None]), 0)
    check(lambda: tvio.decode_jpeg(whole.to(torch.int32)), 0)
    check(lambda: tvio.decode_jpeg(PHOTO), 0)
    check(lambda: tvio.decode_jpeg(array(PHOTO)), 0)
    expected, seen, counts = both(lambda: [plainly(one) for one in tvio.decode_jpeg([whole, whole])])
    assert expected == seen and counts["left"] == 1
    png = tmp_path / "picture.png"
    write_png(png, picture(1))
    check(lambda: tvio.read_image(str(png)), 0)
    with torch.device("meta"):
        check(lambda: tvio.decode_jpeg(whole), 1)
    expected, seen, counts = both(lambda: tvio.decode_image(tensor(PHOTO)).permute(1, 2, 0).is_contiguous())
    assert expected == seen == (True, expected[1]) and counts["made"] == 1


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_torchscript_compiles_torchvisions_own() -> None:
    import torch

    tvio = library("torchvision.io", "torchvision")
    import torchvision

    class Decode(torch.nn.Module):
        def forward(self, data: torch.Tensor) -> torch.Tensor:
            return torchvision.io.decode_image(data)

    expected = tvio.decode_jpeg(tensor(PHOTO))
    assert ours.install(0)
    assert torch.equal(torch.jit.script(Decode())(tensor(PHOTO)), expected)
    assert torch.equal(torch.jit.script(tvio.decode_image)(tensor(PHOTO)), expected)


# simplejpeg and PyTurboJPEG.


def test_simplejpeg_has_its_pixels() -> None:
    simplejpeg = library("simplejpeg", "simplejpeg")
    for name, data in SERVED.items():
        for color in ("RGB", "BGR", "GRAY", "rgb", "gray", "RGBA", "XBGR", "CMYK", "none"):
            made = int(color.upper() in ("RGB", "BGR", "GRAY") and (name, color.upper()) != ("kept RGB", "GRAY"))
            check(lambda: simplejpeg.decode_jpeg(data, color), made, (name, color))  # noqa: B023
        check(lambda: simplejpeg.decode_jpeg(data, colorspace="BGR", strict=False), 1, name)  # noqa: B023


def test_simplejpeg_does_the_rest_itself() -> None:
    simplejpeg = library("simplejpeg", "simplejpeg")
    for name, data in LEFT.items():
        check(lambda: simplejpeg.decode_jpeg(data), 0, name)  # noqa: B023
        # What a library makes of damage is its own, and may be rubbish of its memory.
        if "cut" not in name:
            check(lambda: simplejpeg.decode_jpeg(data, strict=False), 0, name)  # noqa: B023
    check(lambda: simplejpeg.decode_jpeg(PHOTO, fastdct=True), 0)
    check(lambda: simplejpeg.decode_jpeg(PHOTO, fastupsample=True), 0)
    check(lambda: simplejpeg.decode_jpeg(PHOTO, min_height=10, min_width=10), 0)
    check(lambda: simplejpeg.decode_jpeg(PHOTO, min_factor=2), 1)
    check(lambda: simplejpeg.decode_jpeg(PHOTO, buffer=bytearray(150 * 110 * 3)), 0)
    check(lambda: simplejpeg.decode_jpeg(PHOTO, what=1), 0)
    check(lambda: simplejpeg.decode_jpeg(), 0)
    check(lambda: simplejpeg.decode_jpeg(None), 0)
    check(lambda: simplejpeg.decode_jpeg("text"), 0)
    check(lambda: simplejpeg.decode_jpeg(bytearray(PHOTO)), 1)
    check(lambda: simplejpeg.decode_jpeg(memoryview(PHOTO)), 1)
    check(lambda: simplejpeg.decode_jpeg(array(PHOTO)), 1)
    check(lambda: simplejpeg.decode_jpeg(np.repeat(array(PHOTO), 2)[::2]), 0)


def test_simplejpeg_says_what_it_says_of_unusual_sampling() -> None:
    simplejpeg = library("simplejpeg", "simplejpeg")
    data = bytearray(photo(3, 64, 64, subsampling=0))
    # All components sampled twice across and down: one MCU in four holds as much.
    at = data.index(b"\xff\xc0") + 11
    data[at : at + 7 : 3] = b"\x22\x22\x22"
    check(lambda: simplejpeg.decode_jpeg(bytes(data)), 0)


def turbo() -> Any:
    turbojpeg = library("turbojpeg", "PyTurboJPEG")
    try:
        return turbojpeg, turbojpeg.TurboJPEG()
    except (RuntimeError, OSError):
        pytest.skip("PyTurboJPEG has no native library in this environment")


def test_turbojpeg_has_its_pixels() -> None:
    turbojpeg, decoder = turbo()
    formats = [turbojpeg.TJPF_RGB, turbojpeg.TJPF_BGR, turbojpeg.TJPF_GRAY, turbojpeg.TJPF_RGBX]
    for name, data in SERVED.items():
        for form in formats:
            made = int(form != turbojpeg.TJPF_RGBX and (name, form) != ("kept RGB", turbojpeg.TJPF_GRAY))
            check(lambda: decoder.decode(data, form), made, (name, form))  # noqa: B023
        check(lambda: decoder.decode(data, pixel_format=turbojpeg.TJPF_RGB), 1, name)  # noqa: B023
        check(lambda: decoder.decode(data), 1, name)  # noqa: B023


def test_turbojpeg_does_the_rest_itself() -> None:
    turbojpeg, decoder = turbo()
    for name, data in LEFT.items():
        if "cut" not in name and name != "without an end":
            check(lambda: decoder.decode(data), 0, name)  # noqa: B023
    check(lambda: decoder.decode(PHOTO, scaling_factor=(1, 2)), 0)
    check(lambda: decoder.decode(PHOTO, flags=turbojpeg.TJFLAG_FASTDCT), 0)
    check(lambda: decoder.decode(PHOTO, dst=np.empty((110, 150, 3), np.uint8)), 0)
    check(lambda: decoder.decode(PHOTO, what=1), 0)
    check(lambda: decoder.decode(array(PHOTO)), 1)
    check(lambda: decoder.decode(bytearray(PHOTO)), 1)

    class Own(turbojpeg.TurboJPEG):  # type: ignore[misc]
        pass

    own = Own()
    check(lambda: own.decode(PHOTO), 0)
    if "max_pixels" in inspect.signature(turbojpeg.TurboJPEG).parameters:
        limited = turbojpeg.TurboJPEG(max_pixels=100)
        check(lambda: limited.decode(PHOTO), 0)


def test_each_turbojpeg_is_compared_first(monkeypatch: pytest.MonkeyPatch) -> None:
    turbojpeg, decoder = turbo()
    decode = turbojpeg.TurboJPEG.decode

    def other(self: Any, jpeg_buf: Any, pixel_format: int = 1, scaling_factor: Any = None, flags: int = 0, dst: Any = None) -> Any:
        return decode(self, jpeg_buf, pixel_format, scaling_factor, flags, dst) ^ (self is decoder)

    monkeypatch.setattr(turbojpeg.TurboJPEG, "decode", other)
    assert ours.install(0)
    ours._state.clear()
    turbojpeg.TurboJPEG().decode(PHOTO)
    decoder.decode(PHOTO)
    assert (ours.counts()["made"], ours.counts()["left"]) == (1, 1)
    ours.uninstall()


# All of them.


def decoders() -> dict[str, Callable[[bytes], Any]]:
    """One call for each library that is here."""
    found: dict[str, Callable[[bytes], Any]] = {}
    for name in ("cv2", "simplejpeg", "torchvision.io"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        module = sys.modules[name]
        found[name] = {
            "cv2": lambda data, module=module: module.imdecode(array(data), 1),
            "simplejpeg": lambda data, module=module: module.decode_jpeg(data, "BGR"),
            "torchvision.io": lambda data, module=module: module.decode_jpeg(tensor(data), module.ImageReadMode.RGB),
        }[name]
    if not found:
        pytest.skip("no library that is served is installed in this environment")
    return found


@pytest.mark.filterwarnings("ignore")
def test_damage_makes_no_difference() -> None:
    """Bytes changed, cut out and put in. A library's warnings are its exceptions with simplejpeg's `strict`."""
    draws = random.Random(5)
    sources = [photo(1, 60, 44), photo(2, 60, 44, progressive=True), photo(3, 60, 44, restart_marker_blocks=2), photo(4, 40, 44, mode="L")]
    for name, decode in decoders().items():
        for number in range(300):
            data = bytearray(draws.choice(sources))
            scan = data.index(b"\xff\xda")
            at = draws.randrange(scan, len(data))
            kind = number % 4
            if kind == 0:
                data[at] ^= 1 << draws.randrange(8)
            elif kind == 1:
                del data[at : at + draws.randrange(1, 9)]
            elif kind == 2:
                data[at:at] = draws.randbytes(draws.randrange(1, 6))
            else:
                data[draws.randrange(scan)] = draws.randrange(256)
            expected, seen, counts = both(lambda: decode(bytes(data)))  # noqa: B023
            if counts["made"]:
                assert expected == seen, (name, number)


@pytest.mark.filterwarnings("ignore")
def test_functions_can_be_pickled_and_are_given_back() -> None:
    found = decoders()
    places = {"cv2": ["imread", "imdecode"], "simplejpeg": ["decode_jpeg"], "torchvision.io": ["decode_jpeg", "decode_image", "read_image"]}
    for name in found:
        module = sys.modules[name]
        for attribute in places[name]:
            before = getattr(module, attribute)
            about = before.__module__, before.__name__
            assert ours.install(0)
            after = getattr(module, attribute)
            for function in (before, after):
                assert pickle.loads(pickle.dumps(function)) is function, (name, attribute)
                assert copy.deepcopy(function) is function
            assert after.__name__ == attribute and after.__doc__ == before.__doc__
            # Who reads it without this module has the library's.
            written = pickle.dumps([before, after])
            ours.uninstall()
            assert getattr(module, attribute) is before and (before.__module__, before.__name__) == about
            assert pickle.loads(written) == [before, before]


@pytest.mark.filterwarnings("ignore")
def test_what_a_script_puts_in_their_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    cv2 = library("cv2", "cv2")
    imread = cv2.imread
    assert ours.install(0)

    def own(path: str) -> None:
        pass

    cv2.imread = own
    ours.uninstall()
    kept, cv2.imread = cv2.imread, imread
    assert kept is own


@pytest.mark.filterwarnings("ignore")
def test_threads_decode_side_by_side() -> None:
    for name, decode in decoders().items():
        ours.uninstall()
        sources = [photo(seed, 90 + seed, 70) for seed in range(6)]
        expected = [plainly(decode(data)) for data in sources]
        assert ours.install(0)
        ours._state.clear()
        wrong: list[int] = []

        def work(
            sources: list[bytes] = sources, expected: list[Any] = expected, decode: Callable[[bytes], Any] = decode, wrong: list[int] = wrong
        ) -> None:
            for _ in range(20):
                wrong.extend(at for at, data in enumerate(sources) if plainly(decode(data)) != expected[at])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, name
        assert ours.counts()["left"] == 0


@pytest.mark.filterwarnings("ignore")
def test_a_forked_process_has_counts_of_its_own() -> None:
    name, decode = next(iter(decoders().items()))
    assert ours.install(0)
    decode(PHOTO)
    expected = plainly(decode(PHOTO))
    child = os.fork()
    if child == 0:
        fine = ours.counts()["made"] == 0 and plainly(decode(PHOTO)) == expected and ours.counts()["made"] == 1
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0, name


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_difference_gives_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    name, decode = next(iter(decoders().items()))
    expected = plainly(decode(PHOTO))
    assert ours.install(1)
    ours._state.clear()
    assert plainly(decode(PHOTO)) == expected
    assert (ours.counts()["compared"], ours.counts()["different"]) == (1, 0)
    write = ours._Image.write

    def wrong(self: Any, address: int, count: int) -> None:
        write(self, address, count - 1 if count == 0 else count)
        import ctypes

        ctypes.c_ubyte.from_address(address).value ^= 1

    monkeypatch.setattr(ours._Image, "write", wrong)
    with pytest.warns(RuntimeWarning, match="an image differs from"):
        assert plainly(decode(PHOTO)) == expected, name
    assert ours.counts()["different"] == 1 and not ours._state.served
    assert plainly(decode(PHOTO)) == expected
    # As the next import of a library asks for it.
    assert not ours.install(1) and ours.counts()["different"] == 1
    assert plainly(decode(PHOTO)) == expected


@pytest.mark.filterwarnings("ignore")
def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    decoders()
    monkeypatch.setenv("STOKEHOLD_DECODERS", "off")
    assert not ours.install()
    for setting, every in (("check", 100), ("check:7", 7), ("on", 0), ("", 0)):
        monkeypatch.setenv("STOKEHOLD_DECODERS", setting)
        assert ours.install()
        assert ours._state.every == every
    for wrong in ("perhaps", "check:x", "check:0", "check:"):
        monkeypatch.setenv("STOKEHOLD_DECODERS", wrong)
        with pytest.warns(RuntimeWarning, match="there are off, on, check"):
            ours.install()


def test_all_photos_are_the_same() -> None:
    """Those of the shared data, and files of unusual kinds."""
    folder = Path(os.environ.get("STOKEHOLD_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    paths = sorted(folder.glob("photos/*"))[::20] + sorted(folder.glob("jpeg-corpus/valid/*")) + sorted(folder.glob("jpeg-corpus/hostile/*"))[::10]
    if not paths:
        pytest.skip("there is no shared data in this environment")
    for name, decode in decoders().items():
        for path in paths:
            data = path.read_bytes()
            expected, seen, counts = both(lambda: decode(data))  # noqa: B023
            if counts["made"]:
                assert expected == seen, (name, path)


# stokehold run --fast-images.

SCRIPT = """
import hashlib, sys
import {module}
{more}
digest = hashlib.sha256()
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    digest.update({call}.tobytes())
print(digest.hexdigest())
"""
CALLS = {
    "cv2": ("import numpy", "cv2.imdecode(numpy.frombuffer(data, numpy.uint8), 1)"),
    "simplejpeg": ("", "simplejpeg.decode_jpeg(data)"),
    "turbojpeg": ("decoder = turbojpeg.TurboJPEG()", "decoder.decode(data)"),
    "torchvision": ("from torchvision.io import read_image", "read_image(path).numpy()"),
}


@pytest.mark.parametrize("module", list(CALLS))
def test_an_unchanged_script_computes_the_same(module: str, tmp_path: Path) -> None:
    library(module, module)
    if module == "turbojpeg":
        turbo()
    more, call = CALLS[module]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(module=module, more=more, call=call))
    photos = [tmp_path / f"{number}.jpg" for number in range(30)]
    for number, path in enumerate(photos):
        path.write_bytes(photo(number, 90, 80))
    photos[3].write_bytes(photo(3, 90, 80)[:-2] + segment(0xFE, b"abc") + b"\xff\xd9")
    command = [sys.executable, str(script), *map(str, photos)]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    run = [sys.executable, "-m", "stokehold", "run", "--fast-images", "--"]
    environment = {**os.environ, "STOKEHOLD_DECODERS": "check:1"}
    fast = subprocess.run([*run, *command], capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert plain.returncode == fast.returncode == 0, (plain.stderr, fast.stderr)
    assert plain.stdout == fast.stdout
    assert re.search(r"30 images were asked of cv2, .*, and stokehold.decoders made 29 images of them; 29 were made by the library, too: 29 were equal", fast.stderr), fast.stderr
    assert re.search(r"the library made 1: 1 because: \w+: .*segments that libjpeg may refuse \(at .*script.py:\d+\)", fast.stderr), fast.stderr


@pytest.mark.filterwarnings("ignore")
def test_counts_of_workers_that_are_ended_are_kept(tmp_path: Path) -> None:
    if "simplejpeg" not in decoders():
        pytest.skip("simplejpeg is not installed in this environment")
    (tmp_path / "photo.jpg").write_bytes(PHOTO)
    code = (
        "import os, sys, time, simplejpeg\nimport stokehold.decoders as d\nd.install(0, sys.argv[1])\n"
        "b = open(sys.argv[1] + '/photo.jpg', 'rb').read()\nend = time.monotonic() + 1.2\n"
        "while time.monotonic() < end: simplejpeg.decode_jpeg(b); time.sleep(0.01)\nos._exit(3)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, check=False)
    (written,) = tmp_path.glob("decoders-*.json")
    assert '"made": 0' not in written.read_text()


def test_a_built_in_function_is_no_method() -> None:
    cv2 = library("cv2", "opencv-python-headless")
    data = np.frombuffer(PHOTO, np.uint8)

    class Photos:
        decode = cv2.imdecode

    expected = Photos().decode(data, 1)
    assert ours.install(0)

    class Served:
        decode = cv2.imdecode

    made = ours.counts()["made"]
    assert np.array_equal(Served().decode(data, 1), expected)
    assert ours.counts()["made"] == made + 1
    assert pickle.loads(pickle.dumps(cv2.imdecode)) is cv2.imdecode and copy.deepcopy(cv2.imdecode) is cv2.imdecode


@pytest.mark.parametrize("arguments", [{"strict": np.array([1, 2])}, {"min_factor": "a"}])
def test_arguments_that_simplejpeg_refuses_are_its_own(arguments: dict[str, Any]) -> None:
    simplejpeg = library("simplejpeg", "simplejpeg")

    def said(data: Any, **more: Any) -> str:
        try:
            simplejpeg.decode_jpeg(data, **more)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "fine"

    cases: list[tuple[Any, dict[str, Any]]] = [(PHOTO, arguments), (np.frombuffer(PHOTO, np.int8), {}), (np.frombuffer(PHOTO, np.uint8)[None], {})]
    expected = [said(data, **more) for data, more in cases]
    assert ours.install(0)
    assert [said(data, **more) for data, more in cases] == expected
