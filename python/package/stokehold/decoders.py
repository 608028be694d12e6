"""Others' decoders of JPEGs, faster: the same pixels, sooner, for code that calls cv2, torchvision.io, simplejpeg or PyTurboJPEG.

    import cv2
    import stokehold.decoders

From then on these are served, where what they are asked for is known here:

* `cv2.imread` and `cv2.imdecode`;
* torchvision's `io.decode_jpeg`, `decode_image` and `read_image`;
* `simplejpeg.decode_jpeg`;
* `turbojpeg.TurboJPEG.decode`.

The pixels are the library's to the bit. :func:`install` compares with the installed library first, and leaves it alone where that
differs. Everything else is the library's own work, with its exceptions and warnings: other formats, other options, damaged files,
files of which libjpeg warns, and images of four inks.

A library that is imported later is served once :func:`install` is called again. `STOKEHOLD_DECODERS=off` has it do nothing, and
`STOKEHOLD_DECODERS=check` has it compare every hundredth image with the library's, `check:N` every N-th one. At the first
difference the process goes back to the libraries, with a warning.
"""

from __future__ import annotations

import inspect
import os
import stat
import sys
import threading
import time
import warnings
import weakref
from typing import Any, Callable, Optional

from stokehold._service import PIXELS_MOST, UPRIGHT, Service, is_of_a_handler, memory_of, test_pattern
from stokehold._stokehold import Jpeg

__all__ = ["counts", "install", "uninstall"]

#: The orientation that remains once rows and columns are exchanged.
_EXCHANGED = {5: 1, 6: 4, 7: 3, 8: 2}
#: The libraries by the modules that are changed.
_LIBRARIES = {"cv2": "cv2", "torchvision.io": "torchvision", "simplejpeg": "simplejpeg", "turbojpeg": "PyTurboJPEG"}


class _Decoders(Service):
    """What is installed in this process."""

    def __init__(self) -> None:
        super().__init__("decoders", "STOKEHOLD_DECODERS")
        #: The modules that are served.
        self.served: set[str] = set()
        #: Those that are left alone, and why.
        self.refused: dict[str, str] = {}

    def uninstall(self) -> None:
        super().uninstall()
        self.served.clear()


_state = _Decoders()


class _Left(ValueError):
    """Why the library has to do it."""


def counts() -> dict[str, Any]:
    """What happened in this process since :func:`install`.

    Images that were `asked` for, those that were `made` here, those that were `compared` with the library's and those that were
    `different`, with the CPU time of both sides (`own_seconds`, `library_seconds`); images that were `left` to the library, and the
    `reasons`.
    """
    return _state.counts()


# Pixels.


def _served(library: str, make: Callable[[], Any], by_library: Callable[[], Any], same: Callable[[Any, Any], bool]) -> Any:
    """What `make` makes; what the library makes where that is refused, and now and then to compare it."""
    _state.asked += 1
    _state.write_now_and_then()
    compared = _state.is_due()
    began = time.thread_time() if compared else 0.0
    try:
        made = make()
    except Exception as error:
        if is_of_a_handler(error):
            raise
        # Whatever it is: the library says what is wrong with what it was given.
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        _state.leave(f"{library}: {reason}")
    else:
        _state.made += 1
        if not compared:
            return made
        differs = f"stokehold.decoders: an image differs from {library}'s; the libraries make the images of this process from here on"
        return _state.compare(made, time.thread_time() - began, by_library, same, differs)
    # Outside of the handler: an exception of the library has no context of this module's.
    return by_library()


def _file(path: Any) -> bytes:
    """The bytes of a JPEG; of another file no more than its beginning is read."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if type(path) is not str:
        raise _Left("a file name that is no str")
    # Libraries take names in UTF-8.
    path.encode()
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _Left("no regular file")
        with open(path, "rb", buffering=0) as file:
            # FF is the first byte of every segment.
            if file.read(3) != b"\xff\xd8\xff":
                raise _Left("no JPEG")
            file.seek(0)
            return file.read()
    except OSError as error:
        raise _Left(f"a file that cannot be opened ({error.strerror})") from None


def _content(data: Any) -> bytes:
    """The bytes of something flat with a buffer."""
    if type(data) is bytes:
        content = data
    else:
        view = memoryview(data)
        if view.itemsize != 1 or not view.c_contiguous or view.nbytes != max(view.shape or (), default=0):
            raise _Left("bytes that are not flat")
        content = view.tobytes()
    if content[:3] != b"\xff\xd8\xff":
        raise _Left("no JPEG")
    return content


class _Image:
    """A JPEG, and what is made of it."""

    def __init__(self, content: bytes, color: str, scale: int = 1, upright: bool = False, exchanges: bool = False) -> None:
        """`color` is `rgb`, `bgr` or `grey`; `bgr?` and `rgb?` are grey where the file is. `scale` is 1, 2, 4 or 8. A caller that
        `exchanges` rows and columns itself finds in `exchanged` whether it has to."""
        self.jpeg = jpeg = Jpeg(content)
        width, height, components, _ = jpeg.header
        if components == 4:
            raise _Left("an image of four inks")
        if width * height > PIXELS_MOST:
            raise _Left(f"more than {PIXELS_MOST} pixels")
        if color.endswith("?"):
            color = "grey" if components == 1 else color[:-1]
        orientation = jpeg.plain_orientation if upright else 1
        if orientation is None:
            raise _Left("EXIF in which readers find different orientations")
        self.exchanged = exchanges and orientation > 4
        if self.exchanged:
            orientation = _EXCHANGED[orientation]
        turn = UPRIGHT.get(orientation)
        width, height = -(-width // scale), -(-height // scale)
        self.size = (width, height) if orientation < 5 else (height, width)
        self.channels = 1 if color == "grey" else 3
        self._how = color, scale, turn

    def write(self, address: int, size: int) -> None:
        self.jpeg.decode_to(*self._how, address, size)

    def array(self, flat: bool) -> Any:
        """As a NumPy array; one of grey has two axes where it is `flat`."""
        import numpy

        width, height = self.size
        pixels = numpy.empty((height, width) if flat and self.channels == 1 else (height, width, self.channels), numpy.uint8)
        self.write(pixels.ctypes.data, pixels.nbytes)
        return pixels


def _equal_arrays(made: Any, expected: Any) -> bool:
    return getattr(expected, "dtype", None) == "uint8" and made.shape == expected.shape and made.tobytes() == expected.tobytes()


# cv2.


def _cv2_forms() -> dict[int, tuple[str, int, bool]]:
    """The flags that are known: colour, scale, and whether EXIF turns the image."""
    forms = {-1: ("bgr?", 1, False)}
    kinds = [(0, "grey", 1), (1, "bgr", 1), (2, "grey", 1), (3, "bgr", 1), (4, "bgr?", 1), (6, "bgr?", 1)]
    kinds += [(16, "grey", 2), (17, "bgr", 2), (32, "grey", 4), (33, "bgr", 4), (64, "grey", 8), (65, "bgr", 8)]
    kinds += [(256, "rgb", 1), (257, "rgb", 1)]
    for flags, color, scale in kinds:
        forms[flags], forms[flags | 128] = (color, scale, True), (color, scale, False)
    return forms


def _serve_cv2(cv2: Any) -> str:
    import numpy

    for name in os.environ:
        if name.startswith("OPENCV_IO_MAX_IMAGE"):
            return f"{name} is set"
    imread, imdecode = cv2.imread, cv2.imdecode
    probes: list[bytes] = []
    color = numpy.frombuffer(test_pattern(), numpy.uint8).reshape(45, 67, 3)
    progressive, sampling = cv2.IMWRITE_JPEG_PROGRESSIVE, getattr(cv2, "IMWRITE_JPEG_SAMPLING_FACTOR", None)
    whole = [] if sampling is None else [sampling, 0x111111]
    for image, options in ((color, []), (color, [progressive, 1, *whole]), (color[..., 0].copy(), [])):
        fine, written = cv2.imencode(".jpg", image, options)
        if not fine:
            return "it writes no JPEG"
        probes.append(written.tobytes())
    probes += [_with_orientation(probes[0], orientation) for orientation in (6, 7)]

    def same(flags: int, form: tuple[str, int, bool]) -> bool:
        try:
            return all(_equal_arrays(_Image(probe, *form).array(True), imdecode(numpy.frombuffer(probe, numpy.uint8), flags)) for probe in probes)
        except cv2.error:
            # Versions differ in the flags that they refuse.
            return False

    forms = {flags: form for flags, form in _cv2_forms().items() if same(flags, form)}
    if 1 not in forms:
        return "it decodes other pixels"

    def form_of(flags: Any) -> tuple[str, int, bool]:
        form = forms.get(flags) if type(flags) is int else None
        if form is None:
            raise _Left(f"flags {flags!r}, which are unknown here or give other pixels")
        return form

    def read(*args: Any, **kwargs: Any) -> Any:
        def make() -> Any:
            if kwargs.keys() - {"flags"} or len(args) + len(kwargs) > 2 or not args:
                raise _Left("arguments of imread")
            form = form_of(args[1] if len(args) == 2 else kwargs.get("flags", 1))
            return _Image(_file(args[0]), *form).array(True)

        return _served("cv2", make, lambda: imread(*args, **kwargs), _equal_arrays)

    def decode(*args: Any, **kwargs: Any) -> Any:
        def make() -> Any:
            if kwargs.keys() - {"flags"} or len(args) + len(kwargs) != 2 or not args:
                raise _Left("arguments of imdecode")
            data = args[0]
            form = form_of(args[1] if len(args) == 2 else kwargs["flags"])
            if type(data) is not numpy.ndarray or data.dtype != numpy.uint8 or data.ndim > 2:
                raise _Left("bytes that are no array of uint8")
            return _Image(_content(data), *form).array(True)

        return _served("cv2", make, lambda: imdecode(*args, **kwargs), _equal_arrays)

    _state.replace(cv2, "imread", read)
    _state.replace(cv2, "imdecode", decode)
    return ""


# torchvision.


def _serve_torchvision(io: Any) -> str:
    import torch

    image: Any = sys.modules["torchvision.io.image"]
    decode_jpeg, decode_image, read_image = image.decode_jpeg, image.decode_image, image.read_image
    mode_class = image.ImageReadMode
    colors = {mode_class.UNCHANGED: "rgb?", mode_class.RGB: "rgb", mode_class.GRAY: "grey"}
    is_tracing: Callable[[], bool] = getattr(torch.jit, "is_tracing", lambda: False)
    warn: Callable[[], Any] = getattr(image, "_warn_deprecated", lambda: None)
    #: Whether this thread is in torchvision's `read_image`, which calls `decode_image`.
    reading = threading.local()
    if io.decode_jpeg is not decode_jpeg or io.decode_image is not decode_image or io.read_image is not read_image:
        return "its functions have been replaced"

    def tensor(made: _Image) -> Any:
        width, height = made.size
        pixels = torch.empty((height, width, made.channels), dtype=torch.uint8, device="cpu")
        if type(pixels) is not torch.Tensor or not pixels.is_cpu:
            raise _Left("torch makes tensors of another kind here")
        made.write(*memory_of(pixels))
        # torchvision turns by views where it can.
        return pixels.permute((2, 1, 0) if made.exchanged else (2, 0, 1))

    def equal(made: Any, expected: Any) -> bool:
        return bool(made.shape == expected.shape and made.stride() == expected.stride() and torch.equal(made, expected))

    def content_of(data: Any) -> bytes:
        if type(data) is not torch.Tensor or data.dtype is not torch.uint8 or not data.is_cpu or data.dim() != 1 or not data.is_contiguous():
            raise _Left("bytes that are no flat tensor on the CPU")
        return _content(data.numpy())

    pattern = torch.frombuffer(bytearray(test_pattern()), dtype=torch.uint8).reshape(45, 67, 3).permute(2, 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probes = [image.encode_jpeg(pattern.contiguous()), image.encode_jpeg(pattern[:1].contiguous())]
        turned = [torch.frombuffer(bytearray(_with_orientation(probes[0].numpy().tobytes(), way)), dtype=torch.uint8) for way in (6, 7)]
        for probe in (*probes, *turned):
            for mode, color in colors.items():
                if not equal(tensor(_Image(content_of(probe), color)), decode_jpeg(probe, mode)):
                    return "it decodes other pixels"
        try:
            decode_jpeg(probes[0], "RGB")
            texts = True
        except Exception:
            # Versions before 0.21 take no text for a mode.
            texts = False
        turns = "apply_exif_orientation" in inspect.signature(decode_jpeg).parameters
        turns = turns and all(
            equal(tensor(_Image(content_of(probe), "rgb", upright=True, exchanges=True)), decode_jpeg(probe, mode_class.RGB, apply_exif_orientation=True)) for probe in turned
        )

    def warnings_of(*functions: Any) -> int:
        return sum("_warn_deprecated" in inspect.unwrap(function).__code__.co_names for function in functions)

    def instead_of(original: Any) -> Any:
        names = list(inspect.signature(original).parameters)
        first = names[0]
        once = warnings_of(original)
        with_file = once + warnings_of(image.read_file, *([decode_image] if original is read_image else []))

        def decode(*args: Any, **kwargs: Any) -> Any:
            def make() -> Any:
                known = {**dict(zip(names, args)), **kwargs}
                if len(args) > len(names) or len(known) != len(args) + len(kwargs) or known.keys() - set(names) or first not in known:
                    raise _Left(f"arguments of {original.__name__}")
                data, mode = known[first], known.get("mode", mode_class.UNCHANGED)
                if texts and type(mode) is str:
                    mode = mode_class.__members__.get(mode.upper())
                color = colors.get(mode) if type(mode) is mode_class else None
                if color is None:
                    raise _Left(f"mode {known['mode']!r}")
                device, upright = known.get("device", "cpu"), known.get("apply_exif_orientation", False)
                if str(device) != "cpu" or type(upright) is not bool or upright and not turns:
                    raise _Left("a device or a turn that is not served")
                if is_tracing():
                    raise _Left("torch traces")
                reads = original is read_image or original is decode_image and isinstance(data, (str, os.PathLike))
                content = _file(data) if reads else content_of(data)
                made = tensor(_Image(content, color, upright=upright, exchanges=True))
                for _ in range(with_file if reads else once):
                    warn()
                return made

            def by_library() -> Any:
                if original is not read_image:
                    return original(*args, **kwargs)
                reading.now = True
                try:
                    return original(*args, **kwargs)
                finally:
                    reading.now = False

            if getattr(reading, "now", False):
                return original(*args, **kwargs)
            return _served("torchvision", make, by_library, equal)

        # TorchScript compiles torchvision's own.
        decode.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
        return decode

    for name, original in (("decode_jpeg", decode_jpeg), ("decode_image", decode_image), ("read_image", read_image)):
        new = instead_of(original)
        _state.replace(image, name, new)
        _state.replace(io, name, new)
    return ""


# TurboJPEG.

#: Sampling of the first of three components of what TurboJPEG decodes in every version; the others are not sampled finer.
_SAMPLINGS = [[first, (1, 1), (1, 1)] for first in ((1, 1), (2, 1), (1, 2), (2, 2))]


def _turbo(content: bytes, color: str) -> Any:
    image = _Image(content, color)
    sampling = image.jpeg.sampling
    if len(sampling) > 1 and sampling not in _SAMPLINGS:
        raise _Left(f"components sampled {sampling}")
    return image.array(False)


def _serve_simplejpeg(simplejpeg: Any) -> str:
    decode_jpeg = simplejpeg.decode_jpeg
    import numpy

    colors = {form: name for name in ("rgb", "bgr") for form in (name, name.upper())}
    colors.update({"gray": "grey", "GRAY": "grey"})
    pattern = numpy.frombuffer(test_pattern(), numpy.uint8).reshape(45, 67, 3)
    for sampling in ("444", "422", "420"):
        probe = simplejpeg.encode_jpeg(pattern, colorsubsampling=sampling)
        if not all(_equal_arrays(_turbo(probe, color), decode_jpeg(probe, name)) for name, color in colors.items()):
            return "it decodes other pixels"
    names = ("data", "colorspace", "fastdct", "fastupsample", "min_height", "min_width", "min_factor", "buffer", "strict")
    plain = {"fastdct": False, "fastupsample": False, "min_height": 0, "min_width": 0, "buffer": None}

    def decode(*args: Any, **kwargs: Any) -> Any:
        def make() -> Any:
            known = {**dict(zip(names, args)), **kwargs}
            if len(args) > len(names) or len(known) != len(args) + len(kwargs) or known.keys() - set(names) or "data" not in known:
                raise _Left("arguments of decode_jpeg")
            name = known.get("colorspace", "RGB")
            color = colors.get(name) if type(name) is str else None
            if color is None:
                raise _Left(f"colorspace {name!r}")
            for option, value in plain.items():
                if known.get(option, value) is not value:
                    raise _Left(option)
            if type(known.get("strict", True)) is not bool or type(known.get("min_factor", 1)) not in (int, float):
                raise _Left("strict or min_factor of another kind")
            data = known["data"]
            if type(data) is not bytes and (memoryview(data).ndim != 1 or memoryview(data).format not in ("B", "c", "?")):
                raise _Left("bytes of another kind")
            return _turbo(_content(data), color)

        return _served("simplejpeg", make, lambda: decode_jpeg(*args, **kwargs), _equal_arrays)

    _state.replace(simplejpeg, "decode_jpeg", decode)
    return ""


def _serve_turbojpeg(turbojpeg: Any) -> str:
    kind = turbojpeg.TurboJPEG
    original = kind.decode
    import numpy

    colors = {turbojpeg.TJPF_RGB: "rgb", turbojpeg.TJPF_BGR: "bgr", turbojpeg.TJPF_GRAY: "grey"}
    names = ("jpeg_buf", "pixel_format", "scaling_factor", "flags", "dst")
    if tuple(inspect.signature(original).parameters)[1:] != names:
        return "its decode takes other arguments"
    #: Each object has a native library of its own: whether that decodes the same pixels.
    same: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()

    def is_same(self: Any) -> bool:
        pattern = numpy.frombuffer(test_pattern(), numpy.uint8).reshape(45, 67, 3)
        for sampling in (turbojpeg.TJSAMP_444, turbojpeg.TJSAMP_422, turbojpeg.TJSAMP_420):
            probe = self.encode(pattern, jpeg_subsample=sampling)
            if not all(_equal_arrays(_turbo(probe, color), original(self, probe, form)) for form, color in colors.items()):
                return False
        return True

    def decode(self: Any, *args: Any, **kwargs: Any) -> Any:
        def make() -> Any:
            known = {**dict(zip(names, args)), **kwargs}
            if len(args) > len(names) or len(known) != len(args) + len(kwargs) or known.keys() - set(names) or "jpeg_buf" not in known:
                raise _Left("arguments of decode")
            form = known.get("pixel_format", turbojpeg.TJPF_BGR)
            color = colors.get(form) if type(form) is int else None
            if color is None:
                raise _Left(f"pixel_format {form!r}")
            if known.get("flags", 0) != 0 or known.get("scaling_factor") is not None or known.get("dst") is not None:
                raise _Left("flags, scaling_factor or dst")
            if type(self) is not kind:
                raise _Left("a class of the script's own")
            if any(getattr(self, f"_TurboJPEG__{limit}", 0) for limit in ("max_pixels", "max_memory", "scan_limit")):
                raise _Left("limits of its own")
            if self not in same:
                try:
                    same[self] = is_same(self)
                except Exception:
                    same[self] = False
            if not same[self]:
                raise _Left("its native library decodes other pixels")
            return _turbo(_content(known["jpeg_buf"]), color)

        return _served("PyTurboJPEG", make, lambda: original(self, *args, **kwargs), _equal_arrays)

    _state.replace(kind, "decode", decode)
    return ""


# Installation.


def _with_orientation(jpeg: bytes, orientation: int) -> bytes:
    tiff = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0" + bytes([orientation, 0, 0, 0]) + bytes(4)
    return jpeg[:2] + b"\xff\xe1" + (8 + len(tiff)).to_bytes(2, "big") + b"Exif\0\0" + tiff + jpeg[2:]


def install(every: Optional[int] = None, folder: Optional[str] = None, quiet: bool = False) -> bool:
    """Has the decoders of libraries that are imported served here, from now on and in processes that are forked later. Importing
    this module does it, too.

    Args:
        every: Compares every so many images with the library's; 0 for none. By default what `STOKEHOLD_DECODERS` says.
        folder: Where every process leaves its :func:`counts`, as `decoders-PID.json`.
        quiet: Whether no warning says what is left alone, and why.

    Returns:
        Whether any library is served. None is where `STOKEHOLD_DECODERS=off`. One that decodes other pixels is left alone; a
        warning says which and why.
    """
    if not _state.begin(every, folder):
        return False
    serve: dict[str, Callable[[Any], str]] = {
        "cv2": _serve_cv2,
        "torchvision.io": _serve_torchvision,
        "simplejpeg": _serve_simplejpeg,
        "turbojpeg": _serve_turbojpeg,
    }
    if not _state.served:
        _state.clear()
        for module, why in _state.refused.items():
            _state.leave(f"{_LIBRARIES[module]}: {why}")
    for module, library in _LIBRARIES.items():
        loaded = sys.modules.get(module)
        if loaded is None or module in _state.served or module in _state.refused or _is_loading(loaded):
            continue
        try:
            differs = serve[module](loaded)
        except Exception as error:
            differs = f"{type(error).__name__}: {error}"
        if not differs:
            _state.served.add(module)
            continue
        _state.refused[module] = differs
        _state.leave(f"{library}: {differs}")
        version = getattr(loaded, "__version__", None)
        name = library if version is None else f"{library} {version}"
        if not quiet:
            warnings.warn(f"stokehold.decoders leaves {name} alone: {differs}", RuntimeWarning, stacklevel=2)
    if _state.served:
        _state.watch_forks()
    return bool(_state.served)


def _is_loading(module: Any) -> bool:
    """Whether a module is still being imported. cv2 imports a second module of its name meanwhile."""
    if module.__name__ == "cv2" and hasattr(sys, "OpenCV_LOADER"):
        return True
    needed = {"cv2": ("imread", "imdecode"), "torchvision.io": ("decode_jpeg", "decode_image", "read_image"), "simplejpeg": ("decode_jpeg",), "turbojpeg": ("TurboJPEG",)}
    return not all(hasattr(module, name) for name in needed[module.__name__])


def uninstall() -> None:
    """Gives everything that was replaced back to its library."""
    _state.uninstall()


install()
