"""PyTorch's DataLoader with images of Pillow and torchvision's classic transforms: the usual way to train.

This is the reference of the work: the other trials say where they differ from it. Workers are processes; each computes
on one thread, as PyTorch's workers do by default.

Tuned: one endless pass over the order, so that the workers never start anew and no epoch ends with a pause; pinned
memory where the batches go to a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from spec import IMAGENET_MEAN, IMAGENET_STD, Failed, Spec, end_with_parent
from torchvision import transforms as T


def batches(spec: Spec) -> Iterator[tuple[torch.Tensor, np.ndarray]]:
    """The batches of the stream, without end."""
    return data_loader(spec, open_rgb, transform(spec.load, spec.image_size))


def versions() -> str:
    """The libraries that do the work."""
    return f"torch {torch.__version__}, torchvision {torchvision.__version__}, pillow {PIL.__version__}"


def transform(load: int, size: int) -> T.Compose:
    """What is done to an image of Pillow."""
    repeated = [T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomRotation(5)] * load
    flip = [T.RandomHorizontalFlip()] if load == 0 else []
    to_float = [T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return T.Compose([*repeated, T.RandomResizedCrop(size), *flip, *to_float])


def open_rgb(path: str) -> Image.Image:
    """As torchvision.datasets.folder.pil_loader."""
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


class Files(torch.utils.data.Dataset):
    """Each file opened by `load` and handed to `transform`, with its label. A file that cannot be loaded is a text that
    says why, because an exception of a worker arrives as a traceback."""

    def __init__(self, spec: Spec, load: Callable[[str], Any], transform: Callable[[Any], torch.Tensor]):
        self.files, self.labels, self.load, self.transform = spec.files, spec.labels, load, transform

    def __getitem__(self, index: int) -> Any:
        path = self.files[index]
        try:
            return self.transform(self.load(path)), int(self.labels[index])
        except (OSError, RuntimeError, ValueError) as error:
            return str(error) if path in str(error) else f"{path}: {error}"


class Indices:
    """What a DataLoader takes as its batch sampler: the indices of every batch, without end."""

    def __init__(self, spec: Spec):
        self.spec = spec

    def __iter__(self) -> Iterator[list[int]]:
        return self.spec.batches_of_indices()


def data_loader(spec: Spec, load: Callable[[str], Any], transform: Callable[[Any], torch.Tensor]) -> Iterator[Any]:
    """The batches of a DataLoader with a pass that does not end."""
    loader = torch.utils.data.DataLoader(
        Files(spec, load, transform),
        batch_sampler=Indices(spec),
        num_workers=spec.workers,
        collate_fn=collate,
        worker_init_fn=begin_worker,
        pin_memory=spec.device == "cuda",
        generator=torch.Generator().manual_seed(spec.seed),
    )
    for batch in loader:
        if isinstance(batch, str):
            raise Failed(batch)
        images, labels = batch
        yield images, labels.numpy()


def begin_worker(_number: int) -> None:
    """Runs in a worker before it loads."""
    end_with_parent()


def collate(samples: list[Any]) -> Any:
    """A batch of the samples; the reason, if one of them cannot be loaded."""
    for sample in samples:
        if isinstance(sample, str):
            return sample
    return torch.utils.data.default_collate(samples)
