"""``ImageFolder`` and ``DataLoader`` with the signatures that PyTorch's scripts have: change the imports, keep the rest.

    from stokehold.torch import DataLoader, ImageFolder

``DataLoader`` also takes torchvision's own ``ImageFolder``, and a ``Subset`` of either. What it cannot do as PyTorch does, it
refuses with what to do instead. :class:`stokehold.Loader` is the same with fewer names.
"""

from __future__ import annotations

import functools
import json
import os
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, Subset, WeightedRandomSampler, default_collate
from torch.utils.data.distributed import DistributedSampler

from stokehold._loader import Loader, open_source
from stokehold.errors import OptionError, UsageError
from stokehold.transforms import as_pipeline

__all__ = ["DataLoader", "ImageFolder"]


class ImageFolder:
    """A folder of class folders, for :class:`DataLoader`; numbered as ``torchvision.datasets.ImageFolder`` numbers it.

    Args:
        root: the folder; also a bucket or shards, as ``stokehold.Loader`` takes them.
        transform: as the ``pipeline`` of ``stokehold.Loader``: a torchvision Compose, or one of ``stokehold.transforms``.
        split: "train" or "val", of a data set that has both.
    """

    def __init__(self, root: str | os.PathLike[str], transform: Any = None, *, split: str = "train") -> None:
        self.root = root
        self.transform = transform
        self.source = open_source(root, split)
        self.classes: list[str] = self.source.classes or []

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class."""
        return {name: number for number, name in enumerate(self.classes)}

    @functools.cached_property
    def targets(self) -> list[int]:
        """The label of each image."""
        labels: list[int] = torch.utils.dlpack.from_dlpack(self.source.labels()).tolist()
        return labels

    @functools.cached_property
    def samples(self) -> list[tuple[str, int]]:
        """(path, label) of each image."""
        return [(self.source.name(number), label) for number, label in enumerate(self.targets)]

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        raise UsageError("images come in batches here: iterate a stokehold.torch.DataLoader of this folder")


class DataLoader(Loader):
    """``torch.utils.data.DataLoader`` over images, in threads.

    Yields ``(images, labels)``: (N, 3, H, W) and (N,) int64. The order and all random operations follow from
    ``generator``'s seed, else from ``torch.initial_seed()``, which ``torch.manual_seed`` sets; of a ``DistributedSampler``
    from its own. Epochs count up by themselves; ``sampler.set_epoch`` sets their number.

    Args:
        dataset: an ``ImageFolder``, this module's or torchvision's, or a ``Subset`` of one.
        batch_size, shuffle, drop_last: as PyTorch's.
        sampler: a ``DistributedSampler``, a ``RandomSampler`` without replacement, a ``WeightedRandomSampler``, or a
            ``SequentialSampler``.
        num_workers: threads; 0 is 1.
        pin_memory: batches of the CPU lie in pinned memory where there is a CUDA device; that is a copy.
        generator: whose ``initial_seed()`` counts.
        timeout, multiprocessing_context, prefetch_factor, persistent_workers, pin_memory_device, in_order: taken, and of
            no use here: they are about processes that there are not.
        more: ``dtype``, ``device``, ``cache``, ``bad_images`` (here "error"), ``samples`` and so on, as of ``stokehold.Loader``.

    Raises:
        OptionError: PyTorch could do it and this cannot: ``batch_sampler``, ``collate_fn``, ``worker_init_fn``, other samplers,
            other data sets, ``batch_size=None``.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        **more: Any,
    ) -> None:
        del timeout, multiprocessing_context, prefetch_factor, persistent_workers, pin_memory_device, in_order
        for name, given, instead in [
            ("batch_sampler", batch_sampler, "give batch_size, shuffle and drop_last, or a DistributedSampler"),
            ("collate_fn", collate_fn, "batches are stacked as default_collate does; change them with batch_transform"),
            ("worker_init_fn", worker_init_fn, "there are no worker processes; seeds follow from torch.manual_seed"),
        ]:
            if given is not None:
                raise OptionError(f"{name} cannot be used here: {instead}")
        if batch_size is None:
            raise OptionError("batch_size=None: images come in batches here; give a number")
        if sampler is not None and shuffle:
            raise OptionError("sampler and shuffle=True exclude each other")
        data, transform = _images(dataset)
        walk = _walk(sampler, bool(shuffle), drop_last, len(dataset))
        seed = torch.initial_seed() if generator is None else generator.initial_seed()
        super().__init__(
            data,
            transform,
            batch_size=batch_size,
            num_workers=max(1, num_workers),
            **{"seed": seed % 2**64, "bad_images": "error", **walk, **more},
        )
        self.dataset = dataset
        self.batch_size = batch_size
        self.sampler = sampler
        self.drop_last = drop_last
        self._sampler_epoch: int | None = None
        if pin_memory and torch.cuda.is_available():
            take = self._take_images

            def take_pinned(memory: Any) -> Any:
                images = take(memory)
                return images if images.is_cuda else images.pin_memory()

            self._take_images = take_pinned

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Starts an epoch; of a ``DistributedSampler`` the one that its ``set_epoch`` said last."""
        if isinstance(self.sampler, DistributedSampler) and self.sampler.epoch != self._sampler_epoch:
            if self._sampler_epoch is not None or self.sampler.epoch != 0:
                self.set_epoch(self.sampler.epoch)
            self._sampler_epoch = self.sampler.epoch
        return super().__iter__()


class InPlaceOf:
    """Iterates as a ``torch.utils.data.DataLoader`` does, with batches made here: what ``stokehold run --swap-loader`` iterates
    in place of a script's loader.

    Batch size, sampler, order of the epochs and ``drop_last`` are the loader's, as they are when an iteration starts: a transform
    or a choice of images may change between two of them. Raises ``OptionError`` for what cannot be the same.
    """

    def __init__(self, loader: Any, threads: int | None = None) -> None:
        self._loader, self._threads = weakref.ref(loader), threads
        self._loaders: list[DataLoader] = []
        self._made_of: Any = None
        self._epoch = 0
        self._renew()

    def _renew(self) -> None:
        """Makes a loader, if what it is made of has changed."""
        loader = self._loader()
        if loader is None:
            return
        arguments = _arguments_of(loader, self._threads)
        made_of = _made_of(arguments)
        if made_of != self._made_of:
            self._arguments, self._made_of = arguments, made_of
            self._loaders = [DataLoader(**arguments)]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Starts the next epoch; an iteration that is still going on is left to itself."""
        self._renew()
        epoch, self._epoch = self._epoch, self._epoch + 1
        for loader in self._loaders:
            try:
                return self._begin(loader, epoch)
            except UsageError:
                continue
        self._loaders.append(DataLoader(**self._arguments))
        return self._begin(self._loaders[-1], epoch)

    def _begin(self, loader: DataLoader, epoch: int) -> Iterator[tuple[Any, ...]]:
        # Of a DistributedSampler the script says which epoch it is.
        if not isinstance(loader.sampler, DistributedSampler):
            loader.set_epoch(epoch)
        return iter(loader)


def _made_of(arguments: dict[str, Any]) -> Any:
    """What decides the batches, to compare."""
    data, transform = _images(arguments["dataset"])
    sampler = arguments["sampler"]
    weights = tuple(sampler.weights.tolist()) if isinstance(sampler, WeightedRandomSampler) else None
    pairs = hash(tuple(tuple(pair) for pair in data)) if isinstance(data, list) else id(data)
    return as_pipeline(transform).json(), pairs, weights, arguments["batch_size"], arguments["drop_last"], id(sampler)


def pipeline_of(loader: Any) -> Any:
    """The transform of a ``DataLoader``'s data set as a pipeline, plain values. Raises as :class:`InPlaceOf`."""
    arguments = _arguments_of(loader, None)
    return json.loads(as_pipeline(_images(arguments["dataset"])[1]).json())


def _arguments_of(loader: Any, threads: int | None) -> dict[str, Any]:
    """What a ``DataLoader`` of torch is, as arguments of the one here."""
    if type(loader.batch_sampler) is not BatchSampler:
        kind = "none" if loader.batch_sampler is None else type(loader.batch_sampler).__name__
        raise OptionError(f"batch_sampler: {kind}; there is torch's own BatchSampler")
    if loader.collate_fn is not default_collate:
        name = getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__)
        raise OptionError(f"collate_fn: {name} of the script's own; there is torch's default_collate")
    if loader.worker_init_fn is not None:
        raise OptionError("worker_init_fn: there are no worker processes that could call it")
    sampler = loader.sampler
    if type(sampler) not in (DistributedSampler, RandomSampler, SequentialSampler, WeightedRandomSampler):
        raise OptionError(f"sampler={type(sampler).__name__}: there are torch's own samplers, and no classes made of them")
    if isinstance(loader.dataset, Subset) and type(loader.dataset) is not Subset:
        raise OptionError(f"dataset={type(loader.dataset).__name__}: it may have a __getitem__ of its own; there is torch's Subset")
    generator = getattr(sampler, "generator", None) or loader.generator
    arguments = {
        "dataset": loader.dataset,
        "batch_size": loader.batch_size,
        "sampler": sampler,
        "drop_last": loader.drop_last,
        "pin_memory": loader.pin_memory,
        "generator": generator,
        "num_workers": loader.num_workers,
    }
    _walk(sampler, False, loader.drop_last, len(loader.dataset))
    as_pipeline(_images(loader.dataset)[1])
    if threads is not None:
        arguments["num_workers"] = threads
    elif not isinstance(sampler, DistributedSampler):
        # Threads share a core better than processes; ranks share the machine.
        arguments["num_workers"] = _cores()
    return arguments


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _images(dataset: Any) -> tuple[Any, Any]:
    """The data and the transform of a data set."""
    if isinstance(dataset, Subset):
        whole, transform = _images(dataset.dataset)
        pairs = dataset.dataset.samples if isinstance(dataset.dataset, ImageFolder) else whole
        return [pairs[index] for index in dataset.indices], transform
    if isinstance(dataset, ImageFolder):
        return dataset.source, _transform_of(dataset)
    from torchvision.datasets import DatasetFolder
    from torchvision.datasets.folder import default_loader

    if isinstance(dataset, DatasetFolder) and type(dataset).__getitem__ is not DatasetFolder.__getitem__:
        raise OptionError(
            f"dataset={type(dataset).__name__}: it has a __getitem__ of its own, which would not be called; there is ImageFolder's"
        )
    if not isinstance(dataset, DatasetFolder):
        raise OptionError(
            f"dataset={type(dataset).__name__}: must be an ImageFolder, stokehold.torch's or torchvision's, or a Subset of "
            "one; from other files make a stokehold.Loader of a list of (path, label)"
        )
    if dataset.loader is not default_loader or dataset.target_transform is not None:
        raise OptionError("dataset: a loader or a target_transform of your own cannot be used here; leave them out")
    return dataset.samples, _transform_of(dataset)


def _transform_of(dataset: Any) -> Any:
    if dataset.transform is None:
        raise OptionError("dataset: it has no transform, and images of different sizes make no batch; give it one")
    return dataset.transform


def _walk(sampler: Any, shuffle: bool, drop_last: bool, samples: int) -> dict[str, Any]:
    """The order that a sampler stands for."""
    if sampler is None:
        return {"shuffle": shuffle, "drop_last": drop_last}
    if isinstance(sampler, DistributedSampler):
        if sampler.drop_last and not drop_last and samples % sampler.num_replicas != 0:
            raise OptionError(
                "sampler: drop_last=True of a DistributedSampler needs drop_last=True of the DataLoader here; give both "
                "or neither"
            )
        return {
            "shuffle": sampler.shuffle,
            "seed": sampler.seed,
            "rank": sampler.rank,
            "world_size": sampler.num_replicas,
            "drop_last": drop_last,
        }
    if isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == samples:
        return {"shuffle": True, "drop_last": drop_last}
    if isinstance(sampler, SequentialSampler):
        return {"shuffle": False, "drop_last": drop_last}
    if isinstance(sampler, WeightedRandomSampler):
        return {
            "shuffle": True,
            "drop_last": drop_last,
            "weights": sampler.weights.tolist(),
            "replacement": sampler.replacement,
            "epoch_samples": sampler.num_samples,
        }
    raise OptionError(
        f"sampler={type(sampler).__name__}: there are DistributedSampler, RandomSampler without replacement, "
        "WeightedRandomSampler and SequentialSampler; for a choice of images give a Subset"
    )
