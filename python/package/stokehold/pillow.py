"""Pillow's images, made later: the same pixels, sooner, for code that opens JPEGs, crops and resizes them.

    import stokehold.pillow

From then on `PIL.Image.open` of a JPEG gives an image that remembers what is asked of it: `convert` to RGB and to grey, `draft`,
`crop`, `resize`, `reduce`, `transpose`, what Pillow makes of these (`ImageOps.fit`, `ImageOps.exif_transpose`, `rotate` by right
angles), borders (`ImageOps.expand`, `ImageOps.pad`), and changes of colours (`ImageEnhance`, `ImageOps`). When somebody looks at
pixels, one native call decodes the part of the file that counts and performs the rest. The object then **becomes a plain Pillow
image for good**, so nothing of this module is involved in what comes after.

The pixels are Pillow's to the bit. :func:`install` compares with the installed Pillow first, and steps aside where that differs.
Whatever is not remembered, and every file that is damaged, is Pillow's own work: its pixels, or its exception.

`type(image) is PIL.Image.Image` is false until somebody wants pixels; `isinstance(image, PIL.Image.Image)`,
`image.__class__` and the name of the type are as always.

`STOKEHOLD_PILLOW=off` has :func:`install` do nothing, and `STOKEHOLD_PILLOW=check` has it compare every hundredth image with
Pillow's, `check:N` every N-th one. At the first difference the process goes back to Pillow, with a warning.

With `STOKEHOLD_IMAGE_CACHE=DIR[:SIZE]`, files that this or another process has packed in that folder are decoded from there.
"""

from __future__ import annotations

import abc
import contextlib
import copyreg
import functools
import io
import operator
import struct
import sys
import threading
import time
import warnings
import weakref
from types import FunctionType
from typing import Any, Callable, Optional

from PIL import Image, ImageEnhance, ImageOps, JpegImagePlugin

from stokehold import _cache
from stokehold import _operations as op
from stokehold._service import PIXELS_MOST, Service, let_through, memory_of, test_pattern
from stokehold._stokehold import Jpeg
from stokehold._values import normalization_of

__all__ = ["counts", "install", "is_installed", "uninstall"]

_Plain = Image.Image
_PlainFile = JpegImagePlugin.JpegImageFile
#: Not in Pillow's types.
_pillow: Any = Image
_VERSION = tuple(int(number) for number in _pillow.__version__.split(".")[:2] if number.isdigit())
#: Pillow 13 resizes columns first where an image loses more rows.
_LARGER_FIRST = _VERSION >= (13, 0)
#: Where an image keeps its pixels: `_im` behind a property since Pillow 11.1, `im` before.
_PIXELS = "_im" if "_im" in _Plain().__dict__ else "im"
#: Pillow 9 has `mode` itself.
_MODE = "_mode" if "_mode" in _Plain().__dict__ else "mode"
_TEMPLATE = {name: value for name, value in _Plain().__dict__.items() if name not in (_PIXELS, _MODE, "info")}
_set_class = object.__dict__["__class__"].__set__
#: A signal's handler may look at an image while this thread gives another one its pixels.
_lock = threading.RLock()


class _Images(Service):
    """What is installed in this process."""

    def __init__(self) -> None:
        super().__init__("images", "STOKEHOLD_PILLOW")
        #: Pillow's factory of JPEGs, while this module's is in its place.
        self.factory: Optional[Callable[..., Any]] = None
        #: Whether Pillow reads headers without their tables.
        self.headers = True
        #: Whether this Pillow is left alone.
        self.refused = False
        #: No warnings.
        self.quiet = False
        #: Whether this Pillow was found to make the same pixels.
        self.tested = False
        #: Whether resizes are Pillow's to the bit, so that they are remembered.
        self.resizes = True
        #: Whether reductions, changes of colours and affine transforms are.
        self.reductions = self.colors = self.transforms = True
        #: Whether images that are decoded at a scale are, and conversions between RGB and grey.
        self.drafts = self.conversions = True
        #: Whether functions of torchvision are replaced, or cannot be.
        self.torchvision = False

    def clear(self) -> None:
        super().clear()
        #: The last file that was not decoded here, the reason, and Pillow's image of it, once there is one.
        self.damaged: Optional[tuple[Jpeg, str, Any]] = None

    def uninstall(self) -> None:
        if self.factory is None:
            return
        if Image.OPEN["JPEG"][0] is _open:
            Image.register_open("JPEG", self.factory, Image.OPEN["JPEG"][1])
        self.factory = None
        super().uninstall()
        self.torchvision = False

    def begin_process(self) -> None:
        global _lock
        _lock = threading.RLock()
        for image, _ in _reading.values():
            _reopen(image)
        for source in _decoding.values():
            with contextlib.suppress(ValueError):
                _instead[id(source)] = source, Jpeg(source.data, *source.draft)
        _reading.clear()
        _decoding.clear()
        super().begin_process()
        _cache.begin_process()


_state = _Images()
#: Images that are remembered and have no pixels yet, by their ids: Pillow's images cannot be hashed.
_pending: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
#: Images whose files threads are reading, by their ids, each with the lock for which other threads wait.
_reading: dict[int, tuple[Any, Any]] = {}
#: What threads are decoding. It has a native lock that another thread of the parent keeps for ever in a forked process, which
#: decodes a second source instead. By the ids of the first ones.
_decoding: dict[object, Jpeg] = {}
_instead: dict[int, tuple[Jpeg, Jpeg]] = {}


def counts() -> dict[str, Any]:
    """What happened in this process since :func:`install`.

    JPEGs that were opened (`asked`), and how many of them were `cached`; images whose pixels were `made` here; how many images were
    `compared` with Pillow's and how many were `different`, with the CPU time of both sides (`own_seconds`, `library_seconds`);
    images that were `left` to Pillow, and the `reasons`.
    """
    return _state.counts()


# Pixels.


def _plain_file(source: Jpeg) -> Any:
    """Pillow's image of the file, not decoded yet."""
    image: Any = _PlainFile(io.BytesIO(source.data))
    scale, grey = source.draft
    if (scale, grey) != (1, image.mode == "L"):
        image.draft("L" if grey else None, tuple(side // scale for side in image.size))
    return image


def _by_pillow(source: Jpeg, ops: tuple[float, ...]) -> Any:
    """What Pillow makes of it, or its exception."""
    damaged = _state.damaged
    known = damaged is not None and damaged[0] is source
    image: Any = damaged[2] if known and damaged is not None else None
    if image is None:
        image = _plain_file(source).convert("L" if source.draft[1] else "RGB")
        if known and damaged is not None:
            # Several crops of an image are the rule.
            _state.damaged = (*damaged[:2], image)
    return image.copy() if known and not ops else op.after(image, ops)


def _made(source: Jpeg, ops: tuple[float, ...], make: Callable[..., Any], by_pillow: Callable[[Any], Any], same: Callable[[Any, Any], bool]) -> Any:
    """`make` of the source and the operations; None where Pillow has to do it. Now and then the result is compared with what `by_pillow` makes of
    Pillow's image, and that is the result where it differs."""
    damaged = _state.damaged
    if damaged is not None and damaged[0] is source:
        _state.leave(damaged[1])
        return None
    compared = _state.is_due()
    began = time.thread_time() if compared else 0.0
    work = object()
    _decoding[work] = source
    try:
        made = make(_instead.get(id(source), (source,))[-1], ops, _LARGER_FIRST)
    except (TypeError, ValueError, MemoryError) as error:
        let_through(error)
        _state.leave(str(error))
        if not isinstance(error, TypeError):
            _state.damaged = (source, str(error), None)
        return None
    finally:
        _decoding.pop(work, None)
    _state.made += 1
    if not compared:
        return made
    own = time.thread_time() - began
    # A packed image becomes a JPEG first, which is no one's time.
    file = io.BytesIO(source.data)
    began = time.thread_time()
    # Pillow opens the file for the comparison, so this side does, too.
    _Opened(file)
    Jpeg(source.data, *source.draft)
    own += time.thread_time() - began
    differs = f"stokehold.pillow: an image differs from Pillow's after {ops}; Pillow makes the images of this process from here on"
    return _state.compare(made, own, lambda: by_pillow(_by_pillow(source, ops)), same, differs)


def _dense(source: Jpeg, ops: tuple[float, ...]) -> Optional[bytes]:
    """The pixels, three bytes each, or one where they are grey."""
    made: Optional[bytes] = _made(source, ops, Jpeg.dense, lambda image: image.tobytes(), lambda a, b: bool(a == b))
    return made


def _core(source: Jpeg, ops: tuple[float, ...], size: tuple[int, int], mode: str) -> Any:
    """The pixels, as Pillow keeps them."""

    def same(made: bytearray, expected: Any) -> bool:
        return bool(Image.frombytes(mode, size, bytes(made), "raw", "RGBX" if mode == "RGB" else "L").tobytes() == expected.tobytes())

    made = _made(source, ops, Jpeg.kept, lambda image: image, same)
    if made is None:
        made = _by_pillow(source, ops)
    if not isinstance(made, bytearray):
        return made.im
    # Pillow maps the buffer: no copy. It is writable, so the image can be changed as any.
    return _pillow.core.map_buffer(made, size, "raw", 0, (mode, 0, 1))


def _give_up(image: Any, source: Jpeg, ops: tuple[float, ...]) -> None:
    """Gives an image of a damaged file Pillow's pixels at once, so that nobody tries again. Where Pillow raises an exception, whoever
    wants the pixels gets it."""
    damaged = _state.damaged
    if damaged is None or damaged[0] is not source:
        return
    try:
        pixels = _by_pillow(source, ops).im
    except Exception as error:
        let_through(error)
        return
    with _lock:
        if type(image) is _Opened or type(image) is _Remembered and "_recorded" in image.__dict__:
            setattr(image, _PIXELS, pixels)


class _Access:
    """What `load` gives: the pixels, once somebody wants one."""

    def __init__(self, image: Any) -> None:
        self._image = image
        self._access: Any = None

    def _pixels(self) -> Any:
        if self._access is None:
            self._access = _Plain.load(self._image)
        return self._access

    def __getitem__(self, at: Any) -> Any:
        return self._pixels()[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self._pixels()[at] = value

    def __delitem__(self, at: Any) -> None:
        del self._pixels()[at]

    #: Pillow's has no iterator, and Python would make one of `__getitem__`.
    __iter__ = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._pixels().__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pixels(), name)


# Images.


def _copied(info: dict[Any, Any]) -> dict[Any, Any]:
    if _VERSION >= (12, 0):
        return {key: value.copy() if isinstance(value, list) else value for key, value in info.items()}
    return info.copy()


#: At most this many numbers of operations are remembered; an operation has at least four.
_MOST = 400


def _remember(source: Jpeg, ops: tuple[float, ...], size: tuple[int, int], info: dict[Any, Any], mode: str) -> Any:
    new: Any = object.__new__(_Remembered)
    new.__dict__.update(_TEMPLATE, _recorded=(source, ops), _size=size, info=_copied(info), **{_MODE: mode})
    if len(ops) > _MOST:
        # Every operation takes a part of the stack when it is performed.
        getattr(new, _PIXELS)
    else:
        _pending[id(new)] = new
    return new


# What follows are functions: another thread may change the class of an image while its methods run.


def _begin(image: Any, rgb: Optional[bool] = None) -> Any:
    """The source and the operations so far; None where an image has pixels, or where Pillow has to make them. `rgb` says that
    an opened CMYK image becomes RGB next; everything else that is done with a CMYK image is Pillow's."""
    own = image.__dict__
    if type(image) is not _Opened:
        return own.get("_recorded")
    source = own.get("_source")
    if source is None:
        # A lock of its own: threads wait for their files side by side.
        with _reading.setdefault(id(image), (image, threading.RLock()))[1]:
            try:
                if "_source" not in own and "_tried" not in own:
                    _read(image)
                source = own.get("_source")
            finally:
                _reading.pop(id(image), None)
    if source is None or image.mode == "CMYK" and rgb is not True:
        return None
    return source, ()


def _become(image: Any, pixels: Any = None) -> None:
    """Gives a remembered image pixels: those that it is given, or its own. It is a plain image from then on."""
    own = image.__dict__
    given = pixels is not None
    recorded = own.get("_recorded")
    if not given:
        if recorded is None:
            # Another thread was first.
            return
        source, ops = recorded
        pixels = _core(source, ops, image._size, image.mode)
    with _lock:
        if not given and "_recorded" not in own:
            return
        own[_PIXELS] = pixels
        own.pop("_recorded", None)
        own.pop("_bytes", None)
        _set_class(image, _Plain)
        _pending.pop(id(image), None)


def _take_fourth_bytes(image: Any) -> None:
    """Gives a remembered RGB image the pixels that Pillow makes: the fourth byte of each one is its own affair."""
    begun = _begin(image) if type(image) is _Remembered and image.mode == "RGB" else None
    if begun is not None:
        _state.leave("the fourth byte of pixels")
        _become(image, _by_pillow(*begun).im)


def _become_plain(image: Any) -> None:
    """An opened image is Pillow's own from here on."""
    with _lock:
        if type(image) is _Opened:
            _read_tables(image)
            for name in ("_source", "_tried", "_bytes", "_key"):
                image.__dict__.pop(name, None)
            _set_class(image, _PlainFile)


def _load_opened(image: Any) -> None:
    """Gives an opened image its pixels, if its file was read here."""
    own = image.__dict__
    source = own.get("_source")
    if source is None:
        return
    if image.mode != "CMYK":
        pixels = _core(source, (), image._size, image.mode)
    else:
        _state.leave(f'pixels of mode {image.mode} were wanted before convert("RGB")')
        plain: Any = _plain_file(source)
        plain.load()
        pixels = plain.im
    with _lock:
        if type(image) is _Opened:
            own[_PIXELS] = pixels
            image.readonly = 0
            _become_plain(image)


def _reopen(image: Any) -> None:
    """Opens the file of an image again in a forked process. The thread that was reading it is not there, and may have had the lock of
    Python's file object."""
    file = image.fp
    image.__dict__.pop("_tried", None)
    if type(file) is io.BufferedReader and type(file.name) is str:
        with contextlib.suppress(OSError):
            image.fp, image._exclusive_fp = open(file.name, "rb"), True


def _read(image: Any) -> None:
    """Reads the file where Pillow would decode it, if it is one that is understood, and closes it as Pillow does."""
    own = image.__dict__
    own["_tried"] = True
    tile, config = image.tile, image.decoderconfig
    if config == (8, 0):
        # At this scale Pillow may make other pixels of a damaged file.
        _state.leave("draft at an eighth of the size")
        return
    if (
        len(tile) != 1 or tile[0][0] != "jpeg" or tile[0][2] != 0 or tile[0][1] != (0, 0, *image._size)
        or config and not (_state.drafts and config in ((1, 0), (2, 0), (4, 0))) or image.fp is None or own.get(_PIXELS) is not None
        or tile[0][3] not in (("RGB", ""), ("L", ""), ("CMYK;I", ""))
    ):  # fmt: skip
        return
    file = image.fp
    place = None
    try:
        place = file.tell()
        scale, grey = config[0] if config else 1, image.mode == "L"
        key = _cache.unchanged(own.pop("_key", None), file)
        source = _cache.read(key, scale, grey)
        # Colours become grey in a draft.
        known = {"L": (1, 3) if config else (1,), "RGB": (3,), "CMYK": (4,)}.get(image.mode, ())
        if source is not None and source.size(()) == image._size and source.header[2] in known:
            _state.cached += 1
            file.seek(0, io.SEEK_END)
        else:
            file.seek(0)
            source = Jpeg(file.read(), scale, grey)
            if source.size(()) != image._size or source.header[2] not in known:
                raise ValueError("Pillow reads another header")
            _cache.offer(key, file, source)
    except (ValueError, TypeError, MemoryError) as error:
        let_through(error)
        _state.leave(str(error))
        if place is not None:
            file.seek(place)
        return
    # The source is first: an exception of a handler may come between.
    own["_source"] = source
    image.tile, image.readonly = [], 0
    if image._exclusive_fp and image._close_exclusive_fp_after_loading:
        file.close()
    image.fp = None


def _read_tables(image: Any) -> None:
    own = image.__dict__
    tables = own.pop("_tables", None)
    if tables is None:
        return
    reader: Any = _Tables(tables)
    while len(reader.fp.read(2)) == 2:
        JpegImagePlugin.DQT(reader, 0xFFDB)
    own.setdefault("quantization", reader.quantization)


class _Remembering:
    """The methods that only remember."""

    def copy(self: Any) -> Any:
        begun = _begin(self)
        if begun is None:
            return _Plain.copy(self)
        source, ops = begun
        return _remember(source, ops, self._size, self.info, self.mode)

    __copy__ = copy

    def crop(self: Any, box: Any = None) -> Any:
        if box is None or type(box) is tuple and box == (0, 0, *self._size):
            return self.copy()
        try:
            x0, y0, x1, y1 = box
            fine = isinstance(box, (tuple, list)) and x1 >= x0 and y1 >= y0
            x0, y0, x1, y1 = map(int, map(round, box))
        except Exception as error:
            fine = let_through(error)
        width, height = (x1 - x0, y1 - y0) if fine else (0, 0)
        begun = None
        if width > 0 and height > 0 and width * height <= PIXELS_MOST and max(-x0, -y0, x1, y1) <= 1 << 24:
            begun = _begin(self)
        if begun is None:
            return _Plain.crop(self, box)
        Image._decompression_bomb_check((width, height))
        source, ops = begun
        return _remember(source, (*ops, op.CROP, x0, y0, 0, 0, 0, width, height), (width, height), self.info, self.mode)

    def resize(self: Any, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None) -> Any:
        wide, high = self._size
        area = (0, 0, wide, high) if box is None else box
        kind = 3 if resample is None else resample
        try:
            width, height = size
            fine = (
                type(width) is int and type(height) is int and 0 < width < 1 << 20 and 0 < height < 1 << 20
                and max(width * height, width * high, wide * height) <= PIXELS_MOST and isinstance(kind, int) and kind in range(6) and len(area) == 4
                and (reducing_gap is None or type(reducing_gap) in (int, float) and 1 <= reducing_gap)
                and 0 <= area[0] < area[2] <= wide and 0 <= area[1] < area[3] <= high
            )  # fmt: skip
            if fine and box is not None:
                # Pillow's edges are 32-bit floats.
                a = struct.unpack("4f", struct.pack("4f", *area))
                fine = a[0] < a[2] <= wide and a[1] < a[3] <= high
        except Exception as error:
            fine = let_through(error)
        if fine and (width, height) == self._size and type(area) is tuple and area == (0, 0, wide, high):
            return self.copy()
        if fine and reducing_gap is not None and kind != 0 and _state.reductions:
            image, area = op.reduced(self, (width, height), kind, area, reducing_gap)
            return image.resize((width, height), kind, area)
        begun = _begin(self) if fine and _state.resizes and (reducing_gap is None or kind == 0) else None
        if begun is None:
            return _Plain.resize(self, size, resample, box, reducing_gap)
        source, ops = begun
        return _remember(source, (*ops, op.RESIZE, int(kind), *map(float, area), width, height), (width, height), self.info, self.mode)

    def reduce(self: Any, factor: Any, box: Any = None) -> Any:
        wide, high = self._size
        try:
            across, down = factor if type(factor) is tuple else (factor, factor)
            left, upper, right, lower = (0, 0, wide, high) if box is None else box
            fine = (
                (box is None or type(box) is tuple) and all(type(number) is int for number in (across, down, left, upper, right, lower))
                and across > 0 and down > 0 and 1 < across * down <= 1 << 16 and 0 <= left < right <= wide and 0 <= upper < lower <= high
            )  # fmt: skip
        except Exception as error:
            fine = let_through(error)
        begun = _begin(self) if fine and _state.reductions else None
        if begun is None:
            return _Plain.reduce(self, factor, box)
        size = -((left - right) // across), -((upper - lower) // down)
        source, ops = begun
        return _remember(source, (*ops, op.REDUCE, across, down, left, upper, right, lower, *size), size, self.info, self.mode)

    def transpose(self: Any, method: Any) -> Any:
        begun = _begin(self) if isinstance(method, int) and method in range(7) else None
        if begun is None:
            return _Plain.transpose(self, method)
        size = self._size if method in (0, 1, 3) else self._size[::-1]
        source, ops = begun
        return _remember(source, (*ops, op.TRANSPOSE, int(method), *size), size, self.info, self.mode)

    def transform(self: Any, size: Any, method: Any, data: Any = None, resample: Any = 0, fill: Any = 1, fillcolor: Any = None) -> Any:
        begun = None
        try:
            width, height = size
            color = op.OTHER_BLACK if fillcolor is None else fillcolor
            fine = (
                method == 0 and _state.transforms and self.mode == "RGB" and isinstance(resample, int) and resample in (0, 2) and fill == 1 and type(color) is tuple and len(color) == 3
                and all(type(level) is int and (0 <= level < 256 or fillcolor is None) for level in color) and len(data) == 6
                and all(type(number) in (int, float) and abs(number) < 1e9 for number in data)
                and type(width) is int and type(height) is int and 0 < width and 0 < height and width * height <= PIXELS_MOST
            )  # fmt: skip
        except Exception as error:
            fine = let_through(error)
        if fine:
            begun = _begin(self)
        if begun is None:
            return _Plain.transform(self, size, method, data, resample, fill, fillcolor)
        source, ops = begun
        return _remember(source, (*ops, op.AFFINE, int(resample), *data, *color, width, height), (width, height), self.info, self.mode)

    def convert(self: Any, mode: Any = None, matrix: Any = None, *args: Any, **kwargs: Any) -> Any:
        if matrix is None and not args and not kwargs and (mode is None or mode == "RGB" or mode == "L"):
            begun = _begin(self, mode == "RGB")
            if begun is not None:
                source, ops = begun
                # CMYK is decoded to RGB.
                now = "RGB" if self.mode == "CMYK" else self.mode
                if mode is None or mode == now:
                    return _remember(source, ops, self._size, self.info, now)
                if _state.conversions and "transparency" not in self.info:
                    return _remember(source, (*ops, op.CONVERT, 1 if mode == "L" else 3, *self._size), self._size, self.info, mode)
        return _Plain.convert(self, mode, matrix, *args, **kwargs)

    def tobytes(self: Any, encoder_name: str = "raw", *args: Any) -> Any:
        if encoder_name == "raw" and (not args or args == (self.mode,)):
            begun = _begin(self)
            if begun is not None:
                known = self.__dict__.get("_bytes")
                if known is None:
                    known = _dense(*begun)
                    if known is None:
                        _give_up(self, *begun)
                        return _Plain.tobytes(self, encoder_name, *args)
                    self.__dict__["_bytes"] = known
                return known
        if encoder_name != "raw" or any(name in str(args) for name in ("RGBX", "RGBA")):
            _take_fourth_bytes(self)
        return _Plain.tobytes(self, encoder_name, *args)

    def getcolors(self: Any, *args: Any, **kwargs: Any) -> Any:
        _take_fourth_bytes(self)
        return _Plain.getcolors(self, *args, **kwargs)

    def quantize(self: Any, *args: Any, **kwargs: Any) -> Any:
        _take_fourth_bytes(self)
        return _Plain.quantize(self, *args, **kwargs)

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        self.load()
        getattr(self, _PIXELS)
        # Its class has become Pillow's.
        kind: Any = type(self)
        return kind.__reduce_ex__(self, protocol)


class _Kind(abc.ABCMeta):
    """A class that has the name of Pillow's class, which takes its place in a pickle."""


copyreg.pickle(_Kind, lambda kind: (operator.getitem, ([_PlainFile if kind is _Opened else _Plain], 0)))


class _Remembered(_Remembering, _Plain, metaclass=_Kind):
    """An image without pixels. To everybody it is an `Image.Image`, and it is one as soon as it has pixels."""

    def load(self: Any) -> Any:
        return _Access(self) if "_recorded" in self.__dict__ else _Plain.load(self)

    def _take_class(self: Any, kind: Any) -> None:
        _become(self)
        _set_class(self, kind)

    __class__ = property(lambda self: _Plain, _take_class)


#: Bytes of a file in which its header is looked for.
_HEAD = 8192


class _Tables:
    """What Pillow's reader of quantisation tables wants of an image."""

    def __init__(self, segments: bytes) -> None:
        self.fp = io.BytesIO(segments)
        self.quantization: dict[int, list[int]] = {}


class _Opened(_Remembering, _PlainFile, metaclass=_Kind):
    """A JPEG whose header was read."""

    def _open(self: Any) -> None:
        """Has Pillow read the header without its tables, which few ever ask for."""
        file = self.fp
        # The key is taken before the file is read: Python may have buffered these bytes.
        self.__dict__["_key"] = _cache.key_of(file)
        found = None
        if _state.headers:
            head = file.read(_HEAD)
            found = Jpeg.shortened(head) if isinstance(head, bytes) else None
            file.seek(0)
        if found is None:
            _PlainFile._open(self)
            return
        short, tables = found
        self.fp = io.BytesIO(short)
        try:
            _PlainFile._open(self)
        finally:
            self.fp = file
        self.__dict__.pop("quantization", None)
        self.__dict__["_tables"] = tables

    def _quantization(self: Any) -> Any:
        _read_tables(self)
        try:
            return self.__dict__["quantization"]
        except KeyError:
            raise AttributeError("quantization") from None

    def _set_quantization(self: Any, tables: Any) -> None:
        self.__dict__["quantization"] = tables

    quantization = property(_quantization, _set_quantization)

    def load(self: Any) -> Any:
        if _begin(self, True) is None:
            _become_plain(self)
            return self.load()
        return _Access(self)

    def _take_class(self: Any, kind: Any) -> None:
        _load_opened(self)
        _become_plain(self)
        _set_class(self, kind)

    __class__ = property(lambda self: _PlainFile, _take_class)


def _get_pixels(image: Any) -> Any:
    _become(image)
    return image.__dict__[_PIXELS]


def _get_pixels_of_opened(image: Any) -> Any:
    _load_opened(image)
    return image.__dict__[_PIXELS]


def _set_pixels_of_opened(image: Any, pixels: Any) -> None:
    # Pillow's constructor puts None here.
    image.__dict__[_PIXELS] = pixels
    if pixels is not None:
        _become_plain(image)


setattr(_Remembered, _PIXELS, property(_get_pixels, _become))
setattr(_Opened, _PIXELS, property(_get_pixels_of_opened, _set_pixels_of_opened))
# Messages of Python name classes and methods: they are Pillow's.
_named: list[tuple[Any, Any]] = [(_Access, type(_Plain.load(Image.new("L", (1, 1))))), (_Remembered, _Plain), (_Opened, _PlainFile)]
for _own, _pillows in _named:
    for _name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(_own, _name, getattr(_pillows, _name))
for _own, _pillows in ((_Remembering, _Plain), *_named[1:]):
    for _name, _method in vars(_own).items():
        if isinstance(_method, FunctionType) and hasattr(_pillows, _name):
            functools.update_wrapper(_method, getattr(_pillows, _name))


def _open(file: Any, filename: Any = None) -> Any:
    """Pillow's factory of JPEGs."""
    factory = _state.factory
    if factory is None:
        # It was given back, and a program has kept this one.
        return JpegImagePlugin.jpeg_factory(file, filename)
    image = _Opened(file, filename)
    if "mp" in image.info:
        # Several images in one file.
        file.seek(0)
        return factory(file, filename)
    _state.asked += 1
    if not _state.torchvision and "torchvision.transforms.functional" in sys.modules:
        _watch_torchvision()
    _state.write_now_and_then()
    return image


# Others' functions.


def _stepped(image: Any, code: int, value: float = 0.0) -> Any:
    """The image with a change of colours that is remembered; None where Pillow has to make it."""
    if type(image) is not _Remembered or not _state.colors or image.mode != "RGB":
        return None
    begun = _begin(image)
    if begun is None:
        return None
    source, ops = begun
    # Pillow begins these with an image of its own, which knows nothing of the file.
    info = {} if code in (op.BRIGHTNESS, op.CONTRAST, op.HUE, op.GRAY) else image.info
    return _remember(source, (*ops, op.STEP, code, value, *image._size), image._size, info, image.mode)


def _watch_colors() -> None:
    """Has changes of colours be remembered."""
    for code, kind in enumerate((ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color, ImageEnhance.Sharpness)):
        _watch_enhancer(kind, code)
    for code, name in ((op.EQUALIZE, "equalize"), (op.AUTOCONTRAST, "autocontrast"), (op.INVERT, "invert")):
        _watch_operation(name, code)

    posterize, solarize = ImageOps.posterize, ImageOps.solarize

    def posterized(image: Any, bits: Any) -> Any:
        made = _stepped(image, op.POSTERIZE, bits) if type(bits) is int and 1 <= bits <= 8 else None
        return posterize(image, bits) if made is None else made

    def solarized(image: Any, threshold: Any = 128) -> Any:
        made = _stepped(image, op.SOLARIZE, threshold) if type(threshold) in (int, float) and abs(threshold) <= 1e6 else None
        return solarize(image, threshold) if made is None else made

    _state.replace(ImageOps, "posterize", posterized)
    _state.replace(ImageOps, "solarize", solarized)


def _placed(image: Any, x: int, y: int, width: int, height: int, fill: Any) -> Any:
    """Remembers the image pasted at (x, y) on one of this size and one colour. None if Pillow has to make it."""
    if type(image) is not _Remembered and type(image) is not _Opened or "transparency" in image.info:
        return None
    if width <= 0 or height <= 0 or width * height > PIXELS_MOST or max(abs(x), abs(y)) > 1 << 24:
        return None
    try:
        one = Image.new(image.mode, (1, 1), fill)
        *color, fourth = one.tobytes("raw", "RGBX") if image.mode == "RGB" else (*one.tobytes(), 0, 0, 255)
    except Exception as error:
        let_through(error)
        return None
    # Not before the colour: this reads the file.
    begun = _begin(image) if fourth == 255 or not any((*color, fourth)) else None
    if begun is None:
        return None
    source, ops = begun
    levels = color if any((*color, 255 - fourth)) else op.OTHER_BLACK
    return _remember(source, (*ops, op.CROP, -x, -y, *levels, width, height), (width, height), {}, image.mode)


def _watch_borders() -> None:
    """Remembers borders of one colour. torchvision's `pad` uses them too."""
    expand, pad = ImageOps.expand, ImageOps.pad

    def expanded(image: Any, border: Any = 0, fill: Any = 0) -> Any:
        sides = (border,) * 4 if type(border) is int else border
        made = None
        if type(sides) is tuple and len(sides) in (2, 4) and all(type(side) is int for side in sides):
            left, top, right, bottom = sides if len(sides) == 4 else sides * 2
            width, height = image.size
            made = _placed(image, left, top, left + width + right, top + height + bottom, fill)
        return expand(image, border, fill) if made is None else made

    def padded(image: Any, size: Any, method: Any = 3, color: Any = None, centering: Any = (0.5, 0.5)) -> Any:
        made = None
        if type(image) in (_Remembered, _Opened) and type(size) is tuple and [int, int] == list(map(type, size)) and _state.resizes:
            # Pillow, too, begins with this.
            resized = ImageOps.contain(image, size, method)
            if resized.size == size:
                return resized
            try:
                across, down = (round((size[axis] - resized.size[axis]) * max(0, min(centering[axis], 1))) for axis in range(2))
                x, y = (across, 0) if resized.size[0] != size[0] else (0, down)
                made = _placed(resized, x, y, size[0], size[1], color)
            except Exception as error:
                let_through(error)
        return pad(image, size, method, color, centering) if made is None else made

    _state.replace(ImageOps, "expand", expanded)
    _state.replace(ImageOps, "pad", padded)


def _watch_enhancer(kind: Any, code: int) -> None:
    begin, enhance = kind.__init__, kind.enhance

    def begun(self: Any, image: Any) -> None:
        # A class of the script's own may have another way to miss an attribute.
        if type(self) is kind and type(image) is _Remembered and _state.colors and image.mode == "RGB":
            self.image = image
            self._stokehold = image, image.copy()
        else:
            begin(self, image)

    def missing(self: Any, name: str) -> Any:
        # What Pillow's constructor would have made, of the image as it was then.
        known = self.__dict__.pop("_stokehold", None)
        if known is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        image = self.image
        begin(self, known[1])
        self.image = image
        return getattr(self, name)

    def enhanced(self: Any, factor: Any) -> Any:
        known, made = self.__dict__.get("_stokehold"), None
        if known is not None and self.image is known[0] and type(factor) in (int, float) and 0 <= factor <= 1e6:
            made = _stepped(self.image, code, factor)
        return enhance(self, factor) if made is None else made

    for name, function in (("__init__", begun), ("__getattr__", missing), ("enhance", enhanced)):
        _state.replace(kind, name, function)


def _watch_operation(name: str, code: int) -> None:
    operation = getattr(ImageOps, name)

    def watched(image: Any, *args: Any, **kwargs: Any) -> Any:
        made = None if args or kwargs else _stepped(image, code)
        return operation(image, *args, **kwargs) if made is None else made

    _state.replace(ImageOps, name, watched)


def _watch_torchvision() -> None:
    """Has torchvision's conversions to tensors take what is made here without a Pillow image between."""
    try:
        import torch

        if torch.get_default_dtype() is not torch.float32:
            # torchvision makes other numbers, as long as the script wants it so.
            return
        from torch.nn.modules import module as modules
        from torchvision.transforms import _functional_pil, functional
        from torchvision.transforms.transforms import Compose, Normalize, ToTensor

        plain: Any = functional
        to_tensor, pil_to_tensor, normalize = plain.to_tensor, plain.pil_to_tensor, plain.normalize
        adjust_hue, to_grayscale = _functional_pil.adjust_hue, _functional_pil.to_grayscale
        any_hook: Any = modules._has_any_global_hook
        compose, converted = Compose.__call__, ToTensor.__call__
    except ImportError:
        # It is being imported.
        return
    except Exception as error:
        let_through(error)
        _state.torchvision = True
        _warn(f"stokehold.pillow leaves torchvision's tensors to torchvision: {error}")
        return
    _state.torchvision = True
    probed = _probe()
    _watch_hues(probed, _functional_pil, adjust_hue, to_grayscale)
    if not _has_our_floats(probed, torch, to_tensor, normalize):
        _warn("stokehold.pillow leaves torchvision's tensors to torchvision, whose numbers differ")
        return
    floats_of, bytes_of = _conversions(torch, to_tensor, pil_to_tensor, normalize)

    def tensor_of(pic: Any) -> Any:
        made = floats_of(pic)
        return to_tensor(pic) if made is None else made

    def fused(image: Any, second: Any) -> Any:
        """What ToTensor and a Normalize make of an image; None where they have to do it."""
        if type(second) is not Normalize or second.inplace or second._forward_hooks or second._forward_pre_hooks or any_hook():
            return None
        if functional.to_tensor is not tensor_of or functional.normalize is not normalize or ToTensor.__call__ is not converted:
            # The script has its own.
            return None
        normalization = normalization_of(torch, second.mean, second.std, len(image.mode))
        return None if normalization is None else floats_of(image, normalization)

    _state.replace(functional, "to_tensor", tensor_of)
    _state.replace(functional, "pil_to_tensor", bytes_of)
    _state.replace(Compose, "__call__", _composed(compose, ToTensor, fused))
    second = sys.modules.get("torchvision.transforms.v2.functional._type_conversion")
    if getattr(second, "pil_to_tensor", None) is pil_to_tensor:
        _state.replace(second, "pil_to_tensor", bytes_of)


def _watch_hues(probed: Any, functional_pil: Any, adjust_hue: Any, to_grayscale: Any) -> None:
    """Remembers the changes of colours that torchvision makes of several of Pillow's operations."""

    def hued(img: Any, hue_factor: Any) -> Any:
        made = _stepped(img, op.HUE, hue_factor) if type(hue_factor) is float and -0.5 <= hue_factor <= 0.5 else None
        return adjust_hue(img, hue_factor) if made is None else made

    def grey(img: Any, num_output_channels: Any) -> Any:
        made = _stepped(img, op.GRAY) if num_output_channels == 3 else None
        return to_grayscale(img, num_output_channels) if made is None else made

    source, probe = probed

    def differs(code: int, value: float) -> bool:
        return bool(source.dense((op.STEP, code, value, *probe.size), _LARGER_FIRST) != op.step(probe, code, value).tobytes())

    if differs(op.HUE, 0.3) or differs(op.GRAY, 0):
        _warn("stokehold.pillow leaves changes of colours to Pillow, because torchvision's differ")
        _state.colors = False
    _state.replace(functional_pil, "adjust_hue", hued)
    _state.replace(functional_pil, "to_grayscale", grey)


def _has_our_floats(probed: Any, torch: Any, to_tensor: Any, normalize: Any) -> bool:
    """Whether torchvision makes the numbers that are made here."""
    source, probe = probed
    width, height = probe.size
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    floats = torch.empty((3, height, width), dtype=torch.float32, device="cpu")
    if type(floats) is not torch.Tensor:
        return False
    for normalization in (None, (mean, std)):
        source.floats_to((), _LARGER_FIRST, *memory_of(floats), normalization)
        expected = to_tensor(probe)
        if not torch.equal(floats, expected if normalization is None else normalize(expected, mean, std)):
            return False
    levels = floats[:1]
    source.floats_to((op.CONVERT, 1, width, height), _LARGER_FIRST, *memory_of(levels), (mean, std))
    return bool(torch.equal(levels, normalize(to_tensor(probe.convert("L")), mean[:1], std[:1])))


def _conversions(torch: Any, to_tensor: Any, pil_to_tensor: Any, normalize: Any) -> tuple[Any, Any]:
    """What makes tensors of floats, and of bytes. They do what torchvision's functions do that are given."""

    def made_of(image: Any, source: Jpeg, ops: Any, make: Any, by_torchvision: Any) -> Any:
        made = _made(source, ops, make, by_torchvision, lambda made, expected: bool(torch.equal(made, expected)))
        if made is None:
            _give_up(image, source, ops)
        return made

    def floats_of(image: Any, normalization: Any = None) -> Any:
        """The tensor of a remembered image; None where Pillow has to make the image."""
        begun = _begin(image) if type(image) is _Remembered and torch.get_default_dtype() is torch.float32 else None
        if begun is None or "_bytes" in image.__dict__:
            return None
        source, ops = begun
        width, height = image._size
        channels = len(image.mode)

        def make(source: Jpeg, ops: Any, larger_first: bool) -> Any:
            if channels == 1 or width == height == 1:
                # torchvision's strides.
                out = torch.empty((height, width, channels), dtype=torch.float32, device="cpu").permute((2, 0, 1))
            else:
                out = torch.empty((channels, height, width), dtype=torch.float32, device="cpu")
            if type(out) is not torch.Tensor:
                raise TypeError("torch makes tensors of another kind here")
            source.floats_to(ops, larger_first, *memory_of(out), normalization)
            return out

        def by_torchvision(image: Any) -> Any:
            tensor = to_tensor(image)
            return tensor if normalization is None else normalize(tensor, *normalization)

        return made_of(image, source, ops, make, by_torchvision)

    def bytes_of(pic: Any) -> Any:
        begun = _begin(pic) if type(pic) is _Remembered and "_bytes" not in pic.__dict__ else None
        if begun is None:
            return pil_to_tensor(pic)
        source, ops = begun
        width, height = pic._size

        def make(source: Jpeg, ops: Any, larger_first: bool) -> Any:
            out = torch.empty((height, width, len(pic.mode)), dtype=torch.uint8)
            if type(out) is not torch.Tensor or not out.is_cpu:
                raise TypeError("torch makes tensors of another kind here")
            source.dense_to(ops, larger_first, *memory_of(out))
            return out.permute((2, 0, 1))

        made = made_of(pic, source, ops, make, pil_to_tensor)
        return pil_to_tensor(pic) if made is None else made

    return floats_of, bytes_of


def _composed(compose: Any, to_tensor: Any, fused: Any) -> Any:
    """`Compose.__call__` that has `fused` do a class's `to_tensor` and the transform after it."""

    def composed(self: Any, img: Any) -> Any:
        """ToTensor and Normalize, where one follows the other, in one pass."""
        transforms = self.transforms
        if type(transforms) not in (list, tuple) or type(img) is not _Remembered and type(img) is not _Opened:
            return compose(self, img)
        following = iter(range(1, len(transforms) + 1))
        for after in following:
            transform = transforms[after - 1]
            if after < len(transforms) and type(img) is _Remembered and (type(transform) is to_tensor or _is_timms(transform)):
                made = fused(img, transforms[after])
                if made is not None:
                    img = made
                    next(following)
                    continue
            img = transform(img)
        return img

    return composed


def _is_timms(transform: Any) -> bool:
    kind = type(transform)
    return kind.__name__ == "MaybeToTensor" and kind.__module__ == "timm.data.transforms"


# Installation.


def install(every: Optional[int] = None, folder: Optional[str] = None, quiet: bool = False) -> bool:
    """Has Pillow open JPEGs here, from now on and in processes that are forked later. Importing this module does it, too.

    Args:
        every: Compares every so many images with Pillow's; 0 for none. By default what `STOKEHOLD_PILLOW` says.
        folder: Where every process leaves its :func:`counts`, as `images-PID.json`.
        quiet: Whether no warning says what is left alone, and why.

    Returns:
        Whether it is installed. It is not where `STOKEHOLD_PILLOW=off`, and where the installed Pillow decodes other pixels or
        keeps its images in another way; then a warning says what differs.
    """
    if not _state.begin(every, folder):
        return False
    _state.quiet = quiet
    if _state.factory is not None:
        return True
    if _state.refused:
        # It was said.
        return False
    if "JPEG" not in Image.OPEN:
        Image.preinit()
    if "JPEG" not in Image.OPEN:
        return _not_installed("this Pillow opens no JPEGs")
    factory, accept = Image.OPEN["JPEG"]
    if getattr(factory, "__module__", None) == __name__ and factory is not _open:
        # Another copy of this module, which a recording has installed for a while.
        factory.__globals__["uninstall"]()
        factory, accept = Image.OPEN["JPEG"]
    if factory is not JpegImagePlugin.jpeg_factory:
        return _not_installed(f"another plugin opens JPEGs here: {factory!r}")
    if not _state.tested:
        try:
            differs = _differences()
        except Exception as error:
            let_through(error)
            differs = f"{type(error).__name__}: {error}"
        if differs:
            return _not_installed(differs)
        _state.tested = True
    _state.clear()
    _state.factory = factory
    Image.register_open("JPEG", _open, accept)
    _watch_borders()
    if _state.colors:
        _watch_colors()
    if "torchvision.transforms.functional" in sys.modules:
        _watch_torchvision()
    # In the child, everyone who uses a remembered image would make its pixels again.
    _state.watch_forks(before=_make_all)
    return True


def is_installed() -> bool:
    """Whether this module opens Pillow's JPEGs in this process."""
    return _state.factory is not None


def uninstall() -> None:
    """Gives JPEGs and all that was replaced back to Pillow and torchvision. Images that are there stay what they are."""
    _state.uninstall()


def _warn(text: str) -> None:
    if not _state.quiet:
        warnings.warn(text, RuntimeWarning, stacklevel=4)


def _not_installed(why: str) -> bool:
    _state.refused = True
    _warn(f"stokehold.pillow is not installed, and Pillow {_pillow.__version__} opens images itself: {why}")
    return False


def _probe() -> tuple[Jpeg, Any]:
    """A small JPEG, and what Pillow makes of it."""
    file = io.BytesIO()
    _pattern().save(file, "JPEG", quality=85)
    source = Jpeg(file.getvalue())
    return source, _by_pillow(source, ())


def _pattern(wide: int = 67, high: int = 45) -> Any:
    return Image.frombytes("RGB", (wide, high), test_pattern(wide, high))


def _differences() -> str:
    """Compares with the installed Pillow, in 10 ms. Text where it decodes something else; resizes and changes of colours that
    differ are only left to it."""
    photo = _pattern()
    wide, high = photo.size
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (photo, {"quality": 85, "subsampling": 2}),
        (photo, {"quality": 95, "subsampling": 0, "progressive": True}),
        (photo.convert("L"), {"quality": 60}),
        (photo.convert("CMYK"), {"quality": 80}),
    ]
    sources = []
    for image, options in kinds:
        file = io.BytesIO()
        image.save(file, "JPEG", **options)
        source = Jpeg(file.getvalue(), grey=image.mode == "L")
        expected = _by_pillow(source, ())
        if source.dense((), _LARGER_FIRST) != expected.tobytes():
            return f"it decodes other pixels ({image.mode}, {options})"
        core = _pillow.core.map_buffer(source.kept((), _LARGER_FIRST), expected.size, "raw", 0, (expected.mode, 0, 1))
        if expected._new(core).tobytes() != expected.tobytes():
            return "it keeps pixels in another way"
        sources.append((source, expected))
        if _differs_in_its_header(file):
            _state.headers = False
    scaled = [Jpeg(source.data, scale, expected.mode == "L") for source, expected in sources for scale in (2, 4)]
    scaled.append(Jpeg(sources[0][0].data, 2, True))
    _state.drafts = all(source.dense((), _LARGER_FIRST) == _by_pillow(source, ()).tobytes() for source in scaled)
    (source, plain), _, grey, _ = sources

    def same(*ops: float) -> bool:
        return bool(source.dense(ops, _LARGER_FIRST) == op.after(plain, ops).tobytes())

    def same_grey(*ops: float) -> bool:
        return bool(grey[0].dense(ops, _LARGER_FIRST) == op.after(grey[1], ops).tobytes())

    moves = [(op.CROP, -5, 7, 0, 0, 0, 40, 50), (op.CROP, 3, -2, 200, 30, 4, 80, 20), *((op.TRANSPOSE, method, *((wide, high) if method in (0, 1, 3) else (high, wide))) for method in range(7))]
    if not all(same(*move) and same_grey(*move) for move in moves):
        return "it crops or turns otherwise"
    shapes = [(0, 0, wide, high, 33, 20), (0, 0, wide, high, 90, 101), (10.25, 3.5, 60.125, 41, 64, 5), (20, 0, 30, high, 10, 9)]
    _state.resizes = all(same(op.RESIZE, kind, *shape) for kind in range(6) for shape in shapes)
    _state.resizes = _state.resizes and all(same_grey(op.RESIZE, kind, *shapes[kind % 4]) for kind in range(6))
    blocks = [(2, 2), (3, 3), (4, 4), (5, 5), (1, 3), (7, 1), (6, 9)]
    _state.reductions = all(same(op.REDUCE, across, down, 5, 2, wide, high, -((5 - wide) // across), -((2 - high) // down)) for across, down in blocks)
    _state.reductions = _state.reductions and same_grey(op.REDUCE, 2, 3, 5, 2, wide, high, 31, 15)
    _state.conversions = same(op.CONVERT, 1, wide, high) and same_grey(op.CONVERT, 3, wide, high)
    values: dict[int, tuple[float, ...]] = {op.POSTERIZE: (1, 5), op.SOLARIZE: (100.5,), op.EQUALIZE: (0,), op.AUTOCONTRAST: (0,), op.INVERT: (0,)}
    values.update({code: (0, 0.4, 1, 1.7) for code in (op.BRIGHTNESS, op.CONTRAST, op.COLOR, op.SHARPNESS)})
    _state.colors = all(same(op.STEP, code, value, wide, high) for code, of_code in values.items() for value in of_code)
    maps = [(1, 0, -3.5, 0, 1, 7), (0.9, 0.3, -4, -0.3, 0.9, 11), (1, 0.25, 0.5, 0, 1, 0), (30.5, 1000, 0, 0, 30, 0)]
    _state.transforms = all(same(op.AFFINE, kind, *numbers, 9, 8, 7, 31, 23) for kind in (0, 2) for numbers in maps)
    names = {"resizes": "resizes", "reductions": "reductions", "drafts": "drafts", "conversions": "conversions to grey", "colors": "changes of colours", "transforms": "transforms"}
    left = [text for name, text in names.items() if not getattr(_state, name)]
    if left:
        _warn(f"stokehold.pillow leaves {' and '.join(left)} to Pillow {_pillow.__version__}, whose pixels differ")
    return ""


def _differs_in_its_header(file: Any) -> bool:
    """Whether an image that was opened with a shortened header is another one than Pillow's."""
    file.seek(0)
    plain: Any = _PlainFile(file)
    file.seek(0)
    own: Any = _Opened(file)
    names = ("size", "mode", "info", "app", "applist", "layer", "layers", "bits", "tile", "quantization", "_exif_offset")
    return any(getattr(plain, name, None) != getattr(own, name, None) for name in names)


def _make_all() -> None:
    for _ in range(3):
        try:
            images = list(_pending.values())
            break
        except RuntimeError as error:
            # Another thread remembers one.
            let_through(error)
    else:
        return
    for image in images:
        try:
            getattr(image, _PIXELS)
        except Exception as error:
            # A damaged file: the user of the image gets the exception.
            let_through(error)


install()
