"""PyTorch's names: the same batches as PyTorch where both are determined, refusals where they cannot be the same."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
import os
import pickle
import random
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import HAS_TORCH, picture

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
EXACT = V.Compose([V.CenterCrop(12), V.ToTensor()])
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


class InPlace:
    """``InPlaceOf`` of a loader that nobody else keeps."""

    def __init__(self, loader):
        self.loader, self.batches = loader, InPlaceOf(loader)

    def __iter__(self):
        return iter(self.batches)


def same(ours, theirs):
    """Two loops give the same batches."""
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs)
    for got, expected in zip(ours, theirs):
        assert type(got) is type(expected) and len(got) == len(expected) == 2
        assert torch.equal(got[1], expected[1]) and got[1].dtype == expected[1].dtype
        assert got[0].shape == expected[0].shape and got[0].dtype == expected[0].dtype
        assert (got[0] - expected[0]).abs().max() < 1e-6


def test_the_order_is_pytorchs(folder):
    """From the same seed each sampler gives the same images, epoch by epoch, and leaves the same generators."""
    ours, theirs = ImageFolder(folder / "train", EXACT), torchvision.datasets.ImageFolder(folder / "train", EXACT)
    weights = [0.0] * 12 + [1.0] * 9 + [3.0] * 16
    seeded = torch.Generator().manual_seed
    for options in [
        lambda data: {"shuffle": True},
        lambda data: {"shuffle": True, "drop_last": True, "generator": seeded(3)},
        lambda data: {"sampler": torch_data.RandomSampler(data, True, 50, seeded(4))},
        lambda data: {"sampler": torch_data.RandomSampler(range(9))},
        lambda data: {"sampler": torch_data.SequentialSampler(range(9))},
        lambda data: {"sampler": torch_data.SubsetRandomSampler([30, 2, 11, 7, 8])},
        lambda data: {"sampler": torch_data.WeightedRandomSampler(weights, 60)},
        lambda data: {"sampler": torch_data.WeightedRandomSampler(weights, 25, False, seeded(5))},
        lambda data: {"sampler": DistributedSampler(data, 2, 1, seed=9)},
        lambda data: {"sampler": DistributedSampler(torch_data.Subset(data, range(20)), 2, 0, drop_last=True)},
        lambda data: {"sampler": [5, 4, -1]},
    ]:
        loops = []
        for kind, data in ((DataLoader, ours), (torch_data.DataLoader, theirs), (torch_data.DataLoader, theirs)):
            torch.manual_seed(7)
            loader = kind(data, 5, **options(data))
            loader = InPlace(loader) if len(loops) == 2 else loader
            batches = [batch for _ in range(2) for batch in loader]
            loops.append((batches, torch.get_rng_state()))
        same(loops[0][0], loops[1][0])
        same(loops[2][0], loops[1][0])
        assert torch.equal(loops[0][1], loops[1][1]) and torch.equal(loops[2][1], loops[1][1])
    batches = [[1, 2], [30], [4, 5, 6, 7, 8, 9]]
    same(DataLoader(ours, batch_sampler=batches), torch_data.DataLoader(theirs, batch_sampler=batches))


class Watched(torch_data.Sampler):
    """Says when it is asked, and draws from torch's generator whenever it is."""

    def __init__(self, events, count=20):
        self.events, self.count = events, count

    def __iter__(self):
        for number in range(self.count):
            self.events.append(number)
            yield int(torch.randint(37, ()))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_sampler_is_asked_when_pytorch_asks_it(folder, workers):
    theirs = torchvision.datasets.ImageFolder(folder / "train", EXACT)
    outcomes = []
    for kind in (torch_data.DataLoader, DataLoader, lambda *given, **more: InPlace(torch_data.DataLoader(*given, **more))):
        torch.manual_seed(3)
        events, batches = [], []
        iterator = iter(kind(theirs, 2, sampler=Watched(events), num_workers=workers))
        for batch in iterator:
            events.append("taken")
            batches.append(batch)
        outcomes.append((events, batches, torch.get_rng_state()))
    for events, batches, generator in outcomes[1:]:
        assert events == outcomes[0][0] and torch.equal(generator, outcomes[0][2])
        same(batches, outcomes[0][1])
    endless = type("Endless", (), {"__iter__": lambda self: iter(int, 1)})()
    for loader in (DataLoader(theirs, 9, sampler=endless), InPlace(torch_data.DataLoader(theirs, 9, sampler=endless))):
        iterator = iter(loader)
        assert all(next(iterator)[1].tolist() == [0] * 9 for _ in range(70))


def test_an_iterator_is_pytorchs(folder):
    """Lengths, errors of one batch, empty batches, persistent workers, and patches of the iterator's class."""
    theirs = torchvision.datasets.ImageFolder(folder / "train", EXACT)
    for kind in (torch_data.DataLoader, DataLoader):
        iterator = iter(kind(theirs, 5))
        assert isinstance(iterator, torch_data.dataloader._BaseDataLoaderIter) and len(iterator) == 8
        next(iterator)
        assert iterator._num_yielded == 1 and iter(iterator) is iterator
        with pytest.raises(NotImplementedError, match="cannot be pickled"):
            pickle.dumps(iterator)
        iterator = iter(kind(theirs, batch_sampler=[[1], [37], [2, 3], [], [4]]))
        seen = []
        while True:
            try:
                seen.append(len(next(iterator)[1]))
            except IndexError:
                seen.append("error")
            except StopIteration:
                break
        assert seen == [1, "error", 2, "error", 1]
        with pytest.raises(StopIteration):
            next(iterator)
    crops = torchvision.datasets.ImageFolder(folder / "train", V.Compose([V.RandomCrop(8), V.ToTensor()]))
    labels = []
    for kind in (torch_data.DataLoader, DataLoader, lambda *given, **more: InPlace(torch_data.DataLoader(*given, **more))):
        torch.manual_seed(9)
        loader = kind(crops, 4, True, num_workers=1, persistent_workers=True)
        iterator = iter(loader)
        first = list(iterator)
        assert iter(loader) is iterator
        if not isinstance(loader, InPlace):
            assert loader._iterator is iterator
        second, third = list(iterator), list(loader)
        assert iterator._num_yielded == 10
        labels.append([[batch[1].tolist() for batch in epoch] for epoch in (first, second, third)] + [torch.get_rng_state().tolist()])
    assert labels[0] == labels[1] == labels[2]
    plain = [DataLoader(crops, 4, num_workers=1, persistent_workers=True) for _ in range(1)][0]
    one, two = list(plain), list(plain)
    assert not all(torch.equal(a[0], b[0]) for a, b in zip(one, two))


class Eager(torch_data.Sampler):
    """A batch sampler that draws when it is asked for its iterator."""

    def __iter__(self):
        return iter(torch.randperm(37).split(6))


class Reversing(torch_data.Sampler):
    """Changes the data set when an epoch begins."""

    def __init__(self, data):
        self.data = data

    def __iter__(self):
        self.data.samples = self.data.samples[::-1]
        yield from range(20)


def left_early(loader, _):
    """Two epochs of which the first is left."""
    iterator = iter(loader)
    return [next(iterator), next(iterator), *loader]


def labels_change(loader, data):
    for number, batch in enumerate(loader):
        if number == 1:
            data.samples = [(path, label + 10) for path, label in data.samples]
        yield batch


def target_changes(loader, data):
    for number, batch in enumerate(loader):
        if number == 1:
            data.target_transform = lambda label: -label
        yield batch


def transform_changes(loader, data):
    for number, batch in enumerate(loader):
        if number == 2:
            data.transform = V.Compose([V.CenterCrop(12), V.ToTensor(), V.Normalize([0.5] * 3, [0.5] * 3)])
        yield batch


def samples_grow(loader, data):
    for number, batch in enumerate(loader):
        if number == 0:
            data.samples.extend(data.samples[:3])
        yield batch


def twice(loader, data):
    yield from loader
    yield from loader


def draws_labels(data):
    data.target_transform = lambda label: label + int(torch.randint(1 << 30, ())) * 0
    return data


def test_what_a_script_does_during_an_epoch_is_seen_as_pytorch_sees_it(folder):
    """Orders, images, labels and torch's random numbers, where the loop is left or the data set changes meanwhile."""
    indices = list(range(30))
    for case, (loop, options) in enumerate([
        (left_early, lambda data: {"batch_size": 5, "shuffle": True, "generator": torch.Generator().manual_seed(2)}),
        (left_early, lambda data: {"batch_size": 6, "sampler": torch_data.RandomSampler(range(36), generator=torch.Generator().manual_seed(2))}),
        (left_early, lambda data: {"batch_sampler": Eager()}),
        (twice, lambda data: {"batch_size": 4, "sampler": Reversing(data)}),
        (twice, lambda data: {"batch_size": 4, "shuffle": True, "persistent_workers": True}),
        (labels_change, lambda data: {"batch_size": 4}),
        (target_changes, lambda data: {"batch_size": 4}),
        (transform_changes, lambda data: {"batch_size": 4}),
        (samples_grow, lambda data: {"batch_size": 4, "sampler": [*range(30), 38, 39]}),
    ]):  # fmt: skip
        for workers in (0, 2):
            outcomes = []
            for kind in (torch_data.DataLoader, DataLoader, lambda *given, **more: InPlace(torch_data.DataLoader(*given, **more))):
                torch.manual_seed(case)
                data = torchvision.datasets.ImageFolder(folder / "train", EXACT)
                more = options(data)
                if workers == 0:
                    more.pop("persistent_workers", None)
                batches, errors = [], []
                iterator = iter(loop(kind(data, num_workers=workers, **more), data))
                try:
                    batches.extend(iterator)
                except IndexError:
                    errors.append("IndexError")
                outcomes.append((batches, errors, torch.get_rng_state()))
            for batches, errors, generator in outcomes[1:]:
                assert errors == outcomes[0][1], (case, workers)
                assert torch.equal(generator, outcomes[0][2]), (case, workers)
                same(batches, outcomes[0][0])
    # A Subset's indices, without workers.
    for kind in (torch_data.DataLoader, DataLoader):
        part = torch_data.Subset(torchvision.datasets.ImageFolder(folder / "train", EXACT), list(indices))
        seen = []
        for number, (_, labels) in enumerate(kind(part, 5)):
            if number == 0:
                part.indices = part.indices[::-1]
            seen.append(labels.tolist())
        outcomes.append(seen)
    assert outcomes[-1] == outcomes[-2]


def test_with_workers_pillow_reads_what_the_data_set_was_at_the_beginning(tmp_path):
    from PIL import Image

    for number in range(12):
        (tmp_path / "ab"[number // 6]).mkdir(exist_ok=True)
        Image.fromarray(picture(number)).save(tmp_path / "ab"[number // 6] / f"{number:02}.{'bmp' if number % 3 else 'png'}")
    seen = []
    for kind in (torch_data.DataLoader, DataLoader):
        transform = V.Compose([V.CenterCrop(16), V.ToTensor()])
        data = torchvision.datasets.ImageFolder(tmp_path, transform, target_transform=lambda label: label + 5)
        part = torch_data.Subset(data, list(range(12)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stokehold.BadImageWarning)
            iterator = iter(kind(part, 2, num_workers=1))
            batches = [next(iterator)]
            part.indices.reverse()
            data.samples.reverse()
            transform.transforms.append(V.Normalize([0.5] * 3, [0.5] * 3))
            data.transform = data.target_transform = data.loader = None
            seen.append(batches + list(iterator))
    same(*seen)
    assert [label for _, labels in seen[0] for label in labels.tolist()] == [5] * 6 + [6] * 6


class Counting:
    """Labels that depend on how often they were asked for, as noise of labels may."""

    def __init__(self):
        self.calls = 0

    def __call__(self, label):
        self.calls += 1
        return label * 1000 + self.calls


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_labels_that_change_are_those_of_pytorchs_workers(folder, workers):
    import numpy

    changes = [
        Counting(),
        lambda label: random.randrange(10**6),
        lambda label: int(torch.randint(10**6, ())),
        lambda label: int(numpy.random.randint(10**6)),
    ]
    for change in changes:
        seen = []
        for kind in (torch_data.DataLoader, DataLoader):
            torch.manual_seed(3)
            random.seed(4)
            numpy.random.seed(5)
            data = torchvision.datasets.ImageFolder(folder / "train", EXACT, target_transform=copy.deepcopy(change))
            loader = kind(data, 3, shuffle=True, num_workers=workers)
            labels = [[labels.tolist() for _, labels in loader] for _ in range(2)]
            seen.append((labels, getattr(data.target_transform, "calls", None)))
        assert seen[0] == seen[1], (workers, change)
    if workers > 0:
        with pytest.raises(stokehold.OptionError, match="target_transform: .* would be called in this process"):
            InPlace(torch_data.DataLoader(data, 3, num_workers=workers))


def test_labels_of_text_come_as_from_pytorch(folder):
    data = torchvision.datasets.ImageFolder(folder / "train", EXACT, target_transform=lambda label: "ab"[label])
    plain, ours = (next(iter(kind(data, 4)))[1] for kind in (torch_data.DataLoader, DataLoader))
    assert type(ours) is type(plain) is tuple and ours == plain


def test_labels_that_draw_do_so_as_in_a_worker(folder, tmp_path):
    from PIL import Image

    (tmp_path / "a").mkdir()
    for number in range(6):
        Image.fromarray(picture(number)).save(tmp_path / "a" / f"{number}.{'bmp' if number == 3 else 'png'}")
    calls = []
    for kind in (torch_data.DataLoader, DataLoader):
        for workers in (0, 2):
            torch.manual_seed(4)
            # One file is read by Pillow; each label is asked for once, in order.
            count = iter(range(100))
            data = torchvision.datasets.ImageFolder(tmp_path, EXACT, target_transform=lambda label: next(count))
            loader = kind(data, 4, shuffle=True, num_workers=0)
            with pytest.warns(stokehold.BadImageWarning) if kind is DataLoader else contextlib.nullcontext():
                calls.append([label for _, labels in loader for label in labels.tolist()])
            data.target_transform = lambda label: label + int(torch.randint(9, ()))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                orders = [labels.shape[0] for _, labels in kind(data, 4, shuffle=True, num_workers=workers)]
            if workers:
                calls.append((orders, torch.get_rng_state().tolist()))
    half = len(calls) // 2
    assert calls[:half] == calls[half:] and calls[0] == list(range(6))


def test_threads_share_an_iterator(folder):
    import threading

    data = ImageFolder(folder / "train", EXACT)
    iterator, seen = iter(DataLoader(data, 1)), []
    threads = [threading.Thread(target=lambda: seen.extend(float(images.sum()) for images, _ in iterator)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 37 == len(set(seen))


def test_images_of_several_sizes_are_pillows(tmp_path):
    """Where batches have one size each, as PyTorch needs it, and the transform keeps sizes."""
    from PIL import Image

    (tmp_path / "a").mkdir()
    for number in range(12):
        Image.fromarray(picture(number, 20 + 4 * (number // 4), 24)).save(tmp_path / "a" / f"{number:02}.png")
    theirs = torchvision.datasets.ImageFolder(tmp_path, V.ToTensor())
    for loader in (DataLoader(theirs, 4), DataLoader(theirs, 1)):
        with pytest.warns(stokehold.BadImageWarning, match="the rest of this iteration with Pillow"):
            same(loader, torch_data.DataLoader(theirs, loader.batch_size))
    with pytest.raises(RuntimeError, match="equal size"), pytest.warns(stokehold.BadImageWarning):
        list(DataLoader(theirs, 6))


def test_a_distributed_sampler_says_the_epoch(folder):
    """Also after a look at one batch, which other ranks do not take."""
    data = ImageFolder(folder / "train", EXACT)
    for make in (lambda loader: loader, InPlace):
        seen = []
        for rank in range(2):
            sampler = DistributedSampler(data, 2, rank, seed=9)
            kind = torch_data.DataLoader if make is InPlace else DataLoader
            loader = kind(data, 5, sampler=sampler)
            iterated = make(loader)
            if rank == 0:
                next(iter(iterated))
            sampler.set_epoch(0)
            seen.extend(float(image.sum()) for images, _ in iterated for image in images)
        # 37 images and one again, so that both have 19.
        assert len(seen) == 38 and len(set(seen)) == 37


def test_iterations_draw_their_own_crops(folder):
    """Two loaders of a script are two views; a loader made anew has another order; two iterations at once are independent."""
    crops = V.Compose([V.RandomCrop(12), V.RandomHorizontalFlip(), V.ToTensor()])
    data = torchvision.datasets.ImageFolder(folder / "train", crops)
    for kind in (DataLoader, lambda *given, **more: InPlace(torch_data.DataLoader(*given, **more))):
        one, two = (torch.cat([images for images, _ in kind(data, 8)]) for _ in range(2))
        assert one.shape == two.shape and not torch.equal(one, two)
        orders = {tuple(label for _, labels in kind(data, 8, shuffle=True) for label in labels.tolist()) for _ in range(5)}
        assert len(orders) == 5
        loader = kind(data, 8, shuffle=True)
        pairs = list(zip(loader, loader))
        assert len(pairs) == 5 and any(not torch.equal(one[1], two[1]) for one, two in pairs)
    # An image that comes twice in an epoch is cropped twice.
    (images, _), = DataLoader(data, 8, sampler=[3] * 8)
    assert len({float(image.sum()) for image in images}) > 1


class Doubled(torch_data.Subset):
    """The usual subset with a transform of its own."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return 1 - image, label + 100

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Short(torchvision.datasets.ImageFolder):
    def __len__(self):
        return 20


class Fetched(torchvision.datasets.ImageFolder):
    def __getitems__(self, indices):
        return [(1 - self[index][0], 7) for index in indices]


class Compose:
    """A script's own class of a well-known name."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image * 2 - 1


class Sequential(torch.nn.Sequential):
    def forward(self, image):
        return 1 - super().forward(image)


class Tensor(torch.nn.Module):
    def forward(self, image):
        return V.functional.to_tensor(image)


def hooked():
    transform = V.CenterCrop(12)
    transform.register_forward_hook(lambda module, given, image: V.functional.invert(image))
    return transform


def nests(folder, random):
    """A data set, a sampler and a loop, by chance."""
    exact = [V.CenterCrop(12), V.ToTensor()]
    transform = random.choice(
        [V.Compose(exact)] * 4 + [Compose(exact), V.Compose([Compose(exact)]), Sequential(V.CenterCrop(12), Tensor()), V.Compose([hooked(), V.ToTensor()]), V.ToTensor()]
    )
    kind = random.choice([torchvision.datasets.ImageFolder] * 4 + [ImageFolder, Short, Fetched])
    more = {"target_transform": lambda label: label * 3} if random.random() < 0.2 else {}
    data = kind(folder / "train", transform, **more)
    if random.random() < 0.2:
        data.samples = random.sample(data.samples, 30)
    if random.random() < 0.1:
        folder_data = data
        data.__getitems__ = lambda indices: [folder_data[0] for _ in indices]
    for _ in range(random.choice([0, 0, 1, 2, 3])):
        indices = [random.randrange(len(data)) for _ in range(random.randint(1, 25))]
        data = random.choice([torch_data.Subset] * 4 + [Doubled])(data, random.choice([list, tuple, torch.tensor])(indices))
    size = len(data)
    sampler = random.choice(
        [None] * 3
        + [
            torch_data.SequentialSampler(range(max(1, size // 2))),
            torch_data.RandomSampler(data, random.random() < 0.5, random.randint(1, 40) if random.random() < 0.5 else None)
            if random.random() < 0.5 else torch_data.SubsetRandomSampler(random.choices(range(size), k=5)),
            DistributedSampler(data, 2, random.randrange(2)),
            torch_data.WeightedRandomSampler([1.0] * size, 9),
            [0, -1],
        ]
    )  # fmt: skip
    options = {"batch_size": random.randint(1, 9), "drop_last": random.random() < 0.3}
    if random.random() < 0.1:
        options = {"batch_sampler": torch_data.BatchSampler(sampler or torch_data.SequentialSampler(data), **options)}
    elif sampler is None:
        options["shuffle"] = random.random() < 0.5
    else:
        options["sampler"] = sampler
    if random.random() < 0.1:
        options["collate_fn"] = lambda batch: torch_data.default_collate(batch)[::-1]
    return data, options


def test_a_nest_is_refused_or_served_as_pytorch_serves_it(folder):
    """Data sets in data sets, samplers, lengths, transforms, loops: the images and labels of PyTorch, or a refusal."""
    import random as chance

    def epochs(kind, random, data, options):
        torch.manual_seed(5)
        loader = kind(data, **options)
        loops = []
        for _ in range(2):
            if random.random() < 0.3:
                next(iter(loader), None)
            if isinstance(options.get("sampler"), DistributedSampler) and random.random() < 0.5:
                options["sampler"].set_epoch(random.randrange(3))
            loops.extend(loader)
        return loops

    served = 0
    for case in range(300):
        outcomes = []
        for kind in (torch_data.DataLoader, DataLoader, lambda data, **more: InPlace(torch_data.DataLoader(data, **more))):
            random = chance.Random(case)
            data, options = nests(folder, random)
            try:
                outcomes.append(epochs(kind, random, data, options))
            except stokehold.OptionError:
                outcomes.append(None)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                # Such as images of several sizes, which PyTorch refuses when it stacks them.
                outcomes.append(type(error))
        expected, *got = outcomes
        for ours in got:
            if isinstance(ours, list):
                assert isinstance(expected, list), case
                same(ours, expected)
                served += 1
    assert served > 120


def test_attributes_are_pytorchs(folder):
    ours, theirs = ImageFolder(folder / "train", EXACT), torchvision.datasets.ImageFolder(folder / "train", EXACT)
    assert isinstance(ours, torchvision.datasets.ImageFolder) and str(ours) == str(theirs) and ours[7][1] == theirs[7][1]
    assert set(dir(theirs)) <= set(dir(ours))
    for name in ("classes", "class_to_idx", "samples", "imgs", "targets", "extensions", "transform", "loader"):
        assert getattr(ours, name) == getattr(theirs, name), name
    loader, expected = DataLoader(ours, 4, True, num_workers=2), torch_data.DataLoader(theirs, 4, True, num_workers=2)
    assert isinstance(loader, torch_data.DataLoader) and len(loader) == len(expected)
    for name in vars(expected):
        if name not in ("dataset", "sampler", "batch_sampler"):
            assert getattr(loader, name) == getattr(expected, name), name
    assert type(loader.sampler) is type(expected.sampler) and loader.dataset is ours
    for options in (
        {"sampler": [1], "shuffle": True}, {"batch_sampler": [[1]], "drop_last": True}, {"batch_size": 0}, {"num_workers": -1},
        {"prefetch_factor": 2}, {"persistent_workers": True}, {"timeout": -1}, {"batch_size": None, "drop_last": True},
    ):  # fmt: skip
        with pytest.raises(ValueError) as refused:
            torch_data.DataLoader(theirs, **options)
        with pytest.raises(ValueError, match=re.escape(str(refused.value))):
            DataLoader(ours, **options)
    with pytest.raises(ValueError, match="attribute should not be set after"):
        loader.batch_size = 3
    for again in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        same(DataLoader(again.dataset, 4), torch_data.DataLoader(theirs, 4))
        assert len(list(again)) == 10
    assert len(pickle.loads(pickle.dumps(ours))) == 37
    # What is assigned counts.
    ours.samples = ours.samples[30:]
    same(DataLoader(ours, 4), torch_data.DataLoader(torch_data.Subset(theirs, range(30, 37)), 4))


def test_a_state_continues_the_epoch(folder):
    data = ImageFolder(folder / "train", V.Compose([V.RandomCrop(12), V.ToTensor()]))

    def make(**more):
        return DataLoader(data, 5, shuffle=True, generator=torch.Generator().manual_seed(6), **more)

    whole = make()
    expected = [list(whole), list(whole)]
    for taken in (0, 3, 8):
        first = make()
        iterator = iter(first)
        begun = [next(iterator) for _ in range(taken)]
        state = json.loads(json.dumps(first.state_dict()))
        again = make(num_workers=3)
        again.load_state_dict(state)
        assert again.state_dict() == state
        rest = list(again)
        continued = begun + rest if taken < 8 else rest
        for got, wanted in zip(continued, expected[0] if taken < 8 else expected[1]):
            assert torch.equal(got[0], wanted[0]) and torch.equal(got[1], wanted[1])
        assert len(continued) == 8
    with pytest.raises(stokehold.OptionError, match="give what state_dict"):
        make().load_state_dict({"batch": 3})
    other = DataLoader(torch_data.Subset(data, range(20)), 5, shuffle=True, generator=torch.Generator())
    other.load_state_dict(state)
    with pytest.raises(stokehold.OptionError, match="another order"):
        iter(other)


def test_a_state_continues_with_any_sampler(folder):
    """Every position of an epoch, and of a second one, with samplers that draw at once and ones that draw while they run."""
    data = ImageFolder(folder / "train", V.Compose([V.RandomCrop(12), V.ToTensor()]))
    weights = [1.0] * 37
    persistent = {"num_workers": 1, "persistent_workers": True}
    for number, options in enumerate([
        lambda: {"shuffle": True},
        lambda: {"shuffle": True, **persistent},
        lambda: {"sampler": torch_data.RandomSampler(data, True, 70, torch.Generator().manual_seed(4))},
        lambda: {"sampler": torch_data.RandomSampler(data, True, 30)},
        lambda: {"sampler": torch_data.WeightedRandomSampler(weights, 20)},
        lambda: {"sampler": DistributedSampler(data, 2, 1)},
        lambda: {"sampler": Watched([], 30)},
        lambda: {"sampler": Watched([], 30), **persistent},
        lambda: {"batch_sampler": torch_data.BatchSampler(Watched([], 30), 7, True), "num_workers": 2},
    ]):  # fmt: skip
        torch.manual_seed(number)
        loader, states, batches = DataLoader(data, **{"batch_size": 7, **options()} if "batch_sampler" not in options() else options()), [], []
        ends = []
        for _ in range(2):
            iterator = iter(loader)
            if not states:
                begun = loader.state_dict()
            for batch in iterator:
                batches.append(batch)
                states.append(json.loads(json.dumps(loader.state_dict())))
            if not ends:
                between = torch.get_rng_state()
            ends.append(len(batches))
        torch.manual_seed(99)
        if "persistent_workers" in options():
            # After the last batch the same workers begin another epoch, and only the sampler draws.
            again = DataLoader(data, **{"batch_size": 7, **options()})
            again.load_state_dict(states[ends[0] - 1])
            torch.set_rng_state(between)
            for got, expected in zip(again, batches[ends[0] :], strict=True):
                assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1]), number
        for position in (-1, 0, 1, ends[0] - 2, ends[0], ends[1] - 2):
            again = DataLoader(data, **{"batch_size": 7, **options()} if "batch_sampler" not in options() else options())
            state = states[position] if position >= 0 else begun
            again.load_state_dict(state)
            copied = copy.copy(again)
            assert copied.state_dict() == state
            before = torch.get_rng_state()
            for resumed in (again, copied):
                rest = list(resumed)
                wanted = batches[position + 1 : next(end for end in ends if end > position)]
                assert len(rest) == len(wanted), (number, position)
                for got, expected in zip(rest, wanted):
                    assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1]), (number, position)
            assert torch.equal(torch.get_rng_state(), before)
    state = DataLoader(data, 7, shuffle=True).state_dict()
    other = DataLoader(ImageFolder(folder / "train", data.transform), 7, shuffle=True)
    other.dataset.samples = other.dataset.samples[::-1]
    other.load_state_dict(state)
    with pytest.raises(stokehold.OptionError, match="other images or labels"):
        iter(other)
    for wrong in ({"batch": -1}, {"batch": "3"}, {"order": None}, {"seed": 1.5}, {"persistent": 1}, {"generators": ["?"]},
                  {"generators": []}, {"epoch": 3}, {"version": 1}, {"more": 1}):  # fmt: skip
        with pytest.raises(stokehold.OptionError, match="state_dict: "):
            DataLoader(data, 7, shuffle=True).load_state_dict({**state, **wrong})


def test_what_a_script_has_replaced_is_refused(folder, monkeypatch):
    """Functions of torch and torchvision that are other ones than they were would not be called."""
    from PIL.Image import Image
    from torch.nn.modules import module
    from torch.utils.data._utils import collate
    from torchvision.datasets import folder as folder_module
    from torchvision.transforms import v2

    theirs = torchvision.datasets.ImageFolder(folder / "train", EXACT)

    def other(*given, **more):
        raise AssertionError

    exec("def executed(*given): pass", script := {"__name__": "__main__"})
    for of, name, reason in [
        (torchvision.datasets.DatasetFolder, "__getitem__", "own __getitem__"),
        (torch_data.Subset, "__getitems__", "own __getitems__"),
        (V.CenterCrop, "forward", "has forward of the script's own"),
        (V.ToTensor, "__call__", "has __call__ of the script's own"),
        (V.functional, "to_tensor", "torchvision's to_tensor was replaced by the script"),
        (folder_module, "pil_loader", "has replaced torchvision.s default_loader or pil_loader"),
        (Image, "convert", "Pillow's Image.convert was replaced by the script"),
    ]:
        for replacement in (other, script["executed"], torch.no_grad()(other)):
            with monkeypatch.context() as patch:
                patch.setattr(of, name, replacement)
                for loader in (DataLoader, lambda data: InPlace(torch_data.DataLoader(data))):
                    with pytest.raises(stokehold.OptionError, match=reason):
                        loader(torch_data.Subset(theirs, [1]))
    with monkeypatch.context() as patch:
        patch.setitem(collate.default_collate_fn_map, torch.Tensor, other)
        with pytest.raises(stokehold.OptionError, match="default_collate has functions"):
            DataLoader(theirs)
    end = [v2.CenterCrop(12), v2.ToDtype(torch.float32, scale=True)]
    for transform in (v2.RandomRotation(5), v2.ColorJitter(hue=0.1), v2.RandomApply([v2.TrivialAugmentWide()]), v2.Resize(20, v2.InterpolationMode.NEAREST)):
        of_tensors = torchvision.datasets.ImageFolder(folder / "train", v2.Compose([v2.ToImage(), transform, *end]))
        DataLoader(of_tensors)
        with pytest.raises(stokehold.OptionError, match="of tensors, after ToImage"):
            InPlace(torch_data.DataLoader(of_tensors))
        InPlace(torch_data.DataLoader(torchvision.datasets.ImageFolder(folder / "train", v2.Compose([transform, v2.ToImage(), *end]))))
    hook = module.register_module_forward_hook(lambda *given: None)
    with pytest.raises(stokehold.OptionError, match="torch has forward hooks for all modules"):
        DataLoader(theirs)
    hook.remove()
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(stokehold.OptionError, match="default type is torch.float64"):
            InPlace(torch_data.DataLoader(theirs))
    finally:
        torch.set_default_dtype(torch.float32)
    same(DataLoader(theirs, 5), torch_data.DataLoader(theirs, 5))


def test_what_cannot_be_the_same_is_refused_with_every_reason(folder):
    theirs = torchvision.datasets.ImageFolder(folder / "train", EVAL)
    for arguments, options, reasons in [
        ((theirs,), {"collate_fn": list}, ["collate_fn: list would not be called"]),
        ((theirs,), {"worker_init_fn": print, "num_workers": 1}, ["worker_init_fn: print would not be called"]),
        ((theirs,), {"batch_size": None}, ["batch_size=None"]),
        (([1, 2],), {}, ["dataset: list is no ImageFolder"]),
        ((ImageFolder(folder / "train"),), {}, ["it has no transform"]),
        ((torchvision.datasets.ImageFolder(folder / "train", EVAL, loader=open),), {}, ["its loader open"]),
        ((torchvision.datasets.ImageFolder(folder / "train", V.FiveCrop(24)),), {}, ["(FiveCrop) has no equivalent"]),
        ((Fetched(folder / "train", EVAL),), {}, ["Fetched has its own __getitems__"]),
        ((torch_data.Subset(Doubled(theirs, [1]), [0]),), {}, ["Doubled is a class made of Subset"]),
        (
            (Fetched(folder / "train", V.Compose([V.FiveCrop(24), V.Lambda(list)])),),
            {"collate_fn": list, "worker_init_fn": print},
            ["own __getitems__", "(FiveCrop)", "transform 2 (Lambda)", "collate_fn", "worker_init_fn"],
        ),
    ]:
        with pytest.raises(stokehold.OptionError) as refused:
            DataLoader(*arguments, **options)
        for reason in reasons:
            assert reason in str(refused.value)
    with pytest.raises(ValueError, match="bad-image policy"):
        DataLoader(theirs, bad_images="nothing")
    with pytest.raises(stokehold.OptionError, match="^loader, allow_empty: only for a folder of class folders, and s3://bucket/set is none"):
        ImageFolder("s3://bucket/set", EXACT, loader=print, allow_empty=True)


def test_files_that_only_pillow_reads_are_pillows(folder, tmp_path):
    from PIL import Image

    data = tmp_path / "class"
    data.mkdir()
    for number, suffix in enumerate(["png", "bmp", "png", "tiff", "ppm", "jpg"]):
        Image.fromarray(picture(number)).save(data / f"{number}.{suffix}")
    Image.fromarray(picture(9)).save(data / "6.jpg", format="GIF")
    theirs = torchvision.datasets.ImageFolder(tmp_path, EXACT)
    for dtype in ("float32", "uint8"):
        with pytest.warns(stokehold.BadImageWarning, match="the data set reads it with Pillow"):
            got = list(DataLoader(theirs, 3, dtype=dtype))
        expected = list(torch_data.DataLoader(theirs, 3))
        if dtype == "uint8":
            got = [[images.float() / 255, labels] for images, labels in got]
        same(got, expected)
    (data / "7.jpg").write_bytes(b"nothing")
    theirs = torchvision.datasets.ImageFolder(tmp_path, EXACT)
    iterator = iter(DataLoader(theirs, 1, bad_images="pytorch"))
    with pytest.warns(stokehold.BadImageWarning):
        assert len([next(iterator) for _ in range(7)]) == 7
        with pytest.raises(OSError, match="7.jpg"):
            next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    with pytest.raises(stokehold.DataError, match="not an image"):
        list(DataLoader(theirs, bad_images="error"))
    with pytest.warns(stokehold.BadImageWarning):
        assert sum(len(labels) for _, labels in DataLoader(theirs, 3, bad_images="skip")) == 3
    with pytest.raises(stokehold.OptionError, match="3 of its 8 files are neither JPEG"):
        InPlaceOf(torch_data.DataLoader(torchvision.datasets.ImageFolder(tmp_path, EXACT, is_valid_file=lambda path: True)))


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
    shuffled = InPlace(torch_data.DataLoader(theirs, batch_size=5, shuffle=True))
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

    theirs = torchvision.datasets.ImageFolder(folder / "train", EVAL)
    odd = torchvision.datasets.ImageFolder(folder / "train", V.Compose([V.ToTensor(), V.Lambda(lambda image: image)]))
    for loader, reason in [
        (torch_data.DataLoader(Own(folder / "train", EVAL)), "Own has its own __getitem__"),
        (torch_data.DataLoader(theirs, collate_fn=list), "collate_fn: list"),
        (torch_data.DataLoader(theirs, num_workers=1, worker_init_fn=print), "worker_init_fn"),
        (torch_data.DataLoader(theirs, batch_size=None), "batch_size=None"),
        (torch_data.DataLoader(odd), "transform 2 (Lambda)"),
        (torch_data.DataLoader([1, 2]), "dataset: list is no ImageFolder"),
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


LOADERS = """
import os, sys, torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms as V

data = datasets.ImageFolder(sys.argv[1], V.Compose([V.Resize((512, 512)), V.ToTensor()]))
threads, memory = [], []
for epoch in range(12):
    loader = DataLoader(data, 37, shuffle=True)
    images, labels = next(iter(loader))
    del loader, images
    threads.append(len(os.listdir("/proc/self/task")))
    memory.append(int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20)
# A batch is 116 MB.
print(threads[-1] - threads[3], memory[-1] - memory[3] < 116)
"""


def test_a_loader_that_is_gone_leaves_nothing(folder, tmp_path):
    script = tmp_path / "loaders.py"
    script.write_text(LOADERS)
    command = [sys.executable, "-m", "stokehold", "run", "--swap-loader", "--", sys.executable, script, folder / "train"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0 True\n"), done.stdout + done.stderr
    assert done.stderr.count("makes the batches of the DataLoader") == 1


def test_a_script_is_served_unchanged(folder, tmp_path):
    """The loader that can be served is, and the other one stays PyTorch's and says why."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "stokehold", "run", "--swap-loader", "--", sys.executable, script, folder / "train"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["74 [0, 0, 0, 0, 0] list", "0 [] list"]
    assert "stokehold: makes the batches of the DataLoader over ImageFolder" in done.stderr
    assert "stays PyTorch's: collate_fn: list would not be called" in done.stderr
