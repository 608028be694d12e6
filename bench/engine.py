#!/usr/bin/env python3
"""The figures of the engine, each beside what it should be at least and what is aimed at; bench/engine.sh builds and calls it.

    bench/engine.py PHOTOS --sets FOLDER [--quick] [--json FILE]

A row is measured by the program that also stands alone: bench/jpeg (decoding), run.py (the loader beside its peers), scaling.py
(cores). What is not there is said in the row, and the others are measured all the same. Ratios are of CPU time, taken
within a round and given as median [smallest, largest], and mean most on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from run import JPEG_SUFFIXES, PEERS, ROOT, Failed, python_of

HERE = Path(__file__).resolve().parent
PEERS_OF_ENGINE = ["torch_pil", "torch_v2", "ffcv", "ffcv_raw", "dali", "albumentations"]
MEMORY_WORKERS = 8


@dataclass
class Row:
    """One line of the table."""

    what: str
    at_least: float | None  # at most, where less is better; none where nothing is asked for
    aim: float | None
    measured: float | None = None
    unit: str = "x"
    less_is_better: bool = False
    note: str = ""

    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        if self.at_least is None:
            return ""
        reached = (lambda bar: self.measured <= bar) if self.less_is_better else (lambda bar: self.measured >= bar)
        return "aim reached" if reached(self.aim) else "met" if reached(self.at_least) else "**missed**"

    def line(self) -> str:
        def value(number: float | None) -> str:
            if number is None:
                return "-"
            return f"{number:.0f} MB" if self.unit == "MB" else f"{number:.3f}" if self.unit == "share" else f"{number:.2f}"

        cells = [self.what, value(self.at_least), value(self.aim), value(self.measured), self.verdict(), self.note]
        return "| " + " | ".join(cells) + " |"


class Engine:
    """What the measurements share."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.photos, self.sets, self.folder, self.quick = options.photos, options.sets, folder, options.quick
        target = os.environ.get("CARGO_TARGET_DIR")
        self.stokehold = Path(target or ROOT / "target") / "release" / "stokehold"
        self.jpeg = Path(target or HERE / "jpeg" / "target") / "release" / "stokehold-bench-jpeg"
        self.details: dict = {}

    def json_of(self, name: str, command: list, path: Path | None = None) -> dict:
        """Runs a command and reads its JSON, from `path` or from its standard output; keeps it among the details."""
        print(f"measuring: {name}", file=sys.stderr)
        done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failed(f"{Path(command[0]).name} ended with exit code {done.returncode}")
        self.details[name] = json.loads(path.read_text() if path else done.stdout)
        return self.details[name]

    def decoding(self, name: str, photos: Path) -> tuple[float, str]:
        """Full decode against libjpeg-turbo, and what else was measured there."""
        passes, most = ("1", "20") if self.quick else ("5", "400")
        path = self.folder / "jpeg.json"
        measured = self.json_of(
            f"decoding, {name}", [self.jpeg, photos, "--passes", passes, "--max-images", most, "--json", path], path
        )
        ratios = {job["job"]: job["ratio"] for job in measured["jobs"]}
        full = ratios.pop("full decode to RGB")
        others = ", ".join(f"{job} {ratio:.2f}" for job, ratio in ratios.items())
        return full, f"libjpeg-turbo {measured['libjpeg_turbo']}; {others}"

    def can_prepare(self) -> bool:
        return subprocess.run([self.stokehold, "prepare", "--help"], capture_output=True).returncode == 0

    def loading(self) -> tuple[dict, str]:
        """The document of run.py, and which peers are not there."""
        there, missing = [], []
        for name in PEERS_OF_ENGINE:
            try:
                python_of(PEERS[name])
                there.append(name)
            except Failed:
                missing.append(name)
        rounds, most = ("2", "20") if self.quick else ("7", "100")
        path = self.folder / "run.json"
        command = [HERE / "run.py", self.photos, "--executors", "fused", "--peers", ",".join(there) or "none"]
        command += ["--loads", "0,12", "--cores", "1", "--rounds", rounds, "--max-images", most]
        command += ["--stokehold", self.stokehold, "--json", path]
        if self.can_prepare():
            command.append("--prepared")
        return self.json_of("loading", command, path), f"; not there: {', '.join(missing)}" if missing else ""


def against_best_peer(document: dict, side: str, load: int, prepared: bool = False) -> tuple[float, str]:
    """How many times as fast `side` is at a load as the quickest peer there, by CPU time; of the peers, those that read files
    of pixels made beforehand, or those that decode."""
    sides = {result["name"]: result for result in document["sides"] if result["load"] == load}
    if side not in sides:
        raise Failed("`stokehold prepare` is not there")
    ours = sides[side]["turns"]
    ratios = {}
    for name in (name for name in sides.keys() & PEERS.keys() if PEERS[name].pixels == prepared):
        pairs = zip(ours, sides[name]["turns"])
        ratios[name] = [a["images"] / a["cpu_seconds"] / (b["images"] / b["cpu_seconds"]) for a, b in pairs]
    if not ratios:
        raise Failed("no peer is there (bench/peers/setup.sh makes them)")
    best = min(ratios, key=lambda name: statistics.median(ratios[name]))
    others = ", ".join(f"{n} {statistics.median(r):.2f}" for n, r in sorted(ratios.items()) if n != best)
    spread = f"[{min(ratios[best]):.2f}, {max(ratios[best]):.2f}]"
    return statistics.median(ratios[best]), f"{spread} {best}" + (f"; {others}" if others else "")


def kept(document: dict, side: str) -> tuple[float, str]:
    """What `side` keeps of its speed at load 12, by CPU time."""
    keeps = next(entry["keeps_cpu"] for entry in document["across_loads"] if entry["name"] == side)
    return keeps["median"], f"[{keeps['min']:.2f}, {keeps['max']:.2f}]"


def size_of_shards(engine: Engine) -> tuple[float, str]:
    """Bytes of all that prepare writes against the bytes of the files."""
    if not engine.can_prepare():
        raise Failed("`stokehold prepare` is not there")
    out = engine.folder / "prepared"
    print("measuring: shards", file=sys.stderr)
    subprocess.run([engine.stokehold, "prepare", engine.photos, out], check=True, stdout=subprocess.DEVNULL)
    verify = [engine.stokehold, "prepare", out, "--verify", "--against", engine.photos]
    proved = subprocess.run(verify, stdout=subprocess.DEVNULL).returncode == 0
    files = [path for path in engine.photos.rglob("*") if path.suffix.lower() in JPEG_SUFFIXES]
    before = sum(path.stat().st_size for path in files)
    after = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    engine.details["shards"] = {"files": len(files), "bytes": before, "bytes_of_shards": after, "verified": proved}
    if not proved:
        raise Failed("prepare --verify --against found differences")
    return after / before, f"{before} to {after} bytes, all pixels verified"


def peak_memory(engine: Engine) -> tuple[float, str]:
    """The largest resident size in MB (1,000,000 bytes) of a process that only loads."""
    print("measuring: memory", file=sys.stderr)
    command = [engine.stokehold, "bench", "loader", engine.photos, "--workers", MEMORY_WORKERS, "--batch-size", 64]
    command += ["--passes", 1 if engine.quick else 3, "--json"]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise Failed(f"stokehold bench loader ended with exit code {process.returncode}")
    peak = usage.ru_maxrss * 1024 / 1e6
    engine.details["memory"] = {"workers": MEMORY_WORKERS, "batch_size": 64, "peak_mb": peak}
    return peak, f"{MEMORY_WORKERS} workers, batches of 64 x 224 x 224 f32, the whole process"


def scaling(engine: Engine) -> tuple[float, str]:
    """Speed a core of two workers on two cores against one on one."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Failed("this process may use one core")
    command = [HERE / "scaling.py", engine.photos, "--stokehold", engine.stokehold, "--rounds", 1 if engine.quick else 7]
    measured = engine.json_of("scaling", command)
    more = ", ".join(f"{n} workers {r['median']:.2f}" for n, r in measured["more_workers"].items())
    return measured["scaling"]["median"], f"on 2 cores against 2 workers: {more}"


def disturbance(engine: Engine) -> tuple[float, str]:
    """How much longer a training step takes while the loader loads."""
    command = [engine.stokehold, "bench", "disturbance", engine.photos, "--pairs", 2 if engine.quick else 10, "--json"]
    measured = engine.json_of("disturbance", command)
    low, high = measured["found"]["spread"]
    work = f"{measured['arch']}, {measured['batch_size']} images of {measured['image_size']} pixels a step"
    return measured["found"]["slowdown"], f"[{low:.2f}, {high:.2f}] {work}, {measured['workers']} workers"


def fill(row: Row, measure) -> Row:
    """Measures a row; what is not there becomes its note."""
    try:
        row.measured, row.note = measure()
    except Failed as error:
        row.note = str(error)
    return row


def measure_all(engine: Engine) -> list[Row]:
    try:
        document, missing = engine.loading()
    except Failed as error:
        document, missing = {"sides": [], "across_loads": []}, f" ({error})"

    def peers(side: str, load: int = 0, prepared: bool = False) -> tuple[float, str]:
        ratio, note = against_best_peer(document, side, load, prepared)
        return ratio, note + missing

    def kept_speed() -> tuple[float, str]:
        if not document["across_loads"]:
            raise Failed("the loader did not run" + missing)
        return kept(document, "fused")

    decoding = engine.decoding
    return [
        fill(Row("full decode, photos, against libjpeg-turbo 3", 1.5, 1.9), lambda: decoding("photos", engine.photos)),
        fill(Row("load 0 training path against the best peer", 2.7, 3.5), lambda: peers("fused")),
        fill(Row("the same from prepared shards", 3.8, 5.0), lambda: peers("fused, prepared")),
        fill(Row("shards against FFCV's file of pixels", None, None), lambda: peers("fused, prepared", prepared=True)),
        fill(Row("load 12 against the best peer", None, None), lambda: peers("fused", load=12)),
        fill(Row("load 12 against own load 0", 0.75, 0.90), kept_speed),
        fill(Row("bytes of shards against originals (at most)", 0.99, 0.97, unit="share", less_is_better=True),
             lambda: size_of_shards(engine)),
        fill(Row("full decode, progressive, against libjpeg-turbo 3", 1.0, 1.3),
             lambda: decoding("progressive", engine.sets / "progressive")),
        fill(Row("full decode, 4:2:0, against libjpeg-turbo 3", 1.0, 1.3), lambda: decoding("4:2:0", engine.sets / "420")),
        fill(Row("peak memory of a loader with 8 workers (at most)", 200, 100, unit="MB", less_is_better=True),
             lambda: peak_memory(engine)),
        fill(Row("images/s per core, from 1 to 2 cores", 0.95, 1.0), lambda: scaling(engine)),
        fill(Row("a training step beside the loader against one alone", None, None), lambda: disturbance(engine)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("photos", type=Path, help="folder of JPEGs, at any depth")
    parser.add_argument("--sets", type=Path, required=True, help="what bench/make_sets.sh made of them")
    parser.add_argument("--quick", action="store_true", help="few files and rounds: whether it works, not how fast it is")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything measured to FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stokehold-engine-") as folder:
        engine = Engine(options, Path(folder))
        if not engine.stokehold.is_file() or not engine.jpeg.is_file():
            print(f"no {engine.stokehold} or no {engine.jpeg}: bench/engine.sh builds them", file=sys.stderr)
            return 1
        rows = measure_all(engine)
    print("| what | at least | aim | measured | verdict | |\n|---|---:|---:|---:|---|---|")
    print("\n".join(row.line() for row in rows))
    if options.json:
        document = {"quick": options.quick, "rows": [asdict(row) | {"verdict": row.verdict()} for row in rows]}
        options.json.write_text(json.dumps(document | {"details": engine.details}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
