#!/usr/bin/env python3
"""The one table that bench/gpu.sh ends in, made of what its parts wrote.

    bench/gpu_table.py DIR

DIR is the folder of a run of bench/gpu.sh. Prints the table as Markdown and writes it to DIR/gpu.md, and as JSON to DIR/gpu.json: a list
of {what, side, figure, unit, times, beside}. `times` says how many times the figure is that of `beside`, the same measurement of
another side; more is better, except for seconds and for MiB. What a part could not measure has no row.
"""

import json
import sys
from pathlib import Path

# The names of bench_gpu's ways and of bench/run.py's sides for one thing.
WAYS = {"device": "gpu-device", "hybrid": "gpu", "fused": "fused"}


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print("usage: bench/gpu_table.py DIR", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    rows = [*alone(folder), *loaders(folder), *memory(folder), *trainers(folder), *epochs(folder)]
    lines = ["| what | side | figure | unit | times | beside |", "|---|---|---:|---|---:|---|"]
    for row in rows:
        times = "" if row["times"] is None else f"{row['times']:.2f}"
        cells = [row["what"], row["side"], shown(row["figure"]), row["unit"], times, row["beside"] or ""]
        lines.append(f"| {' | '.join(cells)} |")
    text = "\n".join(lines if rows else ["nothing was measured"])
    print(text)
    (folder / "gpu.md").write_text(text + "\n")
    (folder / "gpu.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def row(what: str, side: str, figure: float, unit: str, beside: str | None = None, other: float | None = None) -> dict:
    times = figure / other if other else None
    return {"what": what, "side": side, "figure": figure, "unit": unit, "times": times, "beside": beside if times else None}


def shown(figure: float) -> str:
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.3g}"


def of_equal(folder: Path) -> dict[tuple[str, str], dict[str, float]]:
    """The lines of bench_gpu: of each load and way its figures."""
    file = folder / "equal.txt"
    figures = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        match line.split():
            case [load, ("hybrid" | "device" | "fused") as way, rate, cpu, _, memory]:
                figures[load, WAYS[way]] = {"rate": float(rate), "cpu": float(cpu), "memory": float(memory)}
    return figures


def alone(folder: Path) -> list[dict]:
    """Images at hand, decoded and resized to a batch."""
    figures = of_equal(folder)
    sides = {side: measured for (load, side), measured in figures.items() if load == "none"}
    fused = sides.get("fused", {})
    rates = [
        row("decoding alone", side, measured["rate"], "images/s", "fused", fused.get("rate"))
        for side, measured in sides.items()
    ]
    cpu = [
        row("decoding alone", side, measured["cpu"], "CPU s/1000 images", "fused", fused.get("cpu"))
        for side, measured in sides.items()
    ]
    return rates + cpu


def loaders(folder: Path) -> list[dict]:
    """The loaders, from files in the page cache to batches."""
    rows = []
    files = {int(file.stem.removeprefix("loader-")): file for file in folder.glob("loader-*.json")}
    for load, file in sorted(files.items()):
        sides = {side["name"]: side for side in json.loads(file.read_text())["sides"]}
        fused = sides.get("fused", {})
        cpu_of_fused = fused.get("images_per_cpu_second")
        for name, side in sides.items():
            rate, per_cpu = side["images_per_second"], side["images_per_cpu_second"]
            rows.append(row(f"loader, load {load}", name, rate, "images/s", "fused", fused.get("images_per_second")))
            other = 1000 / cpu_of_fused if cpu_of_fused else None
            rows.append(row(f"loader, load {load}", name, 1000 / per_cpu, "CPU s/1000 images", "fused", other))
    return rows


def memory(folder: Path) -> list[dict]:
    figures = of_equal(folder)
    sides = sorted({side for _, side in figures if side != "fused"})
    return [
        row("device memory, at most", side, max(f["memory"] for (_, s), f in figures.items() if s == side), "MiB")
        for side in sides
    ]


def cells(folder: Path) -> list[dict]:
    file = folder / "compare" / "compare.json"
    return json.loads(file.read_text())["cells"] if file.exists() else []


def trainers(folder: Path) -> list[dict]:
    """Training steps alone: PyTorch's, and Burn's, whose speed is that of the steps it was busy with."""
    file = folder / "torch.json"
    torch = json.loads(file.read_text()) if file.exists() else []
    rows = []
    full = {step["model"]: step["images_per_second"] for step in torch if not step["tf32"]}
    for step in torch:
        side = "PyTorch, TF32" if step["tf32"] else "PyTorch, float32"
        rows.append(row(f"step of {step['model']}", side, step["images_per_second"], "images/s"))
    best = {}
    for cell in cells(folder):
        for trial in cell["trials"]:
            summary = trial["summary"]
            if summary and summary["busy"]:
                rate = summary["images_per_second"] / summary["busy"]
                best[cell["model"]] = max(best.get(cell["model"], 0.0), rate)
    rows += [
        row(f"step of {model}", "Burn", rate, "images/s", "PyTorch, float32", full.get(model)) for model, rate in best.items()
    ]
    return rows


def epochs(folder: Path) -> list[dict]:
    """The published table: seconds an epoch of the trials, and how busy the device was."""
    rows = []
    for cell in cells(folder):
        what = f"{cell['model']}, load {cell['load']}"
        summaries = {trial["trial"]: trial["summary"] for trial in cell["trials"] if trial["summary"]}
        first = next(iter(summaries), None)
        for trial, summary in summaries.items():
            other = summaries[first]["seconds_per_epoch"] if trial != first else None
            rows.append(row(what, trial, summary["seconds_per_epoch"], "s/epoch", first, other))
            rows.append(row(what, trial, 100 * summary["busy"], "% of the time training"))
    return rows


if __name__ == "__main__":
    sys.exit(main())
