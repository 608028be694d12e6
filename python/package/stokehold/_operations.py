"""Operations that `stokehold.pillow` remembers: their numbers, and what Pillow makes of them."""

from __future__ import annotations

from typing import Any

from PIL import Image, ImageEnhance, ImageOps

#: What is remembered, as the compiled half reads it: the kind, its parameters, and the size of the image that it makes.
CROP, RESIZE, TRANSPOSE, STEP, AFFINE, REDUCE, CONVERT = 1, 2, 3, 4, 5, 6, 7
#: Their parameters.
PARAMETERS = {CROP: 5, RESIZE: 5, TRANSPOSE: 1, STEP: 2, AFFINE: 10, REDUCE: 6, CONVERT: 1}
#: Black to the compiled half, too. Pillow gives pixels that nothing fills another fourth byte than black ones: this says of a transform
#: that it has no colour to fill with, and of a crop that it is a black border.
OTHER_BLACK = (-1, -1, -1)
#: Changes of colours.
BRIGHTNESS, CONTRAST, COLOR, SHARPNESS, HUE, POSTERIZE, SOLARIZE, EQUALIZE, AUTOCONTRAST, INVERT, GRAY = range(11)


def after(image: Any, ops: tuple[float, ...]) -> Any:
    """What Pillow makes of its image by these operations."""
    at = 0
    while at < len(ops):
        kind = int(ops[at])
        end = at + 1 + PARAMETERS[kind]
        image = _performed(image, kind, ops[at + 1 : end], (int(ops[end]), int(ops[end + 1])))
        at = end + 2
    return image


def _performed(image: Any, kind: int, parameters: tuple[float, ...], size: tuple[int, int]) -> Any:
    """An operation, as Pillow performs it."""
    first = int(parameters[0])
    if kind == CROP:
        x, y, *fill = (int(number) for number in parameters)
        if not any(fill):
            return image.crop((x, y, x + size[0], y + size[1]))
        fill = [max(level, 0) for level in fill]
        bordered = Image.new(image.mode, size, fill[0] if image.mode == "L" else tuple(fill))
        bordered.paste(image, (-x, -y))
        return bordered
    if kind == RESIZE:
        return image.resize(size, first, parameters[1:])
    if kind == REDUCE:
        across, down, *box = (int(number) for number in parameters)
        return image.reduce((across, down), tuple(box))
    if kind == TRANSPOSE:
        return image.transpose(first)
    if kind == CONVERT:
        return image.convert("L" if first == 1 else "RGB")
    if kind == STEP:
        return step(image, first, parameters[1])
    color = tuple(int(level) for level in parameters[7:])
    return image.transform(size, 0, parameters[1:7], first, fillcolor=None if color == OTHER_BLACK else color)


def step(image: Any, code: int, value: float) -> Any:
    """A change of colours, as Pillow makes it."""
    if code <= SHARPNESS:
        kind = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color, ImageEnhance.Sharpness)[code]
        return kind(image).enhance(value)
    if code == POSTERIZE:
        return ImageOps.posterize(image, int(value))
    if code == SOLARIZE:
        return ImageOps.solarize(image, value)  # type: ignore[arg-type]
    function: Any = {EQUALIZE: ImageOps.equalize, AUTOCONTRAST: ImageOps.autocontrast, INVERT: ImageOps.invert}.get(code)
    if function is not None:
        return function(image)
    from torchvision.transforms import _functional_pil

    return _functional_pil.adjust_hue(image, value) if code == HUE else _functional_pil.to_grayscale(image, 3)


def reduced(image: Any, size: tuple[int, int], kind: Any, area: Any, gap: float) -> tuple[Any, Any]:
    """What Pillow resizes, and which part of it, where a resize may begin with a reduction."""
    across, down = (int((area[2 + axis] - area[axis]) / size[axis] / gap) or 1 for axis in range(2))
    if across == down == 1:
        return image, area
    box = image._get_safe_box(size, kind, area)
    left, upper = box[:2]
    edges = (area[0] - left) / across, (area[1] - upper) / down, (area[2] - left) / across, (area[3] - upper) / down
    return image.reduce((across, down), box), edges
