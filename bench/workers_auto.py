#!/usr/bin/env python3
"""`--workers auto` against the best fixed number of workers, with an emulated accelerator.

    bench/workers_auto.py FOLDER --data DATA [--stokehold FILE] [--minutes M]

A cell is a rate of the accelerator, a load, an executor and the time by which every read is late. In each, auto and every fixed number
train the same images, two epochs, twice in turns; the better of the two counts, because other programs only make a run slower. Cells that
FOLDER has are not measured again. Prints a table as Markdown: by how much auto's epoch is longer than that of the best number.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from advice_matrix import calm

ROOT = Path(__file__).resolve().parents[1]
FIXED = [1, 2, 3, 4, 8, 16, 32, 64, 128]
#        images/s, load, executor, latency in ms
CELLS = [
    (rate, load, executor, latency)
    for latency in (0, 20, 50)
    for rate, load, executor in ((4000, 0, "fused"), (4000, 6, "per-op"), (300, 0, "fused"))
]
OTHERS = 0.05


def train(options, cell, workers, folder) -> float:
    rate, load, executor, latency = cell
    # About 1.5 s an epoch with enough workers.
    images = min(960, max(320, round(1.5 * min(rate, 2000 / (0.7 if executor == "fused" else 3.1)) / 32) * 32))
    if workers != "auto" and (workers / (latency / 1e3) < 0.2 * min(rate, 600) if latency else workers > 8):
        return math.inf  # It cannot be the best, and would take long.
    words = [
        options.stokehold, "train", options.data, "--trainer", "emulated", "--images-per-second", rate, "--read-latency", f"{latency}ms",
        "--load", load, "--executor", executor, "--workers", workers, "--max-images", images, "--epochs", 2, "--device", "cpu",
        "--ceiling-batches", 0, "--runs", folder, "--name", f"{workers}-{time.monotonic_ns()}",
    ]
    for _ in range(3):
        calm()
        words[-1] = f"{workers}-{time.monotonic_ns()}"
        subprocess.run([str(word) for word in words], check=True, capture_output=True)
        run = Path(folder) / words[-1]
        summary = json.loads((run / "summary.json").read_text())
        if (summary["others_cores"] or 0.0) <= OTHERS * summary["cores"]:
            break
    chosen = json.loads((run / "run.json").read_text())["workers"]
    return summary["seconds_per_epoch"], chosen["workers"] if chosen else workers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--stokehold", type=Path, default=target / "release" / "stokehold")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no further cell after so long")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    print("| rate | load | executor | latency, ms | best fixed | s/epoch | auto, its workers | s/epoch | auto / best |")
    print("|---:|---:|---|---:|---:|---:|---:|---:|---:|")
    for number, cell in enumerate(CELLS):
        kept = options.folder / f"{number:02}.json"
        if not kept.exists():
            if time.monotonic() - began > 60 * options.minutes:
                continue
            times, chosen = {}, None
            with tempfile.TemporaryDirectory(prefix="stokehold-auto-") as folder:
                for _ in range(2):
                    for workers in [*FIXED, "auto"]:
                        found = train(options, cell, workers, folder)
                        if found == math.inf:
                            continue
                        seconds, ended_with = found
                        times[workers] = min(seconds, times.get(workers, math.inf))
                        chosen = ended_with if workers == "auto" else chosen
            kept.write_text(json.dumps({"cell": cell, "seconds": times, "chosen": chosen}, indent=1) + "\n")
        found = json.loads(kept.read_text())
        times = {workers: seconds for workers, seconds in found["seconds"].items() if workers != "auto"}
        best, auto = min(times, key=times.get), found["seconds"]["auto"]
        rate, load, executor, latency = cell
        print(f"| {rate} | {load} | {executor} | {latency} | {best} | {times[best]:.2f} | {found['chosen']} | {auto:.2f} | {auto / times[best]:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
