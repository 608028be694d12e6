"""What every peer has in common: its options, its list of files, and how a pass is timed and reported.

A peer is a loader of another project doing the same work as Stokehold's pipeline `published(load)`. Its script
describes itself and hands `run` a function that builds it:

    run("torch_pil", build)        # build(Settings) -> Peer

A *pass* gives out every image of the data set once, as batches of shape (N, 3, H, W), float32, normalised. `run` does
one pass to warm up and then either times `--passes` passes and prints one line, or, with `--serve`, does one pass for
each line `pass` that it reads and answers each with one JSON line, so that a driver can alternate several peers.

Standard output carries nothing but those lines: whatever a library prints goes to standard error.

What a library does to an image is written once, for the trials of `stokehold compare` in crates/compare/trials. Importing this
module puts that folder first on the module path, so a peer imports it before what it takes from there.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# First, because some modules there have the names of peers.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "crates" / "compare" / "trials"))

BATCH_SIZE = 32
JPEG_SUFFIXES = {".jpg", ".jpeg"}


@dataclass
class Settings:
    """What a peer is asked to do."""

    files: list[str]
    load: int  # how often [flip, flip, rotate by up to 5 degrees] is repeated before the crop
    workers: int  # 0: load in the main process
    image_size: int


@dataclass
class Peer:
    """A loader that is ready to run."""

    version: str  # of every library that does the work
    one_pass: Callable[[], int]  # gives out the whole data set once, returns the number of images


class Unsupported(Exception):
    """The peer cannot do the work asked for; its message says what and why."""


def run(name: str, build: Callable[[Settings], Peer]) -> None:
    """Runs the peer `name` as the command line says."""
    options = parse(name)
    out = protect_standard_output()
    try:
        settings = Settings(
            files=image_files(options.data, options.max_images),
            load=options.load,
            workers=options.workers,
            image_size=options.image_size,
        )
        peer = build(settings)
    except Unsupported as error:
        sys.exit(f"{name}: {error}")
    facts = {"peer": name, "version": peer.version, "load": options.load, "workers": options.workers}
    peer.one_pass()
    if options.serve:
        for line in sys.stdin:
            if line.strip() != "pass":
                sys.exit(f"{name}: --serve understands the line 'pass', not {line.strip()!r}")
            print(json.dumps(timed(peer) | facts), file=out, flush=True)
        return
    passes = [timed(peer) for _ in range(options.passes)]
    result = facts | {
        "images": passes[0]["images"],
        "images_per_second": statistics.median(p["images"] / p["seconds"] for p in passes),
        "images_per_cpu_second": statistics.median(p["images"] / p["cpu_seconds"] for p in passes),
        "passes": passes,
    }
    print(json.dumps(result) if options.json else describe(result), file=out, flush=True)


def parse(name: str) -> argparse.Namespace:
    """The options that every peer takes."""
    parser = argparse.ArgumentParser(prog=f"{name}.py", description=f"Images per second of the peer {name}.")
    parser.add_argument("data", type=Path, help="folder of JPEGs, at any depth")
    parser.add_argument("--load", type=at_least(0), default=0, help="repetitions of [flip, flip, rotate] (default 0)")
    parser.add_argument("--workers", type=at_least(0), default=1, help="threads or processes that load (default 1)")
    parser.add_argument("--passes", type=at_least(1), default=3, help="timed passes (default 3)")
    parser.add_argument("--max-images", type=at_least(1), help="take this many, evenly spread over the sorted list")
    parser.add_argument("--image-size", type=at_least(1), default=224, help="side of the output (default 224)")
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    parser.add_argument("--serve", action="store_true", help="do one pass for each line 'pass' of standard input")
    return parser.parse_args()


def at_least(least: int) -> Callable[[str], int]:
    """An argparse type: a whole number that is not below `least`."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more, not {text}")
        return int(text)

    return number


def image_files(folder: Path, most: int | None) -> list[str]:
    """The JPEGs under `folder`, sorted by path; `most` of them, evenly spread, where that is given."""
    if not folder.is_dir():
        sys.exit(f"{folder} is not a folder")
    files = sorted(str(path) for path in folder.rglob("*") if path.suffix.lower() in JPEG_SUFFIXES)
    if not files:
        sys.exit(f"{folder} holds no JPEG files (.jpg, .jpeg)")
    if most is None or most >= len(files):
        return files
    return [files[i * len(files) // most] for i in range(most)]


def timed(peer: Peer) -> dict:
    """One pass: its wall time, its CPU time with all threads and child processes, and its number of images."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    images = peer.one_pass()
    return {
        "seconds": time.perf_counter() - wall,
        "images": images,
        "cpu_seconds": cpu_seconds() - cpu,
    }


def cpu_seconds() -> float:
    """CPU time so far of this process, of its children that ended and of those that still run.

    The last are a DataLoader's persistent workers, which no rusage counts before they end; they are read from /proc.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(cpu_of_process, children()))


def children() -> list[int]:
    """Process ids of the direct children of every thread of this process (the loaders here start no deeper ones)."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found += map(int, (task / "children").read_text().split())
        except FileNotFoundError:
            pass  # the thread has just ended
    return found


def cpu_of_process(pid: int) -> float:
    """User and system time of a running process, 0 when it has just ended."""
    try:
        # The name in parentheses may hold spaces; utime and stime are the 12th and 13th fields after it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def protect_standard_output():
    """Keeps standard output for the results: from now on file descriptor 1 is standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def describe(result: dict) -> str:
    """The result for a reader."""
    rates = " ".join(f"{p['images'] / p['seconds']:.1f}" for p in result["passes"])
    return (
        f"{result['peer']} load {result['load']}, {result['workers']} workers, {result['images']} images a pass: "
        f"{result['images_per_second']:.1f} images/s (passes: {rates}), "
        f"{result['images_per_cpu_second']:.1f} images per CPU second\n{result['version']}"
    )
