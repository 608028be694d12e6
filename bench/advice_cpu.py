#!/usr/bin/env python3
"""The predictions of `stokehold advise` against CPU time: for a machine that others use, where wall time says nothing.

    bench/advice_cpu.py STOKEHOLD DATA LOAD [IMAGES]

With a worker on each core beside a CPU trainer all cores compute all the time, so on an idle machine an epoch would take its CPU time divided by
the cores. That is measured as the difference of runs of three epochs and of one. The prediction is the model's own, without the factor by which the run was slower.
DATA is a folder of class folders, without validation images. One worker leaves a core idle at times and cannot be checked so.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

CHANGES = {
    "no change": ({}, None),
    "4 workers": ({"--workers": 4}, {"kind": "workers", "workers": 4}),
    "fused": ({"--executor": "fused"}, {"kind": "executor", "executor": "fused"}),
}


def main(stokehold: str, data: str, load: str, images: str = "192") -> None:
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="stokehold-advice-") as folder:

        def train(name: str, flags: dict, epochs: int, ceiling_batches: int = 0) -> float:
            options = {
                "--load": load, "--image-size": 32, "--max-images": images, "--epochs": epochs, "--executor": "per-op",
                "--workers": cores, "--device": "cpu", "--keep-checkpoints": 0, "--runs": folder, "--name": name,
                "--ceiling-batches": ceiling_batches,
            } | flags
            return call([stokehold, "train", data, *(str(word) for pair in options.items() for word in pair)])[0]

        train("base", {}, 1, 12)
        def advise() -> dict:
            return json.loads(call([stokehold, "advise", f"{folder}/base", "--json"])[1])

        # As if the epoch had taken what the model says: what others took of the machine is no matter here.
        recording = pathlib.Path(folder, "base/profiler-output/recording.json")
        fit = advise()["fit"]
        about = json.loads(recording.read_text())
        about["workload"]["seconds_per_epoch"] /= fit
        recording.write_text(json.dumps(about))
        answer = advise()
        for name, (flags, change) in CHANGES.items():
            found = [one["seconds_per_epoch"] for one in answer["advice"] if one["change"] == change]
            predicted = found[0] if found else answer["workload"]["seconds_per_epoch"]
            measured = (train(f"{name}-3", flags, 3) - train(f"{name}-1", flags, 1)) / 2 / cores
            print(f"load {load}, {name}: predicted {predicted:.2f} s, CPU time / cores {measured:.2f} s, "
                  f"ratio {predicted / measured:.2f}", flush=True)


def call(words: list[str]) -> tuple[float, str]:
    """CPU seconds of a command, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, printed


if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
