"""PyTorch's DataLoader with PIL images: torchvision's classic transforms, the usual way to train.

This is the reference of the work: the other peers say where they differ from it.
`--workers` is the DataLoader's num_workers: 0 loads in the main process, N starts N processes.

Tuned: bench/run.py gives it no worker process on one core, where a second process only has to hand its batches over; PyTorch
computes on one thread.
"""

from protocol import Peer, Settings, run
from torch_common import data_loader_peer
from torchvision_pil import open_rgb, transform, versions


def build(settings: Settings) -> Peer:
    return data_loader_peer(settings, open_rgb, transform(settings.load, settings.image_size), versions())


if __name__ == "__main__":
    run("torch_pil", build)
