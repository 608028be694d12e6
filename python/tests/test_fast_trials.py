"""Batches that a recording fetches with fast images, and what a script sees of them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import needs_torch, picture

pytest.importorskip("PIL", reason="Pillow is not installed in this environment")
from PIL import Image  # noqa: E402

SCRIPT = """
import sys

import torch

{imports}


class Photos(torch.utils.data.Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, number):
        {breaks}
        return {read}


if __name__ == "__main__":
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in torch.utils.data.DataLoader(Photos(), 8, num_workers=0):
        model(torch.zeros(1, 8)).sum().backward()
        optimizer.step()
    assert not any(sys.modules[name].is_installed() for name in ("stokehold.pillow",) if name in sys.modules)
"""


def recorded(tmp_path: Path, **parts: str) -> dict:
    file = io.BytesIO()
    Image.fromarray(picture(3, 48, 64)).resize((640, 480)).save(file, "JPEG")
    (tmp_path / "0.jpg").write_bytes(file.getvalue())
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(**{"breaks": "pass", **parts}))
    stokehold = [sys.executable, "-m", "stokehold"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = [*stokehold, "profile", "--fast-images", "-o", str(tmp_path / "run"), "--", sys.executable, str(script)]
    ran = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False, env=environment, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    told = subprocess.run([*stokehold, "advise", str(tmp_path / "run"), "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stderr
    return dict(json.loads(told.stdout))


@needs_torch
@pytest.mark.parametrize(
    ("imports", "read"),
    [
        ("from torchvision.io import decode_image, read_file", 'decode_image(read_file("0.jpg"))'),
        ("from torchvision.io import decode_jpeg, read_file", 'decode_jpeg(read_file("0.jpg"))'),
        ("from torchvision.io import read_image", 'read_image("0.jpg")'),
        ("from torchvision.io.image import decode_image, read_file", 'decode_image(read_file("0.jpg"))'),
        ("import torchvision", 'torchvision.io.read_image("0.jpg")'),
        ("from cv2 import imread", 'imread("0.jpg")'),
        ("import cv2", 'cv2.imread("0.jpg")'),
    ],
)
def test_names_that_a_script_has_taken_are_served(imports: str, read: str, tmp_path: Path) -> None:
    pytest.importorskip(imports.split()[1].split(".")[0])
    workload = recorded(tmp_path, imports=imports, read=read)["workload"]
    assert [one for one in workload["alternatives"] if one["change"]["kind"] == "fast-images"]
    (counters,) = (tmp_path / "run").rglob("python/*.json")
    fetching = json.loads(counters.read_text())["loaders"][0]["fetching"]
    assert fetching["fast_opened"] >= fetching["fast_images"] > 0


@needs_torch
def test_an_error_of_the_hook_leaves_no_fast_images(tmp_path: Path) -> None:
    breaks = 'sys.modules["_stokehold_hook"].Fast.count = None'
    read = 'torch.tensor(Image.open("0.jpg").size)'
    told = recorded(tmp_path, imports="from PIL import Image", breaks=breaks, read=read)
    assert any("the hook ended: note_fetched" in note for note in told["notes"]), told["notes"]
    assert told["workload"]["alternatives"] == []


def test_what_is_off_is_not_said_twice(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    run = [sys.executable, "-m", "stokehold", "run", "--fast-images", "--", sys.executable, "-c", "import cv2"]
    off = subprocess.run(run, capture_output=True, text=True, timeout=100, check=False, env={**os.environ, "STOKEHOLD_DECODERS": "off"})
    assert "STOKEHOLD_DECODERS=off" in off.stderr and "opened no JPEG" not in off.stderr, off.stderr
