#!/usr/bin/env python3
"""What more cores and more workers do to Stokehold's loader.

    bench/scaling.py DATA [--rounds 7] [--stokehold FILE]

Loads the same files turn by turn with one worker on one core and with 1, 2, 4 and 8 workers on two cores, each in a process
of its own that is pinned there, and prints JSON:

    scaling        images/s of 2 workers on 2 cores / (2 x images/s of 1 worker on 1 core); 1 is perfect
    more_workers   images/s of 4 and of 8 workers / images/s of 2 workers, all on 2 cores; at least 1 is wanted

Ratios are taken within a round and given as median, min and max. They mean something on an idle machine only: a core that
something else uses is no second core.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from run import ROOT, Failed, Side, alternate, cores_to_use, number, ratio

WORKERS = (1, 2, 4, 8)


def main() -> int:
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder of images, at any depth")
    parser.add_argument("--rounds", type=number(1), default=7, help="turns of every side (default 7)")
    parser.add_argument("--load", type=number(0), default=0, help="repetitions of flip, flip, rotation (default 0)")
    parser.add_argument("--stokehold", type=Path, default=target / "release" / "stokehold", metavar="FILE",
                        help="the binary (default: target/release/stokehold, or in $CARGO_TARGET_DIR)")
    options = parser.parse_args()
    try:
        print(json.dumps(measure(options), indent=1))
    except Failed as error:
        print(f"bench/scaling.py: {error}", file=sys.stderr)
        return 1
    return 0


def measure(options: argparse.Namespace) -> dict:
    if not options.stokehold.is_file():
        raise Failed(f"no binary at {options.stokehold}: build it (cargo build --release) or give --stokehold FILE")
    command = [str(options.stokehold), "bench", "loader", str(options.data), "--serve", "--load", str(options.load)]
    side = lambda name, workers: Side(name, options.load, [*command, "--workers", str(workers)])
    one = side("1 worker on 1 core", 1)
    two = {workers: side(f"{workers} workers on 2 cores", workers) for workers in WORKERS}
    sides = [one, *two.values()]
    with tempfile.TemporaryDirectory(prefix="stokehold-bench-") as folder:
        alternate(sides, options.rounds, lambda each: cores_to_use(1 if each is one else 2), Path(folder))
    scaling = {key: value / 2 for key, value in ratio(two[2], one, "seconds").items()}
    return {
        "data": str(options.data),
        "load": options.load,
        "rounds": options.rounds,
        "images": one.turns[0]["images"],
        "images_per_second": {each.name: statistics.median(each.speeds("seconds")) for each in sides},
        "images_per_cpu_second": {each.name: statistics.median(each.speeds("cpu_seconds")) for each in sides},
        "scaling": scaling,
        "scaling_cpu": ratio(two[2], one, "cpu_seconds"),
        "more_workers": {workers: ratio(two[workers], two[2], "seconds") for workers in WORKERS if workers > 2},
    }


if __name__ == "__main__":
    sys.exit(main())
