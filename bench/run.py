#!/usr/bin/env python3
"""Runs Stokehold's ways to load the same files in turns, and prints how they compare: executors, shards, the cache.

    bench/run.py DATA --executors fused,per-op --prepared --cached --loads 0,12 --rounds 5

Every side is `stokehold bench loader --serve`, which waits for the line `pass` on its standard input, loads the whole data set once
and answers with one JSON line {seconds, images, cpu_seconds}. In a round every side gets one turn. The ratio of two sides is
taken within a round, where the machine was as busy for both, and the median over the rounds is reported with its smallest and
largest value. CPU time is compared as well as wall time: other programs that take turns on the core do not count in it, though
those that share caches and memory still slow it down.

All sides run on the same `--cores` cores. A turn is at least one pass and at least a second, so that fast sides are
timed as well as slow ones. The first turn of each side warms it up and does not count.
"""

import argparse
import json
import os
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JPEG_SUFFIXES = {".jpg", ".jpeg"}
EXECUTORS = {
    "fused": ["fused"],
    "per-op": ["per-op"],
    "gpu": ["gpu", "--gpu-decode", "hybrid"],
    "gpu-device": ["gpu", "--gpu-decode", "device"],
}
TURN_SECONDS = 1.0
PASS_TIMEOUT = 900  # seconds; the first answer of a side includes its start


class Failed(Exception):
    """The comparison cannot go on; the message says why and what to do."""


@dataclass
class Side:
    """One process of the comparison and its turns so far."""

    name: str
    load: int
    command: list[str]
    turns: list[dict] = field(default_factory=list)
    version: str = ""

    def start(self, cores: set[int], log: Path) -> None:
        """Starts the process on `cores`; what it says on standard error goes to `log`."""
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": str(len(cores))},
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def one_pass(self) -> dict:
        try:
            self.process.stdin.write("pass\n")
            self.process.stdin.flush()
            line = self.answers.get(timeout=PASS_TIMEOUT)
        except BrokenPipeError:
            line = ""
        except queue.Empty:
            raise Failed(f"{self} did not finish a pass within {PASS_TIMEOUT} s") from None
        if not line:
            self.stop()
            said = self.log.read_text(errors="replace").strip().splitlines()[-8:]
            raise Failed("\n  ".join([f"{self} ended (exit code {self.process.returncode}) and said:", *said]))
        try:
            answer = json.loads(line)
            self.version = answer.get("version", self.version)
            return {key: answer[key] for key in ("seconds", "images", "cpu_seconds")}
        except (ValueError, KeyError) as error:
            raise Failed(f"{self} answered {line.strip()!r}, not a pass as JSON ({error!r})") from None

    def turn(self) -> dict:
        """Passes until a second is full, added up."""
        total = self.one_pass()
        while total["seconds"] < TURN_SECONDS:
            total = {key: total[key] + value for key, value in self.one_pass().items()}
        return total

    def stop(self) -> None:
        """Ends the process: by the end of its input, by force when it does not listen."""
        if not hasattr(self, "process"):
            return
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def speeds(self, clock: str) -> list[float]:
        """Images per second of `clock` ("seconds" or "cpu_seconds"), turn by turn."""
        return [turn["images"] / turn[clock] for turn in self.turns]

    def __str__(self) -> str:
        return f"{self.name} at load {self.load}"


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="stokehold-bench-") as folder:
        try:
            data, images = gather(options.data, options.max_images, Path(folder))
            options.shards = prepare(options, data, Path(folder)) if options.prepared else None
            options.cache = fill(options, data, Path(folder)) if options.cached else None
            sides = [side for load in options.loads for side in sides_of(options, load, data)]
            alternate(sides, options.rounds, lambda side: cores_to_use(options.cores), Path(folder))
        except Failed as error:
            print(f"bench/run.py: {error}", file=sys.stderr)
            return 1
    results = [result_of(side, reference_of(side, sides)) for side in sides]
    across = across_loads(sides)
    print(table(results, across, images, options))
    if options.json:
        document = {"settings": settings_of(options), "images": images, "sides": results, "across_loads": across}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def parse() -> argparse.Namespace:
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder of JPEGs, at any depth")
    parser.add_argument("--executors", type=names(EXECUTORS), default=["fused", "per-op"], metavar="A,B",
                        help=f"executors to run of {','.join(EXECUTORS)} (default fused,per-op); gpu has the CPU read the symbols of "
                        "JPEGs, gpu-device the device; the others are compared with the first")
    parser.add_argument("--prepared", action="store_true",
                        help="also run the first executor on the same files made into shards by `stokehold prepare`")
    parser.add_argument("--cached", action="store_true",
                        help="also run the first executor on the files with --cache, filled before the first turn")
    parser.add_argument("--loads", type=numbers(0), default=[0, 12], metavar="N,M", help="default 0,12")
    parser.add_argument("--rounds", type=number(1), default=5, help="turns of every side (default 5)")
    parser.add_argument("--cores", type=number(1), default=1, help="cores that every side is pinned to (default 1)")
    parser.add_argument("--workers", type=number(1), help="loading threads or processes (default: as many as cores)")
    parser.add_argument("--max-images", type=number(1), help="use this many of the files, evenly spread")
    parser.add_argument("--image-size", type=number(1), default=224, help="default 224")
    parser.add_argument("--stokehold", type=Path, default=target / "release" / "stokehold", metavar="FILE",
                        help="the binary (default: target/release/stokehold, or in $CARGO_TARGET_DIR)")
    parser.add_argument("--device", default="auto", help="of the executors on a GPU: auto, cuda or vulkan (default auto)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything measured to FILE")
    options = parser.parse_args()
    options.workers = options.workers or options.cores
    return options


def names(known):
    """An argparse type: a comma-separated choice of `known`."""

    def choose(text: str) -> list[str]:
        chosen = text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is unknown; there are: {', '.join(known)}")
        return chosen

    return choose


def number(least: int):
    """An argparse type: a whole number that is not below `least`."""

    def parse_number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, not {text!r}")
        return int(text)

    return parse_number


def numbers(least: int):
    return lambda text: [number(least)(part) for part in text.split(",")]


def gather(data: Path, most: int | None, folder: Path) -> tuple[Path, int]:
    """Copies the chosen files below `folder`, so that all sides, whatever their options, load exactly the same.

    Returns the folder of the copies, which is one of a single class, and their number."""
    if not data.is_dir():
        raise Failed(f"{data} is not a folder")
    files = sorted(path for path in data.rglob("*") if path.suffix.lower() in JPEG_SUFFIXES)
    if not files:
        raise Failed(f"{data} holds no JPEG files (.jpg, .jpeg)")
    most = min(most or len(files), len(files))
    for file in (files[i * len(files) // most] for i in range(most)):
        copy = folder / "data" / "photos" / file.relative_to(data)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return folder / "data", most


def prepare(options: argparse.Namespace, data: Path, folder: Path) -> Path:
    """Makes shards of `data` and returns their folder."""
    require_binary(options.stokehold)
    done = subprocess.run([options.stokehold, "prepare", data, folder / "shards"], stdout=sys.stderr)
    if done.returncode != 0:
        raise Failed(f"stokehold prepare ended with exit code {done.returncode}")
    return folder / "shards"


def fill(options: argparse.Namespace, data: Path, folder: Path) -> Path:
    """Makes a cache of `data` and returns its folder."""
    require_binary(options.stokehold)
    place = folder / "cache"
    command = [options.stokehold, "bench", "loader", data, "--cache", place, "--cache-share", "1", "--json", "--passes", "1"]
    while True:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failed(f"stokehold bench loader --cache ended with exit code {done.returncode}")
        facts = json.loads(done.stdout)["cache"]
        if facts["added"] == 0:
            print(f"cache: {facts['hits']} of {facts['hits'] + facts['misses']} reads", file=sys.stderr)
            return place


def require_binary(path: Path) -> None:
    if not path.is_file():
        raise Failed(f"no binary at {path}: build it (cargo build --release) or give --stokehold FILE")


def cores_to_use(count: int) -> set[int]:
    """The last `count` of the cores this process may use: interrupts are mostly served on the first."""
    allowed = sorted(os.sched_getaffinity(0))
    if count > len(allowed):
        raise Failed(f"--cores {count}: this process may use {len(allowed)} cores")
    return set(allowed[-count:])


def sides_of(options: argparse.Namespace, load: int, data: Path) -> list[Side]:
    """The sides that run at `load`."""
    work = ["--load", str(load), "--image-size", str(options.image_size), "--serve"]
    sides = []
    ours = [(executor, executor, data, []) for executor in options.executors]
    if options.shards:
        first = options.executors[0]
        ours.append((f"{first}, prepared", first, options.shards, []))
    if options.cache:
        first = options.executors[0]
        ours.append((f"{first}, cached", first, data, ["--cache", str(options.cache), "--cache-share", "0"]))
    for name, executor, folder, more in ours:
        require_binary(options.stokehold)
        command = [str(options.stokehold), "bench", "loader", str(folder), "--executor", *EXECUTORS[executor]]
        if EXECUTORS[executor][0] == "gpu":
            command += ["--device", options.device]
        sides.append(Side(name, load, command + more + ["--workers", str(options.workers)] + work))
    return sides


def alternate(sides: list[Side], rounds: int, cores_of, folder: Path) -> None:
    """Starts all sides on the cores that `cores_of` names, lets each warm up, then gives each a turn in every round.

    Always ends the processes."""
    try:
        for index, side in enumerate(sides):
            print(f"starting {side}", file=sys.stderr)
            side.start(cores_of(side), folder / f"{index}.log")
        for side in sides:
            side.one_pass()  # waits until it is ready, so that no start disturbs another side's turns
        for round_number in range(rounds):
            for side in sides:
                side.turns.append(side.turn())
            print(f"round {round_number + 1} of {rounds} done", file=sys.stderr)
    finally:
        for side in sides:
            side.stop()


def reference_of(side: Side, sides: list[Side]) -> Side:
    """The side that `side` is compared with: the first one of the same load."""
    return next(other for other in sides if other.load == side.load)


def ratio(of: Side, to: Side, clock: str) -> dict:
    """How many times as fast `of` is as `to`, round by round."""
    rounds = [a / b for a, b in zip(of.speeds(clock), to.speeds(clock))]
    return {"median": statistics.median(rounds), "min": min(rounds), "max": max(rounds)}


def result_of(side: Side, reference: Side) -> dict:
    return {
        "name": side.name,
        "load": side.load,
        "version": side.version,
        "command": side.command,
        "images_per_second": statistics.median(side.speeds("seconds")),
        "images_per_cpu_second": statistics.median(side.speeds("cpu_seconds")),
        "reference": reference.name,
        "reference_is_times": ratio(reference, side, "seconds"),
        "reference_is_times_cpu": ratio(reference, side, "cpu_seconds"),
        "turns": side.turns,
    }


def across_loads(sides: list[Side]) -> list[dict]:
    """What each side keeps of its speed from the first load to each other one."""
    kept = []
    for side in sides:
        first = next(other for other in sides if other.name == side.name)
        if first is not side:
            kept.append({
                "name": side.name,
                "from_load": first.load,
                "to_load": side.load,
                "keeps": ratio(side, first, "seconds"),
                "keeps_cpu": ratio(side, first, "cpu_seconds"),
            })
    return kept


def settings_of(options: argparse.Namespace) -> dict:
    return {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}


def table(results: list[dict], across: list[dict], images: int, options: argparse.Namespace) -> str:
    """Everything as Markdown."""
    first = results[0]["reference"]
    lines = [
        f"{options.data}, {images} images; cores: {options.cores}, workers: {options.workers}, rounds: {options.rounds}; "
        "ratios are medians of the rounds [smallest, largest].",
        "",
        f"| side | load | images/s | images per CPU s | {first} is x times | x times by CPU time |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for r in results:
        lines.append(
            f"| {r['name']} | {r['load']} | {r['images_per_second']:.1f} | {r['images_per_cpu_second']:.1f} "
            f"| {spread(r['reference_is_times'])} | {spread(r['reference_is_times_cpu'])} |"
        )
    if across:
        lines += ["", "| side | loads | keeps of its speed | by CPU time |", "|---|---|---:|---:|"]
    for k in across:
        lines.append(
            f"| {k['name']} | {k['from_load']} to {k['to_load']} | {spread(k['keeps'])} | {spread(k['keeps_cpu'])} |"
        )
    return "\n".join(lines)


def spread(ratio: dict) -> str:
    return f"{ratio['median']:.2f} [{ratio['min']:.2f}, {ratio['max']:.2f}]"


if __name__ == "__main__":
    sys.exit(main())
