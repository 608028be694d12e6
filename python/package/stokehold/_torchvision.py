"""torchvision's transforms as operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stokehold.errors import OptionError
from stokehold.transforms import (
    AutoAugment,
    CenterCrop,
    ColorJitter,
    Compose,
    GaussianBlur,
    Grayscale,
    Normalize,
    Operation,
    Pad,
    RandAugment,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomPosterize,
    RandomResizedCrop,
    RandomRotation,
    RandomSolarize,
    RandomVerticalFlip,
    Resize,
    ToTensor,
    TrivialAugmentWide,
)
from stokehold._values import one_or_pair


def convert(compose: Any) -> Compose:
    """See ``stokehold.transforms.from_torchvision``."""
    converted: list[Operation] = []
    for number, transform in enumerate(_flat(compose), 1):
        kind = type(transform)
        name = kind.__name__
        where = f"transform {number} ({name})"
        if not kind.__module__.startswith("torchvision.transforms"):
            raise OptionError(
                f"{where} is not torchvision's but {kind.__module__}'s; leave it out of the Compose and give it to the "
                "loader as batch_transform, which gets the images of a whole batch"
            )
        convert = _CONVERT.get(name)
        if convert is None:
            raise OptionError(
                f"{where} has no equivalent here; there are {', '.join(sorted(_CONVERT))}. Leave it out, or apply it to "
                "whole batches: Loader(batch_transform=..)"
            )
        try:
            converted.extend(convert(transform))
        except OptionError as error:
            raise OptionError(f"{where}: {error}") from None
    try:
        return Compose(converted)
    except OptionError as error:
        raise OptionError(f"{error} (ToFloat is ToTensor here)") from None


def _flat(transform: Any) -> Iterable[Any]:
    """The transforms in nested lists of them, one after the other."""
    name = type(transform).__name__
    inner = getattr(transform, "transforms", None)
    if isinstance(transform, (list, tuple)):
        inner = transform
    elif name == "Sequential":
        inner = list(transform)
    elif name != "Compose":
        inner = None
    if inner is None:
        yield transform
        return
    for one in inner:
        yield from _flat(one)


def _to_float_dtype(transform: Any) -> list[Operation]:
    dtype, scale = transform.dtype, getattr(transform, "scale", True)
    if str(dtype) != "torch.float32" or not scale:
        raise OptionError(
            f"dtype={dtype}, scale={scale}: only torch.float32 with scale=True is converted; other types are the loader's "
            "dtype argument"
        )
    return [ToTensor()]


_CONVERT: dict[str, Any] = {
    "AutoAugment": lambda t: [AutoAugment(t.policy, t.interpolation, t.fill)],
    "CenterCrop": lambda t: [CenterCrop(t.size)],
    "ColorJitter": lambda t: [
        ColorJitter(t.brightness or 0, t.contrast or 0, t.saturation or 0, (0 if t.hue is None else t.hue))
    ],
    "ConvertImageDtype": _to_float_dtype,
    "GaussianBlur": lambda t: [GaussianBlur(list(t.kernel_size), list(t.sigma))],
    "Grayscale": lambda t: [Grayscale(t.num_output_channels)],
    # What a model's weights were made with: `ResNet18_Weights.DEFAULT.transforms()`.
    "ImageClassification": lambda t: [
        Resize(one_or_pair(t.resize_size), t.interpolation, None, t.antialias),
        CenterCrop(t.crop_size),
        ToTensor(),
        Normalize(list(t.mean), list(t.std)),
    ],
    "Normalize": lambda t: [Normalize(list(t.mean), list(t.std))],
    "PILToTensor": lambda t: [],
    "Pad": lambda t: [Pad(t.padding, t.fill, t.padding_mode)],
    "RandAugment": lambda t: [
        RandAugment(t.num_ops, t.magnitude, t.num_magnitude_bins, t.interpolation, t.fill)
    ],
    "RandomAdjustSharpness": lambda t: [RandomAdjustSharpness(t.sharpness_factor, t.p)],
    "RandomAutocontrast": lambda t: [RandomAutocontrast(t.p)],
    "RandomCrop": lambda t: [
        RandomCrop(t.size, t.padding, t.pad_if_needed, t.fill, t.padding_mode)
    ],
    "RandomEqualize": lambda t: [RandomEqualize(t.p)],
    "RandomErasing": lambda t: [RandomErasing(t.p, t.scale, t.ratio, _erase_value(t.value))],
    "RandomGrayscale": lambda t: [RandomGrayscale(t.p)],
    "RandomHorizontalFlip": lambda t: [RandomHorizontalFlip(t.p)],
    "RandomInvert": lambda t: [RandomInvert(t.p)],
    "RandomPosterize": lambda t: [RandomPosterize(t.bits, t.p)],
    "RandomResizedCrop": lambda t: [
        RandomResizedCrop(t.size, t.scale, t.ratio, t.interpolation, t.antialias)
    ],
    "RandomRotation": lambda t: [
        RandomRotation(t.degrees, t.interpolation, t.expand, t.center, t.fill)
    ],
    "RandomSolarize": lambda t: [RandomSolarize(t.threshold, t.p)],
    "RandomVerticalFlip": lambda t: [RandomVerticalFlip(t.p)],
    "Resize": lambda t: [Resize(one_or_pair(t.size), t.interpolation, t.max_size, t.antialias)],
    "ToDtype": _to_float_dtype,
    "ToImage": lambda t: [],
    "ToTensor": lambda t: [ToTensor()],
    "TrivialAugmentWide": lambda t: [TrivialAugmentWide(t.num_magnitude_bins, t.interpolation, t.fill)],
}


def _erase_value(given: Any) -> Any:
    """v2 keeps a list, or None for noise."""
    if given is None:
        return "random"
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 1:
        return given[0]
    return given
