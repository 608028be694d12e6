#!/usr/bin/env python3
"""The loader through Python: against Rust's own, PyTorch's DataLoader, and by its memory.

    bench/python.py speed PHOTOS [--rounds 7] [--cores 1] [--loads 0,12] [--max-images 100]
    bench/python.py index [--entries 10000000]

`speed` runs `stokehold bench loader`, `stokehold.Loader`, PyTorch's DataLoader (PIL and v2), and DALI, FFCV and Albumentations on the same files,
turn by turn, as bench/run.py does; both of Stokehold's do the same work with the same number of threads. It needs `cargo build --release`, the
environment `torch` of bench/peers/setup.sh, and an environment with torch and the wheel, whose Python STOKEHOLD_PYTHON names. Of the other three,
those take part whose environments setup.sh has made.

`index` makes a list of so many (path, label), as torchvision's `ImageFolder.samples`, and says what a loader of it costs beyond it; it runs in
the Python that runs it, and takes 3 GB for ten million.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))


def speed(options: argparse.Namespace) -> None:
    from run import CPU_PEERS, PEERS, PEERS_FOLDER, ROOT, Failed, Side, peer_side, python_of

    ours = os.environ.get("STOKEHOLD_PYTHON")
    if not ours:
        sys.exit("set STOKEHOLD_PYTHON to a Python that has torch and the wheel of python/")
    peers = []
    for name in CPU_PEERS:
        try:
            python_of(PEERS[name])
            peers.append(name)
        except Failed as failed:
            print(f"{name} does not take part: {failed}")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    cores = set(sorted(os.sched_getaffinity(0))[: options.cores])
    for load in (int(load) for load in options.loads.split(",")):
        work = ["--load", str(load), "--max-images", str(options.max_images), "--serve"]
        here = [str(options.photos), "--workers", str(options.cores), *work]
        sides = [
            Side("rust", load, [str(target / "release/stokehold"), "bench", "loader", *here]),
            Side("python", load, [ours, str(PEERS_FOLDER / "stokehold_python.py"), *here]),
        ]
        others = (peer_side(name, load, options.photos, options.cores, work) for name in peers)
        sides += [side for side in others if side]
        with tempfile.TemporaryDirectory() as logs:
            try:
                for side in sides:
                    side.start(cores, Path(logs) / side.name)
                    side.turn()
                for _ in range(options.rounds):
                    for side in sides:
                        side.turns.append(side.turn())
            except Failed as failed:
                sys.exit(str(failed))
            finally:
                for side in sides:
                    side.stop()
        print(f"load {load}, {options.cores} core(s), {options.rounds} rounds, load average {os.getloadavg()[0]:.1f}")
        for by in ("seconds", "cpu_seconds"):
            rates = {side.name: [turn["images"] / turn[by] for turn in side.turns] for side in sides}
            for name, each in rates.items():
                ratios = sorted(python / other for python, other in zip(rates["python"], each))
                print(
                    f"  images per {by:11} {name:14} {statistics.median(each):7.0f}   python is "
                    f"{statistics.median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}] times"
                )


def index(options: argparse.Namespace) -> None:
    import stokehold

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def pairs():
        for number in range(options.entries):
            yield f"/data/imagenet/train/n{number % 1000:08}/n{number % 1000:08}_{number:08}.JPEG", number % 1000

    given = list(pairs())
    before, start, cpu = resident(), time.perf_counter(), time.process_time()
    loader = stokehold.Loader(given, "imagenet-train", batch_size=256, bad_images="error")
    made = time.perf_counter() - start
    try:
        next(iter(loader))
    except stokehold.DataError:
        pass  # none of the files is there: the first batch says so, and all that comes before it has been done
    result = {
        "entries": options.entries,
        "seconds_to_make": round(made, 2),
        "seconds_to_first_batch": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "megabytes": round((resident() - before) / 1e6),
        "megabytes_at_most": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6 - before / 1e6),
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("speed")
    command.add_argument("photos", type=Path)
    command.add_argument("--rounds", type=int, default=7)
    command.add_argument("--cores", type=int, default=1)
    command.add_argument("--loads", default="0,12")
    command.add_argument("--max-images", type=int, default=100)
    command.set_defaults(run=speed)
    command = commands.add_parser("index")
    command.add_argument("--entries", type=int, default=10_000_000)
    command.set_defaults(run=index)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
