"""Parameters of operations as a pipeline's file has them; what cannot be one is an ``OptionError`` with its name.

Ranges are checked below, in Rust; here only what has no type there. Types of the loader's own arguments are checked here too: below,
an exception has no argument's name before Python 3.11.
"""

from __future__ import annotations

import numbers
import operator
import os
import struct
from collections.abc import Sequence
from typing import Any, Optional

from stokehold.errors import OptionError


#: Pillow's filters, each at Pillow's number.
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
#: Those of rotations and other maps.
_OF_MAPS = ("nearest", "bilinear", "bicubic")


def resampling(given: Any, there_are: Sequence[str] = FILTERS) -> str:
    """A filter's name, of a name, of a member of torchvision's or Pillow's enumeration, or of Pillow's number. Of PIL images
    torchvision's NEAREST_EXACT is its NEAREST."""
    name = getattr(given, "value", given)
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(FILTERS):
        name = FILTERS[name]
    name = "nearest" if name == "nearest-exact" else name
    if name not in there_are:
        some, last = ", ".join(map(repr, there_are[:-1])), repr(there_are[-1])
        raise OptionError(f"interpolation={name!r}: there are {some} and {last}")
    return str(name)


def interpolation(given: Any) -> str:
    return resampling(given, _OF_MAPS)


def antialias(given: Any) -> None:
    if given is False:
        raise OptionError("antialias=False: resizing is always antialiased here, as torchvision's is for PIL images")


def one_or_pair(given: Any) -> Any:
    """torchvision takes a list of one number for that number."""
    return given[0] if isinstance(given, Sequence) and len(given) == 1 else given


def whole(name: str, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, numbers.Real) or given < 0 or given % 1 != 0:
        raise OptionError(f"{name}={given!r}: must be a whole number, at least 0")
    return int(float(given))


def size(name: str, given: Any) -> int | list[int]:
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [whole(name, side) for side in given]
    return whole(name, given)


def square_or_pair(name: str, given: Any) -> int | list[int]:
    sides = size(name, one_or_pair(given))
    return sides[0] if isinstance(sides, list) and sides == [sides[0]] * 2 else sides


def real(name: str, given: Any) -> float:
    # A number of a tensor, as timm's transforms have them.
    if getattr(given, "ndim", None) == 0 and callable(getattr(given, "item", None)):
        given = given.item()
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise OptionError(f"{name}={given!r}: must be a number")
    return float(given)


def plain(name: str, given: Any) -> Any:
    """What JSON knows, of numbers of NumPy and torch, too."""
    if isinstance(given, (list, tuple)):
        return [plain(name, one) for one in given]
    if given is None or isinstance(given, (bool, str, dict)):
        return given
    if isinstance(given, numbers.Integral):
        return int(given)
    return real(name, given)


def place(name: str, given: Any) -> str:
    try:
        path = os.fsdecode(given)
    except TypeError:
        raise OptionError(f"{name}={given!r}: must be a folder, such as '/fast/disk:200GB'") from None
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{name}={given!r}: it is not UTF-8") from None
    return path


def pair(name: str, given: Any) -> list[float]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise OptionError(f"{name}={given!r}: must be two numbers")
    return [real(name, number) for number in given]


def span(name: str, given: Any) -> float | list[float]:
    return pair(name, given) if isinstance(given, Sequence) else real(name, given)


def channels(name: str, given: Any) -> list[float]:
    values = [real(name, number) for number in (given if isinstance(given, Sequence) else list(given))]
    if len(values) == 1:
        return values * 3
    if len(values) != 3:
        raise OptionError(f"{name}={given!r}: must be three numbers, for red, green and blue")
    return values


def span_or_three(name: str, given: Any) -> float | list[float]:
    return channels(name, given) if isinstance(given, Sequence) else real(name, given)


def span_or_four(name: str, given: Any) -> float | list[float]:
    if isinstance(given, Sequence) and len(given) == 4:
        return [real(name, number) for number in given]
    return span(name, given)


def fill(given: Any) -> int | list[int]:
    if isinstance(given, dict):
        raise OptionError(f"fill={given!r}: a fill for each type of input is not converted; give one colour")
    if isinstance(given, Sequence) and not isinstance(given, str):
        levels = [whole("fill", level) for level in given]
        if len(levels) == 1:
            return levels[0]
        if len(levels) != 3:
            raise OptionError(f"fill={given!r}: must be a level, or three for red, green and blue")
        return levels
    return whole("fill", 0 if given is None else given)


def index(name: str, given: Any) -> int:
    try:
        return operator.index(given)
    except TypeError:
        raise TypeError(f"{name}={given!r}: must be a whole number") from None


def whole_numbers(**given: Any) -> None:
    for name, number in given.items():
        index(name, number)


def flags(**given: Any) -> None:
    for name, flag in given.items():
        # NumPy's own are called bool_ before version 2.
        if type(flag).__name__ not in ("bool", "bool_"):
            raise TypeError(f"{name}={flag!r}: must be True or False")


def normalization_of(torch: Any, mean: Any, std: Any, channels: int) -> Optional[tuple[list[float], list[float]]]:
    """Mean and standard deviation of three channels; of grey, one number three times. None if torchvision would refuse them."""
    made = []
    for given in (mean, std):
        if type(given) is torch.Tensor and given.is_cpu and given.dim() == 1 and not given.requires_grad:
            # timm's transforms have tensors.
            given = given.tolist() if given.dtype in (torch.float32, torch.float64) else given
        if type(given) not in (list, tuple) or len(given) != channels or not all(type(number) in (int, float) for number in given):
            return None
        made.append(given)
    try:
        mean, std = (3 // channels * list(map(float, given)) for given in made)
        fine = all(struct.unpack("3f", struct.pack("3f", *std))) and struct.pack("3f", *mean)
    except (struct.error, OverflowError):
        return None
    return (mean, std) if fine else None
