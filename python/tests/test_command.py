"""The command line that comes with the package, and what is asked of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import wait_for

import stokehold


def run(*arguments, **options):
    """The ended command, with its output as text."""
    return subprocess.run(
        [str(argument) for argument in arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False, **options,
    )  # fmt: skip


def module(*arguments, **options):
    return run(sys.executable, "-m", "stokehold", *arguments, **options)


TRAIN = "--image-size 32 --batch-size 4 --workers 1 --device cpu --name one".split()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """24 generated photographs."""
    folder = tmp_path_factory.mktemp("photographs")
    made = module("dataset", "synth", folder, "--images", 24, "--classes", 2)
    assert made.returncode == 0, made.stderr
    return folder


def test_it_is_beside_this_python():
    # This Python itself: what its name links to has another folder.
    said = run(Path(sys.executable).parent / "stokehold", "--version")
    assert (said.stdout, said.returncode) == (f"stokehold {stokehold.__version__}\n", 0)
    assert module("--version").stdout == said.stdout


def test_exit_codes_and_output_pass_through(tmp_path):
    said = module("profile", "--output", tmp_path / "run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (said.stdout, said.returncode) == ("out\n", 7) and "err\n" in said.stderr
    said = module("advise", "nowhere", cwd=tmp_path)
    assert (said.stdout, said.returncode) == ("", 2) and said.stderr.startswith("error: nowhere: there is no such folder")


def test_ctrl_c_ends_it_as_it_ends_the_program(pictures, tmp_path):
    log = tmp_path / "log"
    with log.open("w") as file:
        running = subprocess.Popen(
            [sys.executable, "-m", "stokehold", "train", str(pictures), *TRAIN, "--epochs", "1000000", "--runs", str(tmp_path)],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        wait_for(lambda: any(tmp_path.glob("one/checkpoints/epoch-*")), "the first epoch")
        running.send_signal(signal.SIGINT)
        wait_for(lambda: running.poll() is not None, "the end of the training")
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130, log.read_text()


def test_a_run_is_advised(pictures, tmp_path):
    options = "--epochs 1 --executor per-op --load 2 --ceiling-batches 2".split()
    trained = module("train", pictures, *TRAIN, *options, "--runs", tmp_path)
    assert trained.returncode == 0, trained.stderr
    # Times that the model explains: on a machine that others use it may not explain the run's own, and predict nothing.
    recording = tmp_path / "one/profiler-output/recording.json"
    about = json.loads(recording.read_text())
    about["workload"] |= {
        "cores": 2, "loader_ceiling": 100.0, "loader_cpu_seconds": 0.01, "trainer_ceiling": 100.0,
        "trainer_cpu_seconds": 0.02, "trainer_delay_seconds": 0.0, "seconds_per_epoch": 0.3,
        "stage_seconds": {"read": 0.0001, "decode": 0.006, "augment": 0.004},
    }  # fmt: skip
    recording.write_text(json.dumps(about))
    said = stokehold.advise(tmp_path / "one")
    assert said.verdict and said.workload["images"] == 20 and said.workload["executor"] == "per-op" and said.currency
    assert {one.change["kind"] for one in said.advice} >= {"workers", "executor", "shards", "batch-size"}
    machines = ("machine", "servers")
    free = [one.gain_seconds for one in said.advice if one.change["kind"] not in machines]
    assert free == sorted(free, reverse=True)
    assert all((one.seconds_at_best is not None) == (one.change["kind"] in machines) for one in said.advice)
    for one in said.advice:
        assert abs(one.seconds_per_epoch + one.gain_seconds - said.workload["seconds_per_epoch"]) < 1e-9
        assert one.title and one.why and all(flag.startswith("--") for flag in one.flags if flag[0] == "-")
    assert any(one.flags[:2] == ["--executor", "fused"] for one in said.advice)
    assert stokehold.advise(str(tmp_path / "one")) == said


def test_what_cannot_be_advised(tmp_path):
    with pytest.raises(stokehold.OptionError, match="nowhere: there is no such folder"):
        stokehold.advise(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="^--json: there is no such folder"):
        stokehold.advise("--json")


def test_a_package_without_it_says_what_to_do(tmp_path):
    """As pip compiles it from its sources."""
    shutil.copytree(Path(stokehold.__file__).parent, tmp_path / "stokehold")
    alone = {"env": {**os.environ, "PYTHONPATH": str(tmp_path)}}
    # -S: without what is installed.
    said = run(sys.executable, "-S", "-m", "stokehold", "--version", **alone)
    assert (said.stdout, said.returncode) == ("", 1)
    assert said.stderr.startswith("error: there is no command line in this installation") and "python/build" in said.stderr
    said = run(sys.executable, "-S", "-c", "import stokehold; stokehold.advise('x')", **alone)
    assert "stokehold.errors.UsageError: there is no command line" in said.stderr
