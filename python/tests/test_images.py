"""decode, decode_batch and info against Pillow."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_torch, picture, write_png

from stokehold import DataError, OptionError
from stokehold.images import ImageInfo, decode, decode_batch, info

PIL = pytest.importorskip("PIL", reason="Pillow is not installed in this environment")
from PIL import Image, ImageOps  # noqa: E402

FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


def jpeg(mode: str = "RGB", orientation: int = 1, **options: Any) -> bytes:
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(picture(3, 9, 13)).resize((130, 90), 3).convert(mode)
    image.save(file, "JPEG", exif=exif.tobytes(), **options)
    return file.getvalue()


def by_pillow(data: bytes, region: Any = None, size: Any = None, resample: str = "bilinear", channels: str = "RGB", exif: bool = False) -> np.ndarray:
    image = Image.open(io.BytesIO(data))
    if exif:
        image = ImageOps.exif_transpose(image)
    if channels != "unchanged":
        image = image.convert(channels)
    if region is not None:
        image = image.crop(region)
    if size is not None:
        image = image.resize(size, FILTERS.index(resample))
    return np.array(image)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("channels", ["RGB", "L", "unchanged"])
def test_pixels_are_pillows(mode: str, channels: str) -> None:
    for orientation in (1, 3, 6):
        data = jpeg(mode, orientation)
        for exif in (False, True):
            for region in (None, (3, 5, 80, 60)):
                for size, resample in ((None, "bilinear"), *(((40, 33), name) for name in FILTERS)):
                    asked: dict[str, Any] = {"region": region, "size": size, "resample": resample, "channels": channels, "exif": exif}
                    made = decode(data, **asked)
                    expected = by_pillow(data, **asked)
                    assert made.dtype == np.uint8 and made.shape == expected.shape, asked
                    assert np.array_equal(made, expected), asked


def test_layouts_and_types() -> None:
    data = jpeg()
    pixels = by_pillow(data, size=(20, 30))
    for layout, expected in (("HWC", pixels), ("CHW", pixels.transpose(2, 0, 1))):
        assert np.array_equal(decode(data, size=(20, 30), layout=layout), expected)
        floats = decode(data, size=(20, 30), layout=layout, dtype="float32")
        assert floats.dtype == np.float32 and np.array_equal(floats, expected.astype(np.float32) / np.float32(255))
    assert decode(data, channels="L").shape == (90, 130)
    assert decode(data, channels="L", layout="CHW").shape == (1, 90, 130)


def test_where_images_come_from(tmp_path: Path) -> None:
    data = jpeg()
    path = tmp_path / "photo.jpg"
    path.write_bytes(data)
    expected = by_pillow(data)
    with path.open("rb") as file:
        for source in (data, bytearray(data), memoryview(data), str(path), path, io.BytesIO(data), file, np.frombuffer(data, np.uint8)):
            assert np.array_equal(decode(source), expected), type(source)
    with path.open() as text, pytest.raises(OptionError, match="mode 'rb'"):
        decode(text)


def test_out_is_filled() -> None:
    data = jpeg()
    out = np.zeros((90, 130, 3), np.uint8)
    assert decode(data, out=out) is out
    assert np.array_equal(out, by_pillow(data))
    with pytest.raises(OptionError, match=r"out is uint8 \(90, 130, 3\), and the image float32 \(3, 90, 130\)"):
        decode(data, layout="CHW", dtype="float32", out=out)


@needs_torch
def test_tensors() -> None:
    import torch
    from torchvision.transforms.functional import to_tensor

    data = jpeg()
    out = torch.zeros(3, 90, 130)
    assert decode(data, layout="CHW", dtype="float32", out=out) is out
    assert torch.equal(out, to_tensor(Image.open(io.BytesIO(data))))


@needs_torch
def test_a_tensor_of_bytes_is_a_file(tmp_path: Path) -> None:
    import torch
    from torchvision.io import read_file

    data = jpeg()
    (tmp_path / "photo.jpg").write_bytes(data)
    read = read_file(str(tmp_path / "photo.jpg"))
    spread = torch.zeros(len(data), 2, dtype=torch.uint8)
    spread[:, 1] = read
    for source in (read, spread[:, 1]):
        assert np.array_equal(decode(source), by_pillow(data))
        assert info(source).width == 130
    assert decode_batch([read, data], size=(9, 9)).shape == (2, 9, 9, 3)
    with pytest.raises(OptionError, match="Tensor is one image"):
        decode_batch(read)
    for wrong, reason in (
        (read.float(), r"a tensor of float32 and shape \(\d+,\) is no file: give a 1-D tensor of uint8"),
        (torch.from_numpy(decode(data)), r"of uint8 and shape \(90, 130, 3\) is no file"),
        (torch.empty(9, dtype=torch.uint8, device="meta"), r"on meta is no file: give its bytes on the CPU"),
    ):
        with pytest.raises(TypeError, match=reason):
            decode(wrong)


@needs_torch
def test_torch_is_not_imported_for_images() -> None:
    code = f"import sys, stokehold\nassert stokehold.decode({jpeg()!r}).shape == (90, 130, 3)\nassert stokehold.decode_batch([]) == []\nprint('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "False"), ran.stderr


def test_other_formats_are_pillows(tmp_path: Path) -> None:
    write_png(tmp_path / "picture.png", picture(1))
    assert np.array_equal(decode(tmp_path / "picture.png"), picture(1))
    assert np.array_equal(decode(tmp_path / "picture.png", region=(2, 3, 10, 12), size=(5, 6)), by_pillow((tmp_path / "picture.png").read_bytes(), (2, 3, 10, 12), (5, 6)))
    assert info(tmp_path / "picture.png") == ImageInfo("PNG", 24, 20, 3, 1)
    file = io.BytesIO()
    Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30)).save(file, "PNG")
    assert decode(file.getvalue(), channels="unchanged").max() == 599


def exif_of(byte_order: str, *entries: bytes) -> bytes:
    """A segment of EXIF whose first directory has these entries."""
    big = byte_order == "MM"
    head = b"MM\0*\0\0\0\x08" if big else b"II*\0\x08\0\0\0"
    tiff = head + len(entries).to_bytes(2, "big" if big else "little") + b"".join(entries) + bytes(4)
    return b"\xff\xe1" + (8 + len(tiff)).to_bytes(2, "big") + b"Exif\0\0" + tiff


def test_unusual_orientations_are_pillows() -> None:
    plain = jpeg()
    short = b"\x01\x12\0\x03\0\0\0\x01\0%c\0\0"
    packet = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/>'
    segments = {
        "big-endian": exif_of("MM", short % 6),
        "a long number": exif_of("MM", b"\x01\x12\0\x04\0\0\0\x01\0\0\0\x06"),
        "two blocks": exif_of("MM", short % 6) + exif_of("MM", short % 3),
        "two entries": exif_of("MM", short % 6, short % 8),
        "XMP alone": b"\xff\xe1" + (2 + len(packet)).to_bytes(2, "big") + packet,
        "out of range": exif_of("MM", short % 9),
    }
    for name, segment in segments.items():
        data = plain[:2] + segment + plain[2:]
        assert np.array_equal(decode(data, exif=True), by_pillow(data, exif=True)), name
        orientation = Image.open(io.BytesIO(data)).getexif().get(0x0112, 1)
        assert info(data).orientation == (orientation if orientation in range(1, 9) else 1), name


def test_damaged_files_are_pillows() -> None:
    whole = jpeg()
    for number in range(60):
        data = bytearray(whole)
        data[len(whole) * (number + 20) // 90] ^= 1 << number % 8
        try:
            expected = by_pillow(bytes(data))
        except Exception:
            with pytest.raises(DataError):
                decode(bytes(data))
        else:
            assert np.array_equal(decode(bytes(data)), expected), number


def test_a_batch() -> None:
    data = [jpeg(quality=quality) for quality in (30, 60, 90)]
    expected = np.stack([by_pillow(one, size=(20, 30)) for one in data])
    for threads in (None, 1, 3):
        assert np.array_equal(decode_batch(data, size=(20, 30), threads=threads), expected)
    made = decode_batch(data)
    assert isinstance(made, list) and np.array_equal(made[1], by_pillow(data[1]))
    out = np.zeros((3, 30, 20, 3), np.uint8)
    assert decode_batch(data, size=(20, 30), out=out) is out and np.array_equal(out, expected)
    assert decode_batch([]) == []
    with pytest.raises(OptionError, match="str is one image"):
        decode_batch("photo.jpg")
    with pytest.raises(DataError, match="image 1: the image: "):
        decode_batch([data[0], data[1][:400], data[2]])


def test_a_file_object_is_read_from_its_beginning() -> None:
    file = io.BytesIO(jpeg())
    assert info(file).width == 130
    assert np.array_equal(decode(file), decode(file))
    file.close()
    with pytest.raises(DataError, match="closed file"):
        decode(file)


def test_filters_have_the_names_of_their_libraries() -> None:
    data = jpeg()
    expected = by_pillow(data, size=(20, 30), resample="lanczos")
    for name in ("lanczos", Image.Resampling.LANCZOS, 1):
        assert np.array_equal(decode(data, size=(20, 30), resample=name), expected), name
    for wrong in (6, True, None, [2]):
        with pytest.raises(OptionError, match="resample=.*there are nearest, lanczos"):
            decode(data, resample=wrong)


def test_a_batch_is_a_list_of_images() -> None:
    data = jpeg()
    for one in (data, bytearray(data), np.frombuffer(data, np.uint8), io.BytesIO(data), "photo.jpg"):
        with pytest.raises(OptionError, match="is one image: give a list of images, or call decode"):
            decode_batch(one)
    with pytest.raises(OptionError, match="int is no list of images"):
        decode_batch(5)
    for threads in ("2", 0, True):
        with pytest.raises(OptionError, match="threads=.*whole number"):
            decode_batch([data], threads=threads)
    with pytest.raises(OptionError, match="out has no places for 1 images"):
        decode_batch([data], out=5)
    with pytest.raises(OptionError) as caught:
        decode_batch([data], channels="x", layout="y")
    assert [reason.partition("=")[0] for reason in caught.value.reasons] == ["image 0: channels", "image 0: layout"]


def test_more_pixels_than_pillow_decodes_are_refused_at_once() -> None:
    data = jpeg(progressive=False)
    at = data.index(b"\xff\xc0") + 5
    huge = data[:at] + b"\xfd\xe8\xfd\xe8" + data[at + 4 :]
    for size in (None, (8, 8)):
        with pytest.raises(DataError, match="exceeds limit"):
            decode(huge, size=size)


def test_headers(tmp_path: Path) -> None:
    assert info(jpeg("L", 6)) == ImageInfo("JPEG", 130, 90, 1, 6)
    assert info(jpeg("CMYK")[:1000]) == ImageInfo("JPEG", 130, 90, 4, 1), "the header is enough"
    with pytest.raises(DataError, match="no-such.jpg: No such file"):
        info(tmp_path / "no-such.jpg")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"resample": "cubic", "channels": "BGR"}, r"resample='cubic': there are [^\n]*\n- channels='BGR': there are"),
        ({"layout": "NHWC", "dtype": "float16"}, r"layout='NHWC'[^\n]*\n- dtype='float16'"),
        ({"region": (0, 0, 131, 90)}, "not within the image of 130x90"),
        ({"region": (5, 5, 5, 9)}, "is empty"),
        ({"region": (0.5, 0, 10, 10)}, "whole pixels"),
        ({"size": (0, 10)}, "each at least 1"),
        ({"size": (10,)}, "give width and height"),
        ({"size": (1 << 20, 1 << 20)}, "pixels"),
    ],
)
def test_wrong_arguments_are_named_together(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        decode(jpeg(), **asked)


def test_what_is_no_image() -> None:
    for data in (b"", b"\xff\xd8", b"GIF", jpeg()[:300], b"<html>"):
        with pytest.raises(DataError):
            decode(data)
    with pytest.raises(OptionError, match="int is no image"):
        decode(5)
    with pytest.raises(OptionError, match="threads=0"):
        decode_batch([], threads=0)
    with pytest.raises(DataError):
        decode("file:///no/such/place/photo.jpg")
    pixels = decode(jpeg())
    read_only = np.empty_like(pixels)
    read_only.flags.writeable = False
    for out in (read_only, pixels.tolist(), pixels[:, ::-1]):
        with pytest.raises(OptionError, match="out is .*; give a contiguous NumPy array"):
            decode(jpeg(), out=out)
    for place, reason in (("/dev/zero", "no regular file"), (".", "no regular file"), ("a\0b", "null")):
        with pytest.raises(DataError, match=reason):
            info(place)
    for address in ("s3://bucket", "s3://bucket/"):
        with pytest.raises(OptionError, match=f"{address}: give the address of one object, such as s3://BUCKET/KEY"):
            decode(address)
    with pytest.raises(DataError, match=r"no image that Pillow knows; it begins with b'hello'"):
        decode(b"hello")
