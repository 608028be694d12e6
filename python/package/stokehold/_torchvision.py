"""torchvision's transforms as operations."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from stokehold import transforms as T
from stokehold._values import one_or_pair
from stokehold.errors import OptionError


def convert(compose: Any) -> T.Compose:
    """See ``stokehold.transforms.from_torchvision``."""
    images = _Images()
    operations = _operations(compose, images)
    ends_in_bytes = images.kind in ("Image", "Tensor")
    try:
        made = T.Compose([*operations, T.ToTensor()] if ends_in_bytes else operations)
    except OptionError as error:
        raise OptionError(f"{error} (ToFloat is ToTensor here)") from None
    made.dtype = "uint8" if ends_in_bytes else "float32"
    return made


_MOVES = (T.RandomHorizontalFlip, T.RandomVerticalFlip, T.RandomCrop, T.Pad, T.CenterCrop)
_RESIZES = (T.Resize, T.RandomResizedCrop, T.RandomResize, T.RandomShortestSize, T.ScaleJitter)


#: Pillow's own MAX_IMAGE_PIXELS.
_MAX_IMAGE_PIXELS = 89_478_485


class _NoEquivalent(OptionError):
    pass


class _Images:
    """What images are between two transforms, which is what v2's transforms look at."""

    #: ``PIL``, ``Image`` for bytes of v2's ``tv_tensors.Image``, ``Tensor`` for bytes of a tensor, or ``floats``.
    kind = "PIL"


def _operations(compose: Any, images: _Images | None = None) -> list[T.Operation]:
    images = _Images() if images is None else images
    converted: list[T.Operation] = []
    reasons = [f"torch has {name} for all modules, which would not be called" for name in _hooks_of_all()]
    pillow = sys.modules.get("PIL.Image")
    most = getattr(pillow, "MAX_IMAGE_PIXELS", None)
    if most is not None and most < _MAX_IMAGE_PIXELS:
        reasons.append(f"the script has set Pillow's MAX_IMAGE_PIXELS to {most}, and larger images would not be refused")
    reasons += [f"{name} was replaced by the script, and the replacement would not be called" for name in _replaced_functions()]
    for number, transform in enumerate(_flat(compose), 1):
        try:
            for operation in _converted(transform, images):
                _append(converted, operation)
        except OptionError as error:
            reasons.append(f"transform {number} ({name_of(transform)}) {error}")
    if reasons:
        raise OptionError(*reasons)
    return converted


def _append(converted: list[T.Operation], operation: T.Operation) -> None:
    """Appends an operation. One that only moves pixels gives the same numbers on either side of ToTensor, and goes before it. So does a
    bilinear resize, which rounds to bytes after each axis there: the numbers differ by a level at most."""
    place = next((number for number, before in enumerate(converted) if isinstance(before, T.ToTensor)), None)
    behind = [] if place is None else converted[place + 1 :]
    if (
        place is None
        or not isinstance(operation, (*_MOVES, *_RESIZES))
        or not all(isinstance(before, T.Normalize) for before in behind)
    ):
        converted.append(operation)
        return
    given = operation.as_dict()
    if isinstance(operation, _RESIZES) and given.get("interpolation", "bilinear") != "bilinear":
        raise OptionError(f"resizes by {given['interpolation']} after ToTensor, where levels are not rounded; put it before ToTensor")
    may_fill = isinstance(operation, T.CenterCrop) or given.get("padding") is not None or given.get("pad_if_needed")
    if may_fill and given.get("padding_mode", "constant") == "constant":
        if behind:
            raise OptionError("may add borders after Normalize, whose colour no image has; put it before ToTensor")
        fill = given.get("fill", 0)
        if fill not in (0, 1):
            raise OptionError(f"adds borders of {fill} after ToTensor, where levels are 0 to 1; put it before ToTensor, with a level of bytes")
        if fill == 1:
            operation._parameters["fill"] = 255
    converted.insert(place, operation)


def _converted(transform: Any, images: _Images) -> list[T.Operation]:
    kind = type(transform)
    if kind.__name__ == "Identity" and _is_of(kind, "torch.nn"):
        return []
    if kind.__name__ in _TIMMS and _is_of(kind, "timm.data.transforms") and set(vars(transform)) == _TIMMS[kind.__name__]:
        return _of_timm(transform, images)
    if not _is_of(kind, "torchvision.transforms"):
        raise OptionError(
            "is not one of torchvision's transforms; leave it out of the Compose and give it to stokehold.Loader or "
            "stokehold.torch.DataLoader as sample_transform, which gets every image, or batch_transform, which gets a whole batch"
        )
    changed = _changed(transform)
    if changed:
        raise OptionError(f"has {changed} of the script's own, which would not be called")
    antialias = getattr(transform, "antialias", True)
    if antialias in (None, False):
        if images.kind != "PIL":
            raise OptionError(f"has antialias={antialias}, and resizes tensors: resizing is always antialiased here; give antialias=True")
        # PIL images are antialiased whatever it says.
        transform = _With(transform, antialias=True)
    try:
        if kind.__name__ in _TYPES:
            return _to_type(transform, images)
        if kind.__name__ in _OF_IMAGES:
            operations: list[T.Operation] = _OF_IMAGES[kind.__name__](transform, images)
            return operations
        convert = _CONVERT.get(kind.__name__)
        if convert is None:
            raise _NoEquivalent(
                f"has no equivalent here; there are {', '.join(sorted([*_CONVERT, *_OF_IMAGES, *_TYPES]))}. Leave it out of the Compose, or "
                "give it to stokehold.Loader or stokehold.torch.DataLoader as sample_transform or, faster, batch_transform"
            )
        fill = getattr(transform, "fill", None)
        if isinstance(fill, dict):
            transform = _With(transform, fill=_fill_of(fill, images))
        converted: list[T.Operation] = convert(transform)
    except _NoEquivalent:
        raise
    except OptionError as error:
        raise OptionError(f"cannot be converted: {error}") from None
    return converted


def name_of(thing: Any) -> str:
    """What a function or an object is called in a message."""
    name = getattr(thing, "__name__", None)
    return name if isinstance(name, str) else type(thing).__name__


def _is_of(kind: type, package: str) -> bool:
    """Whether a class is the package's own, and not one that a script has made or that has only its name."""
    module = kind.__module__
    if module != package and not module.startswith(f"{package}."):
        return False
    return getattr(sys.modules.get(module), kind.__name__, None) is kind


def _changed(transform: Any) -> str:
    """What an object does differently from its class as it was made: hooks, and methods that a script has set in either."""
    own = [name for name in getattr(transform, "__dict__", ()) if callable(getattr(type(transform), name, None))]
    hooks = {"_forward_hooks": "forward hooks", "_forward_pre_hooks": "forward pre-hooks"}
    own += [said for name, said in hooks.items() if getattr(transform, name, None)]
    return " and ".join(own + replaced(type(transform)))


def replaced(kind: type) -> list[str]:
    """The methods of a class of torch or torchvision, and of its bases there, that a script has replaced."""
    found = []
    for base in kind.__mro__:
        if base.__module__.split(".")[0] in ("torch", "torchvision"):
            found += [name for name, method in vars(base).items() if isinstance(method, FunctionType) and is_foreign(method)]
            called = [name for name in ("__call__", "forward", "transform", "__getitem__", "__getitems__") if name in vars(base)]
            found += [name for name in called if not isinstance(vars(base)[name], FunctionType)]
    return list(dict.fromkeys(found))


def is_foreign(function: Any) -> bool:
    """Whether a function was written elsewhere than in torch, torchvision and Pillow, or wraps one that was."""
    while function is not None:
        # What stokehold.pillow puts in a function's place gives the same.
        function = getattr(function, "_stokehold_instead_of", function)
        code = getattr(function, "__code__", None)
        if code is None:
            return True
        if code.co_filename == "<string>":
            # Some methods are made while a class is.
            if function.__globals__.get("__name__", "").split(".")[0] not in _PACKAGES:
                return True
        elif not code.co_filename.startswith(_folders()):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


_PACKAGES = ("torch", "torchvision", "PIL")


def _folders() -> tuple[str, ...]:
    packages = (sys.modules.get(name) for name in _PACKAGES)
    files = [getattr(package, "__file__", None) for package in packages]
    return tuple(os.path.dirname(file) + os.sep for file in files if file)


def _hooks_of_all() -> list[str]:
    module = sys.modules.get("torch.nn.modules.module")
    names = {"_global_forward_hooks": "forward hooks", "_global_forward_pre_hooks": "forward pre-hooks"}
    return [said for name, said in names.items() if getattr(module, name, None)]


def _replaced_functions() -> list[str]:
    modules = (sys.modules.get(f"torchvision.transforms.{name}") for name in ("functional", "v2.functional", "_functional_pil", "_functional_tensor"))
    pillow = sys.modules.get("PIL.Image")
    opens = [] if pillow is None else [("Image.open", pillow.open), ("Image.convert", pillow.Image.convert), ("Image.resize", pillow.Image.resize)]
    return [f"Pillow's {name}" for name, function in opens if is_foreign(function)] + [
        f"torchvision's {name}"
        for module in modules
        for name, function in (vars(module) if module is not None else {}).items()
        if isinstance(function, FunctionType) and is_foreign(function)
    ]


def _flat(transform: Any) -> Iterable[Any]:
    """The transforms in nested lists of them, one after the other."""
    kind = type(transform)
    inner = None
    if kind in (list, tuple):
        inner = transform
    elif kind.__name__ == "Sequential" and _is_of(kind, "torch.nn"):
        inner = list(transform)
    elif kind.__name__ == "Compose" and _is_of(kind, "torchvision.transforms"):
        inner = transform.transforms
    if inner is None or _changed(transform):
        yield transform
        return
    for one in inner:
        yield from _flat(one)


#: timm's transforms that are torchvision's, and the attributes that they have.
_TIMMS: dict[str, set[str]] = {"MaybeToTensor": set(), "RandomResizedCropAndInterpolation": {"size", "interpolation", "scale", "ratio"}}


def _of_timm(transform: Any, images: _Images) -> list[T.Operation]:
    if type(transform).__name__ == "MaybeToTensor":
        if images.kind != "PIL":
            # It leaves tensors as they are.
            return []
        images.kind = "floats"
        return [T.ToTensor()]
    if isinstance(transform.interpolation, (list, tuple)):
        raise OptionError('draws its interpolation; give it one, such as interpolation="bicubic" (train_interpolation of create_transform)')
    return [T.RandomResizedCrop(transform.size, transform.scale, transform.ratio, transform.interpolation)]


def _is_v2(transform: Any) -> bool:
    given = transform._given if isinstance(transform, _With) else transform
    return type(given).__module__.startswith("torchvision.transforms.v2")


def _padding_of_crop(transform: Any) -> Any:
    """Left, top, right and bottom: v2 keeps left, right, top and bottom."""
    padding = one_or_pair(transform.padding)
    return [padding[at] for at in (0, 2, 1, 3)] if _is_v2(transform) and isinstance(padding, Sequence) and len(padding) == 4 else padding


def _to_type(transform: Any, images: _Images) -> list[T.Operation]:
    """ToImage and others that change what images are, and no pixel."""
    name, is_v2 = type(transform).__name__, _is_v2(transform)
    if name == "ToTensor" and images.kind == "PIL":
        images.kind = "floats"
        return [T.ToTensor()]
    if images.kind == "PIL":
        images.kind = {"ToImage": "Image", "PILToTensor": "Tensor"}.get(name, "PIL")
    elif name in ("ToTensor", "PILToTensor") and not is_v2:
        raise OptionError("torchvision raises an error for what is a tensor already; leave it out")
    elif images.kind != "floats":
        images.kind = {"ToImage": "Image", "ToPureTensor": "Tensor"}.get(name, images.kind)
    return []


def _to_dtype(transform: Any, images: _Images) -> list[T.Operation]:
    dtype, scale = transform.dtype, getattr(transform, "scale", True)
    if images.kind == "PIL":
        if type(transform).__name__ == "ToDtype":
            # It leaves PIL's images alone.
            return []
        raise OptionError("torchvision raises an error for PIL images; put ToImage or PILToTensor before it")
    if isinstance(dtype, dict):
        dtype = _of_type("dtype", dtype, images)
    dtype = str(dtype)
    if images.kind == "floats":
        if dtype in ("torch.float32", "None"):
            return []
        raise OptionError(f"dtype={dtype}, scale={scale}: of floats only torch.float32 is converted; for another type leave it out, and give the loader dtype")
    if dtype in ("torch.uint8", "None"):
        return []
    if dtype == "torch.float32" and scale:
        images.kind = "floats"
        return [T.ToTensor()]
    raise OptionError(
        f"dtype={dtype}, scale={scale}: of bytes only torch.uint8, and torch.float32 with scale=True, are converted; for another type leave "
        "ToDtype(torch.float32, scale=True) here, and give the loader dtype"
    )


def _of_type(what: str, given: dict[Any, Any], images: _Images) -> Any:
    """What v2 takes for images, of a value for each type."""
    module, name = {"PIL": ("PIL.Image", "Image"), "Image": ("torchvision.tv_tensors", "Image")}.get(images.kind, ("torch", "Tensor"))
    kind = getattr(sys.modules.get(module), name, None)
    if images.kind == "floats" and kind not in given:
        # What ToDtype made floats of kept its type.
        kind = getattr(sys.modules.get("torchvision.tv_tensors"), "Image", None)
    if kind is not None and kind in given:
        return given[kind]
    if "others" in given:
        return given["others"]
    raise OptionError(f'{what}: it has no value for {module}.{name}, which images are here; give one for it, or for "others"')


def _fill_of(fill: dict[Any, Any], images: _Images) -> Any:
    """The fill of images, where v2 has one for each type. Masks are filled with 255 here."""
    mask = next((value for kind, value in fill.items() if getattr(kind, "__name__", kind) == "Mask"), 255)
    if mask != 255:
        raise OptionError(f"fill={mask} of masks: they are filled with 255, which ignore_index leaves out of the loss")
    return _of_type("fill", fill, images)


class _With:
    """A transform with other values of some attributes."""

    def __init__(self, transform: Any, **values: Any) -> None:
        self._given = transform
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name)


#: Transforms that change what images are.
_TYPES = ("PILToTensor", "ToImage", "ToPureTensor", "ToTensor")

#: Transforms whose effect depends on what images are.
_OF_IMAGES: dict[str, Any] = {
    "ConvertImageDtype": _to_dtype,
    # What a model's weights were made with: `ResNet18_Weights.DEFAULT.transforms()`.
    "ImageClassification": lambda t, images: [
        T.Resize(one_or_pair(t.resize_size), t.interpolation, None, t.antialias),
        T.CenterCrop(t.crop_size),
        *_become_floats(images),
        T.Normalize(_channels(t.mean), _channels(t.std)),
    ],
    "RandomApply": lambda t, images: [T.RandomApply(_each(t.transforms, images), t.p)],
    # v2 keeps shares of 1, v1 what was given.
    "RandomChoice": lambda t, images: [
        T.RandomChoice(_each(t.transforms, images), getattr(t, "probabilities", None) or t.p)
    ],
    "RandomOrder": lambda t, images: [T.RandomOrder(_each(t.transforms, images))],
    "ToDtype": _to_dtype,
}


def _channels(given: Any) -> list[Any]:
    """A number for each of three channels: torchvision takes one for all, and tensors of (3, 1, 1)."""
    flat = given.flatten().tolist() if hasattr(given, "flatten") else given if isinstance(given, Iterable) else [given]
    numbers = list(flat)
    return numbers * 3 if len(numbers) == 1 else numbers


def _become_floats(images: _Images) -> list[T.Operation]:
    was, images.kind = images.kind, "floats"
    return [] if was == "floats" else [T.ToTensor()]


def _each(transforms: Iterable[Any], images: _Images) -> list[T.Operation]:
    """The members of a composition: each one operation, for it is drawn whole."""
    converted = []
    for transform in transforms:
        member = _Images()
        member.kind = images.kind
        several = _operations([transform], member)
        if member.kind != images.kind:
            raise OptionError(f"{name_of(transform)} in it changes the type of images, and not of all; put it after")
        converted.append(several[0] if len(several) == 1 else T.Repeat(1, several))
    return converted


_CONVERT: dict[str, Any] = {
    "AugMix": lambda t: [
        T.AugMix(t.severity, t.mixture_width, t.chain_depth, t.alpha, t.all_ops, t.interpolation, t.fill)
    ],
    "AutoAugment": lambda t: [T.AutoAugment(t.policy, t.interpolation, t.fill)],
    "CenterCrop": lambda t: [T.CenterCrop(t.size)],
    "ColorJitter": lambda t: [
        T.ColorJitter(t.brightness or 0, t.contrast or 0, t.saturation or 0, (0 if t.hue is None else t.hue))
    ],
    "GaussianBlur": lambda t: [T.GaussianBlur(list(t.kernel_size), list(t.sigma))],
    "GaussianNoise": lambda t: [T.GaussianNoise(t.mean, t.sigma, t.clip)],
    "Grayscale": lambda t: [T.Grayscale(t.num_output_channels)],
    "Identity": lambda t: [],
    "Normalize": lambda t: [T.Normalize(_channels(t.mean), _channels(t.std))],
    "Pad": lambda t: [T.Pad(one_or_pair(t.padding), t.fill, t.padding_mode)],
    # Images have three channels here.
    "RGB": lambda t: [],
    "RandAugment": lambda t: [
        T.RandAugment(t.num_ops, t.magnitude, t.num_magnitude_bins, t.interpolation, t.fill)
    ],
    "RandomAdjustSharpness": lambda t: [T.RandomAdjustSharpness(t.sharpness_factor, t.p)],
    "RandomAffine": lambda t: [
        T.RandomAffine(t.degrees, t.translate, t.scale, t.shear, t.interpolation, t.fill, t.center)
    ],
    "RandomAutocontrast": lambda t: [T.RandomAutocontrast(t.p)],
    "RandomChannelPermutation": lambda t: [T.RandomChannelPermutation()],
    "RandomCrop": lambda t: [
        T.RandomCrop(t.size, _padding_of_crop(t), t.pad_if_needed, t.fill, t.padding_mode)
    ],
    "RandomEqualize": lambda t: [T.RandomEqualize(t.p)],
    "RandomErasing": lambda t: [T.RandomErasing(t.p, t.scale, t.ratio, _erase_value(t.value))],
    "RandomGrayscale": lambda t: [T.RandomGrayscale(t.p)],
    "RandomHorizontalFlip": lambda t: [T.RandomHorizontalFlip(t.p)],
    "RandomInvert": lambda t: [T.RandomInvert(t.p)],
    "RandomPerspective": lambda t: [T.RandomPerspective(t.distortion_scale, t.p, t.interpolation, t.fill)],
    "RandomPhotometricDistort": lambda t: [
        T.RandomPhotometricDistort(t.brightness, t.contrast, t.saturation, t.hue, t.p)
    ],
    "RandomPosterize": lambda t: [T.RandomPosterize(t.bits, t.p)],
    "RandomResize": lambda t: [T.RandomResize(t.min_size, t.max_size, t.interpolation, t.antialias)],
    "RandomResizedCrop": lambda t: [
        T.RandomResizedCrop(t.size, t.scale, t.ratio, t.interpolation, t.antialias)
    ],
    "RandomRotation": lambda t: [
        T.RandomRotation(t.degrees, t.interpolation, t.expand, t.center, t.fill)
    ],
    "RandomShortestSize": lambda t: [
        T.RandomShortestSize(t.min_size, t.max_size, t.interpolation, t.antialias)
    ],
    "RandomSolarize": lambda t: [T.RandomSolarize(t.threshold, t.p)],
    "RandomVerticalFlip": lambda t: [T.RandomVerticalFlip(t.p)],
    "RandomZoomOut": lambda t: [T.RandomZoomOut(t.fill, t.side_range, t.p)],
    "Resize": lambda t: [T.Resize(one_or_pair(t.size), t.interpolation, t.max_size, t.antialias)],
    "ScaleJitter": lambda t: [
        T.ScaleJitter(t.target_size, t.scale_range, t.interpolation, t.antialias)
    ],
    "TrivialAugmentWide": lambda t: [T.TrivialAugmentWide(t.num_magnitude_bins, t.interpolation, t.fill)],
}


#: Transforms whose pixels of tensors are more than two levels from those of PIL images, which are made here.
_OF_PIL = (
    "AugMix", "AutoAugment", "RandAugment", "RandomAffine", "RandomPerspective", "RandomPhotometricDistort", "RandomRotation",
    "TrivialAugmentWide",
)  # fmt: skip


def not_of_tensors(compose: Any, images: _Images | None = None) -> list[str]:
    """The transforms of a pipeline that can be converted whose pixels would be other ones, because torchvision has tensors there."""
    images = _Images() if images is None else images
    found = []
    for transform in _flat(compose):
        name = type(transform).__name__
        if name in _TYPES:
            _to_type(transform, images)
        elif images.kind in ("Image", "Tensor"):
            # torchvision's nearest of tensors takes other pixels, and of Pillow's other filters it has two.
            filter_name = str(getattr(transform, "interpolation", "")).rpartition(".")[2] if hasattr(transform, "antialias") else ""
            if name in _OF_PIL or filter_name not in ("", "BILINEAR", "BICUBIC") or (name == "ColorJitter" and _is_strong(transform)):
                found.append(name)
            found += not_of_tensors(getattr(transform, "transforms", ()), images)
    return found


def _is_strong(jitter: Any) -> bool:
    """Whether a ColorJitter of tensors may be more than two levels from one of PIL images."""
    return bool(jitter.hue) or any(factors and max(factors) > 2 for factors in (jitter.brightness, jitter.contrast, jitter.saturation))


def state_of(compose: Any) -> list[Any]:
    """What a pipeline's transforms do now: another value of any attribute gives another state."""
    return [
        (type(one), repr({name: value for name, value in vars(one).items() if name not in ("transforms", "_modules")}), state_of(getattr(one, "transforms", ())))
        for one in _flat(compose)
        if hasattr(one, "__dict__")
    ]


def _erase_value(given: Any) -> Any:
    """v2 keeps a list, or None for noise."""
    if given is None:
        return "random"
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 1:
        return given[0]
    return given
