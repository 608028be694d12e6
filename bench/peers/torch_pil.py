"""PyTorch's DataLoader with PIL images: torchvision's classic transforms, the usual way to train.

This is the reference of the work: the other peers say where they differ from it.
`--workers` is the DataLoader's num_workers: 0 loads in the main process, N starts N processes.

Tuned: bench/run.py gives it no worker process on one core, where a second process only has to hand its batches over; PyTorch
computes on one thread.
"""

import PIL
from PIL import Image
from protocol import IMAGENET_MEAN, IMAGENET_STD, Peer, Settings, run
from torch_common import data_loader_peer
from torchvision import transforms as T


def build(settings: Settings) -> Peer:
    repeated = [T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomRotation(5)] * settings.load
    crop = [T.RandomResizedCrop(settings.image_size)]
    flip = [T.RandomHorizontalFlip()] if settings.load == 0 else []
    to_float = [T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    transform = T.Compose(repeated + crop + flip + to_float)
    return data_loader_peer(settings, open_rgb, transform, f", pillow {PIL.__version__}")


def open_rgb(path: str) -> Image.Image:
    """As torchvision.datasets.folder.pil_loader."""
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


if __name__ == "__main__":
    run("torch_pil", build)
