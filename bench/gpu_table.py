#!/usr/bin/env python3
"""What `stokehold compare` does not print of a comparison on a GPU.

    bench/gpu_table.py COMPARE [--torch FILE]

COMPARE is the folder of a finished comparison: from compare.json and from what its runs recorded of the machine come, of each
trial, the 95th percentiles of CPU and GPU and the peak of the GPU's memory in use, by all processes, as NVML counts it; then by
how much trial B's epochs differ over the loads, and the trainer's own speed, beside PyTorch's where --torch gives what
bench/peers/torch_step.py wrote.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("compare", type=Path, help="folder of a comparison")
    parser.add_argument("--torch", type=Path, metavar="FILE", help="what torch_step.py wrote")
    options = parser.parse_args()
    try:
        report = json.loads((options.compare / "compare.json").read_text())
        torch = json.loads(options.torch.read_text()) if options.torch else []
    except (OSError, ValueError) as error:
        print(f"bench/gpu_table.py: {error}", file=sys.stderr)
        return 2
    if not report["cells"]:
        print(f"bench/gpu_table.py: no cell of {options.compare} is finished", file=sys.stderr)
        return 2
    print("\n".join([*trials(report, options.compare), "", *flatness(report), "", *trainers(report, torch)]))
    return 0


def trials(report: dict, folder: Path) -> list[str]:
    lines = [
        "| model | load | trial | s/epoch | CPU p95 | GPU p95 | peak of device memory |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    recorded = False
    for cell in report["cells"]:
        for letter, trial in zip("AB", cell["trials"]):
            samples = gpu_samples(folder / "runs" / Path(trial["summary"]["run_dir"]).name)
            busy, used = samples["GPUUtilization"], samples["GPUMemoryUsedBytes"]
            recorded |= bool(busy or used)
            cpu = trial["summary"]["cpu"]
            lines.append(
                f"| {cell['model']} | {cell['load']} | {letter}, {trial['executor']} | {seconds(trial):.2f} "
                f"| {percent(cpu and cpu['p95'])} | {percent(busy and percentile(busy, 95))} "
                f"| {f'{max(used) / 2**20:.0f} MiB' if used else '-'} |"
            )
    if not recorded:
        lines += ["", "No GPU was recorded: its driver's library NVML was not found, or there is no NVIDIA GPU."]
    return lines


def gpu_samples(run: Path) -> dict[str, list[float]]:
    """What a run recorded of the first GPU."""
    samples: dict[str, list[float]] = {"GPUUtilization": [], "GPUMemoryUsedBytes": []}
    for file in sorted(run.glob("profiler-output/system/incremental/*/*.json")):
        for line in file.read_text().splitlines():
            sample = json.loads(line)
            if sample["Dimension"] in samples and sample["Name"] == "gpu0":
                samples[sample["Dimension"]].append(sample["Value"])
    return samples


def flatness(report: dict) -> list[str]:
    """By how much trial B's epochs differ over the loads."""
    lines = []
    for model, cells in by_model(report).items():
        epochs = [seconds(cell["trials"][1]) for cell in cells]
        apart = 100 * (max(epochs) / min(epochs) - 1)
        loads = [cell["load"] for cell in cells]
        lines.append(f"{model}: trial B's longest epoch, loads {min(loads)} to {max(loads)}, is {apart:.1f} % above its shortest.")
    return lines


def trainers(report: dict, torch: list[dict]) -> list[str]:
    """The trainer's images a second with batches at hand: the best of its measurements, one after each run."""
    lines = ["| model | Stokehold's trainer, images/s | PyTorch, float32 | PyTorch, TF32 |", "|---|---:|---:|---:|"]
    for model, cells in by_model(report).items():
        ceilings = [trial["summary"]["trainer_ceiling"] for cell in cells for trial in cell["trials"]]
        ceilings = [ceiling for ceiling in ceilings if ceiling]
        beside = {step["tf32"]: step["images_per_second"] for step in torch if step["model"] == model}
        row = [max(ceilings, default=None), beside.get(False), beside.get(True)]
        lines.append(f"| {model} | " + " | ".join("-" if rate is None else f"{rate:.0f}" for rate in row) + " |")
    return lines


def by_model(report: dict) -> dict[str, list[dict]]:
    models: dict[str, list[dict]] = {}
    for cell in report["cells"]:
        models.setdefault(cell["model"], []).append(cell)
    return models


def seconds(trial: dict) -> float:
    """Seconds per epoch, as `compare` has it."""
    return statistics.mean(trial["epoch_seconds"])


def percentile(values: list[float], share: float) -> float:
    """By linear interpolation, as stokehold_base::stats::percentile."""
    values = sorted(values)
    place = share / 100 * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def percent(value: float | list | None) -> str:
    return f"{value:.0f} %" if isinstance(value, float | int) else "-"


if __name__ == "__main__":
    sys.exit(main())
