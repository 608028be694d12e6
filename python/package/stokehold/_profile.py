"""What a training loop waits for, whatever loads its batches."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from stokehold import _stokehold
from stokehold.errors import OptionError, UsageError

#: Names that the report knows: the trainer computes a step; it waits for a batch.
STEP, WAIT = "Step:ModeKeys.TRAIN", "DataLoaderIter"


class Recording:
    """What ``profile`` returns."""

    def __init__(self, run: str | os.PathLike[str], interval: float) -> None:
        self.run = run
        #: Spans and seconds of each name, when the recording has ended.
        self.totals: dict[str, tuple[int, float]] = {}
        #: What a reader of the recording should know.
        self.notes: list[str] = []
        self._interval = interval

    @property
    def wait_share(self) -> float | None:
        """Which part of the loop's time it waited for batches, 0 to 1; ``None`` without steps and waits, or before the end."""
        waited, stepped = (self.totals.get(name, (0, 0.0))[1] for name in (WAIT, STEP))
        return waited / (waited + stepped) if waited + stepped > 0 else None

    def __enter__(self) -> Recording:
        _state.begin(_stokehold.Recording(self.run, self._interval, [sys.executable, *sys.argv]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        totals, self.notes = _state.end()
        self.totals = {name: (spans, seconds) for name, spans, seconds in totals}


class _State:
    """Where spans go, and which step is next. One for the process."""

    def __init__(self) -> None:
        self.recording: _stokehold.Recording | None = None
        self.asked = False
        self.steps = 0

    def begin(self, recording: _stokehold.Recording) -> None:
        self.recording, self.steps = recording, 0

    def end(self) -> tuple[list[tuple[str, int, float]], list[str]]:
        recording, self.recording = self.recording, None
        return ([], []) if recording is None else recording.finish()

    def record(self, name: str, seconds: float, step: int) -> None:
        if self.recording is None and not self.asked:
            # Under `stokehold profile -- python train.py` somebody listens.
            self.asked = True
            if os.environ.get("STOKEHOLD_TIMELINE"):
                self.begin(_stokehold.Recording(None, 0.5, []))
                atexit.register(self.end)
        # Another thread may end it meanwhile.
        recording = self.recording
        if recording is not None:
            recording.record(name, seconds, step)


_state = _State()


def profile(run: str | os.PathLike[str], interval: float = 0.5) -> Recording:
    """Records this process into the folder ``run`` while a ``with`` block lasts; ``stokehold report RUN`` shows it.

        with stokehold.profile("runs/mine") as recording:
            for number, (images, labels) in enumerate(stokehold.wrap(loader), 1):
                with stokehold.step(number):
                    ...
        print(recording.wait_share)

    Recorded are every step and wait, and every ``interval`` cores, memory, disks, network, GPUs and processes: the files of
    SageMaker Debugger. It works with any loader.

    Args:
        run: a folder; it is made. A recording in it is gone on with.
        interval: seconds between two samples of the machine, 0.1 to 60.

    Raises:
        OptionError: the interval is out of range, somebody records into the folder, or it is one of a bucket.
        UsageError: a recording is running in this process.
        DataError: the folder cannot be written.
    """
    if _state.recording is not None:
        raise UsageError("a recording is running in this process, and it has only one at a time")
    place = os.fspath(run)
    if isinstance(place, str) and "://" in place:
        raise OptionError(f"{place}: a recording is written on this machine; give a folder here and copy it afterwards")
    return Recording(run, interval)


class step:
    """Marks a training step: ``with stokehold.step(number):``.

    It costs microseconds, and nothing is done with it unless ``profile`` or the command ``stokehold profile`` records.

    Args:
        number: of the step, from 1 on; without one it counts by itself.
    """

    def __init__(self, number: int | None = None) -> None:
        self.number = _state.steps + 1 if number is None else number

    def __enter__(self) -> step:
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _state.record(STEP, time.perf_counter() - self._start, self.number)
        _state.steps = self.number


class wrap:
    """A loader, of any kind, whose waits are measured: ``for batch in stokehold.wrap(loader)``.

    It has the loader's length and attributes. ``seconds`` and ``batches`` count what was waited, also where nothing records.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader
        #: Seconds that the loop has waited for batches so far, the starts of iterations included.
        self.seconds = 0.0
        #: Batches so far.
        self.batches = 0

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        start = time.perf_counter()
        iterator = iter(self._loader)
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                self.seconds += time.perf_counter() - start
                return
            waited = time.perf_counter() - start
            self.seconds += waited
            self.batches += 1
            _state.record(WAIT, waited, _state.steps + 1)
            yield batch
            del batch
            start = time.perf_counter()
