"""FFCV reading the original JPEG bytes.

FFCV reads its own `.beton` files. This script packs the data set into one first, untimed, in a temporary folder: with
the bytes of the JPEG files as they are, where FFCV's own writer would encode the pixels anew, so that it decodes
exactly what the other peers decode.

Different work in three places: the file holds all images in one place, which saves opening them one by one; decoding
uses libjpeg-turbo's fast, less exact inverse DCT; the crop is resized by area averaging (OpenCV's INTER_AREA). FFCV
has no rotation, so only load 0 is possible.
`--workers` is FFCV's num_workers, threads; 0 counts as 1.
"""

import tempfile
from importlib.metadata import version
from pathlib import Path

import numba
import numpy as np
import torch
from ffcv.fields import RGBImageField
from ffcv.fields.rgb_image import IMAGE_MODES, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image
from protocol import BATCH_SIZE, IMAGENET_MEAN, IMAGENET_STD, Peer, Settings, Unsupported, run


class OriginalJpeg(RGBImageField):
    """An image field that stores a file's own bytes in place of newly encoded ones."""

    def encode(self, destination, path, malloc):
        encoded = np.fromfile(path, np.uint8)
        with Image.open(path) as image:
            destination["width"], destination["height"] = image.size
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["data_ptr"], storage = malloc(encoded.nbytes)
        storage[:] = encoded


class Paths:
    """What DatasetWriter iterates over: one tuple of fields a sample."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return (self.files[index],)


def build(settings: Settings) -> Peer:
    if settings.load > 0:
        raise Unsupported(f"FFCV has no rotation, so it cannot do load {settings.load}; only --load 0 is possible")
    torch.set_num_threads(1)
    folder = tempfile.TemporaryDirectory(prefix="stokehold-ffcv-")
    batches = loader(pack(settings.files, Path(folder.name)), settings)
    shape = (3, settings.image_size, settings.image_size)

    def one_pass() -> int:
        images = 0
        for (batch,) in batches:
            assert batch.shape[1:] == shape and batch.dtype == torch.float32
            images += batch.shape[0]
        return images

    one_pass.folder = folder  # removed when the peer is
    return Peer(f"ffcv {version('ffcv')}, numba {numba.__version__}, torch {torch.__version__}", one_pass)


def pack(files: list[str], folder: Path) -> Path:
    packed = folder / "images.beton"
    DatasetWriter(str(packed), {"image": OriginalJpeg()}, num_workers=1).from_indexed_dataset(Paths(files))
    return packed


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


if __name__ == "__main__":
    run("ffcv", build)
