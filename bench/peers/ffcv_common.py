"""What both FFCV peers share: the packed file, made untimed in a temporary folder, and the loader over it.

Different work in two places: the file holds all images in one place, which saves opening them one by one; the crop is
resized by area averaging (OpenCV's INTER_AREA). FFCV has no rotation, so only load 0 is possible.
`--workers` is FFCV's num_workers, threads; 0 counts as 1.

Tuned: the file is mapped and in the page cache (`os_cache`), flip and normalisation are FFCV's own operations compiled by
Numba, and PyTorch computes on one thread.
"""

import tempfile
from importlib.metadata import version
from pathlib import Path

import numba
import numpy as np
import torch
from ffcv.fields import RGBImageField
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from protocol import BATCH_SIZE, IMAGENET_MEAN, IMAGENET_STD, Peer, Settings, Unsupported, run


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
    libraries = f"ffcv {version('ffcv')}, numba {numba.__version__}, torch {torch.__version__}"
    return Peer(f"{libraries}, a file of {packed.stat().st_size / 1e6:.1f} MB", one_pass)


def loader(packed: Path, settings: Settings) -> Loader:
    mean, std = (255 * np.array(values) for values in (IMAGENET_MEAN, IMAGENET_STD))
    size = (settings.image_size, settings.image_size)
    steps = [
        RandomResizedCropRGBImageDecoder(size),
        RandomHorizontalFlip(),
        NormalizeImage(mean, std, np.float32),
        ToTensor(),
        ToTorchImage(convert_back_int16=False),
    ]
    return Loader(
        str(packed),
        batch_size=BATCH_SIZE,
        num_workers=max(1, settings.workers),
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        custom_fields={"image": RGBImageField},
        pipelines={"image": steps},
    )

