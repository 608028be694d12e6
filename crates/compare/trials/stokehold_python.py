"""Stokehold's own loader through its Python package. Workers are its threads; in the trial stokehold-gpu they read and
prepare, and a CUDA device makes the batches, which stay there.

All flips, rotations and the crop of an image are one antialiased resampling, so there is no noise of many roundings to whole
pixels; what a rotation turns out of the image stays out, as in torchvision (SEMANTICS.md). Batches are tensors of torch where that is installed, else NumPy arrays, without a copy.

Tuned: the order is handed over many epochs long, because the package starts its threads anew for every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import stokehold
from spec import IMAGENET_MEAN, IMAGENET_STD, Cannot, Failed, Spec
from stokehold import transforms as T


def batches(spec: Spec) -> Iterator[tuple[Any, np.ndarray]]:
    """The batches of the stream, without end."""
    labels = spec.labels.tolist()
    on_gpu = spec.trial == "stokehold-gpu"
    if on_gpu and (spec.device is None or spec.device == "cpu"):
        raise Cannot("its batches are on a CUDA device, and nothing there takes them; compare with --trainer torch --device cuda")
    try:
        loader = stokehold.Loader(
            [(spec.files[index], labels[index]) for index in spec.long_order()],
            pipeline(spec.load, spec.image_size),
            batch_size=spec.batch_size,
            shuffle=False,
            seed=spec.seed,
            num_workers=spec.workers,
            bad_images="error",
            **({"executor": "gpu", "device": "cuda:0"} if on_gpu else {}),
        )
    except stokehold.OptionError as error:
        if not on_gpu:
            raise
        raise Cannot(str(error)) from None
    while True:
        try:
            for images, numbers in loader:
                yield images, np.asarray(numbers)
        except OSError as error:
            raise Failed(str(error)) from None


def versions() -> str:
    """The library that does the work."""
    return f"stokehold {stokehold.__version__}"


def pipeline(load: int, size: int) -> T.Compose:
    """The pipeline, of load times flips and a rotation, crop, normalisation."""
    repeated = [T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomRotation(5)] * load
    flip = [T.RandomHorizontalFlip()] if load == 0 else []
    to_float = [T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return T.Compose([*repeated, T.RandomResizedCrop(size), *flip, *to_float])
