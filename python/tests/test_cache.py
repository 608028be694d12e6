"""The image cache of a loader."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest
from conftest import in_fork, wait_for

import stokehold

OPTIONS = {"batch_size": 4, "seed": 3, "samples": True, "num_workers": 2}


def epoch(loader):
    return [[np.asarray(part).copy() for part in batch] for batch in loader]


def same(left, right):
    return len(left) == len(right) and all(np.array_equal(x, y) for a, b in zip(left, right) for x, y in zip(a, b))


def test_batches_are_the_same_from_files_and_from_the_cache(pictures, tmp_path):
    plain = stokehold.Loader(pictures, "imagenet-train", **OPTIONS)
    assert plain.cache is None
    place = tmp_path / "kept"
    time.sleep(3.05)  # files that were just written have no version yet
    loader = stokehold.Loader(pictures, "imagenet-train", cache=f"{place}:100MB", cache_share=1.0, **OPTIONS)
    images = loader.num_samples
    assert same(epoch(plain), epoch(loader))
    facts = loader.cache
    assert (facts["hits"], facts["misses"]) == (0, images)
    wait_for(lambda: loader.cache["waiting"] == 0 and loader.cache["added"] in (0, images), "images in the cache")
    assert same(epoch(plain), epoch(loader))
    # 0 on processors without AVX2.
    added = loader.cache["added"]
    assert loader.cache["hits"] == added
    # Another loader of the same data reads them at once, and one in a fork reads the files.
    del loader
    gc.collect()
    again = stokehold.Loader(pictures, "imagenet-train", cache=place, **OPTIONS)
    assert again.cache["hits"] == 0
    fresh = stokehold.Loader(pictures, "imagenet-train", **OPTIONS)
    assert same(epoch(fresh), epoch(again))
    assert again.cache["hits"] == added

    def in_child():
        own = stokehold.Loader(pictures, "imagenet-train", cache=place, **OPTIONS)
        assert len(epoch(own)) == len(own)
        assert own.cache["hits"] == added

    assert in_fork(in_child) == 0


def test_the_environment_names_a_cache(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("STOKEHOLD_IMAGE_CACHE", f"{tmp_path}/kept:5MB")
    assert stokehold.Loader(pictures, "imagenet-train", **OPTIONS).cache["limit"] == 5_000_000
    monkeypatch.setenv("STOKEHOLD_IMAGE_CACHE", "kept:7 apples")
    with pytest.raises(stokehold.OptionError, match="STOKEHOLD_IMAGE_CACHE=kept:7 apples"):
        stokehold.Loader(pictures, "imagenet-train", **OPTIONS)


@pytest.mark.parametrize(
    ("cache", "share", "why"),
    [
        ("s3://bucket/kept", 0.03, "a folder of this machine"),
        ("kept:1kB", 0.03, "at least 1MiB"),
        ("/dev/null/kept", 0.03, "the cache's folder"),
        ("kept", 1.5, "from 0 to 1"),
        (True, 0.03, "cache=True: must be a folder"),
        (b"\xff", 0.03, "it is not UTF-8"),
        ("0", 0.03, "./0 is a folder of that name"),
    ],
)
def test_what_cannot_be_a_cache_is_refused(pictures, tmp_path, monkeypatch, cache, share, why):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(stokehold.OptionError, match=why):
        stokehold.Loader(pictures, "imagenet-train", cache=cache, cache_share=share, **OPTIONS)


@pytest.mark.parametrize(
    "wrong",
    [{"batch_size": 0}, {"seed": -1}, {"rank": 2, "world_size": 2}, {"weights": [1.0]}, {"executor": "quick"}, {"dtype": "f8"}],
    ids=str,
)
def test_a_wrong_option_leaves_no_cache(pictures, tmp_path, wrong):
    with pytest.raises(stokehold.OptionError):
        stokehold.Loader(pictures, "imagenet-train", cache=tmp_path / "kept", **{**OPTIONS, **wrong})
    assert not (tmp_path / "kept").exists()


def test_no_cache_overrules_the_environment(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("STOKEHOLD_IMAGE_CACHE", f"{tmp_path}/kept:5MB")
    assert stokehold.Loader(pictures, "imagenet-train", cache=False, **OPTIONS).cache is None
    assert not (tmp_path / "kept").exists()
