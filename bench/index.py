#!/usr/bin/env python3
"""What a loader of a long list of files costs: it makes a list of so many (path, label), as torchvision's `ImageFolder.samples`.

    bench/index.py [--entries 10000000]

Prints JSON: time and memory of the loader beyond those of the list. It runs in the Python that runs it, which needs the wheel of
python/, and takes 3 GB for ten million.
"""

import argparse
import json
import os
import resource
import time
from pathlib import Path

import stokehold


def index(options: argparse.Namespace) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def pairs():
        for number in range(options.entries):
            yield f"/data/imagenet/train/n{number % 1000:08}/n{number % 1000:08}_{number:08}.JPEG", number % 1000

    given = list(pairs())
    before, start, cpu = resident(), time.perf_counter(), time.process_time()
    loader = stokehold.Loader(given, "imagenet-train", batch_size=256, bad_images="error")
    made = time.perf_counter() - start
    try:
        next(iter(loader))
    except stokehold.DataError:
        pass  # none of the files is there: the first batch says so, and all that comes before it has been done
    result = {
        "entries": options.entries,
        "seconds_to_make": round(made, 2),
        "seconds_to_first_batch": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "megabytes": round((resident() - before) / 1e6),
        "megabytes_at_most": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6 - before / 1e6),
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000_000)
    index(parser.parse_args())
