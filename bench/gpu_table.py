#!/usr/bin/env python3
"""The one table that bench/gpu.sh ends in, made of what its parts wrote.

    bench/gpu_table.py DIR

DIR is the folder of a run of bench/gpu.sh. Prints the table as Markdown and writes it to DIR/gpu.md, and as JSON to DIR/gpu.json: a list
of {what, side, figure, unit, times, beside}, some with the range of times, and those of trainings with compare's verdict. `times` says how
many times the figure is that of `beside`, the same measurement of another side in the same part; more is better, except for seconds and
for MiB. The lines "decoding alone" are of one turn of each side. What a part could not measure has no row.
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
    rows = [*alone(folder), *loaders(folder), *memory(folder), *trainers(folder)]
    rows += [*epochs(folder / "compare", "Burn"), *epochs(folder / "peers", "PyTorch")]
    lines = ["| what | side | figure | unit | times | beside |", "|---|---|---:|---|---:|---|"]
    for row in rows:
        times = "" if row["times"] is None else f"{row['times']:.2f}"
        if "range" in row:
            times += " [{:.2f}, {:.2f}]".format(*row["range"])
        times += f" {row['verdict'].replace('-', ' ')}" if "verdict" in row else ""
        cells = [row["what"], row["side"], shown(row["figure"]), row["unit"], times, row["beside"] or ""]
        lines.append(f"| {' | '.join(cells)} |")
    about = folder / "about.txt"
    lines = [about.read_text(), *lines] if about.exists() else lines
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


def beside(what: str, side: dict, figure: float, unit: str, key: str, power: int) -> dict:
    """A row whose `times` and its range are those of bench/run.py's rounds."""
    made = row(what, side["name"], figure, unit)
    if side["name"] != side["reference"]:
        ratio = {name: value**power for name, value in side[key].items()}
        low, high = sorted([ratio["min"], ratio["max"]])
        made |= {"times": ratio["median"], "range": [low, high], "beside": side["reference"]}
    return made


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
        for name, side in sides.items():
            # Within rounds, so that what else the machine did meets both sides.
            rows.append(beside(f"loader, load {load}", side, side["images_per_second"], "images/s", "reference_is_times", -1))
            cpu = 1000 / side["images_per_cpu_second"]
            rows.append(beside(f"loader, load {load}", side, cpu, "CPU s/1000 images", "reference_is_times_cpu", 1))
    return rows


def memory(folder: Path) -> list[dict]:
    figures = of_equal(folder)
    sides = sorted({side for _, side in figures if side != "fused"})
    return [
        row("device memory, at most", side, max(f["memory"] for (_, s), f in figures.items() if s == side), "MiB")
        for side in sides
    ]


def cells(folder: Path) -> list[dict]:
    """Those of a comparison."""
    file = folder / "compare.json"
    return json.loads(file.read_text())["cells"] if file.exists() else []


def trainers(folder: Path) -> list[dict]:
    """Training steps alone: PyTorch's, and Burn's, whose speed is that of the steps it was busy with."""
    file = folder / "torch.json"
    torch = json.loads(file.read_text()) if file.exists() else []
    rows = []
    for step in torch:
        side = "PyTorch, TF32" if step["tf32"] else "PyTorch, float32"
        rows.append(row(f"step of {step['model']}", side, step["images_per_second"], "images/s"))
    best = {}
    for cell in cells(folder / "compare"):
        for trial in cell["trials"]:
            summary = trial["summary"]
            if summary and summary["busy"]:
                rate = summary["images_per_second"] / summary["busy"]
                best[cell["model"]] = max(best.get(cell["model"], 0.0), rate)
    # Measured in another part, so without a ratio.
    return rows + [row(f"step of {model}", "Burn", rate, "images/s") for model, rate in best.items()]


def epochs(folder: Path, trainer: str) -> list[dict]:
    """The published table, and the peers: seconds an epoch of the trials, and how busy the device was."""
    rows = []
    for cell in cells(folder):
        what = f"{cell['model']} in {trainer}, load {cell['load']}"
        summaries = {trial["trial"]: trial["summary"] for trial in cell["trials"] if trial["summary"]}
        first = next(iter(summaries), None)
        for trial, summary in summaries.items():
            # bench/gpu.sh has this trial's symbols decoded on the device.
            side = WAYS["device"] if trial == "gpu" else trial
            made = row(what, side, summary["seconds_per_epoch"], "s/epoch")
            # Within pairs, and with what compare makes of them: between rounds the machine may have changed.
            if gain := summary["gain"]:
                times = {name: 1 - gain[name] / 100 for name in ("better_by", "low", "high")}
                made |= {"times": times["better_by"], "range": [times["high"], times["low"]], "beside": first, "verdict": gain["verdict"]}
            rows.append(made)
            rows.append(row(what, side, 100 * summary["busy"], "% of the time training"))
    return rows


if __name__ == "__main__":
    sys.exit(main())
