"""Threads that share a loader or a recording, on an interpreter with a GIL and on one without: what one takes no other gets."""

from __future__ import annotations

import queue
import random
import threading

import numpy as np
import pytest
from conftest import picture, plain
from test_loader import CROP, WHOLE, epoch

import stokehold


def together(work, count=4):
    """What ``work(number)`` returns in threads that begin at once; it raises what one of them raised."""
    begin, results, errors = threading.Barrier(count), [None] * count, []

    def run(number):
        try:
            begin.wait(60)
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return results


def check(batch):
    """Whether a batch of ``WHOLE`` has the pictures that it says."""
    for image, sample in zip(plain(batch[0]), batch[2].tolist()):
        assert np.abs(image * 255 - picture(sample).transpose(2, 0, 1)).max() < 1e-3


def test_threads_that_share_an_iteration_take_every_batch_once(folder):
    alone, shared = (stokehold.Loader(folder, CROP, batch_size=2, seed=2, samples=True) for _ in range(2))
    for _ in range(5):
        expected = {tuple(samples): (images, labels) for images, labels, samples in epoch(alone)}
        batches = iter(shared)
        taken = [batch for part in together(lambda _: epoch(batches)) for batch in part]
        assert len(taken) == len(expected) == 19
        for images, labels, samples in taken:
            images_expected, labels_expected = expected.pop(tuple(samples))
            assert np.array_equal(images, images_expected) and np.array_equal(labels, labels_expected)


def test_threads_that_do_anything_at_once_get_batches_or_errors(folder):
    loader = stokehold.Loader(folder, WHOLE, batch_size=2, samples=True, num_workers=2)

    def work(number):
        draw, batches, taken = random.Random(number), iter(()), 0
        for _ in range(200):
            what = draw.randrange(10)
            try:
                if what == 0:
                    batches = iter(loader)
                elif what == 1:
                    loader.stop()
                elif what == 2:
                    loader.set_epoch(draw.randrange(100))
                elif what == 3:
                    loader.load_state_dict(loader.state_dict())
                elif what == 4:
                    batches = iter(())
                elif what == 5:
                    assert len(loader.labels) == 37 and len(loader) == 19 and loader.epoch >= 0
                else:
                    batch = next(batches, None)
                    if batch is not None:
                        check(batch)
                        taken += 1
            except stokehold.UsageError as error:
                assert "is running" in str(error) or "another iteration" in str(error)
        return taken

    assert sum(together(work)) > 0
    loader.stop()
    loader.set_epoch(1000)
    assert sorted(sample for batch in epoch(loader) for sample in batch[2].tolist()) == list(range(37))


def test_one_thread_closes_what_others_iterate(folder):
    for _ in range(10):
        loader = stokehold.Loader(folder, CROP, batch_size=1)
        batches = iter(loader)

        def work(number):
            if number == 0:
                return loader.close()
            with pytest.raises(stokehold.UsageError, match="closed during this iteration"):
                while True:
                    next(batches, None)

        together(work)
        with pytest.raises(stokehold.UsageError, match="the loader is closed"):
            iter(loader)


def test_other_threads_let_go_of_batches(folder):
    """Their memory goes back to a loader that is at work."""
    loader = stokehold.Loader(folder, WHOLE, batch_size=2, samples=True)
    waiting: queue.Queue[tuple | None] = queue.Queue(6)

    def work(number):
        if number == 0:
            for _ in range(10):
                for batch in loader:
                    waiting.put(batch, timeout=60)
            for _ in range(3):
                waiting.put(None, timeout=60)
            return 0
        checked = 0
        while (batch := waiting.get(timeout=60)) is not None:
            check(batch)
            checked += 1
        return checked

    assert sum(together(work)) == 190


def test_spans_of_several_threads_are_all_recorded(tmp_path):
    def mark(_):
        for _ in range(100):
            with stokehold.step():
                pass

    with stokehold.profile(tmp_path / "run") as recording:
        together(mark)
    assert recording.totals["Step:ModeKeys.TRAIN"][0] == 400


def test_recordings_begin_and_end_while_others_mark_steps(tmp_path):
    done = threading.Event()

    def work(number):
        if number == 0:
            try:
                for run in range(5):
                    with stokehold.profile(tmp_path / str(run)):
                        pass
            finally:
                done.set()
        while not done.is_set():
            with stokehold.step():
                pass

    together(work)
