#!/usr/bin/env python3
"""Stokehold's search strategies beside Optuna's samplers, on the same problems with the same seeds.

    bench/tune.py optuna gp tpe --out results.jsonl      # with the python of: bench/peers/setup.sh optuna
    bench/tune.py stokehold bayesian tpe --out results.jsonl
    bench/tune.py table results.jsonl
    bench/tune.py compare "stokehold bayesian" "optuna tpe" results.jsonl
    bench/tune.py time                                   # how long a suggestion takes after 200 trials
    bench/tune.py median stokehold                       # what early stopping saves, and whether it costs the best trial
    bench/tune.py median optuna

A line of the results is one study: {problem, side, seed, values: [objective of each trial]}. Studies that a file has already are not
run again. Everything is minimised, one trial after the other. Optuna's GPSampler begins with as many random trials as `bayesian` has
in its even start, in place of its own ten, so that neither side has a model while the other has none. Stokehold is asked through `examples/ask_tell_lines.rs` of the crate
stokehold-tune (`cargo build --release -p stokehold-tune --examples`).
"""

import argparse
import collections
import csv
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEEDS = 20


def branin(x):
    a, b = x["x1"], x["x2"]
    curve = b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6
    return curve**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10


def hartmann6(x):
    alpha = (1.0, 1.2, 3.0, 3.2)
    a = ((10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14), (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14))
    p = (
        (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
        (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
        (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
        (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
    )
    at = [x[f"x{j}"] for j in range(1, 7)]
    return -sum(
        alpha[i] * math.exp(-sum(a[i][j] * (at[j] - p[i][j]) ** 2 for j in range(6))) for i in range(4)
    )


def rosenbrock4(x):
    at = [x[f"x{j}"] for j in range(1, 5)]
    return sum(100 * (at[i + 1] - at[i] ** 2) ** 2 + (1 - at[i]) ** 2 for i in range(3))


def mixed(x):
    """A validation loss as trainings have it: where the learning rate is best depends on the optimiser and the batch size."""
    best = {"sgd": -1.0, "momentum": -2.0, "adam": -3.0}[x["optimizer"]] + 0.5 * math.log10(x["batch"] / 64)
    floor = {"sgd": 0.30, "momentum": 0.22, "adam": 0.24}[x["optimizer"]]
    off = math.log10(x["lr"]) - best
    slope = 0.35 if off > 0 else 0.12
    depth = 0.02 * (x["layers"] - 5) ** 2
    dropout = 1.2 * (x["dropout"] - 0.05 * x["layers"]) ** 2
    act = {"relu": 0.02, "gelu": 0.0, "tanh": 0.06}[x["activation"]]
    return floor + slope * off**2 + depth + dropout + act + 0.01 * math.log2(x["batch"] / 32)


def continuous(low, high, scaling="linear"):
    return {"type": "continuous", "min": low, "max": high, "scaling": scaling}


def integer(low, high):
    return {"type": "integer", "min": low, "max": high, "scaling": "linear"}


def categorical(*values):
    return {"type": "categorical", "values": list(values)}


def trainings(metric):
    """Trainings that Stokehold made (bench/tune_table.py): a space of the grid's levels and nothing between them, and what the metric
    was after every epoch of each cell. A number's parameter is the place of its level, and so has its order."""
    with (HERE / "tune_table.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = list(rows[0])[: list(rows[0]).index("epoch")]
    # A loss that was no number counts as the worst there is.
    worst = max(value for row in rows if math.isfinite(value := float(row[metric])))
    space, levels = {}, {}
    for name in names:
        try:
            levels[name] = sorted({row[name] for row in rows}, key=float)
            space[name] = integer(0, len(levels[name]) - 1)
        except ValueError:
            space[name] = categorical(*sorted({row[name] for row in rows}))
    cells = {}
    for row in rows:
        cell = tuple(levels[name].index(row[name]) if name in levels else row[name] for name in names)
        value = float(row[metric])
        cells.setdefault(cell, []).append(value if math.isfinite(value) else worst)
    return space, cells


def recorded(metric):
    """What a metric of the recorded trainings was at their end, as a problem."""
    space, cells = trainings(metric)
    return lambda x: cells[tuple(x[name] for name in space)][-1], space


PROBLEMS = {
    "branin": (branin, {"x1": continuous(-5, 10), "x2": continuous(0, 15)}),
    "hartmann6": (hartmann6, {f"x{j}": continuous(0, 1) for j in range(1, 7)}),
    "rosenbrock4": (rosenbrock4, {f"x{j}": continuous(0.02, 5, "logarithmic") for j in range(1, 5)}),
    "mixed": (
        mixed,
        {
            "optimizer": categorical("sgd", "momentum", "adam"),
            "activation": categorical("relu", "gelu", "tanh"),
            "batch": categorical(32, 64, 128, 256),
            "lr": continuous(1e-5, 1, "logarithmic"),
            "layers": integer(1, 8),
            "dropout": continuous(0, 0.6),
        },
    ),
    "trainings-train": recorded("train_loss"),
    "trainings-val": recorded("val_loss"),
}


def looks(problem):
    """After how many trials studies are compared. A grid is used up: 30 trials of 54 cells."""
    return (10, 20, 30) if problem.startswith("trainings") else (20, 50, 100)


def optuna_suggest(trial, space):
    values = {}
    for name, p in space.items():
        if p["type"] == "categorical":
            values[name] = trial.suggest_categorical(name, p["values"])
        elif p["type"] == "integer":
            values[name] = trial.suggest_int(name, p["min"], p["max"])
        else:
            values[name] = trial.suggest_float(name, p["min"], p["max"], log=p["scaling"] == "logarithmic")
    return values


def even_start(space):
    """How many trials `bayesian` makes before its first model (`start` of crates/tune/src/strategy/bayesian.rs)."""
    return min(max(len(space) + 2, 4), 12)


class Optuna:
    def __init__(self, sampler, space, seed, order=(), **pruning):
        import warnings

        import optuna

        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        made = {
            "gp": lambda: optuna.samplers.GPSampler(seed=seed, n_startup_trials=even_start(space)),
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
            "tpe-multivariate": lambda: optuna.samplers.TPESampler(seed=seed, multivariate=True),
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),
        }
        self.space = space
        self.pruned = optuna.trial.TrialState.PRUNED
        pruner = optuna.pruners.MedianPruner(**pruning)
        self.study = optuna.create_study(direction="minimize", sampler=made[sampler](), pruner=pruner)
        for values in order:
            self.study.enqueue_trial(values)

    def ask(self):
        self.trial = self.study.ask()
        return optuna_suggest(self.trial, self.space)

    def tell(self, value):
        self.study.tell(self.trial, value)

    def stops(self, step, value):
        # Its steps begin with 0.
        self.trial.report(value, step - 1)
        if stop := self.trial.should_prune():
            self.study.tell(self.trial, state=self.pruned)
        return stop

    def end(self):
        pass


class Stokehold:
    def __init__(self, strategy, space, seed, order=(), **stopping):
        target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
        self.server = subprocess.Popen(
            [target / "release/examples/ask_tell_lines"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        spec = {"parameters": space, "objective": "loss", "strategy": strategy, "seed": seed}
        self.say(spec | {"limits": {"max-jobs": 1_000_000}, "enqueue": list(order), "early-stopping": stopping})

    def say(self, what):
        self.server.stdin.write(json.dumps(what) + "\n")

    def answer(self, what):
        self.say(what)
        return json.loads(self.server.stdout.readline())

    def ask(self):
        # None where every combination was tried.
        return self.answer({"ask": True}).get("values")

    def tell(self, value):
        self.say({"tell": value})

    def stops(self, step, value):
        if stop := self.answer({"report": value, "step": step})["stop"]:
            self.say({"stopped": True})
        return stop

    def end(self):
        self.server.stdin.close()
        self.server.wait()


def study(side, name, problem, seed, trials):
    function, space = PROBLEMS[problem]
    them = side(name, space, seed)
    values = []
    for _ in range(min(trials, looks(problem)[-1])):
        at = them.ask()
        if at is None:
            break
        values.append(function(at))
        them.tell(values[-1])
    them.end()
    return values


def run(side, kind, names, out, problems, seeds, trials):
    done = set()
    if out.exists():
        done = {(r["problem"], r["side"], r["seed"]) for r in map(json.loads, out.open())}
    for seed in range(seeds):
        for problem in problems:
            for name in names:
                label = f"{kind} {name}"
                if (problem, label, seed) in done:
                    continue
                values = study(side, name, problem, seed, trials)
                with out.open("a") as file:
                    file.write(json.dumps({"problem": problem, "side": label, "seed": seed, "values": values}) + "\n")


def read(paths):
    studies = {}
    for path in paths:
        for record in map(json.loads, path.open()):
            studies.setdefault(record["problem"], {}).setdefault(record["side"], {})[record["seed"]] = record["values"]
    return studies


def reached(problem, sides):
    """The looks that every study went as far as."""
    shortest = min(len(values) for studies in sides.values() for values in studies.values())
    return [look for look in looks(problem) if look <= shortest]


def compare(one, other, paths):
    """How likely a study of one side has a better best than one of the other, and how many standard errors that is from a half (Mann
    and Whitney 1947, with their variance for ties)."""
    for problem, sides in read(paths).items():
        print(f"{problem}:", end="")
        for look in reached(problem, sides):
            a, b = ([min(values[:look]) for values in sides[side].values()] for side in (one, other))
            better = sum((x < y) + (x == y) / 2 for x in a for y in b) / (len(a) * len(b))
            n = len(a) + len(b)
            ties = sum(t**3 - t for t in collections.Counter(a + b).values())
            error = math.sqrt((n + 1 - ties / (n * (n - 1))) / (12 * len(a) * len(b)))
            print(f" {look} trials {better:.2f} ({(better - 0.5) / error if error else 0:+.1f})", end="")
        print()


def table(paths):
    for problem, sides in read(paths).items():
        at = reached(problem, sides)
        print(f"\n**{problem}**\n\n| side | seeds |" + "".join(f" {n} trials |" for n in at))
        print("|---|---|" + "---|" * len(at))
        for side in sorted(sides, key=lambda s: statistics.median(min(v) for v in sides[s].values())):
            cells = []
            for look in at:
                bests = sorted(min(values[:look]) for values in sides[side].values())
                low, high = bests[len(bests) // 4], bests[(3 * len(bests) - 1) // 4]
                cells.append(f" {statistics.median(bests):.4g} ({low:.4g} to {high:.4g}) |")
            print(f"| {side} | {len(sides[side])} |" + "".join(cells))


def cpu_seconds(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timing():
    space = PROBLEMS["hartmann6"][1]
    for name in ("bayesian", "tpe"):
        them, times = Stokehold(name, space, 0), []
        for number in range(220):
            if number == 200:
                before = cpu_seconds(them.server)
            started = time.perf_counter()
            at = them.ask()
            times.append(time.perf_counter() - started)
            them.tell(hartmann6(at))
        them.ask()
        spent = (cpu_seconds(them.server) - before) / 20
        them.end()
        middle = statistics.median(times[200:])
        print(f"{name}: a suggestion after 200 trials takes {1e3 * middle:.0f} ms, and {1e3 * spent:.0f} ms of a core")


def pruned(metric, seed, side, **stopping):
    """Three of four recorded trainings in a random order: the share of the epochs that a rule saves, and whether the best one is kept."""
    space, cells = trainings(metric)
    order = [dict(zip(space, cell)) for cell in random.Random(seed).sample(sorted(cells), len(cells) * 3 // 4)]
    them = side("random", space, seed, order, **stopping)
    whole, spent, ends = 0, 0, []
    for _ in order:
        at = them.ask()
        curve = cells[tuple(at[name] for name in space)]
        stop = next((step for step, loss in enumerate(curve, 1) if them.stops(step, loss)), None)
        if stop is None:
            them.tell(curve[-1])
        whole, spent = whole + len(curve), spent + (stop or len(curve))
        ends.append((curve[-1], stop is None))
    them.end()
    best = min(end for end, _ in ends)
    return 1 - spent / whole, (best, True) in ends


def median(kind):
    if kind == "stokehold":
        side, rules = Stokehold, [
            (f"against {against}, grace {grace}", {"rule": "auto", "against": against, "grace-reports": grace})
            for against in ("earlier", "completed")
            for grace in (1, 2, 3)
        ]
    else:
        side, rules = Optuna, [(f"MedianPruner, warmup {warmup}", {"n_warmup_steps": warmup}) for warmup in (0, 1, 2)]
    print("| rule | metric | epochs saved | best kept |\n|---|---|---:|---:|")
    for name, stopping in rules:
        for metric in ("train_loss", "val_loss"):
            studies = [pruned(metric, seed, side, **stopping) for seed in range(SEEDS)]
            saved = sorted(100 * saved for saved, _ in studies)
            kept = sum(kept for _, kept in studies)
            print(f"| {kind}, {name} | {metric} | {statistics.median(saved):.0f} % ({saved[0]:.0f} to {saved[-1]:.0f} %) | {kept} of {SEEDS} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for side in ("optuna", "stokehold"):
        command = commands.add_parser(side)
        command.add_argument("names", nargs="+")
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--problems", default=",".join(PROBLEMS))
        command.add_argument("--seeds", type=int, default=SEEDS)
        command.add_argument("--trials", type=int, default=100, help="at most so many a study (default 100)")
    command = commands.add_parser("table")
    command.add_argument("files", type=Path, nargs="+")
    command = commands.add_parser("compare")
    command.add_argument("one")
    command.add_argument("other")
    command.add_argument("files", type=Path, nargs="+")
    commands.add_parser("time")
    commands.add_parser("median").add_argument("side", choices=["stokehold", "optuna"])
    args = parser.parse_args()
    if args.command == "table":
        table(args.files)
    elif args.command == "compare":
        compare(args.one, args.other, args.files)
    elif args.command == "time":
        timing()
    elif args.command == "median":
        median(args.side)
    else:
        side = {"optuna": Optuna, "stokehold": Stokehold}[args.command]
        run(side, args.command, args.names, args.out, args.problems.split(","), args.seeds, args.trials)


if __name__ == "__main__":
    sys.exit(main())
