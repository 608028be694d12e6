#!/usr/bin/env python3
"""What `stokehold advise` predicts against what then happens.

    bench/advice.py --matrix FOLDER ..   # with an emulated accelerator, over many settings: advice_matrix.py explains it
    bench/advice.py [DATA] [--loads 24,72] [--rounds 5] [--images 384] [--json FILE] [--stokehold FILE]

Trains ResNet-18 on 32 pixels on the CPU with the per-op executor and two workers, asks for advice, then trains with the changes that
were predicted: one worker, four workers, the fused executor; and without a change, which shows the noise. That is a round; within it
the machine was as busy for all. Predicted and measured are seconds per epoch. Their ratio is taken within the round and given as median [smallest, largest].
A load is how often flip, flip, rotate come before the crop: it sets what loading costs beside training. Without DATA the generated images are used.

Prints a table as Markdown. Run it on a machine that does nothing else: `busy` in the JSON says for how long other programs kept
the trainer's threads from a core, as a share of their CPU time (0 where nothing else ran).
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
EPOCHS = 2
TIMEOUT = 1800  # seconds; no run takes so long
CHANGES = {
    "no change": (None, []),
    "1 worker": ({"kind": "workers", "workers": 1}, ["--workers", "1"]),
    "4 workers": ({"kind": "workers", "workers": 4}, ["--workers", "4"]),
    "fused": ({"kind": "executor", "executor": "fused"}, ["--executor", "fused"]),
}


class Failed(Exception):
    """The measurement cannot go on; the message says why."""


def main() -> int:
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, nargs="?", help="a data set (default: generated images)")
    parser.add_argument("--loads", type=lambda text: [int(load) for load in text.split(",")], default=[24, 72])
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--images", type=int, default=384, help="images of an epoch (default 384)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything measured to FILE")
    parser.add_argument("--stokehold", type=Path, default=target / "release" / "stokehold", metavar="FILE",
                        help="the binary (default: target/release/stokehold, or in $CARGO_TARGET_DIR)")
    if sys.argv[1:2] == ["--matrix"]:
        return over_matrix(target / "release" / "stokehold", sys.argv[2:])
    options = parser.parse_args()
    try:
        rows = [row for load in options.loads for row in measure(options, load)]
    except Failed as error:
        print(f"bench/advice.py: {error}", file=sys.stderr)
        return 1
    print(table(rows))
    if options.json:
        settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
        options.json.write_text(json.dumps({"settings": settings, "rows": rows}, indent=1) + "\n")
    return 0


def over_matrix(stokehold: Path, arguments: list[str]) -> int:
    import advice_matrix

    options = argparse.Namespace(stokehold=stokehold)
    try:
        return advice_matrix.main(arguments, stokehold, lambda words: call(options, words))
    except Failed as error:
        print(f"bench/advice.py: {error}", file=sys.stderr)
        return 1


def measure(options: argparse.Namespace, load: int) -> list[dict]:
    """A row for each change at this load."""
    rows = {name: {"load": load, "change": name, "predicted": [], "measured": [], "busy": []} for name in CHANGES}
    for number in range(1, options.rounds + 1):
        with tempfile.TemporaryDirectory(prefix="stokehold-advice-") as folder:
            train(options, load, folder, "base", [])
            answer = json.loads(call(options, ["advise", f"{folder}/base", "--json"]))
            workload = answer["workload"]
            busy = workload["trainer_delay_seconds"] / workload["trainer_cpu_seconds"]
            for index, (name, (change, flags)) in enumerate(CHANGES.items()):
                measured = train(options, load, folder, f"changed-{index}", [*flags, "--ceiling-batches", "0"])
                rows[name]["predicted"].append(predicted(answer, change))
                rows[name]["measured"].append(measured)
                rows[name]["busy"].append(busy)
        print(f"load {load}: round {number} of {options.rounds} done", file=sys.stderr)
    for row in rows.values():
        ratios = [p / m for p, m in zip(row["predicted"], row["measured"])]
        row["ratio"] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    return list(rows.values())


def predicted(answer: dict, change: dict | None) -> float:
    if change is None:
        return answer["workload"]["seconds_per_epoch"]
    for advice in answer["advice"]:
        if advice["change"] == change:
            return advice["seconds_per_epoch"]
    raise Failed(f"there is no advice about {change}: {answer['notes']}")


def train(options: argparse.Namespace, load: int, folder: str, name: str, flags: list[str]) -> float:
    """Trains, and returns the seconds per epoch."""
    base = {
        "--load": load, "--image-size": 32, "--max-images": options.images, "--epochs": EPOCHS, "--executor": "per-op",
        "--workers": 2, "--device": "cpu", "--keep-checkpoints": 0, "--runs": folder, "--name": name,
        "--ceiling-batches": 12,
    }
    base |= dict(zip(flags[::2], flags[1::2]))
    words = [str(word) for pair in base.items() for word in pair]
    call(options, ["train", *([str(options.data)] if options.data else []), *words])
    return json.loads((Path(folder) / name / "summary.json").read_text())["seconds_per_epoch"]


def call(options: argparse.Namespace, words: list[str]) -> str:
    if not options.stokehold.is_file():
        raise Failed(f"no binary at {options.stokehold}: build it (cargo build --release) or give --stokehold FILE")
    done = subprocess.run([options.stokehold, *words], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode != 0:
        raise Failed(f"stokehold {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def table(rows: list[dict]) -> str:
    lines = [
        "| load | change | predicted, s/epoch | measured, s/epoch | predicted / measured | within 20 % |",
        "|---:|---|---:|---:|---:|---|",
    ]
    for row in rows:
        predicted, measured = statistics.median(row["predicted"]), statistics.median(row["measured"])
        ratio = row["ratio"]
        verdict = "yes" if abs(ratio["median"] - 1) <= 0.2 else "**no**"
        lines.append(
            f"| {row['load']} | {row['change']} | {predicted:.2f} | {measured:.2f} "
            f"| {ratio['median']:.2f} [{ratio['min']:.2f}, {ratio['max']:.2f}] | {verdict} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
