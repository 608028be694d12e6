"""Where images may lie: prepared shards, and a bucket."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import plain
from test_loader import CROP

import stokehold

# Serves a folder as the bucket `photos` until its standard input ends, and says where.
SERVER = """
import logging, os, sys, boto3
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
address = "http://%s:%d" % server.get_host_and_port()
client = boto3.client("s3", endpoint_url=address, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
client.create_bucket(Bucket="photos")
for folder, _, names in os.walk(sys.argv[1], followlinks=True):
    for name in names:
        path = os.path.join(folder, name)
        client.upload_file(path, "photos", os.path.relpath(path, sys.argv[1]))
print("listens at", address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def prepared(folder, tmp_path_factory):
    """A folder with the pictures as they are and, beside them, as shards."""
    whole = tmp_path_factory.mktemp("prepared")
    (whole / "pictures").symlink_to(folder)
    command = [sys.executable, "-m", "stokehold", "prepare", str(folder), str(whole / "shards"), "--shard-size", "20KB"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return whole


@pytest.fixture
def bucket(prepared, monkeypatch):
    """The same in a bucket, where the requests of this process go."""
    moto = os.environ.get("STOKEHOLD_TEST_MOTO")
    if not moto:
        pytest.skip("STOKEHOLD_TEST_MOTO names no Python that has moto")
    command = [moto, "-c", SERVER, str(prepared)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        address = next(line for line in server.stdout if line.startswith("listens at ")).split()[-1]
        settings = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "us-east-1"}
        for name, value in settings.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield "s3://photos"
        server.stdin.close()


def two_epochs(data, **options):
    with stokehold.Loader(data, CROP, batch_size=5, seed=3, samples=True, **options) as loader:
        return [[plain(part) for part in batch] for _ in range(2) for batch in loader]


def assert_same(left, right):
    assert len(left) == len(right)
    for batch, other in zip(left, right):
        for part, other_part in zip(batch, other):
            assert np.array_equal(part, other_part)


def test_shards_are_the_folder(folder, prepared):
    assert_same(two_epochs(prepared / "shards"), two_epochs(folder))
    assert_same(two_epochs(prepared / "shards", split="val", num_workers=3), two_epochs(folder, split="val"))
    loader = stokehold.Loader(prepared / "shards", CROP)
    assert loader.classes == ["ant", "bee", "cat"] and loader.name(12).endswith("bee/000.png")


def test_a_bucket_is_the_folder(folder, prepared, bucket):
    here = two_epochs(folder)
    for there in ("pictures", "shards"):
        assert_same(two_epochs(f"{bucket}/{there}"), here)
    loader = stokehold.Loader(f"{bucket}/pictures", CROP)
    assert loader.classes == ["ant", "bee", "cat"] and loader.name(12) == "s3://photos/pictures/train/bee/000.png"
    for wrong, message in [
        (f"{bucket}/nothing", "s3://photos/nothing"),
        (f"{bucket}/pictures/train/ant", "no class folder"),
        ("s3://another/pictures", "s3://another/pictures"),
    ]:
        with pytest.raises(stokehold.DataError, match=message):
            stokehold.Loader(wrong, CROP)


def test_a_label_that_is_no_number_says_what_to_do(folder):
    path = next((folder / "train" / "ant").iterdir())
    for label, message in [
        ("dog", r"data\[1\]: label 'dog' is text.*number the classes, such as {'cat': 0"),
        ([0, 1, 1], r"data\[1\]: label \[0, 1, 1\] is no whole number.*samples=True"),
        (3.5, r"label 3.5 is no whole number.*table\[numbers\]"),
        (None, r"label None is no whole number"),
        (np.array([0, 1]), r"label array\(\[0, 1\]\) is no whole number"),
        (-1, r"label -1 of .*labels are 0 to"),
    ]:
        with pytest.raises(stokehold.OptionError, match=message):
            stokehold.Loader([(path, np.int64(0)), (path, label)], CROP)
    with pytest.raises(stokehold.OptionError, match="data\\[0\\].*pairs of a path and a label"):
        stokehold.Loader([3], CROP)
    # What the messages say.
    table = np.array([[0, 1], [1, 0], [1, 1]])
    loader = stokehold.Loader([(path, 0)] * 3, CROP, batch_size=2, shuffle=False, samples=True)
    assert [table[plain(numbers)].tolist() for _, _, numbers in loader] == [[[0, 1], [1, 0]], [[1, 1]]]
