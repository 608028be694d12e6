"""Batches that servers make."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import stokehold


@pytest.fixture()
def server(pictures):
    """A server, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stokehold", "serve", str(pictures), "--listen", "127.0.0.1:0", "--workers", "1"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "STOKEHOLD_TOKEN": "a-secret"},
    )  # fmt: skip
    with process:
        try:
            line = process.stdout.readline()
            yield next(word for word in line.split() if "://" in word)
        finally:
            process.kill()


def epochs(loader, count):
    return [[np.asarray(part) for part in batch] for _ in range(count) for batch in loader]


def test_batches_are_those_of_the_loader(pictures, server, monkeypatch):
    monkeypatch.setenv("STOKEHOLD_TOKEN", "a-secret")
    options = {"batch_size": 4, "seed": 3, "samples": True}
    local = stokehold.Loader(pictures, "imagenet-train", **options)
    for workers in (None, 1):
        remote = stokehold.Loader(pictures, "imagenet-train", remote=[server], num_workers=workers, **options)
        expected, made = epochs(local, 2), epochs(remote, 2)
        local.set_epoch(0)
        assert len(expected) == len(made) > 0
        for ours, theirs in zip(expected, made):
            assert all(np.array_equal(a, b) for a, b in zip(ours, theirs))
        by = remote.made
        assert sum(by.values()) >= len(made) and set(by) == ({server} if workers is None else {server, "here"})


def test_what_cannot_be_remote_is_refused(pictures, server):
    with pytest.raises(stokehold.StokeholdError, match="it asks for a token; set STOKEHOLD_TOKEN"):
        stokehold.Loader(pictures, "imagenet-train", remote=server)
    with pytest.raises(stokehold.OptionError, match="write tcp://HOST:PORT"):
        stokehold.Loader(pictures, "imagenet-train", remote=["a:7000"])
    with pytest.raises(stokehold.OptionError, match="give the folder that they serve"):
        stokehold.Loader([("a.jpg", 0)], "imagenet-train", remote=[server])
