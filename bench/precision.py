#!/usr/bin/env python3
"""What `train --precision` and `--sample-type` gain: the trainer's ceiling (one batch again and again) and its CPU time, of
each against f32. Rounds are interleaved.

    python3 bench/precision.py STOKEHOLD DATA [--rounds 5] [--model resnet18] [--size 64] [--device cpu]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

CELLS = [("f32", "f32"), ("bf16", "f32"), ("f16", "f32"), ("f32", "bf16"), ("f32", "u8"), ("bf16", "bf16")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("stokehold")
    parser.add_argument("data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--size", default="64")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", default="32")
    args = parser.parse_args()
    # The CPU does not compute in f16.
    cells = [cell for cell in CELLS if args.device != "cpu" or cell[0] != "f16"]
    rates, losses, cores = {}, {}, []
    with tempfile.TemporaryDirectory() as runs:
        for turn in range(args.rounds):
            for precision, sample_type in cells:
                name = f"{turn}-{precision}-{sample_type}"
                command = [args.stokehold, "train", args.data, "--runs", runs, "--name", name, "--model", args.model]
                command += ["--image-size", args.size, "--max-images", "320", "--batch-size", args.batch_size, "--epochs", "1"]
                command += ["--precision", precision, "--sample-type", sample_type, "--device", args.device]
                subprocess.run([*command, "--keep-checkpoints", "0"], check=True, capture_output=True)
                summary = json.loads((pathlib.Path(runs) / name / "summary.json").read_text())
                cell = rates.setdefault((precision, sample_type), [])
                cell.append((summary["trainer_ceiling"], 1 / summary["trainer_cpu_seconds"]))
                losses[precision, sample_type] = summary["train_loss"]
                cores.append(summary["others_cores"])
    print("| precision | samples | images/s | against f32 | images per CPU second | against f32 | loss of the epoch |")
    print("|---|---|---:|---:|---:|---:|---:|")
    base = rates["f32", "f32"]
    for cell, pairs in rates.items():
        text = []
        for i in (0, 1):
            ratios = [pair[i] / first[i] for pair, first in zip(pairs, base)]
            spread = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
            text += [f"{statistics.median(pair[i] for pair in pairs):.1f}", spread]
        print(f"| {cell[0]} | {cell[1]} | {' | '.join(text)} | {losses[cell]:.4f} |")
    print(f"\nOther programs took {statistics.median(cores):.1f} cores.")


if __name__ == "__main__":
    main()
