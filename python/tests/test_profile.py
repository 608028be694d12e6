"""Steps and waits, recorded and read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from conftest import in_fork
from test_loader import CROP

import stokehold


def spans(run):
    """(name, step) of every span in a recording."""
    found = []
    for path in sorted((run / "profiler-output" / "framework").rglob("*_pythontimeline.json")):
        events = json.loads(path.read_text())
        names = {event["pid"]: event["args"]["name"] for event in events if "name" in event.get("args", {})}
        found += [(names[event["pid"]], event["args"].get("step_num")) for event in events if event["ph"] == "X"]
    return found


def train(loader, sleep=0.0):
    for number, _ in enumerate(loader, 1):
        with stokehold.step(number):
            time.sleep(sleep)


def test_a_run_is_recorded(folder, tmp_path):
    run = tmp_path / "run"
    loader = stokehold.wrap(stokehold.Loader(folder, CROP, batch_size=10))
    with stokehold.profile(run, interval=0.1) as recording:
        assert recording.wait_share is None
        train(loader, 0.05)
        with pytest.raises(stokehold.UsageError, match="only one at a time"):
            stokehold.profile(tmp_path / "other")
    assert (len(loader), loader.batches, loader.num_samples) == (4, 4, 37) and loader.seconds > 0
    steps, seconds = recording.totals["Step:ModeKeys.TRAIN"]
    assert steps == 4 and seconds >= 0.2 and recording.totals["DataLoaderIter"][0] == 4
    assert 0 < recording.wait_share < 1
    expected = [("DataLoaderIter", n) for n in range(1, 5)] + [("Step:ModeKeys.TRAIN", n) for n in range(1, 5)]
    assert sorted(spans(run)) == expected
    about = json.loads((run / "profiler-output" / "recording.json").read_text())
    assert about["ended"] > about["started"] and about["interval_ms"] == 100
    assert list((run / "profiler-output" / "system").rglob("*.json"))


def test_any_iterable_is_measured_without_a_recording(tmp_path):
    def slow():
        for number in range(3):
            time.sleep(0.02)
            yield number

    waits = stokehold.wrap(slow())
    seen = []
    for number in waits:
        with stokehold.step():
            time.sleep(0.01)
        seen.append(number)
    assert seen == [0, 1, 2] and waits.batches == 3 and waits.seconds >= 0.06
    assert not list(tmp_path.iterdir())


def test_wrong_recordings_are_refused(tmp_path, monkeypatch):
    for interval in (0.05, 61, -1, float("nan")):
        with pytest.raises(ValueError, match="interval"), stokehold.profile(tmp_path / "run", interval):
            pass
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="s3://bucket/run: .* on this machine"), stokehold.profile("s3://bucket/run"):
        pass
    assert not (tmp_path / "s3:").exists()
    with pytest.raises(OSError, match="file"), stokehold.profile(tmp_path / "file"):
        pass


def test_an_error_in_the_loop_ends_the_recording(tmp_path):
    with pytest.raises(KeyError), stokehold.profile(tmp_path / "run"):
        with stokehold.step(1):
            raise KeyError
    assert spans(tmp_path / "run") == [("Step:ModeKeys.TRAIN", 1)]


def test_a_fork_leaves_the_recording_alone(tmp_path):
    with stokehold.profile(tmp_path / "run"):
        with stokehold.step(1):
            pass
        assert in_fork(lambda: train([1, 2, 3])) == 0
        with stokehold.step(2):
            pass
    assert spans(tmp_path / "run") == [("Step:ModeKeys.TRAIN", 1), ("Step:ModeKeys.TRAIN", 2)]


def test_spans_go_to_whoever_listens(tmp_path):
    """As under `stokehold profile`: a line each, into the file that the variable names."""
    lines = tmp_path / "lines"
    script = "import stokehold\nfor _ in stokehold.wrap([1, 2]):\n    with stokehold.step():\n        pass\n"
    environment = {**os.environ, "STOKEHOLD_TIMELINE": str(lines)}
    subprocess.run([sys.executable, "-c", script], env=environment, timeout=120, cwd=tmp_path, check=True)
    got = [(line.split()[0], line.split()[3]) for line in lines.read_text().splitlines()]
    assert sorted(got) == [
        ("DataLoaderIter", "step=1"), ("DataLoaderIter", "step=2"),
        ("Step:ModeKeys.TRAIN", "step=1"), ("Step:ModeKeys.TRAIN", "step=2"),
    ]  # fmt: skip
