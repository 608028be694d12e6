"""PyTorch's names: the same batches as PyTorch where both are determined, refusals where they cannot be the same."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import HAS_TORCH

if not HAS_TORCH:
    pytest.skip("torch is not installed in this environment", allow_module_level=True)

import torch
import torchvision
from torch.utils import data as torch_data
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as V

import stokehold
from stokehold.torch import DataLoader, ImageFolder, InPlaceOf, pipeline_of

EVAL = V.Compose([V.Resize(16), V.CenterCrop(12), V.ToTensor(), V.Normalize([0.5] * 3, [0.25] * 3)])
EXAMPLES = Path(__file__).parents[1] / "examples"


def test_batches_are_those_of_pytorch(folder):
    """A pipeline without draws: the same labels, and pixels within a level, from either kind of folder and from a part."""
    theirs = torchvision.datasets.ImageFolder(folder / "train", EVAL)
    ours = ImageFolder(folder / "train", EVAL)
    assert (ours.classes, ours.class_to_idx, ours.targets) == (theirs.classes, theirs.class_to_idx, theirs.targets)
    assert ours.samples == theirs.samples and len(ours) == len(theirs)
    part = [30, 2, 11, 11]
    for dataset, reference in [
        (ours, theirs),
        (theirs, theirs),
        (torch_data.Subset(theirs, part), torch_data.Subset(theirs, part)),
        (torch_data.Subset(ours, part), torch_data.Subset(theirs, part)),
        (torch_data.Subset(torch_data.Subset(theirs, part), [0, 3]), torch_data.Subset(theirs, [30, 11])),
    ]:
        got = list(DataLoader(dataset, batch_size=5, executor="per-op"))
        expected = list(torch_data.DataLoader(reference, batch_size=5))
        assert len(got) == len(expected)
        for (images, labels), (images_expected, labels_expected) in zip(got, expected):
            assert torch.equal(labels, labels_expected) and labels.dtype == labels_expected.dtype
            assert images.shape == images_expected.shape and images.dtype == images_expected.dtype
            # A level of 255 through a division by 0.25.
            assert (images - images_expected).abs().max() < 4.1 / 255


def test_the_seed_is_torchs(folder):
    dataset = ImageFolder(folder, EVAL)

    def order(**more):
        return torch.cat([samples for _, _, samples in DataLoader(dataset, 5, True, samples=True, **more)]).tolist()

    torch.manual_seed(3)
    first = order()
    torch.manual_seed(3)
    assert first == order() == order(generator=torch.Generator().manual_seed(3)) and sorted(first) == list(range(37))
    torch.manual_seed(4)
    assert first != order()
    sequential = DataLoader(dataset, 5, sampler=torch_data.SequentialSampler(dataset), samples=True)
    assert [n for batch in sequential for n in batch[2].tolist()] == list(range(37))


def test_distributed_sampler(folder):
    dataset = ImageFolder(folder, EVAL)

    def epochs(rank, told):
        sampler = DistributedSampler(dataset, num_replicas=2, rank=rank, seed=9)
        loader = DataLoader(dataset, 4, sampler=sampler, samples=True)
        result = []
        for epoch in told:
            if epoch is not None:
                sampler.set_epoch(epoch)
            result.append([n for batch in loader for n in batch[2].tolist()])
        return result

    zero, one = epochs(0, [0, 1, 2]), epochs(1, [0, 1, 2])
    for left, right in zip(zero, one):
        assert len(left) == len(right) == 19 and set(left) | set(right) == set(range(37))
    assert zero[0] != zero[1] != zero[2]
    assert epochs(0, [2, 0]) == [zero[2], zero[0]]
    assert epochs(0, [None, None, None]) == zero  # who forgets set_epoch gets epochs all the same
    whole = DistributedSampler(dataset, num_replicas=2, rank=0, drop_last=True)
    with pytest.raises(stokehold.OptionError, match="drop_last=True of a DistributedSampler needs"):
        DataLoader(dataset, 4, sampler=whole)
    assert len(DataLoader(dataset, 4, sampler=whole, drop_last=True)) == 4


def test_weighted_random_sampler(folder):
    dataset = ImageFolder(folder, EVAL)
    weights = [0.0] * 12 + [1.0] * 9 + [3.0] * 16
    sampler = torch_data.WeightedRandomSampler(weights, 2000)
    labels = torch.cat([labels for _, labels in DataLoader(dataset, 100, sampler=sampler)])
    assert len(labels) == 2000
    counts = torch.bincount(labels, minlength=3) / 2000
    # A share's deviation is below 0.01.
    assert counts[0] == 0 and abs(counts[1] - 9 / 57) < 0.05
    once = torch_data.WeightedRandomSampler(weights, 25, replacement=False)
    samples = torch.cat([samples for _, _, samples in DataLoader(dataset, 10, sampler=once, samples=True)])
    assert sorted(samples.tolist()) == list(range(12, 37))


def test_what_cannot_be_the_same_is_refused(folder):
    dataset = ImageFolder(folder, EVAL)
    theirs = torchvision.datasets.ImageFolder(folder / "train", EVAL)
    for arguments, options, message in [
        ((dataset,), {"collate_fn": list}, "collate_fn cannot be used here"),
        ((dataset,), {"batch_sampler": [[1]]}, "batch_sampler cannot be used here"),
        ((dataset,), {"worker_init_fn": print}, "worker_init_fn cannot be used here"),
        ((dataset,), {"sampler": torch_data.SubsetRandomSampler([1, 2])}, "sampler=SubsetRandomSampler"),
        ((dataset,), {"sampler": torch_data.WeightedRandomSampler([1.0] * 36, 37)}, "36 weights: must be 37"),
        ((dataset,), {"sampler": torch_data.RandomSampler(dataset, True)}, "sampler=RandomSampler"),
        ((dataset,), {"batch_size": None}, "batch_size=None"),
        (([1, 2],), {}, "dataset=list: must be an ImageFolder"),
        ((ImageFolder(folder),), {}, "it has no transform"),
        ((torchvision.datasets.ImageFolder(folder / "train", EVAL, target_transform=int),), {}, "target_transform"),
        ((torchvision.datasets.ImageFolder(folder / "train", EVAL, loader=open),), {}, "loader"),
        ((torchvision.datasets.ImageFolder(folder / "train", V.FiveCrop(24)),), {}, "FiveCrop.* no equivalent"),
    ]:
        with pytest.raises(ValueError, match=message):
            DataLoader(*arguments, **options)
    with pytest.raises(stokehold.UsageError, match="images come in batches here"):
        dataset[0]
    assert len(DataLoader(theirs, 4, num_workers=3, pin_memory=True, persistent_workers=True, prefetch_factor=4)) == 10


def test_bad_images_are_errors_as_in_pytorch(tmp_path):
    path = tmp_path / "class" / "broken.jpg"
    path.parent.mkdir()
    path.write_bytes(b"nothing")
    with pytest.raises(OSError, match="broken.jpg: not an image"):
        list(DataLoader(ImageFolder(tmp_path, EVAL)))


def test_the_imagenet_example_trains_and_goes_on(folder, tmp_path):
    command = [
        sys.executable, str(EXAMPLES / "imagenet.py"), str(folder), "--image-size", "32", "--batch-size", "8",
        "--lr", "0.01", "--workers", "2", "--checkpoint", str(tmp_path / "saved.pt"),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("WORLD_SIZE", None)

    def run(*more):
        return subprocess.run(
            [*command, *more], capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path, check=True
        ).stdout

    assert "epoch 0: accuracy " in run("--epochs", "1")
    # The checkpoint was written behind the first batch: of five, four are left.
    again = run("--epochs", "2", "--resume")
    assert "epoch 1: accuracy " in again and again.count("images/s") == 2


def test_torchrun_deals_equal_disjoint_batches_and_trains(folder, tmp_path):
    """Two processes, by gloo: what they get of an epoch, and the example to its end, which unequal batches would hang."""
    here = Path(__file__).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        + [str(path) for path in (here / "ranks.py", EXAMPLES / "imagenet.py", folder, tmp_path)],
        capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    for epochs in zip(*ranks):
        # 37 pictures and one again, so that both have 19.
        assert [[len(batch) for batch in batches] for batches in epochs] == [[4, 4, 4, 4, 3]] * 2
        left, right = (sorted(sum(batches, [])) for batches in epochs)
        assert set(left) | set(right) == set(range(37)) and len(set(left) & set(right)) <= 1
    assert ranks[0][0] != ranks[0][1]
    for epoch in range(2):
        # Each trained, one has looked at the accuracy.
        assert done.stdout.count(f"epoch {epoch}: accuracy ") == 1 and done.stdout.count(f"epoch {epoch} batch 0: ") == 2


def test_the_timm_example_makes_loaders(folder):
    spec = importlib.util.spec_from_file_location("timm_loader", EXAMPLES / "timm_loader.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = {"input_size": (3, 24, 24), "interpolation": "bicubic", "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.9}
    train = module.create_loader(str(folder), config, 4, is_training=True, color_jitter=0.4, re_prob=0.25)
    assert len(train) == 9 and next(iter(train))[0].shape == (4, 3, 24, 24)
    val = module.create_loader(str(folder), config, 4)
    assert np.concatenate([labels for _, labels in val]).tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]


def test_batches_in_place_of_a_dataloader_are_its_own(folder):
    """The same samples in the same batches as the loader whose place it takes; epochs differ in their order only."""
    theirs = torchvision.datasets.ImageFolder(folder / "train", EVAL)
    for loader in [
        torch_data.DataLoader(theirs, batch_size=5),
        torch_data.DataLoader(theirs, batch_size=5, drop_last=True, pin_memory=True),
        torch_data.DataLoader(torch_data.Subset(theirs, [3, 1, 20]), batch_size=2),
    ]:
        ours = list(InPlaceOf(loader))
        for (images, labels), (images_expected, labels_expected) in zip(ours, loader):
            assert torch.equal(labels, labels_expected)
            assert (images - images_expected).abs().max() < 4.1 / 255 * 2
        assert len(ours) == len(loader)
    shuffled = InPlaceOf(torch_data.DataLoader(theirs, batch_size=5, shuffle=True))
    one, two = (torch.cat([labels for _, labels in shuffled]) for _ in range(2))
    assert not torch.equal(one, two) and torch.equal(one.sort().values, two.sort().values)
    # What changes between two iterations is read again.
    changing = torch_data.DataLoader(torchvision.datasets.ImageFolder(folder / "train", EVAL), batch_size=5)
    ours = InPlaceOf(changing)
    assert next(iter(ours))[0].shape == (5, 3, 12, 12)
    changing.dataset.transform = V.Compose([V.Resize((8, 8)), V.ToTensor()])
    assert next(iter(ours))[0].shape == (5, 3, 8, 8)
    # Two iterations at once, as PyTorch allows it.
    first, second = iter(shuffled), iter(shuffled)
    assert len(next(first)) == len(next(second)) == 2


def test_what_cannot_take_a_dataloaders_place_says_why(folder):
    class Own(torchvision.datasets.ImageFolder):
        def __getitem__(self, index):
            return super().__getitem__(index)

    class Repeated(torch_data.RandomSampler):
        pass

    theirs = torchvision.datasets.ImageFolder(folder / "train", EVAL)
    odd = torchvision.datasets.ImageFolder(folder / "train", V.Compose([V.ToTensor(), V.Lambda(lambda image: image)]))
    for loader, reason in [
        (torch_data.DataLoader(Own(folder / "train", EVAL)), "a __getitem__ of its own"),
        (torch_data.DataLoader(theirs, collate_fn=list), "collate_fn: list"),
        (torch_data.DataLoader(theirs, worker_init_fn=print), "worker_init_fn"),
        (torch_data.DataLoader(theirs, batch_sampler=[[0], [1]]), "batch_sampler: list"),
        (torch_data.DataLoader(theirs, batch_size=None), "batch_sampler: none"),
        (torch_data.DataLoader(odd), "transform 2 (Lambda)"),
        (torch_data.DataLoader([1, 2]), "dataset=list"),
        (torch_data.DataLoader(theirs, sampler=Repeated(theirs)), "sampler=Repeated"),
    ]:
        with pytest.raises(stokehold.OptionError, match=re.escape(reason)):
            InPlaceOf(loader)
        with pytest.raises(stokehold.OptionError):
            pipeline_of(loader)
    named = json.dumps(pipeline_of(torch_data.DataLoader(theirs)))
    assert "Resize" in named and "CenterCrop" in named


SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as V

compose = V.Compose([V.RandomResizedCrop(16), V.ToTensor()])
train = datasets.ImageFolder(sys.argv[1], compose)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for loader in (DataLoader(train, 5, shuffle=True, num_workers=1), DataLoader(train, 5, collate_fn=list)):
    seen = []
    for epoch in range(2):
        for batch in loader:
            if loader.collate_fn is not list:
                images, labels = batch
                torch.nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                seen.extend(labels.tolist())
    print(len(seen), sorted(seen)[:5], type(batch).__name__)
"""


def test_a_script_is_served_unchanged(folder, tmp_path):
    """The loader that can be served is, and the other one stays PyTorch's and says why."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "stokehold", "run", "--swap-loader", "--", sys.executable, script, folder / "train"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["74 [0, 0, 0, 0, 0] list", "0 [] list"]
    assert "stokehold: makes the batches of the DataLoader over ImageFolder" in done.stderr
    assert "stays PyTorch's: collate_fn: list" in done.stderr
