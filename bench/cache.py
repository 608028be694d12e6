#!/usr/bin/env python3
"""What the image cache costs while it fills, and what a second epoch gains.

    bench/cache.py DATA [--rounds 7] [--workers 2] [--second IMAGES_PER_SECOND]

Each round runs `stokehold bench loader` without a cache and with an empty one, in turns the one and the other first, and compares
the images per second of their first passes. Nothing waits for anything else there, so packing takes place at the cost of loading
alone: the most that a first epoch can lose. Prints JSON: the ratios (median, min, max), and the share of the images that were packed
in the first pass and the second.

With `--second` it measures a second epoch: an emulated accelerator of that speed trains one epoch, beside which the cache fills in
spare moments; then the loader reads from it, and from shards that were made before, in turns, and their images per CPU second are
compared. Also prints which share of the images the one epoch has packed. On a machine that has other work no moment is spare.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder of JPEGs")
    parser.add_argument("--rounds", type=int, default=7, help="default 7")
    parser.add_argument("--workers", type=int, default=2, help="default 2")
    parser.add_argument("--stokehold", type=Path, default=target / "release" / "stokehold", metavar="FILE")
    parser.add_argument("--second", type=float, metavar="IMAGES_PER_SECOND", help="measure a second epoch")
    options = parser.parse_args()
    if options.second is not None:
        print(json.dumps(second(options), indent=1))
        return 0
    ratios, packed = [], []
    passes(options, ["--no-cache"])  # the files are in memory from now on
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="stokehold-cache-") as folder:
            sides = [["--no-cache"], ["--cache", folder]]
            done = [passes(options, side) for side in (sides if number % 2 == 0 else sides[::-1])]
        plain, cached = done if number % 2 == 0 else done[::-1]
        ratios.append(cached["first_pass"] / plain["first_pass"])
        packed.append(cached["cache"]["added"] / cached["images"])
    print(json.dumps({
        "data": str(options.data), "workers": options.workers, "rounds": options.rounds,
        "filling_against_none": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
        "packed_in_two_passes": statistics.median(packed),
    }, indent=1))
    return 0


def second(options: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory(prefix="stokehold-cache-") as folder:
        folder = Path(folder)
        # One class, if there are none.
        data = options.data.resolve()
        if not (data / "train").is_dir():
            for part in ["train", "val"]:
                (folder / "data" / part).mkdir(parents=True)
                (folder / "data" / part / "all").symlink_to(data)
            data = folder / "data"
        run(options, ["prepare", data / "train", folder / "shards"])
        train = ["train", data, "--trainer", "emulated", "--images-per-second", options.second, "--epochs", 1,
                 "--workers", options.workers, "--ceiling-batches", 0, "--cache", folder / "kept", "--runs", folder / "runs"]
        run(options, [*train, "--name", "first"])
        first = json.loads((folder / "runs/first/summary.json").read_text())["cache"]
        sides = [[data / "train", "--cache", folder / "kept", "--cache-share", 0], [folder / "shards", "--no-cache"]]
        ratios = []
        for number in range(options.rounds):
            order = sides if number % 2 == 0 else sides[::-1]
            rates = [json.loads(run(options, ["bench", "loader", *side, "--workers", 1, "--passes", 3, "--json"]))
                     ["images_per_cpu_second"] for side in order]
            cached, shards = rates if number % 2 == 0 else rates[::-1]
            ratios.append(cached / shards)
    return {
        "data": str(options.data), "images_per_second": options.second, "rounds": options.rounds,
        "packed_in_one_epoch": first["added"] / (first["hits"] + first["misses"]),
        "second_epoch_against_shards": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
    }


def run(options: argparse.Namespace, words: list) -> str:
    done = subprocess.run([str(word) for word in [options.stokehold, *words]], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"stokehold {words[0]} ended with exit code {done.returncode}")
    return done.stdout


def passes(options: argparse.Namespace, more: list[str]) -> dict:
    words = ["bench", "loader", options.data, "--workers", options.workers, "--passes", 1, "--json", *more]
    return json.loads(run(options, words))


if __name__ == "__main__":
    sys.exit(main())
