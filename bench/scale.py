#!/usr/bin/env python3
"""What `stokehold scale` predicts from one rank, beside runs of 2 and 4 ranks: `bench/scale.py DATA [ROUNDS]`.

Accelerators are emulated: each rank is busy for a stated time and then really sums as many numbers as its network has parameters with
the others, so that the CPU is not the limit. One rank is recorded; `bench network` measures the link between as many ranks as
are predicted; then these ranks run. All of this takes turns, round by round. STOKEHOLD names a program that was built with
--features mpi, by default target/release/stokehold.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

STOKEHOLD = os.environ.get("STOKEHOLD", "target/release/stokehold")
# Network, its parameters, images per second of an accelerator, images of a rank's share.
CELLS = [
    ("resnet18", 11_689_512, 200, 32),
    ("resnet50", 25_557_032, 200, 32),
    ("resnet50", 25_557_032, 100, 32),
]
RANKS = (2, 4)
STEPS = 30


def stokehold(*words, ranks=1):
    launched = ["launch", "-n", str(ranks), "--"] if ranks > 1 else []
    done = subprocess.run([STOKEHOLD, *launched, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"stokehold {' '.join(launched + list(words))}: {done.stderr}")
    return done.stdout


def train(data, runs, name, cell, ranks):
    model, _, rate, batch = cell
    stokehold(
        "train", data, "--model", model, "--trainer", "emulated", "--images-per-second", str(rate), "--image-size", "64",
        "--epochs", "1", "--ceiling-batches", "0", "--workers", "1", "--batch-size", str(batch * ranks),
        "--max-images", str(STEPS * batch * ranks), "--runs", str(runs), "--name", name, ranks=ranks,
    )  # fmt: skip
    return json.loads((runs / name / "summary.json").read_text())["images_per_second"]


def predict(runs, name, cell, ranks):
    _, parameters, _, _ = cell
    network = runs / "network.json"
    stokehold("bench", "network", "--out", str(network), ranks=ranks)
    said = stokehold(
        "scale", str(runs / name), "--machines", str(ranks), "--network", str(network), "--parameters", str(parameters), "--json",
    )  # fmt: skip
    size = json.loads(said)["sizes"][0]
    return size["images_per_second"], size["efficiency"]


def main():
    data, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    print("| network | step of one | ranks | predicted, images/s | measured | measured / predicted, median (all) | efficiency, predicted | measured |")
    print("|---|---:|---:|---:|---:|---|---:|---:|")
    for cell in CELLS:
        model, _, rate, batch = cell
        for ranks in RANKS:
            rows = []
            for turn in range(rounds):
                with tempfile.TemporaryDirectory() as folder:
                    runs = Path(folder)
                    one = train(data, runs, f"one-{turn}", cell, 1)
                    predicted, efficiency = predict(runs, f"one-{turn}", cell, ranks)
                    many = train(data, runs, f"many-{turn}", cell, ranks)
                    rows.append((predicted, many, many / predicted, efficiency, many / one / ranks))
            predicted, many, ratio, efficiency, real = (median(column) for column in zip(*rows))
            every = ", ".join(f"{row[2]:.3f}" for row in sorted(rows, key=lambda row: row[2]))
            print(
                f"| {model} | {1000 * batch / rate:.0f} ms | {ranks} | {predicted:.0f} | {many:.0f} | {ratio:.3f} ({every}) "
                f"| {100 * efficiency:.1f} % | {100 * real:.1f} % |",
                flush=True,
            )


main()
