"""PyTorch's DataLoader with torchvision's v2 transforms on uint8 tensors, decoded by torchvision.io.

The same work as torch_pil (antialiased crop, nearest-neighbour rotation as is the default of both).

bench/run.py runs it at load 0 alone. torchvision turns tensors by a grid of floats, which takes ten times as long as Pillow's rotation
of images: nobody would rotate so on a CPU, and the same transforms on PIL images, torch_pil, stand for torchvision there.
Tuned: as torch_pil; the files are decoded by torchvision's own libjpeg-turbo.
`--workers` is the DataLoader's num_workers: 0 loads in the main process, N starts N processes.
"""

from protocol import Peer, Settings, run
from torch_common import data_loader_peer
from torchvision_v2 import decode, transform, versions


def build(settings: Settings) -> Peer:
    return data_loader_peer(settings, decode, transform(settings.load, settings.image_size), versions())


if __name__ == "__main__":
    run("torch_v2", build)
