"""One trial of `stokehold compare`: a loader of images, and a trainer that takes its batches.

README.md beside this file describes the protocol on standard input and output.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import multiprocessing
import os
import queue
import sys
import threading
import time
import zlib
from typing import Any, NoReturn

import numpy as np
from emulated import emulated_trainer
from needs import TRIALS
from spec import Cannot, Failed, Spec, end_with_parent, read_spec
from torch_trainer import TorchTrainer, device_of

#: The most steps of a round whose times are said, so that an answer remains a line of some hundred kilobytes.
TIMES = 10_000


class Lines:
    """The lines of standard input; when it ends, so does the program, whatever it is doing."""

    def __init__(self) -> None:
        # Its own descriptor: workers that are forked close what Python calls sys.stdin, and could wait for its lock.
        self.source = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self.queue: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Takes lines until there are no more."""
        kept = b""
        while True:
            try:
                more = os.read(self.source, 1 << 16)
            except OSError:
                more = b""
            if not more:
                leave(0)
            *whole, kept = (kept + more).split(b"\n")
            for line in whole:
                self.queue.put(line.decode(errors="replace"))

    def next(self) -> str:
        """The next line that is not empty."""
        while True:
            line = self.queue.get()
            if line.strip():
                return line


def main() -> None:
    out = protect_standard_output()
    end_with_parent()
    lines = Lines()

    def answer(what: dict[str, Any]) -> None:
        try:
            print(json.dumps(what), file=out, flush=True)
        except OSError:
            leave(1)  # nobody listens any more

    spec = read_spec(lines.next())
    if spec.trial not in TRIALS:
        raise Failed(f"there is no trial called {spec.trial!r}; there are: {', '.join(TRIALS)}")
    try:
        batches, trainer, versions = prepare(spec)
    except Cannot as error:
        install = {"install": error.install} if error.install else {}
        answer({"cannot": {"why": error.why} | install})
        # The caller ends the program.
        lines.next()
        raise Failed("a trial that cannot run was asked for steps") from None
    answer({"ready": {"versions": versions, "device": trainer.device}})
    while True:
        answer({"round": one_round(read_steps(lines.next()), batches, trainer)})


def protect_standard_output() -> Any:
    """Keeps standard output for the answers: from now on file descriptor 1 is standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def prepare(spec: Spec) -> tuple[Any, Any, str]:
    """The batches, the trainer, and the versions of the libraries that do the work."""
    if len(spec.trainer) != 1 or not spec.trainer.keys() <= {"emulated", "torch"}:
        raise Failed(f'trainer must be {{"emulated": ..}} or {{"torch": ..}}, not {spec.trainer!r}')
    ((kind, options),) = spec.trainer.items()
    if kind == "torch":
        spec.device = device_of(spec, options)
    module, library, install, _ = TRIALS[spec.trial]
    try:
        loader = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Cannot(f"{library} is not installed: there is no module {error.name}", install) from None
    except (ImportError, OSError) as error:
        raise Cannot(f"{library} cannot be imported: {error}", install) from None
    batches = iter(loader.batches(spec))
    # The first batch shows whether the loader works, and takes what it compiles out of the first round. Workers start
    # before the trainer, whose threads a fork would not take along.
    first = next(batches)
    check(spec, first)
    trainer = emulated_trainer(spec, options) if kind == "emulated" else TorchTrainer(spec, options)
    versions = loader.versions()
    if trainer.versions and not versions.startswith(trainer.versions):
        versions += f"; {trainer.versions}"
    return itertools.chain([first], batches), trainer, versions


def check(spec: Spec, batch: tuple[Any, Any]) -> None:
    """Fails if a batch is not what the protocol asks for."""
    images, labels = batch
    dtype = str(images.dtype).replace("torch.", "")
    if tuple(images.shape) != spec.shape or dtype != "float32":
        raise Failed(f"a batch is {tuple(images.shape)} {dtype}, and must be {spec.shape} float32")
    expected = spec.labels[spec.order[: spec.batch_size]]
    if not np.array_equal(labels, expected):
        raise Failed("the labels of the first batch are not those of the order")


def read_steps(line: str) -> int:
    """The number of steps that a line asks for."""
    try:
        request = json.loads(line)
        steps = request["steps"]
        if request.keys() == {"steps"} and type(steps) is int and steps > 0:
            return steps
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise Failed(f'a request must be {{"steps": a whole number from 1 on}}, not {line.strip()[:200]!r}')


def one_round(steps: int, batches: Any, trainer: Any) -> dict[str, Any]:
    """Makes steps, and says what they took."""
    waited = busy = copying = 0.0
    images_taken = crc = 0
    losses, times = [], []
    begun = time.perf_counter()
    for _ in range(steps):
        asked = time.perf_counter()
        images, labels = next(batches)
        there = time.perf_counter()
        waited += there - asked
        crc = zlib.crc32(labels.astype("<u4").tobytes(), crc)
        images_taken += len(labels)
        step_busy, step_copying, loss = trainer.step(images, labels)
        busy += step_busy
        copying += step_copying
        if loss is not None:
            losses.append(loss)
        if len(times) < TIMES:
            times.append([round(there - asked, 6), round(time.perf_counter() - there, 6)])
    said = {
        "steps": steps,
        "images": images_taken,
        "seconds": time.perf_counter() - begun,
        "waited": waited,
        "busy": busy,
        "copying": copying,
        "labels": crc,
        "times": times,
    }
    if losses:
        mean = sum(losses) / len(losses)
        if not math.isfinite(mean):
            raise Failed("the loss is no longer a number; a smaller learning rate may help")
        said["loss"] = mean
    return said


def leave(status: int) -> NoReturn:
    """Ends the program at once, with the processes that it has started; threads of libraries end with it."""
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(status)


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        print(error, file=sys.stderr, flush=True)
        leave(2)
    except KeyboardInterrupt:
        leave(130)
    except Exception:
        import traceback

        traceback.print_exc()
        leave(1)
