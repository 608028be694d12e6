"""What a trial is asked to do, and what all trials share."""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
# What RandomResizedCrop of torchvision draws: the share of the area, and width by height.
CROP_AREA = (0.08, 1.0)
CROP_RATIO = (3 / 4, 4 / 3)

#: Loaders that end with their list are given the stream so often that it has this many samples: they start again
#: hardly ever, and the list stays small.
LONG = 200_000


class Cannot(Exception):
    """The trial cannot do the work that is asked for; says why, and what to install if that helps."""

    def __init__(self, why: str, install: str | None = None):
        super().__init__(why)
        self.why, self.install = why, install


class Failed(Exception):
    """Something that can be expected to fail has failed, such as reading a file; the message says what."""


@dataclass
class Spec:
    """The first line of the protocol, checked; README.md explains the fields."""

    trial: str
    files: list[str]
    labels: np.ndarray  # of the files
    classes: int
    order: np.ndarray  # of the files, by their indices; it is gone through again and again
    load: int
    image_size: int
    batch_size: int
    workers: int
    seed: int
    model: str
    scratch: Path
    trainer: dict[str, Any]
    #: Where the batches are trained: None, where an emulated accelerator takes them, or cpu, or cuda.
    device: str | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of a batch."""
        return self.batch_size, 3, self.image_size, self.image_size

    def batches_of_indices(self) -> Iterator[list[int]]:
        """The indices of every batch, without end."""
        while True:
            for start in range(0, len(self.order), self.batch_size):
                yield self.order[start : start + self.batch_size].tolist()

    def long_order(self) -> np.ndarray:
        """The order, repeated until it is LONG."""
        return np.tile(self.order, -(-LONG // len(self.order)))


def read_spec(line: str) -> Spec:
    """Reads the first line of the protocol, and the files that it names."""
    try:
        given = json.loads(line)
    except ValueError as error:
        raise Failed(f"the first line is no JSON ({error}): {line.strip()[:200]!r}") from None
    if not isinstance(given, dict):
        raise Failed(f"the first line must be a JSON object, not {line.strip()[:200]!r}")
    said: dict[str, Any] = {}
    for name, kind, least in (
        ("trial", str, None), ("samples", str, None), ("order", str, None), ("load", int, 0), ("image_size", int, 1),
        ("batch_size", int, 1), ("workers", int, 1), ("seed", int, 0), ("model", str, None), ("scratch", str, None),
        ("trainer", dict, None),
    ):  # fmt: skip
        if name not in given:
            raise Failed(f"the first line has no {name}")
        value = given.pop(name)
        if not isinstance(value, kind) or isinstance(value, bool) or (least is not None and value < least):
            wanted = {str: "text", int: f"a whole number from {least} on", dict: "an object"}[kind]
            raise Failed(f"{name} must be {wanted}, not {value!r}")
        said[name] = value
    if given:
        raise Failed(f"the first line has an unknown field: {', '.join(given)}")
    said["files"], said["labels"], said["classes"] = read_samples(said.pop("samples"))
    said["order"] = read_order(said["order"], len(said["files"]), said["batch_size"])
    said["scratch"] = Path(said["scratch"])
    if not said["scratch"].is_dir():
        raise Failed(f"scratch must be a folder that exists, not {said['scratch']}")
    assert said.keys() == {field.name for field in fields(Spec)} - {"device"}
    return Spec(**said)


def read_samples(path: str) -> tuple[list[str], np.ndarray, int]:
    """The files, their labels and the number of classes."""
    try:
        given = json.loads(Path(path).read_text())
        files, classes = [str(file) for file in given["files"]], int(given["classes"])
        labels = np.array(given["labels"], np.uint32)
    except OSError as error:
        raise Failed(f"samples: {error}") from None
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise Failed(f"samples: {path} is not as README.md says: {error!r}") from None
    if not files or labels.shape != (len(files),) or labels.max() >= classes:
        raise Failed(f"samples: {path} must have files, a label of each, and more classes than the largest label")
    return files, labels, classes


def read_order(path: str, files: int, batch_size: int) -> np.ndarray:
    """The indices of the files in the order in which they are trained."""
    try:
        order = np.fromfile(path, "<u4").astype(np.int64)
    except OSError as error:
        raise Failed(f"order: {error}") from None
    if len(order) == 0 or len(order) % batch_size != 0 or order.max() >= files:
        raise Failed(
            f"order: {path} must have a whole number of batches of {batch_size} indices below {files}; it has {len(order)}"
        )
    return order


def end_with_parent() -> None:
    """Has Linux end this process when its parent ends, however that happens. Does not carry over to children."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
