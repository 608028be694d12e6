"""Operations on images, with torchvision's names, parameters, defaults and distributions.

    from stokehold import transforms as T

    train = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(T.MEAN, T.STD)])

Nothing here touches a pixel. An operation is a description; the loader's threads draw its numbers and perform all of a
pipeline in one resampling. ``from_torchvision`` makes such a pipeline of a torchvision one.

A pipeline works on bytes up to ``ToTensor``, on floats behind it, and makes all images the same size.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, Union

from stokehold import _values as as_
from stokehold._stokehold import Pipeline
from stokehold.errors import OptionError

__all__ = [
    "MEAN",
    "PRESETS",
    "STD",
    "AugMix",
    "AutoAugment",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "Dilation",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "Normalize",
    "Operation",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Repeat",
    "Resize",
    "ScaleJitter",
    "ToTensor",
    "TrivialAugmentWide",
    "from_torchvision",
    "preset",
]

#: ImageNet's mean of red, green and blue, of floats 0.0 to 1.0.
MEAN = (0.485, 0.456, 0.406)
#: ImageNet's standard deviation of red, green and blue.
STD = (0.229, 0.224, 0.225)
#: What ``preset`` knows.
PRESETS = ("imagenet-train", "imagenet-eval", "published", "caltech")

Number = Union[int, float]
#: A number, or several.
Numbers = Union[Number, Sequence[Number]]
#: One side for a square (of ``Resize``: the shorter edge), or height and width, pixels.
Size = Union[int, Sequence[int]]


class Operation:
    """One operation: its type and its parameters, as a pipeline's file has them."""

    def __init__(self, **parameters: Any) -> None:
        self._parameters = {name: as_.plain(name, value) for name, value in parameters.items() if value is not None}

    @property
    def type(self) -> str:
        """The name of the operation in a pipeline's file."""
        return type(self).__name__

    def as_dict(self) -> dict[str, Any]:
        """The operation as a pipeline's file has it."""
        return {"type": self.type, **self._parameters}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        return hash(json.dumps(self.as_dict(), sort_keys=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._parameters.items())})"


class RandomHorizontalFlip(Operation):
    """Mirrors left and right with probability ``p``, 0 to 1."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)


class RandomVerticalFlip(Operation):
    """Mirrors top and bottom with probability ``p``, 0 to 1."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)


class RandomRotation(Operation):
    """Rotates by an angle drawn evenly from ``degrees``: (low, high), or one number d for (-d, d); counter-clockwise.

    Args:
        degrees: the range.
        interpolation: "nearest" (torchvision's default), "bilinear" or "bicubic".
        expand: grow the image so that nothing is cut off.
        center: (x, y) to turn about, pixels; ``None`` is the centre.
        fill: what shows where the image does not reach: a level 0 to 255, or three.
    """

    def __init__(
        self,
        degrees: Numbers,
        interpolation: Any = "nearest",
        expand: bool = False,
        center: Sequence[Number] | None = None,
        fill: Numbers = 0,
    ) -> None:
        super().__init__(
            degrees=as_.span("degrees", degrees),
            interpolation=as_.interpolation(interpolation),
            expand=bool(expand),
            center=None if center is None else as_.pair("center", center),
            fill=as_.fill(fill),
        )


class RandomResizedCrop(Operation):
    """Cuts out a random area of random aspect ratio and resizes it to ``size``.

    Args:
        size: the result; one number is a square.
        scale: range of the crop's share of the area.
        ratio: range of its width over its height.
        interpolation: "bilinear", "bicubic", "lanczos", "box", "hamming" or "nearest".
        antialias: always on, as torchvision's is for PIL images.
    """

    def __init__(
        self,
        size: Size,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: Any = "bilinear",
        antialias: bool = True,
    ) -> None:
        as_.antialias(antialias)
        super().__init__(
            size=as_.square_or_pair("size", size),
            scale=as_.pair("scale", scale),
            ratio=as_.pair("ratio", ratio),
            interpolation=as_.resampling(interpolation),
        )


class Resize(Operation):
    """Resizes: one number resizes the shorter edge to it, (height, width) both.

    Args:
        size: the result, pixels.
        interpolation: "bilinear", "bicubic", "lanczos", "box", "hamming" or "nearest".
        max_size: with one number: the longer edge is kept at or below this.
        antialias: always on, as torchvision's is for PIL images.
    """

    def __init__(
        self, size: Size, interpolation: Any = "bilinear", max_size: int | None = None, antialias: bool = True
    ) -> None:
        as_.antialias(antialias)
        super().__init__(
            size=as_.size("size", size), interpolation=as_.resampling(interpolation), max_size=max_size
        )


class CenterCrop(Operation):
    """Cuts out the centre, with black where the image is smaller."""

    def __init__(self, size: Size) -> None:
        super().__init__(size=as_.square_or_pair("size", size))


class RandomCrop(Operation):
    """Cuts out a rectangle at a random place.

    Args:
        size: the result; one number is a square.
        padding: borders that are added first, pixels: one, (left and right, top and bottom), or (left, top, right, bottom).
        pad_if_needed: pad further where the image is smaller; without it such an image is an error.
        fill: colour of constant borders: a level 0 to 255, or three.
        padding_mode: "constant", "edge", "reflect" or "symmetric".
    """

    def __init__(
        self,
        size: Size,
        padding: Size | None = None,
        pad_if_needed: bool = False,
        fill: Numbers = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(
            size=as_.square_or_pair("size", size),
            padding=None if padding is None else as_.size("padding", padding),
            pad_if_needed=bool(pad_if_needed),
            fill=as_.fill(fill),
            padding_mode=padding_mode,
        )


class Pad(Operation):
    """Adds borders; the parameters are those of :class:`RandomCrop`."""

    def __init__(self, padding: Size, fill: Numbers = 0, padding_mode: str = "constant") -> None:
        super().__init__(padding=as_.size("padding", padding), fill=as_.fill(fill), padding_mode=padding_mode)


class RandomAffine(Operation):
    """Turns, moves, scales and shears by drawn numbers, within the image's size.

    Args:
        degrees: angles, clockwise: (low, high), or d for (-d, d).
        translate: how far the image moves at most across and down, as shares (0 to 1) of its width and height.
        scale: range of how much larger things get.
        shear: degrees along x: d for (-d, d), or (low, high); or four numbers, along x and along y.
        interpolation: "nearest" (torchvision's default), "bilinear" or "bicubic".
        fill: what shows where the image does not reach: a level 0 to 255, or three.
        center: the point (x, y) that stays where it is, in pixels; the image's centre by default.
    """

    def __init__(
        self,
        degrees: Numbers,
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: Numbers | None = None,
        interpolation: Any = "nearest",
        fill: Numbers = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        super().__init__(
            degrees=as_.span("degrees", degrees),
            translate=None if translate is None else as_.pair("translate", translate),
            scale=None if scale is None else as_.pair("scale", scale),
            shear=None if shear is None else as_.span_or_four("shear", shear),
            interpolation=as_.interpolation(interpolation),
            fill=as_.fill(fill),
            center=None if center is None else as_.pair("center", center),
        )


class RandomPerspective(Operation):
    """Changes the perspective with probability ``p``: each corner moves inwards by a drawn distance.

    Args:
        distortion_scale: how far a corner moves at most: this share (0 to 1) of half the width and of half the height.
        p: probability, 0 to 1.
        interpolation: "nearest", "bilinear" or "bicubic".
        fill: what shows where the image does not reach: a level 0 to 255, or three.
    """

    def __init__(
        self, distortion_scale: float = 0.5, p: float = 0.5, interpolation: Any = "bilinear", fill: Numbers = 0
    ) -> None:
        super().__init__(
            distortion_scale=as_.real("distortion_scale", distortion_scale),
            p=p,
            interpolation=as_.interpolation(interpolation),
            fill=as_.fill(fill),
        )


class RandomResize(Operation):
    """Resizes the shorter edge to a length drawn from ``min_size`` up to below ``max_size`` pixels."""

    def __init__(
        self, min_size: int, max_size: int, interpolation: Any = "bilinear", antialias: bool | None = True
    ) -> None:
        as_.antialias(antialias)
        super().__init__(
            min_size=as_.whole("min_size", min_size),
            max_size=as_.whole("max_size", max_size),
            interpolation=as_.resampling(interpolation),
        )


class RandomShortestSize(Operation):
    """Resizes the shorter edge to one of several lengths.

    Args:
        min_size: the lengths in pixels, of which one is drawn; or one.
        max_size: the limit of the longer edge.
        interpolation: "bilinear", "bicubic", "lanczos", "box", "hamming" or "nearest".
        antialias: True; nothing else is there.
    """

    def __init__(
        self,
        min_size: Size,
        max_size: int | None = None,
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        as_.antialias(antialias)
        super().__init__(
            min_size=as_.size("min_size", min_size),
            max_size=None if max_size is None else as_.whole("max_size", max_size),
            interpolation=as_.resampling(interpolation),
        )


class ScaleJitter(Operation):
    """Resizes to a drawn share of the largest size that fits a target.

    Args:
        target_size: (width, height) in pixels; torchvision calls it (height, width), and reads it the other way round.
        scale_range: range of the share.
        interpolation: "bilinear", "bicubic", "lanczos", "box", "hamming" or "nearest".
        antialias: True; nothing else is there.
    """

    def __init__(
        self,
        target_size: Sequence[int],
        scale_range: Sequence[float] = (0.1, 2.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        as_.antialias(antialias)
        super().__init__(
            target_size=as_.size("target_size", list(target_size)),
            scale_range=as_.pair("scale_range", scale_range),
            interpolation=as_.resampling(interpolation),
        )


class RandomZoomOut(Operation):
    """Puts the image on a larger canvas at a drawn place, with probability ``p``, 0 to 1.

    Args:
        fill: the colour of the canvas: a level 0 to 255, or three.
        side_range: range of how much longer the canvas's sides are than the image's, at least 1.
        p: probability.
    """

    def __init__(self, fill: Numbers = 0, side_range: Sequence[float] = (1.0, 4.0), p: float = 0.5) -> None:
        super().__init__(fill=as_.fill(fill), side_range=as_.pair("side_range", side_range), p=p)


class RandomPhotometricDistort(Operation):
    """Changes colours by drawn factors, and the order of the channels, each with probability ``p``, 0 to 1.

    Args:
        brightness, contrast, saturation: ranges of factors, at least 0.
        hue: range of a shift in turns, -0.5 to 0.5.
        p: probability of each change.
    """

    def __init__(
        self,
        brightness: Sequence[float] = (0.875, 1.125),
        contrast: Sequence[float] = (0.5, 1.5),
        saturation: Sequence[float] = (0.5, 1.5),
        hue: Sequence[float] = (-0.05, 0.05),
        p: float = 0.5,
    ) -> None:
        super().__init__(
            brightness=as_.pair("brightness", brightness),
            contrast=as_.pair("contrast", contrast),
            saturation=as_.pair("saturation", saturation),
            hue=as_.pair("hue", hue),
            p=p,
        )


class RandomChannelPermutation(Operation):
    """Puts red, green and blue in a drawn order."""

    def __init__(self) -> None:
        super().__init__()


class ColorJitter(Operation):
    """Changes colours by drawn factors, in a drawn order.

    A number v stands for (max(0, 1 - v), 1 + v), of ``hue`` for (-v, v); 0 leaves the property alone.

    Args:
        brightness, contrast, saturation: factors, at least 0.
        hue: a shift in turns, -0.5 to 0.5.
    """

    def __init__(
        self, brightness: Numbers = 0, contrast: Numbers = 0, saturation: Numbers = 0, hue: Numbers = 0
    ) -> None:
        super().__init__(
            brightness=as_.span("brightness", brightness),
            contrast=as_.span("contrast", contrast),
            saturation=as_.span("saturation", saturation),
            hue=as_.span("hue", hue),
        )


class Grayscale(Operation):
    """Replaces colour by luminance. The result has three equal channels: ``num_output_channels`` must be 3."""

    def __init__(self, num_output_channels: int = 3) -> None:
        if num_output_channels != 3:
            raise OptionError(
                f"num_output_channels={num_output_channels}: images have 3 channels here; take one of them, images[:, :1]"
            )
        super().__init__()


class RandomGrayscale(Operation):
    """Replaces colour by luminance in all three channels with probability ``p``, 0 to 1."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p=p)


class RandomInvert(Operation):
    """Makes every level 255 less it, with probability ``p``, 0 to 1."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)


class RandomPosterize(Operation):
    """Keeps the highest ``bits`` (1 to 8) of every level, with probability ``p``, 0 to 1."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(bits=as_.whole("bits", bits), p=p)


class RandomSolarize(Operation):
    """Inverts the levels at or above ``threshold`` (0 to 255), with probability ``p``, 0 to 1."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(threshold=as_.real("threshold", threshold), p=p)


class RandomAutocontrast(Operation):
    """Stretches the levels of each channel to 0 to 255, with probability ``p``, 0 to 1."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)


class RandomEqualize(Operation):
    """Equalises the histogram of each channel, with probability ``p``, 0 to 1."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)


class RandomAdjustSharpness(Operation):
    """Changes sharpness with probability ``p``, 0 to 1.

    Args:
        sharpness_factor: 0 is the smoothed image, 1 the image itself, 2 twice as sharp; at least 0.
        p: probability.
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(sharpness_factor=as_.real("sharpness_factor", sharpness_factor), p=p)


class AutoAugment(Operation):
    """Performs one of 25 learned pairs of changes of colour or geometry.

    Args:
        policy: the data on which the pairs were learned: "imagenet", "cifar10" or "svhn", or torchvision's AutoAugmentPolicy.
        interpolation: "nearest" (torchvision's default), "bilinear" or "bicubic".
        fill: what shows where the image does not reach: a level 0 to 255, or three.
    """

    def __init__(self, policy: Any = "imagenet", interpolation: Any = "nearest", fill: Numbers | None = None) -> None:
        super().__init__(
            policy=str(getattr(policy, "value", policy)),
            interpolation=as_.interpolation(interpolation),
            fill=as_.fill(fill),
        )


class RandAugment(Operation):
    """Performs ``num_ops`` changes of colour or geometry, each drawn from 14, all of one magnitude.

    Args:
        num_ops: the number of changes, 0 to 100.
        magnitude: from 0 (weakest) to one below ``num_magnitude_bins``.
        num_magnitude_bins: the number of magnitudes there are, 2 to 10000.
        interpolation: "nearest" (torchvision's default), "bilinear" or "bicubic".
        fill: what shows where the image does not reach: a level 0 to 255, or three.
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: Numbers | None = None,
    ) -> None:
        super().__init__(
            num_ops=as_.whole("num_ops", num_ops),
            magnitude=as_.whole("magnitude", magnitude),
            num_magnitude_bins=as_.whole("num_magnitude_bins", num_magnitude_bins),
            interpolation=as_.interpolation(interpolation),
            fill=as_.fill(fill),
        )


class TrivialAugmentWide(Operation):
    """Performs one change of colour or geometry, drawn from 14, of a drawn magnitude.

    Args:
        num_magnitude_bins: the number of magnitudes there are, 2 to 10000.
        interpolation: "nearest" (torchvision's default), "bilinear" or "bicubic".
        fill: what shows where the image does not reach: a level 0 to 255, or three.
    """

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: Any = "nearest", fill: Numbers | None = None
    ) -> None:
        super().__init__(
            num_magnitude_bins=as_.whole("num_magnitude_bins", num_magnitude_bins),
            interpolation=as_.interpolation(interpolation),
            fill=as_.fill(fill),
        )


class AugMix(Operation):
    """Mixes several chains of changes of colour or geometry with each other and with the image, by drawn shares.

    Args:
        severity: how many of the 10 magnitudes a change draws from, from the weakest on.
        mixture_width: the number of chains, 1 to 100.
        chain_depth: the number of changes in a chain, 1 to 100; -1 draws 1 to 3 for each chain.
        alpha: of the Dirichlet distributions of the shares, 0.001 to 1000.
        all_ops: draw brightness, colour, contrast and sharpness, too.
        interpolation: "nearest", "bilinear" (torchvision's default) or "bicubic".
        fill: what shows where the image does not reach: a level 0 to 255, or three.
    """

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Any = "bilinear",
        fill: Numbers | None = None,
    ) -> None:
        super().__init__(
            severity=as_.whole("severity", severity),
            mixture_width=as_.whole("mixture_width", mixture_width),
            # torchvision draws for every number that is not above 0.
            chain_depth=-1 if as_.real("chain_depth", chain_depth) <= 0 else as_.whole("chain_depth", chain_depth),
            alpha=as_.real("alpha", alpha),
            all_ops=bool(all_ops),
            interpolation=as_.interpolation(interpolation),
            fill=as_.fill(fill),
        )


class GaussianBlur(Operation):
    """Blurs with a Gaussian.

    Args:
        kernel_size: side in pixels, odd; or (width, height).
        sigma: pixels, above 0: drawn evenly from (low, high), or one fixed number.
    """

    def __init__(self, kernel_size: Size, sigma: Numbers = (0.1, 2.0)) -> None:
        super().__init__(kernel_size=as_.size("kernel_size", kernel_size), sigma=as_.span("sigma", sigma))


class Dilation(Operation):
    """Makes every pixel the maximum of its square neighbourhood of ``kernel_size`` (odd) pixels. Not in torchvision."""

    def __init__(self, kernel_size: int = 3) -> None:
        super().__init__(kernel_size=kernel_size)


class ToTensor(Operation):
    """From bytes 0 to 255 to floats 0.0 to 1.0; channels first, as all batches are."""

    @property
    def type(self) -> str:
        """The name of the operation in a pipeline's file."""
        return "ToFloat"


class Normalize(Operation):
    """Subtracts ``mean`` and divides by ``std``, three numbers each; comes after :class:`ToTensor`."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        # In place is how all of it happens.
        del inplace
        super().__init__(mean=as_.channels("mean", mean), std=as_.channels("std", std))


class RandomErasing(Operation):
    """Fills a random rectangle with probability ``p``; comes after :class:`ToTensor`.

    Args:
        p: probability, 0 to 1.
        scale: range of the rectangle's share of the area.
        ratio: range of its height over its width.
        value: a number, three, or "random" for noise.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Numbers | str = 0,
        inplace: bool = False,
    ) -> None:
        del inplace
        what = value if isinstance(value, str) else as_.span_or_three("value", value)
        super().__init__(p=p, scale=as_.pair("scale", scale), ratio=as_.pair("ratio", ratio), value=what)


class GaussianNoise(Operation):
    """Adds normal noise, drawn for every value; comes after :class:`ToTensor`.

    Args:
        mean: the noise's mean; the image's values are 0.0 to 1.0 before :class:`Normalize`.
        sigma: its standard deviation, at least 0.
        clip: limit the sums to 0.0 to 1.0.
    """

    def __init__(self, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> None:
        super().__init__(mean=as_.real("mean", mean), sigma=as_.real("sigma", sigma), clip=bool(clip))


class RandomApply(Operation):
    """Performs all of ``transforms`` with probability ``p``, 0 to 1, or none."""

    def __init__(self, transforms: Iterable[Operation], p: float = 0.5) -> None:
        super().__init__(p=p, op=_as_dicts(transforms))


class RandomChoice(Operation):
    """Performs one of ``transforms``, drawn by the weights ``p``: as often as the others by default."""

    def __init__(self, transforms: Iterable[Operation], p: Sequence[float] | None = None) -> None:
        weights = None if p is None else [as_.real("p", weight) for weight in p]
        super().__init__(p=weights, op=_as_dicts(transforms))


class RandomOrder(Operation):
    """Performs all of ``transforms`` in a drawn order."""

    def __init__(self, transforms: Iterable[Operation]) -> None:
        super().__init__(op=_as_dicts(transforms))


class Repeat(Operation):
    """Performs operations ``times`` times, with draws of their own each time. Not in torchvision."""

    def __init__(self, times: int, transforms: Iterable[Operation]) -> None:
        super().__init__(times=times, op=_as_dicts(transforms))


class Compose:
    """A pipeline: operations one after the other. It is checked when it is made.

    Raises:
        OptionError: a parameter is out of range, an operation stands on the wrong side of ``ToTensor``, or images of one size
            come out in different ones.
    """

    dtype = "float32"  #: What a loader makes by default.

    def __init__(self, transforms: Iterable[Operation]) -> None:
        self.transforms = _operations(transforms)
        self._pipeline = Pipeline(json.dumps({"op": [operation.as_dict() for operation in self.transforms]}))

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the images that come out, pixels; ``None`` if they depend on those of the images. Then all images of
        a ``Loader`` must have one size."""
        return self._pipeline.size

    def to_json(self) -> str:
        """The pipeline as a file for the command line: ``stokehold train DATA --pipeline mine.json``."""
        return self._pipeline.json()

    def __repr__(self) -> str:
        return "Compose([" + "".join(f"\n    {operation!r}," for operation in self.transforms) + "\n])"


def preset(name: str) -> Pipeline:
    """A pipeline by its name, one of ``PRESETS``, as the command line knows it."""
    return Pipeline.named(name)


def from_torchvision(compose: Any) -> Compose:
    """The same pipeline as a torchvision ``Compose``, of v1 or v2, or one transform of it.

    The draws have the same distributions, and pixels are torchvision's of PIL images. Loaders make bytes where the transforms do.

    Raises:
        OptionError: it says which transform cannot be converted, why, and what to do.
    """
    from stokehold._torchvision import convert

    return convert(compose)


def with_dtype(given: Any) -> tuple[Pipeline, str]:
    """A pipeline in whatever way it is given (see ``Loader``), and the type of numbers that it ends with: bytes where torchvision's
    transforms do."""
    if isinstance(given, Pipeline):
        return given, "float32"
    if isinstance(given, (str, os.PathLike)):
        return Pipeline.named(given), "float32"
    compose = given if isinstance(given, Compose) else Compose(given) if isinstance(given, (list, tuple)) else from_torchvision(given)
    return compose._pipeline, compose.dtype


def _as_dicts(transforms: Iterable[Operation]) -> list[dict[str, Any]]:
    return [operation.as_dict() for operation in _operations(transforms)]


def _operations(transforms: Iterable[Operation]) -> list[Operation]:
    operations: list[Operation] = []
    for number, transform in enumerate(transforms, 1):
        if isinstance(transform, Operation):
            operations.append(transform)
        elif type(transform).__module__.startswith("torchvision.transforms"):
            raise OptionError(
                f"transform {number} ({type(transform).__name__}) is torchvision's; convert the whole: "
                "stokehold.transforms.from_torchvision(compose)"
            )
        else:
            raise OptionError(
                f"transform {number} ({transform!r}) is no operation of stokehold.transforms; a function of your own goes "
                "to the loader: Loader(sample_transform=..) or Loader(batch_transform=..)"
            )
    return operations


