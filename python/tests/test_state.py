"""Where a loader stands: epochs, resuming, killed processes."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal

import pytest
from conftest import in_fork
from test_loader import CROP, epoch, same

import stokehold


def make(folder, workers=2, **more):
    options = {"batch_size": 4, "seed": 6, "samples": True, **more}
    return stokehold.Loader(folder, CROP, num_workers=workers, **options)


def test_resume_from_every_batch(folder):
    loader = make(folder)
    loader.set_epoch(1)
    states, batches = [loader.state_dict()], []
    for batch in loader:
        states.append(loader.state_dict())
        batches.append(batch)
    after = epoch(loader)
    assert [state["batch"] for state in states] == list(range(11)) and len(batches) == 10
    whole = make(folder)
    whole.set_epoch(1)
    whole = epoch(whole)
    for done, state in enumerate(states):
        again = make(folder, workers=1 + done % 3)
        again.load_state_dict(json.loads(json.dumps(state)))
        assert again.epoch == 1
        again.set_epoch(1)  # as training loops do
        assert same(epoch(again), whole[done:])
        assert again.epoch == 2 and same(epoch(again), after)


@pytest.mark.parametrize("chosen", [{"weights": [*range(37)]}, {"repeats": 3}, {"epoch_samples": 20}, {"class_balanced": True}, {"subset": [*range(3, 30)]}])
def test_every_choice_of_samples_resumes_exactly(folder, chosen):
    loader = make(folder, **chosen)
    batches, states = [], []
    for batch in loader:
        batches.append(batch)
        states.append(loader.state_dict())
    for done, state in enumerate(states[:-1], 1):
        again = make(folder, workers=1, **chosen)
        again.load_state_dict(state)
        assert same(epoch(again), batches[done:])
    with pytest.raises(stokehold.OptionError, match="sampler"):
        make(folder).load_state_dict(states[0])


def test_where_it_stands(folder):
    loader = make(folder)
    where = lambda: (loader.state_dict()["epoch"], loader.state_dict()["batch"], loader.epoch)  # noqa: E731
    assert where() == (0, 0, 0)
    for number, _ in enumerate(loader):
        assert where() == (0, number + 1, 0)
    assert where() == (1, 0, 1)
    for _ in loader:
        break
    # Left early: the state is where the loop was left, the next loop is the next epoch.
    assert where() == (1, 1, 2)
    state = loader.state_dict()
    first = next(iter(loader))
    assert where()[:2] == (2, 1)
    loader.stop()
    loader.load_state_dict(state)
    assert where() == (1, 1, 1) and len(epoch(loader)) == 9
    loader.set_epoch(2)
    assert same([first], epoch(loader)[:1])
    loader.set_epoch(2)
    assert where() == (2, 0, 2)


def test_states_of_other_data_are_refused(folder):
    state = make(folder).state_dict()
    for options, what in [
        ({"seed": 7}, "seed was 6 when the state was saved and is 7 now"),
        ({"batch_size": 5}, "batch size was 4"),
        ({"split": "val"}, "number of images was 37"),
        ({"shuffle": False}, "shuffling was true"),
        ({"drop_last": True}, "drop-last was false"),
        ({"world_size": 2}, "world size was 1"),
    ]:
        with pytest.raises(stokehold.OptionError, match=what):
            make(folder, **options).load_state_dict(state)
    for nonsense in ({}, {"seed": 1}, [], {**state, "batch": -1}, {**state, "batch": 11}, {"seed": object()}):
        with pytest.raises(ValueError):
            make(folder).load_state_dict(nonsense)


def test_a_state_is_the_same_on_every_rank(folder):
    ranks = [make(folder, rank=rank, world_size=2) for rank in range(2)]
    iterators = [iter(loader) for loader in ranks]
    for iterator in iterators:
        next(iterator)
    assert ranks[0].state_dict() == ranks[1].state_dict()
    other = make(folder, rank=1, world_size=2)
    other.load_state_dict(ranks[0].state_dict())
    assert same(epoch(other), [tuple(part.copy() if hasattr(part, "copy") else part.clone() for part in batch)
                               for batch in iterators[1]])  # fmt: skip


def test_split_batches_go_on_with_another_number_of_ranks(folder):
    """Batches of 12 of two ranks, of three, of one: together the same samples, and no state says how many ranks there were."""
    whole = [set(batch[-1].tolist()) for batch in make(folder, batch_size=12)]

    def together(ranks, state=None, stop=99):
        loaders = [make(folder, batch_size=12, rank=rank, world_size=ranks, split_batches=True) for rank in range(ranks)]
        for loader in loaders if state else ():
            loader.load_state_dict(state)
        steps = []
        for parts in itertools.islice(zip(*loaders), stop):
            sizes = [len(part[-1]) for part in parts]
            assert max(sizes) - min(sizes) <= 1
            steps.append({sample for part in parts for sample in part[-1].tolist()})
        states = [loader.state_dict() for loader in loaders]
        assert len(loaders[0]) == 4 and (stop > 1 or states == states[:1] * ranks)
        return steps, states[0]

    first, state = together(2, stop=1)
    second, state = together(3, state, stop=1)
    rest, _ = together(1, state)
    assert first + second + rest == whole
    assert together(2)[0] == whole
    for options, what in [
        ({"rank": 2, "world_size": 2}, "rank 2: must be below the world size, 2"),
        ({"batch_size": 2, "world_size": 3}, "a batch of 2 images has no 3 parts"),
    ]:
        with pytest.raises(stokehold.OptionError, match=what):
            make(folder, **options, split_batches=True)


@pytest.mark.parametrize("point", range(20))
def test_killed_and_resumed_misses_nothing(folder, tmp_path, point):
    """kill -9 behind a random batch; another process resumes from what was written down, with other workers."""
    choose = random.Random(point)
    killed_in, killed_at = choose.randrange(3), choose.randrange(1, 10)
    workers = (1, 3) if point % 2 else (3, 1)
    log, kept = tmp_path / "log", tmp_path / "state"

    def train(count, kill):
        loader = make(folder, workers=count)
        if kept.exists():
            loader.load_state_dict(json.loads(kept.read_text()))
        with log.open("a") as out:
            while loader.epoch < 3:
                number = loader.epoch
                for _, labels, samples in loader:
                    print(json.dumps([number, samples.tolist(), labels.tolist()]), file=out, flush=True)
                    aside = kept.with_suffix(".new")
                    aside.write_text(json.dumps(loader.state_dict()))
                    aside.replace(kept)
                    if kill and (number, loader.state_dict()["batch"]) == (killed_in, killed_at):
                        os.kill(os.getpid(), signal.SIGKILL)

    assert in_fork(lambda: train(workers[0], kill=True)) == -signal.SIGKILL
    assert len(log.read_text().splitlines()) == 10 * killed_in + killed_at
    assert in_fork(lambda: train(workers[1], kill=False)) == 0
    seen = [json.loads(line) for line in log.read_text().splitlines()]
    loader, expected = make(folder), []
    for number in range(3):
        expected += [[number, samples.tolist(), labels.tolist()] for _, labels, samples in loader]
    assert seen == expected
