"""PyTorch's DataLoader with torchvision's v2 transforms on uint8 tensors, decoded by torchvision.io.

The same work as torch_pil (antialiased crop, nearest-neighbour rotation as is the default of both).

bench/run.py runs it at load 0 alone. torchvision turns tensors by a grid of floats, which takes ten times as long as Pillow's rotation
of images: nobody would rotate so on a CPU, and the same transforms on PIL images, torch_pil, stand for torchvision there.
Tuned: as torch_pil; the files are decoded by torchvision's own libjpeg-turbo.
`--workers` is the DataLoader's num_workers: 0 loads in the main process, N starts N processes.
"""

import torch
from protocol import IMAGENET_MEAN, IMAGENET_STD, Peer, Settings, run
from torch_common import data_loader_peer
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2 as T


def build(settings: Settings) -> Peer:
    repeated = [T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomRotation(5)] * settings.load
    crop = [T.RandomResizedCrop(settings.image_size, antialias=True)]
    flip = [T.RandomHorizontalFlip()] if settings.load == 0 else []
    to_float = [T.ToDtype(torch.float32, scale=True), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return data_loader_peer(settings, decode, T.Compose(repeated + crop + flip + to_float))


def decode(path: str) -> torch.Tensor:
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


if __name__ == "__main__":
    run("torch_v2", build)
