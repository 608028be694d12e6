"""FFCV reading the original bytes of the JPEG files from its packed file (trial ffcv), or pixels that its writer has stored
decoded (`write_mode="raw"`, trial ffcv-raw), its fastest form: nothing is decoded, and the file is several times as large.

FFCV has no rotation, so only load 0 is possible. The packed file is made before the trial begins; it has all images in
one place, which saves opening them one by one. It has the bytes of the files as they are, where FFCV's own writer would
encode the pixels anew, so that the trial decodes exactly what the others decode. Decoding uses libjpeg-turbo's fast, less
exact inverse DCT; the crop is resized by area averaging (OpenCV's INTER_AREA). A file whose header is good and whose
rest is damaged is not noticed. Workers are FFCV's num_workers, threads.

Tuned: the file is mapped and in the page cache (`os_cache`); flip and normalisation are FFCV's own operations compiled by
Numba; the order is handed over many epochs long, because FFCV starts its epochs anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["TQDM_DISABLE"] = "1"  # the writer's progress

import numba
import numpy as np
import torch
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder
from ffcv.fields.rgb_image import IMAGE_MODES, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image
from spec import CROP_AREA, CROP_RATIO, IMAGENET_MEAN, IMAGENET_STD, Cannot, Failed, Spec


def batches(spec: Spec) -> Iterator[tuple[torch.Tensor, np.ndarray]]:
    """The batches of the stream, without end."""
    if spec.load > 0:
        raise Cannot("FFCV has no rotation, so only load 0 is possible")
    packed = spec.scratch / "images.beton"
    images = [(path, *size_of(path, spec.trial)) for path in spec.files]
    raw = spec.trial == "ffcv-raw"
    fields = {"image": RGBImageField(write_mode="raw") if raw else OriginalJpeg(), "label": IntField()}
    samples = Samples(list(zip(images, spec.labels.tolist())), raw)
    DatasetWriter(str(packed), fields, num_workers=spec.workers).from_indexed_dataset(samples)
    loader = Loader(
        str(packed),
        batch_size=spec.batch_size,
        # Numba refuses more threads than it finds cores.
        num_workers=min(spec.workers, numba.config.NUMBA_NUM_THREADS),
        order=OrderOption.SEQUENTIAL,
        indices=spec.long_order().astype(np.uint64),
        seed=spec.seed % 2**31,
        os_cache=True,
        drop_last=False,
        custom_fields={"image": RGBImageField},
        pipelines={"image": image_pipeline(spec.image_size), "label": [IntDecoder(), ToTensor(), Squeeze()]},
    )
    while True:
        for images, labels in loader:
            yield images, labels.numpy()


def versions() -> str:
    """The libraries that do the work."""
    return f"ffcv {version('ffcv')}, numba {numba.__version__}, torch {torch.__version__}"


def size_of(path: str, trial: str) -> tuple[int, int]:
    """Width and height. Looked at before the packed file is made, whose writer hangs when one of its workers fails."""
    try:
        with Image.open(path) as image:
            if trial == "ffcv-raw":
                image.load()
            elif image.format != "JPEG":
                raise Failed(f"{path}: FFCV's packed file can hold JPEG files as they are, and this is {image.format}")
            return image.size
    except OSError as error:
        raise Failed(str(error) if path in str(error) else f"{path}: {error}") from None


class Samples:
    """What DatasetWriter iterates over: one tuple of fields a sample."""

    def __init__(self, samples: list[tuple[Any, ...]], raw: bool):
        self.samples, self.raw = samples, raw

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if not self.raw:
            return self.samples[index]
        (path, *_), label = self.samples[index]
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB")), label


class OriginalJpeg(RGBImageField):
    """An image field that stores a file's own bytes in place of newly encoded ones; takes (path, width, height)."""

    def encode(self, destination: Any, image: tuple[str, int, int], malloc: Any) -> None:
        path, destination["width"], destination["height"] = image
        encoded = np.frombuffer(Path(path).read_bytes(), np.uint8)
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["data_ptr"], storage = malloc(encoded.nbytes)
        storage[:] = encoded


def image_pipeline(size: int) -> list[Any]:
    """FFCV's operations for images."""
    mean, std = (255 * np.array(values) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return [
        RandomResizedCropRGBImageDecoder((size, size), scale=CROP_AREA, ratio=CROP_RATIO),
        RandomHorizontalFlip(),
        NormalizeImage(mean, std, np.float32),
        ToTensor(),
        ToTorchImage(convert_back_int16=False),
    ]
