"""Loaders over what has a length that is not to be asked for; prints what was asked."""

import warnings

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler

warnings.simplefilter("error")
asked = []


class Lengthy:
    def __len__(self):
        asked.append(type(self).__name__)
        return 3


class Stream(Lengthy, IterableDataset):
    """Its length is an estimate."""

    def __iter__(self):
        return iter([torch.zeros(2)] * 10)


class Own(Lengthy, Sampler):
    def __iter__(self):
        return iter(range(6))


class Batches(Lengthy, Sampler):
    def __iter__(self):
        return iter([[0, 1], [2, 3]])


class OwnLoader(Lengthy, DataLoader):
    pass


class Batch(Lengthy, list):
    pass


class Images(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.zeros(2)


def collate(samples):
    return Batch(samples)


images = Images()
for loader in [
    DataLoader(Stream(), 1),
    DataLoader(Stream(), None),
    DataLoader(images, 2, sampler=Own()),
    DataLoader(images, batch_sampler=Batches()),
    DataLoader(images, None, sampler=Own()),
    OwnLoader(images, 2),
    DataLoader(images, 2, shuffle=True, collate_fn=collate),
    DataLoader(images, None),
    DataLoader(images, batch_sampler=BatchSampler(DistributedSampler(images, 2, 0), 2, False)),
]:
    for batch in loader:
        pass
print(asked)
