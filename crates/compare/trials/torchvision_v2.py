"""PyTorch's DataLoader with torchvision's v2 transforms.

At load 0 on uint8 tensors that torchvision.io decodes, with its own libjpeg-turbo: the same work as torchvision_pil, and
faster. From load 1 on, v2's transforms on images of Pillow: v2 turns tensors by a grid of floats, which takes ten times as
long as Pillow's rotation, so it is the images' form that is v2's best there. In that the trial is torchvision_pil's
work by v2's code.

Tuned: as torchvision_pil.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import PIL
import torch
import torchvision
from spec import IMAGENET_MEAN, IMAGENET_STD, Spec
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2 as T
from torchvision_pil import data_loader, open_rgb


def batches(spec: Spec) -> Iterator[tuple[torch.Tensor, np.ndarray]]:
    """The batches of the stream, without end."""
    load: Callable[[str], Any] = decode if spec.load == 0 else open_rgb
    return data_loader(spec, load, transform(spec.load, spec.image_size))


def versions() -> str:
    """The libraries that do the work."""
    return f"torch {torch.__version__}, torchvision {torchvision.__version__}, pillow {PIL.__version__}"


def transform(load: int, size: int) -> T.Compose:
    """What is done to an image, of Pillow or a tensor."""
    repeated = [T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomRotation(5)] * load
    flip = [T.RandomHorizontalFlip()] if load == 0 else []
    to_float = [T.ToImage(), T.ToDtype(torch.float32, scale=True), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return T.Compose([*repeated, T.RandomResizedCrop(size, antialias=True), *flip, *to_float, T.ToPureTensor()])


def decode(path: str) -> torch.Tensor:
    """The pixels of a JPEG file, as a tensor of bytes."""
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)
