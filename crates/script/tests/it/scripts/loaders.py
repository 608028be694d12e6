"""A script that makes loaders without end, as few-shot learning does, and one over an iterable data set whose length nobody may ask."""

import sys
import warnings

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

warnings.simplefilter("error")


class Estimated(IterableDataset):
    def __len__(self):
        raise SystemExit("its length was asked")

    def __iter__(self):
        return iter([torch.zeros(2)] * 10)


for number in range(int(sys.argv[1])):
    for _ in DataLoader(TensorDataset(torch.zeros(4 + number % 50, 4)), 4 + number % 2):
        pass
for _ in DataLoader(Estimated(), 1):
    pass
