"""Loaders whose batches are made by something in Stokehold's place. Arguments: what is tried."""

import copy
import gc
import pickle
import sys
import types
import weakref

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

alive = weakref.WeakSet()


class InPlaceOf:
    """As stokehold.torch's: it has the loader weakly, and refuses in its beginning or when an iteration starts."""

    def __init__(self, loader, threads):
        alive.add(self)
        self.loader = weakref.ref(loader)
        # As a script's data set may: the loader can be reached from what serves it.
        self.dataset = loader.dataset
        self.memory = bytearray(1 << 20)

    def __iter__(self):
        if sys.argv[1] == "refused":
            raise ValueError("not this time")
        return Batches(self)


class Batches(_BaseDataLoaderIter):
    def __init__(self, served):
        super().__init__(served.loader())
        self.served, self.rest = served, iter([[torch.ones(2), torch.ones(2)]] * 3)

    def _next_data(self):
        return next(self.rest)


own = types.ModuleType("stokehold.torch")
own.InPlaceOf, own.DataLoader = InPlaceOf, type("DataLoader", (DataLoader,), {})
sys.modules["stokehold"] = types.ModuleType("stokehold")
sys.modules["stokehold"].torch = sys.modules["stokehold.torch"] = own

data = TensorDataset(torch.zeros(4, 1), torch.zeros(4))


def passed(loader):
    return sum(int(images.sum()) for images, _ in loader)


if sys.argv[1] == "refused":
    loader = DataLoader(data, 2)
    print([passed(loader) for _ in range(3)], len(alive))
else:
    print([passed(DataLoader(data, 2)) for _ in range(100)] == [6] * 100, len(alive))
    # The data set leads back to its loader.
    loader = DataLoader(copy.copy(data), 2)
    loader.dataset.loader = loader
    passed(loader)
    del loader
    gc.collect()
    print("cycle", len(alive))
    loader = DataLoader(data, 2)
    running = iter(loader)
    shallow, deep, pickled = copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))
    print("one", len(alive))
    del running, loader
    print("copies", len(alive), [passed(each) for each in (shallow, deep, pickled)], len(alive))
    # An iterator lives longer than its loader.
    del shallow, deep, pickled
    running = iter(DataLoader(data, 2))
    print("rest", len(list(running)))
