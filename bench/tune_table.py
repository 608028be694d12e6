#!/usr/bin/env python3
"""Records what trainings of a grid of hyperparameters come to, epoch by epoch, for `bench/tune.py`.

    bench/tune_table.py STOKEHOLD OUT.csv      # about 20 minutes of two cores; goes on where it was broken off

ResNet-18 from nothing on generated images (4 classes, 512 to train on, 256 to validate) at 32 pixels, 10 epochs with a cosine schedule, one seed: optimiser x
learning rate x batch size. As many trainings at once as there are cores, each with one loader thread. Rows are appended when a training is over.
Rows: optimizer, lr, batch_size, epoch, train_loss, val_loss, top1; nan where a loss was no number.
"""

import csv
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OPTIMIZER = {
    "sgd": ["--optimizer", "sgd", "--momentum", "0"],
    "momentum": ["--optimizer", "sgd", "--momentum", "0.9"],
    "adamw": ["--optimizer", "adamw"],
}
LR = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
BATCH_SIZE = (16, 32, 64)
EPOCHS = 10
COLUMNS = ("optimizer", "lr", "batch_size", "epoch", "train_loss", "val_loss", "top1")


def train(stokehold, data, runs, cell):
    optimizer, lr, batch_size = cell
    name = f"{optimizer}-{lr}-{batch_size}"
    ended = subprocess.run(
        [stokehold, "train", data, "--image-size", "32", "--epochs", str(EPOCHS), "--schedule", "cosine", "--workers", "1", "--ceiling-batches", "0"]
        + [*OPTIMIZER[optimizer], "--lr", str(lr), "--batch-size", str(batch_size)]
        + ["--keep-checkpoints", "0", "--runs", runs, "--name", name],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"the training {name} failed: {ended.stderr[-2000:]}")
    lines = map(json.loads, (runs / name / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "epoch"]


def row(cell, epoch):
    # None is what was no number.
    values = [float("nan") if epoch[key] is None else epoch[key] for key in ("loss", "val_loss", "top1")]
    return ",".join(str(field) for field in (*cell, epoch["epoch"], *(f"{value:.5g}" for value in values))) + "\n"


def recorded(out):
    if not out.exists():
        out.write_text(",".join(COLUMNS) + "\n")
    with out.open() as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            sys.exit(f"{out} is another table: its columns are not {', '.join(COLUMNS)}")
        return {(row["optimizer"], float(row["lr"]), int(row["batch_size"])) for row in rows}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    stokehold, out = sys.argv[1], Path(sys.argv[2])
    done = recorded(out)
    cells = [cell for cell in itertools.product(OPTIMIZER, LR, BATCH_SIZE) if cell not in done]
    writing = threading.Lock()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        data, runs = Path(folder) / "data", Path(folder) / "runs"
        subprocess.run([stokehold, "dataset", "synth", data, "--images", "768", "--classes", "4", "--val-split", "0.3333"], check=True)

        def record(cell):
            rows = "".join(row(cell, epoch) for epoch in train(stokehold, data, runs, cell))
            # All rows of a training at once, or none.
            with writing, out.open("a") as file:
                file.write(rows)
            print(*cell, flush=True)

        try:
            for _ in pool.map(record, cells):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


main()
