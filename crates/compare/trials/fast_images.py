"""torchvision_pil's own code, whose images of Pillow are made by `stokehold.pillow`.

The work is torchvision_pil's, and the pixels are equal to the bit.

Tuned: as torchvision_pil.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import stokehold.pillow
import torchvision_pil
from spec import Failed, Spec


def batches(spec: Spec) -> Iterator[Any]:
    """The batches of the stream, without end."""
    if not stokehold.pillow.install():
        raise Failed("stokehold.pillow is not installed for this Pillow")
    return torchvision_pil.batches(spec)


def versions() -> str:
    """The libraries that do the work."""
    return f"{torchvision_pil.versions()}, stokehold {stokehold.__version__}"
