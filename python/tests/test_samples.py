"""A folder's list of paths and labels that a script changes, as PyTorch's workers see it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import needs_torch, picture, write_png


@needs_torch
@pytest.mark.parametrize("workers", [0, 2])
def test_pairs_that_are_lists_may_change(workers, tmp_path):
    import stokehold.torch
    import torch
    from torchvision import transforms as V
    from torchvision.datasets import ImageFolder

    for name in "ab":
        (tmp_path / name).mkdir()
        for number in range(4):
            write_png(tmp_path / name / f"{number}.png", picture(ord(name) + number, 8, 8))
    transform = V.Compose([V.Resize((8, 8)), V.ToTensor()])

    def epochs(kind):
        data = ImageFolder(str(tmp_path), transform)
        data.samples = [list(pair) for pair in data.samples]
        loader = kind(data, batch_size=2, num_workers=workers)
        seen = []
        for epoch in range(2):
            for number, (images, labels) in enumerate(loader):
                seen.append((images, labels))
                if workers and epoch == 0 and number == 0:
                    # Workers have what was there when they began.
                    for pair in data.samples:
                        pair[1] = 8
            for pair in data.samples:
                pair[0] = data.samples[-1][0]
        return seen

    ours, theirs = epochs(stokehold.torch.DataLoader), epochs(torch.utils.data.DataLoader)
    assert len(ours) == len(theirs) == 8
    for (images, labels), (expected, numbers) in zip(ours, theirs):
        assert labels.tolist() == numbers.tolist()
        assert (images - expected).abs().max() < 1e-6


@needs_torch
def test_hidden_images_and_names_that_are_not_utf8_are_torchvisions(tmp_path):
    """A hidden image is one of torchvision's, and so is one in a hidden folder."""
    import stokehold.torch
    import torch
    from torchvision import transforms as V
    from torchvision.datasets import ImageFolder

    for number, name in enumerate((b".d/1.png", b"a/1.png", b"a/._1.png", b"b\xff/2\xe9.png", b"e\xcc\x81/1.png", b"\xc3\xa9/1.png")):
        path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
        path.parent.mkdir(exist_ok=True)
        write_png(path, picture(number, 8, 8))
    transform = V.Compose([V.Resize((8, 8)), V.ToTensor()])
    theirs, ours = ImageFolder(str(tmp_path), transform), stokehold.torch.ImageFolder(str(tmp_path), transform)
    assert (ours.classes, ours.class_to_idx, ours.samples) == (theirs.classes, theirs.class_to_idx, theirs.samples)
    assert len(theirs) == 6
    expected = list(torch.utils.data.DataLoader(theirs, batch_size=4))
    loader = torch.utils.data.DataLoader(theirs, batch_size=4)
    for made in (stokehold.torch.InPlaceOf(loader, None), stokehold.torch.DataLoader(ours, batch_size=4)):
        batches = list(made)
        assert [labels.tolist() for _, labels in batches] == [labels.tolist() for _, labels in expected]
        assert all((images - wanted).abs().max() < 1e-6 for (images, _), (wanted, _) in zip(batches, expected))
