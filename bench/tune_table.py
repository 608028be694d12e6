#!/usr/bin/env python3
"""Records what trainings of a grid of hyperparameters come to, epoch by epoch, for `bench/tune.py`.

    bench/tune_table.py STOKEHOLD OUT.csv      # about two minutes of one core; goes on where it was broken off

ResNet-18 on generated images (4 classes, 96 to train on) at 32 pixels, 6 epochs: learning rate x batch size x momentum, one seed. More learning rates make a
larger table: it goes on with what is missing.
Rows: lr, batch_size, momentum, epoch, train_loss, val_loss.
"""

import csv
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

LR = (0.0003,)
BATCH_SIZE = (8, 16, 32, 48)
MOMENTUM = (0.0, 0.5, 0.9)
EPOCHS = 6
COLUMNS = ("lr", "batch_size", "momentum", "epoch", "train_loss", "val_loss")


def train(stokehold, data, runs, cell):
    lr, batch_size, momentum = cell
    name = f"{lr}-{batch_size}-{momentum}"
    subprocess.run(
        [stokehold, "train", data, "--image-size", "32", "--epochs", str(EPOCHS), "--lr", str(lr)]
        + ["--batch-size", str(batch_size), "--momentum", str(momentum), "--workers", "1", "--ceiling-batches", "0"]
        + ["--keep-checkpoints", "0", "--runs", runs, "--name", name],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    lines = (runs / name / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == "epoch"]


def main():
    stokehold, out = sys.argv[1], Path(sys.argv[2])
    done = set()
    if out.exists():
        done = {tuple(float(row[name]) for name in COLUMNS[:3]) for row in csv.DictReader(out.open())}
    else:
        out.write_text(",".join(COLUMNS) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        data, runs = Path(folder) / "data", Path(folder) / "runs"
        subprocess.run([stokehold, "dataset", "synth", data, "--images", "120", "--classes", "4"], check=True)
        for cell in itertools.product(LR, BATCH_SIZE, MOMENTUM):
            if cell in done:
                continue
            epochs = train(stokehold, data, runs, cell)
            with out.open("a") as file:
                rows = csv.writer(file, lineterminator="\n")
                for epoch in epochs:
                    # None is a loss that was no number.
                    losses = [float("nan") if epoch[k] is None else epoch[k] for k in ("loss", "val_loss")]
                    rows.writerow([*cell, epoch["epoch"], *(f"{loss:.5g}" for loss in losses)])


main()
