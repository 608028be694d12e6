#!/usr/bin/env python3
"""A training in PyTorch with two loaders: seconds per epoch, accuracy, and what the loader takes from the trainer's steps.

    bench/python_training.py DATA [--epochs 3] [--seeds 3] [--workers 1] [--cores 2] [--max-images N]

DATA is laid out as clothing is: DATA/train/<class>/ and DATA/val/<class>/. ResNet-18 with the recipe of bench/recipes/clothing_torch.py, from
the same weights for the same seed, fed by PyTorch's DataLoader (PIL, processes) and by stokehold.torch.DataLoader (threads) with the same
torchvision Compose. The trainings take turns epoch by epoch, and who begins changes. Both are judged by PyTorch's DataLoader, outside the
measured time.

Before that, the steps alone: how long the trainer's forward, backward and optimiser take while a loader of 1 and of 2 workers runs beside it,
against one batch over and over without any loader. As many threads compute as there are cores.

It runs in a Python that has torch and the wheel of python/ (python/check says how one is made). Lines of JSON, then a table.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "recipes"))

import clothing_torch as recipe
import torch
from torch.nn import functional as F
from torchvision.models import resnet18

import stokehold.torch

LOADERS = {"torch": torch.utils.data.DataLoader, "stokehold": stokehold.torch.DataLoader}


@dataclass
class Epoch:
    """What one epoch, or a part of one, took."""

    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    @property
    def wait_share(self) -> float:
        return sum(self.waits) / self.seconds


class Training:
    """A model and what feeds it."""

    def __init__(self, loader: str, workers: int, options: argparse.Namespace, seed: int) -> None:
        torch.manual_seed(seed)
        train, self.val = recipe.loaders(options.data, options.max_images)
        self.batches = LOADERS[loader](
            train.dataset, recipe.BATCH_SIZE, shuffle=True, num_workers=workers, persistent_workers=True,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        torch.manual_seed(seed)
        self.model = resnet18(num_classes=len(self.val.dataset.classes))
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=recipe.LEARNING_RATE, momentum=recipe.MOMENTUM, weight_decay=recipe.WEIGHT_DECAY
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, options.epochs * len(self.batches))

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(images), labels).backward()
        self.optimizer.step()
        self.schedule.step()

    def run(self, batches: Iterator) -> Epoch:
        """Trains on all of them."""
        self.model.train()
        epoch = Epoch()
        begun = now = time.perf_counter()
        for images, labels in batches:
            epoch.waits.append(time.perf_counter() - now)
            now = time.perf_counter()
            self.step(images, labels)
            epoch.steps.append(time.perf_counter() - now)
            now = time.perf_counter()
        epoch.seconds = time.perf_counter() - begun
        return epoch


def steps(options: argparse.Namespace) -> list[dict]:
    """The trainer's steps beside every loader and beside none."""
    sides = [("none", 0), *((loader, workers) for loader in LOADERS for workers in (1, 2))]
    trainings = {side: Training("torch" if side[0] == "none" else side[0], side[1] or 1, options, 0) for side in sides}
    full = next(batch for batch in trainings["none", 0].batches if len(batch[1]) == recipe.BATCH_SIZE)
    taken: dict[tuple[str, int], list[float]] = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side, training in trainings.items():
            batches = [full] * (options.steps + 1) if side[0] == "none" else take(training.batches, options.steps + 1)
            # The first starts the loader.
            taken[side] += training.run(iter(batches)).steps[1:]
    alone = statistics.median(taken["none", 0])
    return [
        {
            "loader": loader, "workers": workers, "steps": len(each), "median_ms": round(1e3 * statistics.median(each), 2),
            "of_alone": round(statistics.median(each) / alone, 3),
        }
        for (loader, workers), each in taken.items()
    ]  # fmt: skip


def take(batches, count: int) -> Iterator:
    """So many full batches, epoch after epoch."""
    left = count
    while left > 0:
        for batch in batches:
            if len(batch[1]) == recipe.BATCH_SIZE:
                yield batch
                left -= 1
                if left == 0:
                    break


def trainings(options: argparse.Namespace) -> Iterator[dict]:
    """Whole trainings, an epoch of each in turns."""
    for seed in range(options.seeds):
        sides = {loader: Training(loader, options.workers, options, seed) for loader in LOADERS}
        for number in range(options.epochs):
            order = list(sides)[:: 1 if (seed + number) % 2 == 0 else -1]
            for loader in order:
                training = sides[loader]
                epoch = training.run(training.batches)
                report = {
                    "loader": loader, "seed": seed, "epoch": number, "seconds": round(epoch.seconds, 2),
                    "wait_share": round(epoch.wait_share, 4), "median_step_ms": round(1e3 * statistics.median(epoch.steps), 2),
                }  # fmt: skip
                if number == options.epochs - 1:
                    judged = recipe.evaluate(training.model, training.val)
                    report |= {name: round(judged[name], 4) for name in ("val_loss", "top1", "top3")}
                yield report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="of either loader while it trains (default 1)")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--max-images", type=int)
    parser.add_argument("--steps", type=int, default=12, help="steps a round, beside each loader (default 12)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    torch.set_num_threads(options.cores)
    begun = time.perf_counter()

    beside = steps(options)
    for row in beside:
        print(json.dumps(row), flush=True)
    epochs = []
    for row in trainings(options):
        print(json.dumps(row), flush=True)
        epochs.append(row)

    print(f"\ntorch {torch.__version__}, stokehold {stokehold.__version__}, {options.cores} cores, load average {os.getloadavg()[0]:.1f}, "
          f"{time.perf_counter() - begun:.0f} s in all")  # fmt: skip
    print("\na step of the trainer beside")
    for row in beside:
        workers = f", {row['workers']} workers" if row["workers"] else ""
        print(f"  {row['loader'] + workers:22} {row['median_ms']:8.2f} ms, {row['of_alone']:.3f} of alone")
    print(f"\n{options.epochs} epochs, {options.workers} workers: medians [smallest, largest]")
    for loader in LOADERS:
        own = [row for row in epochs if row["loader"] == loader]
        print(
            f"  {loader:10} {spread(own, 'seconds', '{:.2f}')} s per epoch, waited {spread(own, 'wait_share', '{:.3f}')} of it, "
            f"top-1 {spread(own, 'top1', '{:.3f}')}"
        )


def spread(rows: list[dict], name: str, form: str) -> str:
    values = [row[name] for row in rows if name in row]
    return "{0} [{1}, {2}]".format(*map(form.format, (statistics.median(values), min(values), max(values))))


if __name__ == "__main__":
    main()
