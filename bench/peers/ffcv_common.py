"""What both FFCV peers share: the packed file, made untimed in a temporary folder, and the loader over it.

What is done to an image is the trial ffcv's, of which `ffcv_jpeg.py` among the trials of `stokehold compare` says more. PyTorch
computes on one thread. `--workers` is FFCV's num_workers, threads; 0 counts as 1.
"""

import tempfile
from pathlib import Path

import torch
from ffcv.fields import RGBImageField
from ffcv.loader import Loader, OrderOption
from ffcv.writer import DatasetWriter
from protocol import BATCH_SIZE, Peer, Settings, Unsupported
from ffcv_jpeg import image_pipeline, versions  # isort: skip


class Images:
    """What DatasetWriter iterates over: one tuple of fields a sample."""

    def __init__(self, files, stored):
        self.files, self.stored = files, stored

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return (self.stored(self.files[index]),)


def ffcv_peer(settings: Settings, field: RGBImageField, stored) -> Peer:
    """A peer whose file holds, of each image, what `stored` makes of its path, as `field` writes it."""
    if settings.load > 0:
        raise Unsupported(f"FFCV has no rotation, so it cannot do load {settings.load}; only --load 0 is possible")
    torch.set_num_threads(1)
    folder = tempfile.TemporaryDirectory(prefix="stokehold-ffcv-")
    packed = Path(folder.name) / "images.beton"
    DatasetWriter(str(packed), {"image": field}, num_workers=1).from_indexed_dataset(Images(settings.files, stored))
    batches = loader(packed, settings)
    shape = (3, settings.image_size, settings.image_size)

    def one_pass() -> int:
        images = 0
        for (batch,) in batches:
            assert batch.shape[1:] == shape and batch.dtype == torch.float32
            images += batch.shape[0]
        return images

    one_pass.folder = folder  # removed when the peer is
    return Peer(f"{versions()}, a file of {packed.stat().st_size / 1e6:.1f} MB", one_pass)


def loader(packed: Path, settings: Settings) -> Loader:
    return Loader(
        str(packed),
        batch_size=BATCH_SIZE,
        num_workers=max(1, settings.workers),
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        custom_fields={"image": RGBImageField},
        pipelines={"image": image_pipeline(settings.image_size)},
    )
