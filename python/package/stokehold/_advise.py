"""What each change would gain a run, asked of the command line."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, fields
from typing import Any

from stokehold._command import program
from stokehold.errors import OptionError, StokeholdError


@dataclass(frozen=True)
class Advice:
    """A change and what it would make of a run, predicted."""

    #: What is changed: its numbers, and its ``kind``: ``workers``, ``persistent-workers``, ``prefetch``, ``fast-images``,
    #: ``executor``, ``shards``, ``baked``, ``batch-size``, ``precision``, ``pinned-memory``, ``bytes-to-device``, ``storage`` or
    #: ``servers``.
    change: dict[str, Any]
    #: The change in words.
    title: str
    #: Wall time of an epoch's training with it; the longer end where the prediction is a range.
    seconds_per_epoch: float
    #: The shorter end of the range; ``None`` where it is none.
    seconds_at_best: float | None
    #: Seconds per epoch that it saves; below 0 where it loses.
    gain_seconds: float
    #: The same in percent of the epoch as it was, below 100.
    gain_percent: float
    #: What an epoch would cost, in ``Advised.currency``; ``None`` where the machine's price is not known.
    cost_per_epoch: float | None
    #: What that is less than the present epoch's cost; below 0 where it costs more.
    saved_per_epoch: float | None
    #: Why, in a sentence with the numbers.
    why: str
    #: The options of ``stokehold train`` that make it; none where it is not an option.
    flags: list[str]


@dataclass(frozen=True)
class Advised:
    """What ``advise`` returns."""

    #: What limits the run, in a sentence.
    verdict: str
    #: First what gains something on this machine, then machines that gain something, then the rest; the largest gain first in each.
    #: None where ``fit`` is so bad that nothing is predicted, which the verdict says.
    advice: list[Advice]
    #: What the run did and how fast: ``images``, ``num_workers``, ``seconds_per_epoch``, ``wait_share``, ..
    workload: dict[str, Any]
    #: How many times as long the run's own epochs took as the model says for them; ``None`` where it says nothing.
    fit: float | None
    currency: str
    #: The whole training here and on other machines: ``epochs``, ``here``, ``others``, ..; ``None`` where nothing is predicted.
    machines: dict[str, Any] | None
    #: What could not be measured, and why.
    notes: list[str]


def advise(run: str | os.PathLike[str]) -> Advised:
    """Says what each change would gain a run of ``stokehold train``: ``stokehold advise RUN``.

    What the run did not measure while it trained is measured now, which can take minutes, and kept with the run.

    Args:
        run: the run's folder.

    Raises:
        OptionError: it is no such run, or one that has nothing to predict from; the message says what to do.
        UsageError: this package was made without the command line.
        StokeholdError: the measurement failed.
    """
    done = subprocess.run(
        [program(), "advise", "--json", "--", os.fspath(run)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().rpartition("error: ")[2] or f"stokehold advise ended with {done.returncode}"
        raise (OptionError if done.returncode == 2 else StokeholdError)(said)
    answer = json.loads(done.stdout)
    return Advised(
        verdict=answer["verdict"],
        advice=[Advice(**{field.name: one[field.name] for field in fields(Advice)}) for one in answer["advice"]],
        workload=answer["workload"],
        fit=answer["fit"],
        currency=answer["prices"]["currency"],
        machines=answer["machines"],
        notes=answer["notes"],
    )
