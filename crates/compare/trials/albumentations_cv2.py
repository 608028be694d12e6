"""Albumentations on images decoded by simplejpeg.

Less work than torchvision_pil's in one place: OpenCV's bilinear resize reads two source pixels per axis whatever the
scale, so the crop is not antialiased. Rotation is nearest-neighbour, as torchvision's default. Only JPEG files are
read.

Tuned: simplejpeg decodes straight to RGB, where OpenCV's decoder makes BGR that has to be swapped; normalisation is one
multiplication and one addition of each plane, written into the batch, where A.Normalize and a transposition go over the
pixels twice more; OpenCV's own threads are off. Workers are processes, because Albumentations draws and calls in Python,
one thread at a time; they write their batches into memory that the trainer reads, so nothing is sent.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
from collections.abc import Iterator
from importlib.metadata import version
from multiprocessing.connection import Connection

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it asks PyPI for a newer version when imported

import albumentations as A
import cv2
import numpy as np
import simplejpeg
from spec import CROP_AREA, CROP_RATIO, IMAGENET_MEAN, IMAGENET_STD, Failed, Spec, end_with_parent

AHEAD = 2  # batches of every worker that are in work or ready, as PyTorch's DataLoader has


def batches(spec: Spec) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The batches of the stream, without end; batch number N is worker N's, in turns."""
    # One batch more than are in work: the one that the trainer has.
    slots = AHEAD * spec.workers + 1
    memory = mmap.mmap(-1, slots * int(np.prod(spec.shape)) * 4)
    ring = np.frombuffer(memory, np.float32).reshape(slots, *spec.shape)
    # Forked, a worker has the memory and the specification without a copy.
    processes = multiprocessing.get_context("fork")
    workers = []
    for number in range(spec.workers):
        here, there = processes.Pipe()
        processes.Process(target=work, args=(spec, ring, there, number), daemon=True).start()
        there.close()
        workers.append(here)
    per_epoch = len(spec.order) // spec.batch_size
    for number in range(slots - 1):
        workers[number % spec.workers].send(number)
    number = 0
    while True:
        try:
            failed = workers[number % spec.workers].recv()
        except EOFError:
            raise Failed("a worker process has ended") from None
        if failed:
            raise Failed(failed)
        start = number % per_epoch * spec.batch_size
        yield ring[number % slots], spec.labels[spec.order[start : start + spec.batch_size]]
        # The trainer is done with this batch.
        following = number + slots - 1
        number += 1
        workers[following % spec.workers].send(following)


def work(spec: Spec, ring: np.ndarray, connection: Connection, worker: int) -> None:
    """A worker: makes the batches whose numbers it is told, and answers with the reason if that fails."""
    end_with_parent()
    image = Image(spec.load, spec.image_size, spec.seed + worker)
    per_epoch = len(spec.order) // spec.batch_size
    while True:
        try:
            number = connection.recv()
        except EOFError:
            return
        start = number % per_epoch * spec.batch_size
        failed = None
        for slot, index in zip(ring[number % len(ring)], spec.order[start : start + spec.batch_size]):
            path = spec.files[index]
            try:
                image.fill(slot, path)
            except (OSError, ValueError, cv2.error) as error:
                failed = str(error) if path in str(error) else f"{path}: {error}"
        connection.send(failed)


def versions() -> str:
    """The libraries that do the work."""
    return f"albumentations {A.__version__}, opencv {cv2.__version__}, simplejpeg {version('simplejpeg')}"


class Image:
    """What is done to one image, from its file to its place in a batch."""

    def __init__(self, load: int, size: int, seed: int | None = None):
        cv2.setNumThreads(0)
        random.seed(seed)
        self.transform = compose(load, size)
        self.transform.set_random_seed(seed)
        self.scale = [np.float32(1 / (255 * std)) for std in IMAGENET_STD]
        self.shift = [np.float32(-mean / std) for mean, std in zip(IMAGENET_MEAN, IMAGENET_STD)]

    def fill(self, place: np.ndarray, path: str) -> None:
        """Writes the image into its place, (3, size, size)."""
        for channel, plane in enumerate(cv2.split(self.transform(image=decode(path))["image"])):
            np.multiply(plane, self.scale[channel], out=place[channel])
            place[channel] += self.shift[channel]


def compose(load: int, size: int) -> A.Compose:
    """What is done to an array of pixels."""
    steps = []
    for _ in range(load):
        steps += [A.HorizontalFlip(p=0.5), A.VerticalFlip(p=0.5)]
        steps += [A.Rotate((-5, 5), interpolation=cv2.INTER_NEAREST, border_mode=cv2.BORDER_CONSTANT, p=1.0)]
    steps += [A.RandomResizedCrop((size, size), scale=CROP_AREA, ratio=CROP_RATIO, interpolation=cv2.INTER_LINEAR)]
    if load == 0:
        steps += [A.HorizontalFlip(p=0.5)]
    return A.Compose(steps)


def decode(path: str) -> np.ndarray:
    """The pixels of a JPEG file. EXIF orientation is left alone, as torchvision leaves it."""
    with open(path, "rb") as file:
        return simplejpeg.decode_jpeg(file.read(), "RGB")
