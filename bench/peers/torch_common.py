"""What both PyTorch peers share: a data set of files and a DataLoader over it."""

import torch
from protocol import BATCH_SIZE, Peer, Settings


class Files(torch.utils.data.Dataset):
    """Each file opened by `load` and handed to `transform`, with the label 0."""

    def __init__(self, files, load, transform):
        self.files, self.load, self.transform = files, load, transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.transform(self.load(self.files[index])), 0


def data_loader_peer(settings: Settings, load, transform, versions: str) -> Peer:
    """A shuffling DataLoader in which every worker computes on one thread, as PyTorch's workers do by default."""
    torch.set_num_threads(1)
    batches = torch.utils.data.DataLoader(
        Files(settings.files, load, transform),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=settings.workers,
        persistent_workers=settings.workers > 0,
    )
    shape = (3, settings.image_size, settings.image_size)

    def one_pass() -> int:
        images = 0
        for batch, _labels in batches:
            assert batch.shape[1:] == shape and batch.dtype == torch.float32
            images += batch.shape[0]
        return images

    return Peer(versions, one_pass)
