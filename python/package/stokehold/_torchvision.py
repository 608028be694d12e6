"""torchvision's transforms as operations."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from stokehold import transforms as T
from stokehold._values import one_or_pair
from stokehold.errors import OptionError


def convert(compose: Any) -> T.Compose:
    """See ``stokehold.transforms.from_torchvision``."""
    operations = _operations(compose)
    try:
        return T.Compose(operations)
    except OptionError as error:
        raise OptionError(f"{error} (ToFloat is ToTensor here)") from None


def _operations(compose: Any) -> list[T.Operation]:
    converted: list[T.Operation] = []
    reasons: list[str] = []
    for number, transform in enumerate(_flat(compose), 1):
        try:
            for operation in _converted(transform, any(isinstance(before, T.ToTensor) for before in converted)):
                _append(converted, operation)
        except OptionError as error:
            reasons.append(f"transform {number} ({_name(transform)}) {error}")
    if reasons:
        raise OptionError("; ".join(reasons))
    return converted


def _append(converted: list[T.Operation], operation: T.Operation) -> None:
    """Appends an operation. One that only moves pixels gives the same numbers on either side of ToTensor, and goes before it."""
    place = next((number for number, before in enumerate(converted) if isinstance(before, T.ToTensor)), None)
    behind = [] if place is None else converted[place + 1 :]
    if (
        place is None
        or not isinstance(operation, (T.RandomHorizontalFlip, T.RandomVerticalFlip, T.RandomCrop, T.Pad, T.CenterCrop))
        or not all(isinstance(before, T.Normalize) for before in behind)
    ):
        converted.append(operation)
        return
    given = operation.as_dict()
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


def _converted(transform: Any, is_float: bool) -> list[T.Operation]:
    """``is_float``: whether numbers are floats already, and no bytes."""
    kind = type(transform)
    if kind.__name__ == "Identity" and _is_of(kind, "torch.nn"):
        return []
    if not _is_of(kind, "torchvision.transforms"):
        raise OptionError(
            "is not torchvision's own class; leave it out of the Compose and give it to the loader as sample_transform, which gets every "
            "image, or batch_transform, which gets a whole batch"
        )
    changed = _changed(transform)
    if changed:
        raise OptionError(f"has {changed} of the script's own, which would not be called")
    convert = _CONVERT.get(kind.__name__)
    if kind.__name__ in ("ConvertImageDtype", "ToDtype"):
        convert = _to_bytes_or_float if not is_float else _to_float_again
    if convert is None:
        raise OptionError(
            f"has no equivalent here; there are {', '.join(sorted(_CONVERT))}. Leave it out, or apply it behind the pipeline: "
            "Loader(sample_transform=..) or, faster, Loader(batch_transform=..)"
        )
    try:
        converted: list[T.Operation] = convert(transform)
    except OptionError as error:
        raise OptionError(f"cannot be converted: {error}") from None
    return converted


def _name(transform: Any) -> str:
    """A class's name, or a function's."""
    name = getattr(transform, "__name__", None)
    return name if isinstance(name, str) else type(transform).__name__


def _is_of(kind: type, package: str) -> bool:
    """Whether a class is the package's own, and not one that a script has made or that has only its name."""
    module = kind.__module__
    if module != package and not module.startswith(f"{package}."):
        return False
    return getattr(sys.modules.get(module), kind.__name__, None) is kind


def _changed(transform: Any) -> str:
    """What an object does differently from its class: hooks, and methods of its own."""
    own = [name for name in getattr(transform, "__dict__", ()) if callable(getattr(type(transform), name, None))]
    own += [name for name in ("_forward_hooks", "_forward_pre_hooks") if getattr(transform, name, None)]
    return " and ".join(own)


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


def _dtype(transform: Any) -> tuple[str, bool]:
    """The type that images become, and whether their range follows."""
    dtype = transform.dtype
    if isinstance(dtype, dict):
        dtype = _by_kind("dtype", dtype)
    return str(dtype), getattr(transform, "scale", True)


def _to_bytes_or_float(transform: Any) -> list[T.Operation]:
    dtype, scale = _dtype(transform)
    if dtype in ("torch.uint8", "None"):
        return []
    if dtype == "torch.float32" and scale:
        return [T.ToTensor()]
    raise OptionError(
        f"dtype={dtype}, scale={scale}: of bytes only torch.uint8, and torch.float32 with scale=True, are converted; other types are "
        "the loader's dtype argument"
    )


def _to_float_again(transform: Any) -> list[T.Operation]:
    dtype, scale = _dtype(transform)
    if dtype in ("torch.float32", "None"):
        return []
    raise OptionError(f"dtype={dtype}, scale={scale}: of floats only torch.float32 is converted; other types are the loader's dtype argument")


def _by_kind(what: str, given: dict[Any, Any]) -> Any:
    """What v2 has for images, of a value for each type."""
    by_name = {kind if isinstance(kind, str) else kind.__name__: value for kind, value in given.items()}
    # PIL's class of images has the same name as torchvision's.
    for name in ("Image", "Tensor", "others"):
        if name in by_name:
            return by_name[name]
    raise OptionError(f'{what}: it has no value for images; give one for tv_tensors.Image, or as "others"')


def _fill(transform: Any) -> Any:
    """The fill of images, where v2 has one for each type. Masks are filled with 255 here."""
    fill = transform.fill
    if not isinstance(fill, dict):
        return fill
    mask = next((value for kind, value in fill.items() if getattr(kind, "__name__", kind) == "Mask"), 255)
    if mask != 255:
        raise OptionError(f"fill={mask} of masks: they are filled with 255, which ignore_index leaves out of the loss")
    return _by_kind("fill", fill)


_CONVERT: dict[str, Any] = {
    "AugMix": lambda t: [
        T.AugMix(t.severity, t.mixture_width, t.chain_depth, t.alpha, t.all_ops, t.interpolation, _fill(t))
    ],
    "AutoAugment": lambda t: [T.AutoAugment(t.policy, t.interpolation, _fill(t))],
    "CenterCrop": lambda t: [T.CenterCrop(t.size)],
    "ColorJitter": lambda t: [
        T.ColorJitter(t.brightness or 0, t.contrast or 0, t.saturation or 0, (0 if t.hue is None else t.hue))
    ],
    "ConvertImageDtype": _to_bytes_or_float,
    "GaussianBlur": lambda t: [T.GaussianBlur(list(t.kernel_size), list(t.sigma))],
    "GaussianNoise": lambda t: [T.GaussianNoise(t.mean, t.sigma, t.clip)],
    "Grayscale": lambda t: [T.Grayscale(t.num_output_channels)],
    # What a model's weights were made with: `ResNet18_Weights.DEFAULT.transforms()`.
    "ImageClassification": lambda t: [
        T.Resize(one_or_pair(t.resize_size), t.interpolation, None, t.antialias),
        T.CenterCrop(t.crop_size),
        T.ToTensor(),
        T.Normalize(list(t.mean), list(t.std)),
    ],
    "Identity": lambda t: [],
    "Normalize": lambda t: [T.Normalize(list(t.mean), list(t.std))],
    "PILToTensor": lambda t: [],
    "Pad": lambda t: [T.Pad(t.padding, _fill(t), t.padding_mode)],
    # Images have three channels here.
    "RGB": lambda t: [],
    "RandAugment": lambda t: [
        T.RandAugment(t.num_ops, t.magnitude, t.num_magnitude_bins, t.interpolation, _fill(t))
    ],
    "RandomAdjustSharpness": lambda t: [T.RandomAdjustSharpness(t.sharpness_factor, t.p)],
    "RandomAffine": lambda t: [
        T.RandomAffine(t.degrees, t.translate, t.scale, t.shear, t.interpolation, _fill(t), t.center)
    ],
    "RandomApply": lambda t: [T.RandomApply(_each(t.transforms), t.p)],
    "RandomAutocontrast": lambda t: [T.RandomAutocontrast(t.p)],
    "RandomChannelPermutation": lambda t: [T.RandomChannelPermutation()],
    # v2 keeps shares of 1, v1 what was given.
    "RandomChoice": lambda t: [T.RandomChoice(_each(t.transforms), getattr(t, "probabilities", None) or t.p)],
    "RandomCrop": lambda t: [
        T.RandomCrop(t.size, t.padding, t.pad_if_needed, _fill(t), t.padding_mode)
    ],
    "RandomEqualize": lambda t: [T.RandomEqualize(t.p)],
    "RandomErasing": lambda t: [T.RandomErasing(t.p, t.scale, t.ratio, _erase_value(t.value))],
    "RandomGrayscale": lambda t: [T.RandomGrayscale(t.p)],
    "RandomHorizontalFlip": lambda t: [T.RandomHorizontalFlip(t.p)],
    "RandomInvert": lambda t: [T.RandomInvert(t.p)],
    "RandomOrder": lambda t: [T.RandomOrder(_each(t.transforms))],
    "RandomPerspective": lambda t: [T.RandomPerspective(t.distortion_scale, t.p, t.interpolation, _fill(t))],
    "RandomPhotometricDistort": lambda t: [
        T.RandomPhotometricDistort(t.brightness, t.contrast, t.saturation, t.hue, t.p)
    ],
    "RandomPosterize": lambda t: [T.RandomPosterize(t.bits, t.p)],
    "RandomResize": lambda t: [T.RandomResize(t.min_size, t.max_size, t.interpolation, t.antialias)],
    "RandomResizedCrop": lambda t: [
        T.RandomResizedCrop(t.size, t.scale, t.ratio, t.interpolation, t.antialias)
    ],
    "RandomRotation": lambda t: [
        T.RandomRotation(t.degrees, t.interpolation, t.expand, t.center, _fill(t))
    ],
    "RandomShortestSize": lambda t: [
        T.RandomShortestSize(t.min_size, t.max_size, t.interpolation, t.antialias)
    ],
    "RandomSolarize": lambda t: [T.RandomSolarize(t.threshold, t.p)],
    "RandomVerticalFlip": lambda t: [T.RandomVerticalFlip(t.p)],
    "RandomZoomOut": lambda t: [T.RandomZoomOut(_fill(t), t.side_range, t.p)],
    "Resize": lambda t: [T.Resize(one_or_pair(t.size), t.interpolation, t.max_size, t.antialias)],
    "ScaleJitter": lambda t: [
        T.ScaleJitter(t.target_size, t.scale_range, t.interpolation, t.antialias)
    ],
    "ToDtype": _to_bytes_or_float,
    "ToImage": lambda t: [],
    "ToPureTensor": lambda t: [],
    "ToTensor": lambda t: [T.ToTensor()],
    "TrivialAugmentWide": lambda t: [T.TrivialAugmentWide(t.num_magnitude_bins, t.interpolation, _fill(t))],
}


def _each(transforms: Iterable[Any]) -> list[T.Operation]:
    """The members of a composition: each one operation, for it is drawn whole."""
    converted = [_operations([transform]) for transform in transforms]
    return [several[0] if len(several) == 1 else T.Repeat(1, several) for several in converted]


def _erase_value(given: Any) -> Any:
    """v2 keeps a list, or None for noise."""
    if given is None:
        return "random"
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 1:
        return given[0]
    return given
