"""Albumentations on images decoded by simplejpeg.

Less work than torch_pil in one place: OpenCV's bilinear resize reads two source pixels per axis whatever the scale,
so the crop is not antialiased. Rotation is nearest-neighbour, as torchvision's default.
`--workers` threads make one image each (OpenCV and NumPy release the interpreter's lock); 0 works in the main thread.

Tuned: simplejpeg decodes straight to RGB, where OpenCV's decoder makes BGR that has to be swapped; normalisation is one
multiplication and one addition of each plane, written into the batch, where A.Normalize and a transposition go over the
pixels twice more; OpenCV's own threads are off, which on one core only cost.
"""

import os

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it asks PyPI for a newer version when imported

import random
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import albumentations as A
import cv2
import numpy as np
import simplejpeg
from protocol import BATCH_SIZE, IMAGENET_MEAN, IMAGENET_STD, Peer, Settings, run


def build(settings: Settings) -> Peer:
    cv2.setNumThreads(0)
    size, files = settings.image_size, list(settings.files)
    transform = compose(settings.load, size)
    pool = ThreadPoolExecutor(settings.workers) if settings.workers > 1 else None

    scale = [np.float32(1 / (255 * std)) for std in IMAGENET_STD]
    shift = [np.float32(-mean / std) for mean, std in zip(IMAGENET_MEAN, IMAGENET_STD)]

    def fill(image: np.ndarray, path: str) -> None:
        planes = cv2.split(transform(image=decode(path))["image"])
        for channel, plane in enumerate(planes):
            np.multiply(plane, scale[channel], out=image[channel])
            image[channel] += shift[channel]

    def one_pass() -> int:
        random.shuffle(files)
        for start in range(0, len(files), BATCH_SIZE):
            paths = files[start : start + BATCH_SIZE]
            batch = np.empty((len(paths), 3, size, size), np.float32)
            for _ in (pool.map if pool else map)(fill, batch, paths):
                pass
        return len(files)

    return Peer(f"albumentations {A.__version__}, opencv {cv2.__version__}, simplejpeg {version('simplejpeg')}", one_pass)


def compose(load: int, size: int) -> A.Compose:
    steps = []
    for _ in range(load):
        steps += [A.HorizontalFlip(p=0.5), A.VerticalFlip(p=0.5)]
        steps += [A.Rotate((-5, 5), interpolation=cv2.INTER_NEAREST, border_mode=cv2.BORDER_CONSTANT, p=1.0)]
    steps += [A.RandomResizedCrop((size, size), scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation=cv2.INTER_LINEAR)]
    if load == 0:
        steps += [A.HorizontalFlip(p=0.5)]
    return A.Compose(steps)


def decode(path: str) -> np.ndarray:
    # EXIF orientation is left alone, as torchvision leaves it.
    with open(path, "rb") as file:
        return simplejpeg.decode_jpeg(file.read(), "RGB")


if __name__ == "__main__":
    run("albumentations", build)
