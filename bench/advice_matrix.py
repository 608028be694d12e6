#!/usr/bin/env python3
"""The predictions of `stokehold advise` over a matrix of runs with an emulated accelerator, against what then happens.

    bench/advice.sh --matrix FOLDER [--data DATA] [--shards SHARDS] [--cells 66] [--minutes M]

A cell is a rate of the accelerator, a load (how often flip, flip, rotate come before the crop), a number of workers, the time by which
every read is late, and single files or shards. 66 cells of the full product are chosen: every latency with either form of storage has
as many, and in each of these six groups rates, loads and workers are dealt from shuffled decks (a fixed seed), so each value comes up
equally often. Each cell trains once, asks for advice, and then makes the changes that were predicted: other numbers of workers (at most
two of them), the fused executor, shards, storage that does not wait; at most three of all.

A run waits, up to half a minute, until other programs leave the cores alone. If they took more than a twentieth of the cores beside it
nevertheless, it is repeated, twice at most, and then marked as disturbed. Runs stay in FOLDER, one folder a cell. A cell that is there
undisturbed is not measured again, so an interrupted call goes on, and predictions are asked anew of the binary, from the same records. `--minutes` begins no further cell after so long.

Prints a table as Markdown and the summary, and writes FOLDER/matrix.json. `passed` counts bounds that a change passed: `Faster loading
would gain at most` of the run's summary, by more than 3 % of the epoch (two equal runs differ by that).
"""

import argparse
import json
import math
import random
import re
import shutil
import statistics
import sys
import time
from pathlib import Path

RATES = [200, 500, 1000, 2000, 4000]
LOADS = [0, 3, 6, 12]
WORKERS = [1, 2, 3, 4]
LATENCIES = [0, 20, 50]  # milliseconds
SEED = 20261122
SECONDS = 1.8  # an epoch of the first run, roughly
LEAST = 1.2  # seconds of a changed run: several epochs if one is shorter
OTHERS = 0.05  # of the cores
CPU_MS = {"per-op": (1.65, 0.24), "fused": (0.7, 0.01)}  # an image's CPU time at load 0, and for each load: only to choose lengths


def cells(count: int) -> list[dict]:
    """The cells, always the same for a count."""
    rng = random.Random(SEED)
    groups = [(latency, form) for latency in LATENCIES for form in ("files", "shards")]
    decks = {}

    def deal(group, name, values):
        deck = decks.setdefault((group, name), [])
        if not deck:
            deck.extend(rng.sample(values, len(values)))
        return deck.pop()

    chosen = []
    for number in range(count):
        group = groups[number % len(groups)]
        chosen.append({
            "number": number,
            "latency_ms": group[0],
            "form": group[1],
            "rate": deal(group, "rate", RATES),
            "load": deal(group, "load", LOADS),
            "workers": deal(group, "workers", WORKERS),
            # The default executor in a third of them.
            "executor": deal(group, "executor", ["per-op", "per-op", "fused"]),
        })
    return chosen


def calm(seconds: float = 30) -> None:
    """Waits until nothing else uses the cores, for so long at most."""

    def times():
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        idle = int(words[3]) + int(words[4])
        return idle, sum(map(int, words))

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = times()
        time.sleep(0.3)
        after = times()
        if after[0] - before[0] >= 0.9 * (after[1] - before[1]):
            return


class Matrix:
    def __init__(self, stokehold: Path, call, folder: Path, data: Path, shards: Path):
        self.stokehold, self.call, self.folder = stokehold, call, folder
        self.data = {"files": data, "shards": shards}

    def train(self, cell: dict, name: str, more: dict, epochs: int, ceiling: int) -> dict:
        """Trains, again where others disturbed it; its summary, with `disturbed`."""
        setting = cell | more
        words = [
            "train", self.data[setting["form"]], "--trainer", "emulated", "--images-per-second", setting["rate"],
            "--read-latency", f"{setting['latency_ms']}ms", "--load", setting["load"], "--workers", setting["workers"],
            "--executor", setting["executor"], "--max-images", cell["images"], "--epochs", epochs, "--device", "cpu",
            "--ceiling-batches", ceiling, "--runs", self.place(cell), "--name", name,
        ]
        for _ in range(3):
            calm()
            shutil.rmtree(self.place(cell) / name, ignore_errors=True)
            self.call([str(word) for word in words])
            summary = json.loads((self.place(cell) / name / "summary.json").read_text())
            summary["disturbed"] = (summary["others_cores"] or 0.0) > OTHERS * summary["cores"]
            if not summary["disturbed"]:
                break
        return summary

    def place(self, cell: dict) -> Path:
        return self.folder / f"{cell['number']:03}"

    def measure(self, cell: dict) -> None:
        """Measures a cell, and keeps it in its folder."""
        shutil.rmtree(self.place(cell), ignore_errors=True)
        cpu, more = CPU_MS[cell["executor"]]
        cpu = (cpu + more * cell["load"]) / 1e3
        rate = min(cell["rate"], 2 / cpu, cell["workers"] / (cpu + cell["latency_ms"] / 1e3))
        cell["images"] = min(max(192, round(SECONDS * rate / 32) * 32), 960)
        base = self.train(cell, "base", {}, max(1, round(SECONDS * rate / cell["images"])), 6)
        if base["disturbed"]:
            return
        changes = []
        workers = []
        for advice in self.advise(cell)["advice"]:
            change = advice["change"]
            more = {
                "workers": lambda: {"workers": change["workers"]},
                "executor": lambda: {"executor": change["executor"]},
                "shards": lambda: {"form": "shards"},
                "storage": lambda: {"latency_ms": 0},
            }.get(change["kind"])
            if more:
                (workers if change["kind"] == "workers" else changes).append((change, more(), advice["seconds_per_epoch"]))
        rng = random.Random(SEED + cell["number"])
        picked = rng.sample(workers, min(2, len(workers)))
        picked += rng.sample(changes, min(3 - len(picked), len(changes)))
        measured = []
        for index, (change, more, predicted) in enumerate(picked):
            epochs = min(8, max(1, math.ceil(LEAST / predicted)))
            summary = self.train(cell, f"changed-{index}", more, epochs, 0)
            measured.append({
                "change": change, "seconds": summary["seconds_per_epoch"], "disturbed": summary["disturbed"],
            })
            shutil.rmtree(self.place(cell) / f"changed-{index}")
        kept = {"cell": cell, "seconds": base["seconds_per_epoch"], "changes": measured}
        (self.place(cell) / "measured.json").write_text(json.dumps(kept, indent=1) + "\n")

    def is_measured(self, cell: dict) -> bool:
        kept = self.place(cell) / "measured.json"
        return kept.exists() and not any(change["disturbed"] for change in json.loads(kept.read_text())["changes"])

    def advise(self, cell: dict) -> dict:
        return json.loads(self.call(["advise", str(self.place(cell) / "base"), "--json"]))

    def rows(self, cell: dict) -> list[dict]:
        """What is predicted now, beside what was measured then."""
        kept = json.loads((self.place(cell) / "measured.json").read_text())
        answer = self.advise(cell)
        text = (self.place(cell) / "base" / "summary.txt").read_text()
        bound = re.search(r"at most ([\d.]+) s of", text)
        bound = float(bound[1]) if bound else 0.03 * kept["seconds"]
        rows = []
        for change in kept["changes"]:
            found = [one for one in answer["advice"] if one["change"] == change["change"]]
            predicted = found[0]["seconds_per_epoch"] if found else None
            rows.append(kept["cell"] | {
                "base": kept["seconds"], "change": change["change"], "predicted": predicted, "measured": change["seconds"],
                "ratio": predicted / change["seconds"] if predicted else None, "disturbed": change["disturbed"], "bound": bound,
                "passed": kept["seconds"] - change["seconds"] > bound + 0.03 * kept["seconds"],
            })
        return rows


def says(change: dict) -> str:
    match change["kind"]:
        case "workers":
            return f"{change['workers']} workers"
        case "executor":
            return change["executor"]
        case kind:
            return {"shards": "shards", "storage": "no latency"}[kind]


def table(rows: list[dict]) -> str:
    lines = [
        "| rate | load | executor | workers | latency, ms | storage | s/epoch | change | predicted | measured | ratio | |",
        "|---:|---:|---|---:|---:|---|---:|---|---:|---:|---:|---|",
    ]
    for row in rows:
        off = abs(row["ratio"] - 1) if row["ratio"] else math.inf
        mark = "**miss**" if off > 0.2 else "over 10 %" if off > 0.1 else ""
        if row["passed"]:
            mark += " bound passed"
        if row["disturbed"]:
            mark += " disturbed"
        predicted = f"{row['predicted']:.2f} | {row['measured']:.2f} | {row['ratio']:.2f}" if row["ratio"] else f"- | {row['measured']:.2f} | -"
        lines.append(
            f"| {row['rate']} | {row['load']} | {row['executor']} | {row['workers']} | {row['latency_ms']} | {row['form']} | {row['base']:.2f} "
            f"| {says(row['change'])} | {predicted} | {mark.strip()} |"
        )
    return "\n".join(lines)


def summary(rows: list[dict]) -> dict:
    calm = [row for row in rows if not row["disturbed"]]
    off = [abs(row["ratio"] - 1) if row["ratio"] else math.inf for row in calm]
    within = lambda most: sum(one <= most for one in off) / max(1, len(off))
    kinds = sorted({row["change"]["kind"] for row in calm})
    return {
        "cells": len({row["number"] for row in rows}), "predictions": len(rows), "disturbed": len(rows) - len(calm),
        "within_10": within(0.1), "within_20": within(0.2), "median_off": statistics.median(off) if off else None,
        "largest": max(off, default=None), "passed": sum(row["passed"] for row in calm),
        "by_change": {
            kind: [sum(o <= 0.1 for r, o in zip(calm, off) if r["change"]["kind"] == kind), sum(r["change"]["kind"] == kind for r in calm)]
            for kind in kinds
        },
    }


def main(arguments: list[str], stokehold: Path, call) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], prog="bench/advice.sh --matrix")
    parser.add_argument("folder", type=Path, help="where the runs are kept")
    parser.add_argument("--data", type=Path, required=True, help="a folder of images, with train/")
    parser.add_argument("--shards", type=Path, required=True, help="the same, prepared")
    parser.add_argument("--cells", type=int, default=66)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no further cell after so long")
    options = parser.parse_args(arguments)
    matrix = Matrix(stokehold, call, options.folder, options.data, options.shards)
    began, rows, left = time.monotonic(), [], 0
    for cell in cells(options.cells):
        if not matrix.is_measured(cell):
            if time.monotonic() - began > 60 * options.minutes:
                left += 1
                continue
            matrix.measure(cell)
            print(f"cell {cell['number'] + 1} of {options.cells}", file=sys.stderr)
        if (matrix.place(cell) / "measured.json").exists():
            rows += matrix.rows(cell)
    found = summary(rows)
    print(table(rows))
    print(f"\n{found['cells']} cells, {found['predictions']} predictions ({found['disturbed']} disturbed, not counted): "
          f"{100 * found['within_10']:.0f} % within 10 %, {100 * found['within_20']:.0f} % within 20 %, largest miss "
          f"{100 * (found['largest'] or 0):.0f} %, bounds passed {found['passed']}; within 10 % by change {found['by_change']}")
    if left:
        print(f"{left} cells are not measured yet: call again", file=sys.stderr)
    (options.folder / "matrix.json").write_text(json.dumps({"summary": found, "rows": rows}, indent=1) + "\n")
    return 0
