"""An emulated accelerator: it trains nothing, and takes as long as the real one would.

It takes a batch, copies its numbers once, as a transfer to a device does, and is busy for images / rate seconds without
computing. A program sleeps longer than it wants to, so a step ends at a point in time that is computed from the end of
the step before, plus the time for which the accelerator had no batch: if one sleep is too long, the next one is shorter
by that, up to the length of a step. (Stokehold's own emulated accelerator does the same.)
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from spec import Failed, Spec


class Emulated:
    """An accelerator of a stated speed."""

    device = "emulated"
    versions = ""

    def __init__(self, spec: Spec, images_per_second: float):
        self.busy = spec.batch_size / images_per_second
        # The memory of the device: the current batch. Written once, so that the first step finds the pages in place.
        self.memory = np.ones(spec.shape, np.float32)
        # When the last step ended, or should have ended; and when the caller got it back.
        self.last: tuple[float, float] | None = None

    def step(self, images: Any, labels: np.ndarray) -> tuple[float, float, None]:
        """Takes a batch, and returns when the accelerator is done with it: seconds busy, of these copying; no loss."""
        called = time.monotonic()
        # The time since the caller got the last step back is the time without a batch.
        begin = called if self.last is None else self.last[0] + (called - self.last[1])
        # At most one step is made up for: a machine that stood still for a minute is not followed by a minute of
        # steps that take no time.
        begin = max(begin, called - self.busy)
        if hasattr(images, "copy_on_device"):
            images.copy_on_device()
        else:
            # What torch has on the CPU is seen as an array without a copy.
            np.copyto(self.memory, images if isinstance(images, np.ndarray) else images.numpy())
        copying = time.monotonic() - called
        end = begin + self.busy
        time.sleep(max(0.0, end - time.monotonic()))
        self.last = (end, time.monotonic())
        return self.busy, copying, None


def emulated_trainer(spec: Spec, options: Any) -> Emulated:
    """The accelerator that the specification asks for."""
    rate = options.get("images_per_second") if isinstance(options, dict) else None
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not rate > 0:
        raise Failed(f"trainer: emulated must be {{\"images_per_second\": a number above 0}}, not {options!r}")
    return Emulated(spec, rate)
