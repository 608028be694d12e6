"""Decoding single images, to the bit as Pillow does it.

    from stokehold.images import decode

    pixels = decode("photo.jpg", region=(10, 20, 300, 400), size=(224, 224))  # NumPy, (224, 224, 3) uint8

Of a JPEG only the region is decoded. Everything but JPEG, and a damaged JPEG, is read by Pillow, where it is installed. Decoding
releases the GIL.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from stokehold import _values as as_
from stokehold._service import UPRIGHT
from stokehold._stokehold import Jpeg, fetch
from stokehold.errors import DataError, OptionError

if TYPE_CHECKING:
    import numpy

__all__ = ["ImageInfo", "decode", "decode_batch", "info"]

#: Pillow decodes no more pixels, unless the script has changed its limit.
_PIXELS_MOST = 178_956_970
_CROP, _RESIZE, _TRANSPOSE, _STEP, _GRAY = 1, 2, 3, 4, 10


class ImageInfo(NamedTuple):
    """What a file says of itself."""

    #: `JPEG`, or Pillow's name of another format.
    format: str
    #: Pixels, as the file has them.
    width: int
    height: int
    #: Numbers of a pixel in the file: 1, 3 or 4.
    channels: int
    #: EXIF's orientation, 1 to 8; 1 where the file says nothing.
    orientation: int


def decode(
    data: Any,
    *,
    region: Optional[tuple[int, int, int, int]] = None,
    size: Optional[tuple[int, int]] = None,
    resample: Any = "bilinear",
    channels: str = "RGB",
    layout: str = "HWC",
    dtype: str = "uint8",
    out: Any = None,
    exif: bool = False,
) -> Any:
    """Decodes one image.

    Args:
        data: Bytes, anything with a buffer, a flat torch tensor of a file's bytes on the CPU (as of `torchvision.io.read_file`), a path,
            a file object, or the address of an object (`s3://bucket/key`, and what else `stokehold.Loader` reads).
        region: Left, upper, right and lower edge in pixels, within the image: what is cut out first.
        size: Width and height to resize to, as Pillow's `resize` does it.
        resample: `nearest`, `box`, `bilinear`, `hamming`, `bicubic` or `lanczos`; also as Pillow and torchvision name it.
        channels: `RGB`, `L` for luminance, or `unchanged` for what the file has.
        layout: `HWC`, or `CHW` as torch has it. With one channel, `HWC` has no axis for it, as in `numpy.asarray` of an image.
        dtype: `uint8`, or `float32` from 0 to 1 (the level divided by 255).
        out: A NumPy array or a torch tensor on the CPU of the result's shape and type, contiguous, which the result is written to.
        exif: Turns the image as its orientation says, before `region` is cut out.

    Returns:
        A NumPy array, or `out`. `torch.from_numpy` makes a tensor of it without a copy.

    Raises:
        OptionError: an argument is wrong, with all reasons; Pillow is not installed and the file needs it.
        DataError: the file cannot be read, or is broken.
        TypeError: `data` is a tensor of another kind.
    """
    try:
        wrong, resample = [], as_.resampling(resample)
    except OptionError:
        wrong = [f"resample={resample!r}: there are {', '.join(as_.FILTERS)}"]
    wrong += [
        f"{name}={value!r}: there are {', '.join(known)}"
        for name, value, known in (
            ("channels", channels, ("RGB", "L", "unchanged")),
            ("layout", layout, ("HWC", "CHW")),
            ("dtype", dtype, ("uint8", "float32")),
        )
        if value not in known
    ]
    if region is not None and not _are_integers(region, 4):
        wrong.append(f"region={region!r}: give left, upper, right and lower edge in whole pixels")
    if size is not None and not (_are_integers(size, 2) and min(size) > 0 and size[0] * size[1] <= 1 << 28):
        wrong.append(f"size={size!r}: give width and height, each at least 1, together at most 2^28 pixels")
    if wrong:
        raise OptionError(*wrong)
    content, name = _read(data)
    pixels = _of_jpeg(content, name, region, size, resample, channels, exif, chw_floats=layout == "CHW" and dtype == "float32")
    if pixels is None:
        pixels = _of_pillow(content, name, region, size, resample, channels, exif)
    return _given(pixels, layout, dtype, out, name)


def decode_batch(data: Any, *, threads: Optional[int] = None, out: Any = None, **options: Any) -> Any:
    """Decodes many images, several at a time.

    Args:
        data: A list of what :func:`decode` takes.
        threads: Images at a time; by default as many as there are cores to use.
        out: An array or tensor whose first axis counts the images.
        options: Those of :func:`decode`.

    Returns:
        A list of arrays. With `size`, one array whose first axis counts the images, unless there are none; with `out`, `out`.

    Raises:
        OptionError, DataError: as :func:`decode`; the message names the image by its number in the list.
    """
    if isinstance(data, (str, os.PathLike)) or hasattr(data, "read") or _has_bytes(data):
        raise OptionError(f"{type(data).__name__} is one image: give a list of images, or call decode")
    try:
        data = list(data)
    except TypeError:
        raise OptionError(f"{type(data).__name__} is no list of images") from None
    if threads is not None and (isinstance(threads, bool) or not hasattr(threads, "__index__") or threads < 1):
        raise OptionError(f"threads={threads!r}: give a whole number, at least 1")
    if out is not None and (not hasattr(out, "__len__") or len(out) != len(data)):
        places = f"{len(out)} places" if hasattr(out, "__len__") else "no places"
        raise OptionError(f"out has {places} for {len(data)} images")

    def one(number: int) -> Any:
        try:
            return decode(data[number], out=None if out is None else out[number], **options)
        except (DataError, OptionError) as error:
            reasons = getattr(error, "reasons", None) or (str(error),)
            raise type(error)(*(f"image {number}: {reason}" for reason in reasons)) from None

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads or _cores()) as pool:
        made = list(pool.map(one, range(len(data))))
    if out is not None:
        return out
    if options.get("size") is None or not made:
        return made
    import numpy

    return numpy.stack(made)


def info(data: Any) -> ImageInfo:
    """Reads the header of an image and decodes no pixels. Takes what :func:`decode` takes.

    Raises:
        OptionError: Pillow is not installed and the file needs it.
        DataError: the file cannot be read, or is broken.
    """
    content, name = _read(data)
    jpeg = _jpeg(content)
    orientation = None if jpeg is None else _orientation(jpeg)
    if jpeg is not None and orientation is not None:
        width, height, channels, _ = jpeg.header
        return ImageInfo("JPEG", width, height, channels, orientation)
    image = _open(content, name)
    orientation = image.getexif().get(0x0112, 1)
    return ImageInfo(
        image.format or "", image.width, image.height, len(image.getbands()), orientation if orientation in range(1, 9) else 1
    )


def _are_integers(numbers: Any, count: int) -> bool:
    try:
        return len(numbers) == count and all(int(number) == number for number in numbers)
    except (TypeError, ValueError, OverflowError):
        return False


def _has_bytes(data: Any) -> bool:
    """Whether it is a file's content: bytes, or an array or a tensor of them."""
    try:
        return _is_tensor(data) or memoryview(data).itemsize == 1
    except (TypeError, ValueError):
        return False


def _is_tensor(data: Any) -> bool:
    """Whether it is a torch tensor, which needs an imported torch."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return isinstance(kind, type) and isinstance(data, kind)


def _of_tensor(data: Any) -> bytes:
    kind = str(data.dtype).rpartition(".")[2]
    if data.device.type != "cpu":
        raise TypeError(f"a tensor on {data.device} is no file: give its bytes on the CPU, as data.cpu() has them")
    if kind != "uint8" or data.dim() != 1:
        raise TypeError(f"a tensor of {kind} and shape {tuple(data.shape)} is no file: give a 1-D tensor of uint8 with the bytes of the file")
    content: bytes = data.numpy().tobytes()
    return content


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _read(data: Any) -> tuple[bytes, str]:
    """The bytes, and what to call them in a message."""
    if isinstance(data, bytes):
        return data, "the image"
    if _is_tensor(data):
        return _of_tensor(data), "the image"
    if isinstance(data, (str, os.PathLike)):
        path = os.fspath(data)
        if isinstance(path, str) and "://" in path:
            return fetch(path), path
        name = os.fsdecode(path)
        try:
            # A pipe would wait, and a device may not end.
            if stat.S_ISREG(os.stat(path).st_mode):
                with open(path, "rb") as file:
                    return file.read(), name
        except OSError as error:
            raise DataError(f"{name}: {error.strerror or error}") from None
        except ValueError as error:
            raise DataError(f"{name!r}: {error}") from None
        raise DataError(f"{name}: it is no regular file")
    if hasattr(data, "read"):
        try:
            # From its beginning, as Pillow reads it. Text would be decoded first.
            with contextlib.suppress(AttributeError, OSError):
                data.seek(0)
            content = "" if isinstance(data, io.TextIOBase) else data.read()
        except (OSError, ValueError) as error:
            raise DataError(f"{getattr(data, 'name', 'the image')}: {getattr(error, 'strerror', None) or error}") from None
        if not isinstance(content, bytes):
            raise OptionError(f"{data!r} gives {type(content).__name__} instead of bytes; open it in mode 'rb'")
        return content, str(getattr(data, "name", "the image"))
    try:
        return bytes(memoryview(data)), "the image"
    except TypeError:
        raise OptionError(f"{type(data).__name__} is no image: give bytes, a path, a file object or an address") from None


def _checked(region: Any, width: int, height: int, name: str) -> tuple[int, int, int, int]:
    left, upper, right, lower = (int(edge) for edge in region)
    if not (0 <= left < right <= width and 0 <= upper < lower <= height):
        raise OptionError(f"{name}: region={region!r} is not within the image of {width}x{height} pixels, or is empty")
    return left, upper, right, lower


def _jpeg(content: bytes) -> Optional[Jpeg]:
    """None if it is no JPEG that is decoded here."""
    try:
        return Jpeg(content) if content[:2] == b"\xff\xd8" else None
    except ValueError:
        return None


def _orientation(jpeg: Jpeg) -> Optional[int]:
    """As Pillow finds it; None where it has to look itself: it reads unusual EXIF in its own way, and XMP where EXIF says nothing."""
    orientation = jpeg.plain_orientation
    return None if orientation == 1 and b"tiff:Orientation" in jpeg.data else orientation


def _of_jpeg(content: bytes, name: str, region: Any, size: Any, resample: str, channels: str, exif: bool, chw_floats: bool) -> Any:
    """The pixels, (H, W, 3) or (H, W); floats of (3, H, W) where they are wanted. None where Pillow has to make them."""
    jpeg = _jpeg(content)
    orientation = _orientation(jpeg) if jpeg is not None and exif else 1
    if jpeg is None or orientation is None:
        return None
    import numpy

    width, height, components, _ = jpeg.header
    if width * height > _PIXELS_MOST:
        return None
    if channels == "unchanged":
        if components == 4:
            return None
        channels = "L" if components == 1 else "RGB"
    ops: tuple[float, ...] = ()
    if orientation > 1:
        if orientation > 4:
            width, height = height, width
        ops += (_TRANSPOSE, UPRIGHT[orientation], width, height)
    if channels == "L" and components != 1:
        ops += (_STEP, _GRAY, 0, width, height)
    if region is not None:
        left, upper, right, lower = _checked(region, width, height, name)
        width, height = right - left, lower - upper
        ops += (_CROP, left, upper, 0, 0, 0, width, height)
    if size is not None and tuple(size) != (width, height):
        ops += (_RESIZE, as_.FILTERS.index(resample), 0, 0, width, height, *size)
        width, height = (int(side) for side in size)
    larger_first = _pillow_goes_down_first()
    try:
        if chw_floats and channels == "RGB":
            floats = numpy.empty((3, height, width), numpy.float32)
            jpeg.floats_to(ops, larger_first, floats.ctypes.data, floats.nbytes)
            return floats
        pixels = numpy.empty((height, width, 3), numpy.uint8)
        jpeg.dense_to(ops, larger_first, pixels.ctypes.data, pixels.nbytes)
    except ValueError:
        # Pillow reads some damaged files, and says what is wrong with the others.
        return None
    return pixels if channels == "RGB" else numpy.ascontiguousarray(pixels[..., 0])


def _pillow_goes_down_first() -> bool:
    """Whether the installed Pillow is 13 or newer, whose resize begins with columns for some shapes. So it is without one."""
    global _down_first
    if _down_first is None:
        try:
            # Of the package that is imported: Pillow-SIMD has the same module and another name.
            from PIL import __version__

            _down_first = int(__version__.partition(".")[0]) >= 13
        except Exception:
            _down_first = True
    return _down_first


_down_first: Optional[bool] = None


def _open(content: bytes, name: str) -> Any:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise OptionError(f"{name} is no plain JPEG, and Pillow, which reads everything else, is not installed: pip install pillow") from None
    try:
        return Image.open(io.BytesIO(content))
    except UnidentifiedImageError:
        begins = f"it begins with {content[:12]!r}" if content else "it is empty"
        raise DataError(f"{name}: no image that Pillow knows; {begins}") from None
    except Exception as error:
        raise DataError(f"{name}: {error}") from None


def _of_pillow(content: bytes, name: str, region: Any, size: Any, resample: str, channels: str, exif: bool) -> Any:
    image = _open(content, name)
    import numpy
    from PIL import ImageOps

    try:
        if exif:
            image = ImageOps.exif_transpose(image)
        if channels != "unchanged":
            image = image.convert(channels)
        if region is not None:
            image = image.crop(_checked(region, image.width, image.height, name))
        if size is not None:
            image = image.resize((int(size[0]), int(size[1])), as_.FILTERS.index(resample))
        return numpy.array(image)
    except (OSError, SyntaxError, ValueError, MemoryError) as error:
        if isinstance(error, OptionError):
            raise
        raise DataError(f"{name}: {error}") from None


def _given(pixels: Any, layout: str, dtype: str, out: Any, name: str) -> Any:
    """The pixels as they are asked for."""
    import numpy

    if pixels.dtype != numpy.float32:
        if layout == "CHW":
            pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        if dtype == "float32":
            if pixels.dtype != numpy.uint8:
                raise OptionError(f"{name} has {pixels.dtype} numbers: dtype='float32' is for images of bytes; take dtype='uint8' with channels='RGB'")
            pixels = pixels.astype(numpy.float32) / numpy.float32(255)
        pixels = numpy.ascontiguousarray(pixels)
    if out is None:
        return pixels
    if isinstance(out, numpy.ndarray):
        fits = out.flags.writeable and out.flags.c_contiguous
    else:
        fits = hasattr(out, "numpy") and str(getattr(out, "device", "")) == "cpu" and not getattr(out, "requires_grad", False) and out.is_contiguous()
    if not fits:
        raise OptionError(f"{name}: out is {type(out).__name__}; give a contiguous NumPy array that can be written, or a tensor on the CPU without a gradient")
    if tuple(out.shape) != pixels.shape or str(out.dtype).rpartition(".")[2] != str(pixels.dtype):
        raise OptionError(f"{name}: out is {out.dtype} {tuple(out.shape)}, and the image {pixels.dtype} {pixels.shape}")
    target: numpy.ndarray[Any, Any] = out if isinstance(out, numpy.ndarray) else out.numpy()
    target[...] = pixels
    return out


