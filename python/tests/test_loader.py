"""What a loader yields, in which order, and whose memory it is."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import HAS_TORCH, needs_torch, picture, plain, without_torch, write_png

import stokehold
from stokehold import transforms as T

CROP = T.Compose([T.RandomResizedCrop(8), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(T.MEAN, T.STD)])
WHOLE = T.Compose([T.CenterCrop((20, 24)), T.ToTensor()])


def epoch(loader):
    """Copies of an epoch's batches."""
    return [tuple(plain(part) for part in batch) for batch in loader]


def same(left, right):
    return len(left) == len(right) and all(
        len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b)) for a, b in zip(left, right)
    )


def test_batches_are_the_pictures_in_the_folders_order(folder):
    with stokehold.Loader(folder, WHOLE, batch_size=10, shuffle=False, samples=True) as loader:
        assert (len(loader), loader.num_samples, loader.classes, loader.size) == (4, 37, ["ant", "bee", "cat"], (20, 24))
        batches = epoch(loader)
    images, labels, samples = (np.concatenate(parts) for parts in zip(*batches))
    assert [len(batch[0]) for batch in batches] == [10, 10, 10, 7]
    assert labels.tolist() == [0] * 12 + [1] * 9 + [2] * 16 and labels.dtype == np.int64
    assert np.array_equal(plain(loader.labels), labels)
    assert samples.tolist() == list(range(37)) and samples.dtype == np.int64
    assert images.shape == (37, 3, 20, 24) and images.dtype == np.float32
    for number in range(37):
        expected = picture(number).transpose(2, 0, 1).astype(np.float32) / 255
        assert np.abs(images[number] - expected).max() < 1e-6


def test_the_other_half_of_the_data(folder):
    loader = stokehold.Loader(folder, WHOLE, split="val", batch_size=9, shuffle=False)
    ((_, labels),) = epoch(loader)
    assert labels.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]


@needs_torch
def test_torch_tensors_of_every_type(folder):
    import torch

    whole = T.Compose([T.CenterCrop(16), T.ToTensor()])

    def first(dtype):
        images, labels = next(iter(stokehold.Loader(folder, whole, dtype=dtype, shuffle=False)))
        assert labels.dtype == torch.int64
        return images

    full = first("float32")
    assert full.dtype == torch.float32 and full.is_contiguous()
    for given, dtype in [
        (torch.float16, torch.float16),
        ("float16", torch.float16),
        ("bf16", torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
    ]:
        assert torch.equal(first(given), full.to(dtype))
    bytes_ = first(np.uint8)
    assert bytes_.dtype == torch.uint8 and (bytes_.float() / 255 - full).abs().max() < 1e-6
    full.mul_(2)  # it is ours to change


@without_torch
def test_numpy_arrays_of_every_type(folder):
    whole = T.Compose([T.CenterCrop(16), T.ToTensor()])

    def first(dtype):
        images, labels = next(iter(stokehold.Loader(folder, whole, dtype=dtype, shuffle=False)))
        assert isinstance(images, np.ndarray) and labels.dtype == np.int64
        return images

    full = first(np.float32)
    assert full.dtype == np.float32 and np.array_equal(first("float16"), full.astype(np.float16))
    bytes_ = first(np.dtype("uint8"))
    assert bytes_.dtype == np.uint8 and np.abs(bytes_ / 255 - full).max() < 1e-6
    with pytest.raises(stokehold.OptionError, match="dtype='bfloat16': torch is not installed"):
        stokehold.Loader(folder, whole, dtype="bfloat16")
    with pytest.raises(stokehold.OptionError, match="device='cuda:0': torch is not installed"):
        stokehold.Loader(folder, whole, device="cuda:0")


def test_workers_change_nothing_and_epochs_do(folder):
    def two(workers):
        loader = stokehold.Loader(folder, CROP, batch_size=5, seed=3, num_workers=workers)
        return epoch(loader), epoch(loader)

    first, second = two(1)
    assert not same(first, second)
    for workers in (2, 5, None):
        again = two(workers)
        assert same(first, again[0]) and same(second, again[1])
    assert not same(first, epoch(stokehold.Loader(folder, CROP, batch_size=5, seed=4)))


def test_a_batch_that_is_held_is_not_overwritten(folder):
    loader = stokehold.Loader(folder, CROP, batch_size=2, seed=1)
    held = [batch for _ in range(5) for batch in loader]
    loader.close()
    del loader
    fresh = stokehold.Loader(folder, CROP, batch_size=2, seed=1)
    copies = [batch for _ in range(5) for batch in epoch(fresh)]
    assert same([tuple(plain(part) for part in batch) for batch in held], copies)


def test_ranks_share_an_epoch(folder):
    def samples(rank, drop_last):
        loader = stokehold.Loader(
            folder, CROP, batch_size=4, rank=rank, world_size=3, drop_last=drop_last, samples=True, seed=8
        )
        loader.set_epoch(2)
        return [batch[2].tolist() for batch in epoch(loader)]

    for drop_last in (False, True):
        ranks = [samples(rank, drop_last) for rank in range(3)]
        assert [[len(batch) for batch in rank] for rank in ranks] == [[4, 4, 4] + ([] if drop_last else [1])] * 3
        everything = sorted(sample for rank in ranks for batch in rank for sample in batch)
        if drop_last:
            assert len(everything) == 36 and len(set(everything)) == 36
        else:
            assert set(everything) == set(range(37)) and len(everything) == 39


@needs_torch
def test_ranks_are_dealt_as_by_distributed_sampler(folder):
    from torch.utils.data.distributed import DistributedSampler

    for drop_last in (False, True):
        for rank in range(5):
            sampler = DistributedSampler(range(37), 5, rank, shuffle=False, drop_last=drop_last)
            loader = stokehold.Loader(
                folder, CROP, batch_size=100 if not drop_last else 1, rank=rank, world_size=5, shuffle=False,
                drop_last=drop_last, samples=True,
            )
            assert [s for batch in epoch(loader) for s in batch[2].tolist()] == list(sampler)


def test_a_list_of_pairs(folder, tmp_path):
    pairs = [(folder / "train" / "cat" / "000.png", 7), (str(folder / "val" / "ant" / "001.png"), np.int64(0))]
    for data in (pairs, tuple(pairs), iter(pairs), (pair for pair in pairs)):
        loader = stokehold.Loader(data, WHOLE, shuffle=False)
        ((images, labels),) = epoch(loader)
        assert labels.tolist() == [7, 0] and loader.classes is None
        assert loader.name(1) == str(pairs[1][0])
        assert np.abs(images[0] * 255 - picture(21).transpose(2, 0, 1)).max() < 1e-3
    with pytest.raises(IndexError, match="sample 2: there are 2"):
        loader.name(2)
    strange = tmp_path / "n\udcffme.png"
    write_png(strange, picture(1))
    ((images, _),) = epoch(stokehold.Loader([(strange, 0)], WHOLE))
    assert images.shape == (1, 3, 20, 24)


def test_draws_say_what_is_done(folder):
    loader = stokehold.Loader(folder, CROP, seed=5, samples=True)
    steps = loader.draw(epoch=3, sample=11, width=24, height=20)
    assert steps == loader.draw(3, 11, 24, 20) != loader.draw(3, 12, 24, 20)
    assert [step["type"] for step in steps if step["type"] != "HorizontalFlip"] == [
        "Crop", "Resize", "ToFloat", "Normalize",
    ]  # fmt: skip
    crop = steps[0]
    # Without the flip the crop that was drawn, resized, is what the loader yields.
    still = T.Compose([T.RandomResizedCrop(8, interpolation="nearest"), T.ToTensor()])
    loader = stokehold.Loader(folder, still, seed=5, samples=True, shuffle=False, executor="per-op", batch_size=37)
    loader.set_epoch(3)
    ((images, _, _),) = epoch(loader)
    crop = loader.draw(3, 11, 24, 20)[0]
    part = picture(11)[crop["top"] : crop["top"] + crop["height"], crop["left"] : crop["left"] + crop["width"]]
    rows = ((np.arange(8) + 0.5) * crop["height"] / 8).astype(int)
    columns = ((np.arange(8) + 0.5) * crop["width"] / 8).astype(int)
    assert np.abs(images[11] * 255 - part[rows][:, columns].transpose(2, 0, 1)).max() < 1e-3


def test_samples_are_chosen_by_weights_and_repeated(folder):
    def numbers(**chosen):
        loader = stokehold.Loader(folder, CROP, samples=True, batch_size=10, **chosen)
        batches = epoch(loader)
        assert len(batches) == len(loader)
        return np.concatenate([batch[2] for batch in batches]).tolist(), np.concatenate([batch[0] for batch in batches])

    weights = np.array([0.0] * 12 + [1.0] * 25)
    drawn, _ = numbers(weights=weights, epoch_samples=500)
    assert len(drawn) == 500 and set(drawn) == set(range(12, 37))
    assert sorted(numbers(weights=weights, replacement=False)[0]) == list(range(12, 37))
    balanced, _ = numbers(class_balanced=True, epoch_samples=2000)
    classes = np.bincount(np.asarray(stokehold.Loader(folder, CROP).labels)[balanced])
    assert np.abs(classes / 2000 - 1 / len(classes)).max() < 0.06, classes
    assert sorted(numbers(class_balanced=True, replacement=False)[0]) == list(range(37))
    assert numbers(subset=np.array([3, 30, 3, 7]), shuffle=False)[0] == [3, 30, 3, 7]
    assert sorted(numbers(subset=(sample for sample in range(5, 29)))[0]) == list(range(5, 29))
    repeated, images = numbers(repeats=2)
    assert len(repeated) == 37 and repeated[0:36:2] == repeated[1:36:2] and len(set(repeated)) == 19
    assert not np.array_equal(images[0], images[1])
    for chosen, message in [
        ({"weights": [1.0] * 36}, "36 weights: must be 37"),
        ({"weights": [-1.0] * 37}, "weight -1 of sample 0"),
        ({"weights": ["much"] * 37}, "weights='much': must be a number"),
        ({"weights": [1.0] * 37, "repeats": 2}, "exclude each other"),
        ({"weights": [1.0] * 37, "class_balanced": True}, "exclude each other"),
        ({"subset": [1], "class_balanced": True}, "exclude each other"),
        ({"subset": [1, 37]}, "subset: sample 37: must be below 37"),
        ({"subset": [-1]}, "subset=-1: must be at least 0"),
        ({"class_balanced": True, "shuffle": False}, "shuffle must be on"),
        ({"weights": [1.0] * 37, "shuffle": False}, "shuffle must be on"),
        ({"repeats": 0}, "repeats=0: must be at least 1"),
        ({"epoch_samples": 38}, "38 samples in an epoch: must be 1 to 37"),
    ]:
        with pytest.raises(stokehold.OptionError, match=message):
            stokehold.Loader(folder, CROP, **chosen)


def test_a_function_at_the_end(folder):
    loader = stokehold.Loader(folder, WHOLE, shuffle=False, batch_transform=lambda images: images * 2 + 1)
    doubled = epoch(loader)[0][0]
    assert np.allclose(doubled, epoch(stokehold.Loader(folder, WHOLE, shuffle=False))[0][0] * 2 + 1)


def test_a_function_for_every_image(folder):
    plain = epoch(stokehold.Loader(folder, WHOLE, shuffle=False))[0][0]
    loader = stokehold.Loader(folder, WHOLE, shuffle=False, batch_size=32, sample_transform=lambda image: image[:, :2, 1:] + 1)
    assert loader.transform_seconds == 0.0
    cut = epoch(loader)[0][0]
    assert cut.shape[2:] == (2, plain.shape[3] - 1) and np.allclose(cut, plain[: len(cut), :, :2, 1:] + 1)
    assert loader.transform_seconds > 0.0
    both = stokehold.Loader(
        folder, WHOLE, shuffle=False, sample_transform=lambda image: image * 0, batch_transform=lambda images: images + 3
    )
    assert (epoch(both)[0][0] == 3).all(), "the whole batch comes last"


def test_bad_images(folder, tmp_path):
    bad = tmp_path / "broken.png"
    bad.write_bytes(b"no picture")
    good = [(folder / "train" / "ant" / f"{n:03}.png", n % 2) for n in range(3)]
    data = [*good, (bad, 1)]
    loader = stokehold.Loader(data, WHOLE, shuffle=False)
    with pytest.warns(stokehold.BadImageWarning, match="broken.png: not an image"):
        ((_, labels),) = epoch(loader)
    assert labels.tolist() == [0, 1, 0]
    assert [(sample, name) for sample, name, _ in loader.bad_images()] == [(3, str(bad))]
    assert len(epoch(loader)[0][1]) == 3  # named once: a second warning would be an error here
    behind_the_last_batch = stokehold.Loader([*good[:2], (bad, 1)], WHOLE, shuffle=False, batch_size=2)
    with pytest.warns(stokehold.BadImageWarning, match="broken.png: not an image"):
        assert len(epoch(behind_the_last_batch)) == 1
    with pytest.warns(stokehold.BadImageWarning):
        ((_, labels),) = epoch(stokehold.Loader(data, WHOLE, shuffle=False, bad_images="substitute"))
    assert labels.tolist() == [0, 1, 0, 1]
    with pytest.raises(stokehold.DataError, match="broken.png: not an image"):
        epoch(stokehold.Loader(data, WHOLE, bad_images="error"))
    with pytest.raises(OSError, match="cannot read this file"):
        epoch(stokehold.Loader([("/nowhere.jpg", 0)], WHOLE, bad_images="error"))


def test_names_do_not_control_the_terminal(folder, tmp_path):
    bad = tmp_path / "red\x1b[31m.png"
    bad.write_bytes(b"no picture")
    with pytest.raises(stokehold.DataError) as raised:
        epoch(stokehold.Loader([(bad, 0)], WHOLE, bad_images="error"))
    assert "\x1b" not in str(raised.value) and r"red\x1b[31m.png: not an image" in str(raised.value)
    good = folder / "train" / "ant" / "000.png"
    with pytest.warns(stokehold.BadImageWarning, match="not an image") as warned:
        epoch(stokehold.Loader([(good, 0), (bad, 0)], WHOLE, shuffle=False))
    assert "\x1b" not in str(warned[0].message)


def test_memory_stays_flat_over_a_hundred_epochs(folder):
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    pipeline = T.Compose([T.RandomResizedCrop(128), T.ToTensor()])
    loader = stokehold.Loader(folder, pipeline, batch_size=16, num_workers=2)
    for _ in range(10):
        for _ in loader:
            pass
    before = resident()
    for _ in range(90):
        for _ in loader:
            pass
    # A batch is 3 MB: one that leaked each epoch would be 280 MB.
    assert resident() - before < 40e6


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed in this environment")
def test_labels_are_the_datasets_and_order_torchvisions(folder):
    import torchvision

    reference = torchvision.datasets.ImageFolder(folder / "train")
    loader = stokehold.Loader(folder / "train", WHOLE, shuffle=False, samples=True)
    labels = [label for batch in epoch(loader) for label in batch[1].tolist()]
    assert labels == [label for _, label in reference.samples]
    assert [loader.name(number) for number in range(37)] == [path for path, _ in reference.samples]


@pytest.fixture
def pairs(tmp_path):
    """images/ and masks/ of 9 pairs whose masks, coloured, have the classes 0 and 1 and pixels without a class."""
    colors = np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0]], dtype=np.uint8)
    classes = np.array([0, 1, 255])
    masks = []
    for number in range(9):
        drawn = np.random.default_rng(number).integers(0, 3, (20, 24))
        write_png(tmp_path / "images" / f"{number}.png", colors[drawn])
        write_png(tmp_path / "masks" / f"{number}.png", colors[drawn])
        masks.append(classes[drawn])
    (tmp_path / "classes.toml").write_text(
        'ignore = [[255, 0, 0]]\n[[class]]\nname = "ground"\ncolor = [0, 0, 0]\n[[class]]\nname = "thing"\ncolor = [255, 255, 255]\n'
    )
    return tmp_path, np.stack(masks)


def test_masks_go_with_their_images(pairs):
    folder, masks = pairs
    with stokehold.Loader(folder, WHOLE, batch_size=4, samples=True) as loader:
        assert loader.classes == ["ground", "thing"]
        batches = epoch(loader)
    images, found, samples = (np.concatenate(parts) for parts in zip(*batches))
    assert found.dtype == np.int64 and found.shape == (9, 20, 24)
    assert np.array_equal(found, masks[samples])
    assert sorted(samples.tolist()) == list(range(9))
    # The pictures have the colours of their masks: both are moved alike.
    with stokehold.Loader(folder, T.Compose([T.RandomCrop(9), T.RandomVerticalFlip(), T.ToTensor()]), batch_size=9) as loader:
        images, found = (plain(part) for part in next(iter(loader)))
    assert np.array_equal(images[:, 1] > 0.5, found == 1)
    assert np.array_equal(images[:, 0] > 0.5, found != 0)


@needs_torch
def test_masks_fit_the_loss_of_torch(pairs):
    import torch

    with stokehold.Loader(pairs[0], WHOLE, batch_size=3) as loader:
        images, masks = next(iter(loader))
        loss = torch.nn.CrossEntropyLoss(ignore_index=255)(images[:, :2], masks)
    assert loss.isfinite()


def test_a_bad_mask_is_named(pairs):
    folder, _ = pairs
    write_png(folder / "masks" / "3.png", np.full((20, 24, 3), 7, np.uint8))
    with stokehold.Loader(folder, WHOLE, batch_size=9, bad_images="skip") as loader:
        with pytest.warns(stokehold.errors.BadImageWarning, match=r"3\.png: its mask .*3\.png: pixel \(0, 0\) has the colour"):
            images, masks = next(iter(loader))
    assert len(images) == len(masks) == 8
