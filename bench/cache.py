#!/usr/bin/env python3
"""What the image cache costs while it fills, in a loader that is never idle.

    bench/cache.py DATA [--rounds 7] [--workers 2]

Each round runs `stokehold bench loader` without a cache and with an empty one, in turns the one and the other first, and compares
the images per second of their first passes. Nothing waits for anything else there, so packing takes place at the cost of loading
alone: the most that a first epoch can lose. Prints JSON: the ratios (median, min, max), and the share of the images that were packed
in the first pass and the second.
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
    options = parser.parse_args()
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


def passes(options: argparse.Namespace, more: list[str]) -> dict:
    command = [options.stokehold, "bench", "loader", options.data, "--workers", str(options.workers), "--passes", "1", "--json"]
    done = subprocess.run([*map(str, command), *more], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"stokehold bench loader ended with exit code {done.returncode}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
