"""``ImageFolder`` and ``DataLoader`` with the signatures that PyTorch's scripts have: change the imports, keep the rest.

    from stokehold.torch import DataLoader, ImageFolder

Both are subclasses of PyTorch's, and have their attributes, arguments and errors. The sampler stays PyTorch's: it says which
images are in which batch. Threads make the images, in place of processes that call ``dataset[index]``. So ``DataLoader`` takes
data sets whose ``__getitem__`` it knows: ``ImageFolder``, torchvision's or this one, and ``Subset`` of either. It refuses
others, with every reason at once. :class:`stokehold.Loader` is the same with fewer names.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import copy
import functools
import json
import math
import operator
import os
import random
import sys
import threading
import warnings
import weakref
import zlib
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data as torch_data
import torchvision
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)
from torch.utils.data._utils.collate import default_collate_fn_map
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.data.distributed import DistributedSampler
from torchvision.datasets import DatasetFolder
from torchvision.datasets import ImageFolder as TorchvisionFolder
from torchvision.datasets import folder as folder_module
from torchvision.datasets.folder import default_loader

from stokehold._loader import Loader, open_source
from stokehold._tensors import name_of_dtype
from stokehold._torchvision import is_foreign, name_of, not_of_tensors, replaced, state_of
from stokehold.errors import BadImageWarning, DataError, OptionError, UsageError, plain
from stokehold.transforms import with_dtype

__all__ = ["DataLoader", "ImageFolder"]

#: Suffixes of files that are decoded here; others are left to Pillow.
DECODED = (".jpg", ".jpeg", ".png", ".webp")
#: Images and batches that are asked for ahead of the loop where that changes nothing.
AHEAD_IMAGES, AHEAD_BATCHES = 4096, 64
#: Images that a resumed iteration asks for at once of a sampler that may draw while it runs.
DRAINED = 1_000_000
#: What separates the random operations of two epochs of persistent workers.
STEP = 0x9E3779B97F4A7C15
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "u8": torch.uint8}


class ImageFolder(TorchvisionFolder):  # type: ignore[misc]
    """``torchvision.datasets.ImageFolder``, whose images ``DataLoader`` makes in threads.

    Args:
        root: a folder of class folders; also a bucket or shards, as ``stokehold.Loader`` takes them, whose images come only
            from a ``DataLoader``.
        transform: a torchvision Compose, or what ``stokehold.Loader`` takes as ``pipeline``.
        target_transform, loader, is_valid_file, allow_empty: as torchvision's. ``DataLoader`` refuses a ``loader``.
        split: "train" or "val", of a data set that has both. ``None`` stands for the folder as it is, and for "train" of a bucket or
            of shards.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Any = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        *,
        split: str | None = None,
    ) -> None:
        self._source: Any = None
        self.split = split
        folder = _folder_of(root, split)
        if folder is not None:
            more = {"allow_empty": True} if allow_empty else {}
            super().__init__(folder, transform, target_transform, loader, is_valid_file, **more)
            return
        given = {"loader": loader is not default_loader, "is_valid_file": is_valid_file, "allow_empty": allow_empty}
        wrong = [name for name, is_given in given.items() if is_given]
        if wrong:
            raise OptionError(f"{', '.join(wrong)}: only for a folder of class folders, and {os.fspath(root)} is none")
        torch_data.Dataset.__init__(self)
        self.root, self.transform, self.target_transform = os.fspath(root), transform, target_transform
        self.loader, self.extensions = loader, None
        self._source = open_source(root, split or "train")
        self.classes: list[str] = self._source.classes or []
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.targets = torch.utils.dlpack.from_dlpack(self._source.labels()).tolist()
        self.samples = self.imgs = [(self._source.name(number), label) for number, label in enumerate(self.targets)]

    def __getitem__(self, index: int) -> Any:
        if self._source is not None:
            raise UsageError(f"{self.root} is no folder: its images come in batches; iterate a stokehold.torch.DataLoader of it")
        return super().__getitem__(index)

    def __getstate__(self) -> dict[str, Any]:
        # It is opened again where it is needed.
        return {**vars(self), "_source": None if self._source is None else ...}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._source is not None:
            self._source = open_source(self.root, self.split or "train")

    def __repr__(self) -> str:
        return super().__repr__() if self._source is None else f"<stokehold.torch.ImageFolder: {len(self)} images of {self.root}>"


def _folder_of(root: str | os.PathLike[str], split: str | None) -> str | None:
    """The folder of class folders that a root stands for; ``None`` if it is something else."""
    root = os.fspath(root)
    if "://" in root:
        return None
    folder = root if split is None else os.path.join(root, split)
    prepared = (os.path.join(place, "shards.json") for place in (root, folder, os.path.join(root, "train")))
    return None if any(map(os.path.exists, prepared)) else folder


class DataLoader(torch_data.DataLoader[Any]):
    """``torch.utils.data.DataLoader`` over images, in threads.

    Yields what PyTorch's yields: ``[images, labels]``, (N, 3, H, W) and what ``default_collate`` makes of the labels. The order is
    PyTorch's: ``batch_sampler`` is asked when PyTorch asks it, ``prefetch_factor * num_workers`` batches ahead of the loop. Samplers
    of torch that draw an epoch's order at once are asked further ahead. Random operations follow from a number that each iteration
    draws from ``generator``, as those of PyTorch's workers do. A file that the decoder here refuses is read by the
    data set itself, with Pillow; if that fails too, its error is raised.

    Args:
        dataset: an ``ImageFolder``, this module's or torchvision's, or a ``Subset`` of one, to any depth.
        num_workers: threads; 0 is 1.
        batch_size, shuffle, sampler, batch_sampler, drop_last, pin_memory, generator: as PyTorch's.
        prefetch_factor: batches that ``batch_sampler`` is asked for ahead, for each of ``num_workers``.
        persistent_workers: as with PyTorch, all iterations of the loader are one iterator, and only the first one draws a number.
        timeout, multiprocessing_context, pin_memory_device, in_order: checked as PyTorch's, and without effect: there are no
            processes.
        dtype, device, cache, cache_share, executor, gpu_decode, gpu_memory_budget, exif, prefetch, sample_transform,
            batch_transform: as of ``stokehold.Loader``.
        bad_images: ``"pytorch"``, as above, or ``"skip"``, ``"substitute"`` or ``"error"`` as of ``stokehold.Loader``.
        samples: yield the images' numbers in the whole folder too.

    Raises:
        OptionError: PyTorch could do it and this cannot. It has all reasons.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
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
        dtype: Any = None,
        device: Any = "cpu",
        cache: Any = None,
        cache_share: float | None = None,
        executor: str = "fused",
        gpu_decode: str = "hybrid",
        gpu_memory_budget: int | None = None,
        exif: bool = False,
        prefetch: int = 0,
        bad_images: str = "pytorch",
        samples: bool = False,
        sample_transform: Callable[[Any], Any] | None = None,
        batch_transform: Callable[[Any], Any] | None = None,
    ) -> None:
        more = {} if in_order else {"in_order": in_order}
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **more,
        )
        # Frameworks make a loader again from what they find under the names of its arguments.
        self.in_order = in_order
        self.dtype, self.device, self.cache, self.cache_share = dtype, device, cache, cache_share
        self.executor, self.gpu_decode, self.gpu_memory_budget = executor, gpu_decode, gpu_memory_budget
        self.exif, self.prefetch, self.bad_images, self.samples = exif, prefetch, bad_images, samples
        self.sample_transform, self.batch_transform = sample_transform, batch_transform
        self._served = _Served(self)
        self._served.renew()

    def check_worker_number_rationality(self) -> None:
        """Nothing: torch warns of more processes than cores, and there are none."""

    def __iter__(self) -> Any:
        """Starts an epoch, or the rest of the one that ``load_state_dict`` said. Other iterations may be running."""
        return self._served.iterate()

    def _get_iterator(self) -> Any:
        return self._served.begin()

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands: after the last batch of the iteration that began last. Plain values. With a ``DistributedSampler``,
        every rank's state names the same batches; the states are equal if all ranks seed torch alike."""
        return self._served.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Has the next iteration continue where ``state_dict()`` was taken: with exactly the batches that were left. A state after
        the last batch continues with a new epoch. A sampler of your own that draws from torch's generators while it runs is asked
        for the rest of the epoch, up to a million images, when the iteration starts.

        Sets the epoch of a ``DistributedSampler``. If the script sets another one before it iterates, a new epoch begins.

        Raises:
            OptionError: the state is of another loader.
        """
        self._served.load(state_dict)

    @property
    def engine(self) -> Loader:
        """The ``stokehold.Loader`` that makes the batches: its cache, its bad images, its ``transform_seconds``."""
        return self._served.renew()

    def __getstate__(self) -> dict[str, Any]:
        # Threads stay in their process; a state that was loaded comes along.
        return {**vars(self), "_served": self._served.loaded, "_iterator": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in state.items() if name != "_served"})
        self._served = _Served(self)
        self._served.loaded = state["_served"]


#: Arguments that `Loader` gets unchanged.
PASSED = (
    "dtype",
    "device",
    "cache",
    "cache_share",
    "executor",
    "gpu_decode",
    "gpu_memory_budget",
    "exif",
    "prefetch",
    "sample_transform",
    "batch_transform",
)


class InPlaceOf:
    """Iterates as a ``torch.utils.data.DataLoader`` does, with batches made here: what ``stokehold run --swap-loader`` iterates
    in place of a script's loader.

    The loader is looked at when an iteration starts: a transform or a choice of images may change between two of them. Raises
    ``OptionError``, with every reason, for what cannot be the same.
    """

    def __init__(self, loader: Any, threads: int | None = None) -> None:
        if isinstance(loader, DataLoader):
            raise OptionError("stokehold.torch.DataLoader makes its batches itself")
        self._served = _Served(loader, threads, swaps=True)
        self._served.renew()

    def __iter__(self) -> Any:
        """Starts an epoch; other iterations may be running."""
        return self._served.iterate()


def pipeline_of(loader: Any) -> Any:
    """The transform of a ``DataLoader``'s data set as a pipeline, plain values. Raises as :class:`InPlaceOf`."""
    return json.loads(_Parts(loader, swaps=True).pipeline.json())


class _Samples:
    """What a folder's list of paths and labels is when an iteration starts. Made anew only where the list has changed."""

    def __init__(self, samples: Any) -> None:
        self.kept = list(map(tuple, samples))  # A script may change pairs that are lists.
        self.paths = [path for path, _ in self.kept]
        self.others = [path for path in self.paths if not str(path).lower().endswith(DECODED)]

    @functools.cached_property
    def digest(self) -> int:
        """Tells the list from others, wherever the folder lies."""
        digest = 0
        for path, label in self.kept:
            digest = zlib.crc32(f"{os.path.basename(str(path))} {label}\0".encode("utf-8", "surrogateescape"), digest)
        return digest

    def are(self, samples: Any) -> bool:
        # Lists that share their pairs are compared in no time.
        return len(samples) == len(self.kept) and (self.kept == samples or self.kept == list(map(tuple, samples)))


class _Parts:
    """What the batches of a torch ``DataLoader`` are made of. ``swaps``: for a script that does not know of it, so that
    everything stays PyTorch's whose effect is not certain. ``known``: the folder's list of the iteration before.

    Raises:
        OptionError: they cannot be made here; with every reason.
    """

    def __init__(self, loader: Any, swaps: bool = False, known: _Samples | None = None) -> None:
        self.reasons: list[str] = []
        self._known = known
        self.samples: Any = None
        #: The folder below all Subsets, and those, which lead from a number of the loader's data set to one of the folder's.
        self.folder = loader.dataset
        self.subsets: list[Any] = []
        while type(self.folder) is Subset:
            self._look_for_own(self.folder, Subset)
            self.subsets.append(self.folder)
            self.folder = self.folder.dataset
        #: Whether the data set is looked at when a batch is taken, as by PyTorch without workers.
        self.live = True
        is_folder = isinstance(self.folder, DatasetFolder)
        if is_folder:
            self._look_at_folder(self.folder, swaps)
        elif isinstance(self.folder, Subset):
            kind = type(self.folder).__name__
            self._refuse(f"dataset: {kind} is a class made of Subset, whose own methods would not be called; torch's Subset is served")
        else:
            self._refuse(
                f"dataset: {type(self.folder).__name__} is no ImageFolder, torchvision's or stokehold.torch's, nor a Subset of one; a "
                "stokehold.Loader takes a list of (path, label)"
            )
        self._look_at_loader(loader, swaps)
        if swaps and is_folder:
            self._look_at_labels(loader)
        transform = self.folder.transform if is_folder else None
        self.pipeline: Any = None
        self.dtype = "float32"
        try:
            if transform is not None:
                self.pipeline, self.dtype = with_dtype(transform)
                for name in not_of_tensors(transform) if swaps else ():
                    self._refuse(f"transform: {name} of tensors, after ToImage or PILToTensor, has other pixels than of PIL images, which are made here; put it before")
                if swaps and self.pipeline.size is None and loader.batch_size == 1:
                    self._refuse("dataset: its transform leaves images their sizes, which may differ with batch_size=1; give it a size")
            elif is_folder:
                self._refuse("dataset: it has no transform, and images of different sizes make no batch; give it one")
        except (OptionError, TypeError) as error:
            self.reasons.extend(getattr(error, "reasons", [str(error)]))
        if self.reasons:
            raise OptionError(*self.reasons)
        self._transform: Any = transform
        self._said = state_of(transform)
        #: A source that is no folder; and whether the data set can make an image by itself.
        self.source = getattr(self.folder, "_source", None)
        self.can_fill = self.source is None and callable(transform)

    def _refuse(self, reason: str) -> None:
        self.reasons.append(reason)

    def _look_at_labels(self, loader: Any) -> None:
        if self.folder.target_transform is not None and loader.num_workers > 0:
            self._refuse(
                f"target_transform: {name_of(self.folder.target_transform)} would be called in this process, where what it keeps and counts "
                "is one for all workers; take num_workers=0, or change the labels in the loop"
            )

    def _look_for_own(self, thing: Any, of: type) -> None:
        names = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
        ours = (of, ImageFolder) if of is DatasetFolder else (of,)
        own = [name for name in names if all(getattr(type(thing), name, None) is not getattr(kind, name, None) for kind in ours)]
        # torch looks for this one in the object too.
        own += [name for name in ("__getitems__",) if name in vars(thing)]
        own += [name for name in replaced(type(thing)) if name in names]
        if own:
            kind = type(thing).__name__
            self._refuse(f"dataset: {kind} has its own {' and '.join(own)}, which would not be called; {of.__name__}'s is served")

    def _look_at_folder(self, folder: Any, swaps: bool) -> None:
        self._look_for_own(folder, DatasetFolder)
        if folder.loader is not default_loader:
            self._refuse(f"dataset: its loader {name_of(folder.loader)} would not be called; torchvision's default_loader is served")
        if any(is_foreign(vars(folder_module).get(name)) for name in ("default_loader", "pil_loader")):
            self._refuse("the script has replaced torchvision's default_loader or pil_loader, and the replacement would not be called")
        if torchvision.get_image_backend() != "PIL":
            self._refuse(f"torchvision's image backend is {torchvision.get_image_backend()}, and its pixels are not PIL's")
        own = [name for name in ("samples", "transform", "target_transform") if name not in vars(folder)]
        if own:
            are = "is a property, whose value" if len(own) == 1 else "are properties, whose values"
            self._refuse(f"dataset: its {' and '.join(own)} {are} may change; Stokehold serves plain attributes only")
            return
        if type(folder.samples) not in (list, tuple):
            self._refuse(f"dataset: its samples are a {type(folder.samples).__name__}, which may change; Stokehold serves a list or a tuple")
            return
        known, samples = self._known, folder.samples
        self.samples = known if known is not None and known.are(samples) else _Samples(samples)
        others = self.samples.others
        if swaps and getattr(folder, "_source", None) is None and len(others) * 20 > len(samples):
            self._refuse(
                f"dataset: {len(others)} of its {len(folder.samples)} files are neither JPEG, PNG nor WebP, such as {others[0]}; Pillow "
                "would read them in the training thread"
            )

    def _look_at_loader(self, loader: Any, swaps: bool) -> None:
        kind = type(loader)
        for name in ("_get_iterator", "_index_sampler", "_auto_collation"):
            known = [getattr(of, name, None) for of in (torch_data.DataLoader, DataLoader)]
            if not any(getattr(kind, name, None) is one for one in known) or name in vars(loader):
                self._refuse(f"{kind.__name__} has its own {name}, which would not be called")
        if isinstance(loader.dataset, torch_data.IterableDataset):
            return
        if swaps and torch.get_default_dtype() != torch.float32:
            self._refuse(f"torch's default type is {torch.get_default_dtype()}, which ToTensor makes; images are torch.float32 here")
        if any(map(is_foreign, (default_collate, *default_collate_fn_map.values()))):
            self._refuse("default_collate has functions of the script's own, which would not be called")
        if loader.batch_sampler is None:
            self._refuse("batch_size=None: images come in batches here; give a number")
        if loader.collate_fn is not default_collate and loader.batch_sampler is not None:
            self._refuse(
                f"collate_fn: {name_of(loader.collate_fn)} would not be called; batches are stacked as default_collate does. To change "
                "the images of a batch, give stokehold.torch.DataLoader a batch_transform"
            )
        if loader.worker_init_fn is not None and not (swaps and loader.num_workers == 0):
            self._refuse(
                f"worker_init_fn: {name_of(loader.worker_init_fn)} would not be called, because there are no worker processes; leave it "
                "out if it only seeds random numbers"
            )

    def freeze(self, workers: int) -> None:
        """Keeps the data set's numbers and labels as they are now, as PyTorch's workers do, which are forks."""
        indices = (subset.indices for subset in self.subsets)
        self._steps = [list(each) if isinstance(each, list) else copy.deepcopy(each) for each in indices]
        self._target_transforms = [copy.deepcopy(self.folder.target_transform) for _ in range(workers)]
        self.live = False
        if self.can_fill:
            self._transform = copy.deepcopy(self._transform)

    @property
    def _pairs(self) -> Any:
        return self.folder.samples if self.live else self.samples.kept

    def root_number(self, index: Any) -> int:
        """The folder's number of what the data set has at ``index``."""
        for indices in [subset.indices for subset in self.subsets] if self.live else self._steps:
            index = indices[index]
        # The list's own errors.
        self._pairs[index]
        number = operator.index(index)
        return number if number >= 0 else number + len(self._pairs)

    def label(self, root: int, worker: int) -> Any:
        label = self._pairs[root][1]
        transform = self.folder.target_transform if self.live else self._target_transforms[worker]
        return label if transform is None else transform(label)

    def item(self, root: int, worker: int) -> Any:
        """What a data set that is kept has at the folder's number ``root``."""
        return self._transform(default_loader(self._pairs[root][0])), self.label(root, worker)

    def is_as_it_was(self, numbers: list[int]) -> bool:
        """Whether the images that were made at these numbers are those that the data set has now."""
        transform = self.folder.transform
        if not self.live:
            return True
        if transform is not self._transform or state_of(transform) != self._said:
            return False
        paths, pairs = self.samples.paths, self._pairs
        return all(number < len(paths) and pairs[number][0] == paths[number] for number in numbers)


class _Served:
    """Makes the batches of a loader, iteration after iteration."""

    def __init__(self, loader: Any, threads: int | None = None, swaps: bool = False) -> None:
        # The loader may keep this, so this does not keep the loader.
        self._weak, self._threads, self.swaps = weakref.ref(loader), threads, swaps
        self._made_of: Any = None
        self._engine: Any = None
        self._samples: _Samples | None = None
        #: The state that the next iteration begins with.
        self.loaded: dict[str, Any] | None = None
        #: The iterator that began last, and its position, which outlives it.
        self._last: Any = None
        self._position: dict[str, Any] = {}
        self._told: set[str] = set()

    @property
    def _loader(self) -> Any:
        loader = self._weak()
        if loader is None:
            raise UsageError("the loader is gone: keep the DataLoader as long as it is iterated")
        return loader

    def _number_of_threads(self, loader: Any) -> int | None:
        own = max(1, int(loader.num_workers))
        if not self.swaps:
            return own
        ranks = torch.distributed.is_available() and torch.distributed.is_initialized()
        if self._threads is None and (ranks or isinstance(_sampler_of(loader), DistributedSampler)):
            # Ranks share the machine.
            return own
        return self._threads

    def _parts(self, loader: Any) -> _Parts:
        parts = _Parts(loader, self.swaps, self._samples)
        self._samples = parts.samples
        return parts

    def renew(self, parts: _Parts | None = None) -> Loader:
        """The engine; another one if it has to make something else than the last one."""
        loader = self._loader
        parts = self._parts(loader) if parts is None else parts
        source = parts.source
        options = {} if self.swaps else {name: getattr(loader, name) for name in PASSED}
        options["dtype"] = options.get("dtype") or parts.dtype
        bad_images = "pytorch" if self.swaps else loader.bad_images
        made_of = (
            parts.pipeline.json(),
            parts.samples,
            source,
            self._number_of_threads(loader),
            bad_images,
            tuple(options.values()),
            # Threads stay in their process.
            os.getpid(),
        )
        if made_of != self._made_of:
            fills = bad_images == "pytorch"
            if fills:
                bad_images = "skip" if parts.can_fill else "error"
            self._engine = Loader(
                open_source([(path, 0) for path in parts.samples.paths] if source is None else source, "train"),
                parts.pipeline,
                batch_size=getattr(loader, "batch_size", None) or 1,
                shuffle=False,
                num_workers=self._number_of_threads(loader),
                bad_images=bad_images,
                bad_image_limit=2**62 if fills else 100,
                **options,
            )
            self._made_of = made_of
        engine: Loader = self._engine
        return engine

    def iterate(self) -> _Iterator:
        """What ``iter(loader)`` gives: with persistent workers the same iterator again, as in PyTorch, which keeps it there too."""
        loader = self._loader
        if not _is_persistent(loader):
            return self.begin()
        kept, loader._iterator = loader._iterator, None
        if isinstance(kept, _Iterator) and self.loaded is None:
            with _Unchanged(_generators(loader)):
                kept._reset(loader)
            iterator = kept
        else:
            iterator = self.begin()
        loader._iterator = iterator
        return iterator

    def begin(self) -> _Iterator:
        """Starts an iteration; others may be running."""
        loader, state = self._loader, self.loaded
        parts = self._parts(loader)
        engine = self.renew(parts)
        if state is not None and state["data"] != parts.samples.digest:
            raise OptionError("state_dict: the data set has other images or labels than when the state was saved")
        with _Unchanged(_generators(loader)):
            iterator, more = None, False
            if state is not None and _epoch_of(loader) in (None, state["epoch"]):
                with _AsSaved(_generators(loader), state["generators"]) as saved:
                    iterator = _Iterator(self, loader, parts, engine)
                    if state["persistent"]:
                        saved.again()
                        _BaseDataLoaderIter._reset(iterator, loader)
                        iterator.seed = state["seed"]
                    more = iterator.skip(state)
            if iterator is not None and not more and _is_persistent(loader):
                # The next epoch of the same workers.
                iterator._reset(loader)
            else:
                iterator = iterator if iterator is not None and more else _Iterator(self, loader, parts, engine)
                iterator.launch()
        self.loaded = None
        return iterator

    def note(self, iterator: _Iterator, begins: bool = False) -> None:
        """Notes how far the iteration is that began last."""
        if begins:
            self._last = weakref.ref(iterator)
        if self._last is not None and self._last() is iterator:
            self._position = iterator.position

    def state(self) -> dict[str, Any]:
        if self.loaded is not None:
            return dict(self.loaded)
        position = self._position if self._last is not None else self._beginning()
        return {**position, "data": self._samples.digest if self._samples is not None else 0}

    def _beginning(self) -> dict[str, Any]:
        loader = self._loader
        return _state(loader, 0, [_saved(generator) for generator in _generators(loader)], 0, 0, False)

    def load(self, state: dict[str, Any]) -> None:
        loader = self._loader
        own = self._beginning()
        if not isinstance(state, dict) or set(state) != {*own, "data"} or state["version"] != own["version"]:
            raise OptionError("state_dict: give what state_dict() of a stokehold.torch.DataLoader returned")
        numbers = ["batch", "order", "seed", "data"] + ([] if own["epoch"] is None else ["epoch"])
        wrong = [name for name in numbers if type(state[name]) is not int or state[name] < 0]
        wrong += [] if isinstance(state["persistent"], bool) else ["persistent"]
        if wrong:
            raise OptionError("state_dict: " + ", ".join(f"{name}={state[name]!r}" for name in wrong) + ": it is no state of a DataLoader")
        generators = state["generators"]
        alike = isinstance(generators, list) and len(generators) == len(own["generators"])
        if not alike or (own["epoch"] is None) != (state["epoch"] is None):
            raise OptionError("state_dict: it is of a loader with another kind of sampler or generator")
        with _AsSaved([torch.Generator(generator.device) for generator in _generators(loader)], generators):
            pass
        if own["epoch"] is not None:
            _sampler_of(loader).set_epoch(state["epoch"])
        self.loaded = dict(state)

    def tell(self, text: str) -> None:
        """Says something once. A script that is served unchanged gets no warnings, which it may turn into errors."""
        if text in self._told:
            return
        self._told.add(text)
        if self.swaps:
            sys.stderr.write(f"stokehold: {plain(text)}\n")
        else:
            # From here: _of_engine, _next_data, torch's __next__, the loop.
            warnings.warn(plain(text), BadImageWarning, stacklevel=5)


class _Iterator(_BaseDataLoaderIter):
    """One pass over a loader; with persistent workers one after the other.

    PyTorch's class asks the sampler for its iterator, draws the number that random operations follow from, and counts.
    """

    def __init__(self, served: _Served, loader: Any, parts: _Parts, engine: Loader) -> None:
        self._served, self._parts, self._engine = served, parts, engine
        self._generators = [_saved(generator) for generator in _generators(loader)]
        with _of_the_script():
            super().__init__(loader)
            if loader.num_workers > 0:
                parts.freeze(loader.num_workers)
                # PyTorch asks twice where it has workers.
                self._sampler_iter = iter(self._index_sampler)
        self._lock = threading.RLock()
        self.seed = int(self._base_seed)
        self._was_reset = False
        self._ask_from_the_start(loader)
        self._with_samples = not served.swaps and loader.samples
        self._fills = parts.can_fill and (served.swaps or loader.bad_images == "pytorch")
        self._dtype = DTYPES[name_of_dtype((None if served.swaps else loader.dtype) or parts.dtype)]

    def _ask_from_the_start(self, loader: Any) -> None:
        #: Batches that the sampler has given and the loop has not taken: the data set's indices with the folder's numbers, or with
        #: what is wrong with them.
        self._asked: deque[tuple[Any, list[int] | Exception]] = deque()
        self._asked_images, self._is_over = 0, False
        #: The number of the next batch, and what tells the batches before it from others.
        self._next = self._first = self._order = 0
        self._ahead = _drawn_at_once(loader)
        self._least = (getattr(loader, "prefetch_factor", None) or 2) * loader.num_workers
        self._about = _state(loader, 0, self._generators, 0, self.seed, self._was_reset)
        #: Of each worker that PyTorch would have; batches come from them in turns.
        self._workers: list[Any] = [_WorkersRandom(self.seed, each) for each in range(loader.num_workers)] or [contextlib.nullcontext()]
        self._given: Any = None
        self._has_failed = False
        self._skipped: list[Any] = []

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if self._given is not None:
            self._given.stop()
        self._generators = [_saved(generator) for generator in _generators(loader)]
        with _of_the_script():
            super()._reset(loader, first_iter)
        self.seed, self._was_reset = (self.seed + STEP) % 2**63, True
        self._ask_from_the_start(loader)
        self.launch()

    def skip(self, state: dict[str, Any]) -> bool:
        """Leaves out the batches before a state; ``False`` if that is all of them."""
        self._was_reset = state["persistent"]
        self._about = {**self._about, "seed": self.seed, "persistent": self._was_reset}
        distributed = state["epoch"] is not None
        order = state["order"]
        same = not distributed or order == self._about["order"]
        while same and self._next < state["batch"] and self._ask():
            self._skipped.append(self._take()[1])
        if not same or self._next < state["batch"] or not distributed and order != self._order:
            raise OptionError(
                "state_dict: the sampler gives another order than when the state was saved; the data or the sampler is another one, "
                "or it draws from something else than torch's generators"
            )
        self._first = self._next
        # What it draws now, it draws from the generators as they were.
        more = self._ask()
        while self._next + len(self._asked) >= self._ahead and self._asked_images < DRAINED and self._ask():
            pass
        return more or self._next == 0

    def launch(self) -> None:
        """Begins, as far as PyTorch begins before the first batch is asked for."""
        self._given = self._engine._core.given(self.seed, self._first)
        for numbers in self._skipped + [numbers for _, numbers in self._asked]:
            self._give(numbers)
        self._skipped = []
        if self._is_over:
            self._given.end()
        self._served.note(self, begins=True)
        while len(self._asked) < self._least and self._ask():
            pass
        if self._least > 0:
            self._given.start()

    @property
    def position(self) -> dict[str, Any]:
        """The state after the batches that the loop has taken."""
        about = self._about
        return {**about, "batch": self._next, "order": self._order if about["epoch"] is None else about["order"]}

    def _ask(self) -> bool:
        """Asks the sampler for another batch; ``False`` at its end."""
        if self._is_over:
            return False
        try:
            with _of_the_script():
                batch = self._next_index()  # type: ignore[no-untyped-call]
        except StopIteration:
            self._is_over = True
            if self._given is not None:
                self._given.end()
            return False
        numbers: list[int] | Exception
        try:
            batch = list(batch)
            numbers = [self._parts.root_number(index) for index in batch]
        except Exception as error:
            # It is this batch's, and raised in its turn.
            numbers = error
        self._asked.append((batch, numbers))
        self._asked_images += len(numbers) if isinstance(numbers, list) else 0
        if self._given is not None:
            self._give(numbers)
        return True

    def _give(self, numbers: list[int] | Exception) -> None:
        known = len(self._parts.samples.paths)
        self._given.give([] if isinstance(numbers, Exception) else [number for number in numbers if number < known])

    def _ask_ahead(self) -> None:
        def enough() -> bool:
            asked = len(self._asked)
            may = self._next + asked < self._ahead and asked < AHEAD_BATCHES and self._asked_images < AHEAD_IMAGES
            return asked >= self._least and not may

        while not enough() and self._ask():
            pass

    def _take(self) -> tuple[Any, Any]:
        """The next batch that was asked for."""
        batch, numbers = self._asked.popleft()
        if isinstance(numbers, list):
            self._asked_images -= len(numbers)
            self._order = zlib.crc32(array("q", numbers).tobytes(), self._order)
        self._next += 1
        return batch, numbers

    def _next_data(self) -> list[Any]:  # type: ignore[override]
        with self._lock:
            while True:
                if not self._asked and not self._ask():
                    self._given.stop()
                    raise StopIteration
                if self._next + len(self._asked) < self._ahead:
                    self._ask_ahead()
                images, found = self._of_engine()
                # An error ends this batch, and not the iteration, as in PyTorch.
                batch, numbers = self._take()
                self._served.note(self)
                self._ask_ahead()
                if isinstance(numbers, Exception) and not self._parts.live:
                    raise numbers
                made = self._batch(batch, numbers, images, found)
                if made is not None:
                    return made

    def _of_engine(self) -> tuple[Any, list[int]]:
        """The images of the next batch that the engine could decode, and their numbers."""
        if self._has_failed:
            return None, []
        try:
            made = self._given.next(self._next)
        except (DataError, OptionError) as error:
            self._has_failed = True
            if self._fills:
                # What is one image's mistake there may be none for the data set, such as images of several sizes.
                self._served.tell(f"{error}; the data set makes the rest of this iteration with Pillow, in this thread")
                return None, []
            self._is_over = True
            self._asked.clear()
            raise
        for news in self._engine._core.news():
            self._served.tell(news)
        if made is None:
            return None, []
        memory, _, samples, bad = made
        for name, reason in bad:
            self._served.tell(f"{name}: {reason}{'; the data set reads it with Pillow' if self._fills else ''}")
        found = torch.utils.dlpack.from_dlpack(samples).tolist()
        return (self._engine._take_images(memory) if found else None), found

    def _batch(self, batch: Any, numbers: Any, images: Any, found: list[int]) -> list[Any] | None:
        """What the loop gets; ``None`` if all images are skipped."""
        parts = self._parts
        if parts.live and (parts.subsets or isinstance(numbers, Exception)):
            now = [parts.root_number(index) for index in batch]
            if now != numbers:
                numbers, images, found = now, None, []
        if not batch:
            # PyTorch's error.
            default_collate(batch)
        if not parts.is_as_it_was(found):
            images, found = None, []
        worker = (self._next - 1 - self._first) % len(self._workers)
        with self._workers[worker]:
            if self._fills and len(found) < len(numbers):
                images, labels = self._filled(batch, numbers, images, found, worker)
            elif images is None:
                return None
            else:
                numbers, labels = found, [parts.label(root, worker) for root in found]
        # Labels that are no numbers stay what they come in.
        together: Any = tuple(labels)
        images, targets = self._engine._transform(images), default_collate(together)
        if self._pin_memory:
            images = images.pin_memory() if images.device.type == "cpu" else images
            targets = targets.pin_memory() if isinstance(targets, torch.Tensor) else targets
        return [images, targets, torch.tensor(numbers)] if self._with_samples else [images, targets]

    def _filled(self, batch: Any, numbers: list[int], images: Any, found: list[int], worker: int) -> tuple[Any, list[Any]]:
        """The images and labels of a batch whose missing images the data set makes."""
        rows, labels, taken = [], [], 0
        for index, root in zip(batch, numbers):
            if taken < len(found) and found[taken] == root:
                row, label = images[taken], self._parts.label(root, worker)
                taken += 1
            else:
                row, label = self._dataset[index] if self._parts.live else self._parts.item(root, worker)
                if self._dtype == torch.uint8 and row.dtype != torch.uint8:
                    row = (row * 255).round()
                row = row.to(self._dtype)
                row = row if images is None else row.to(images.device)
            rows.append(row)
            labels.append(label)
        return torch.stack(rows), labels


class _WorkersRandom:
    """Gives the data set random states of its own (Python's, NumPy's, torch's), as a worker has, so that the loop's stay untouched."""

    def __init__(self, base_seed: int, worker: int) -> None:
        self._base_seed, self._worker = base_seed, worker
        self._own, self._loops = None, None

    @staticmethod
    def _get() -> Any:
        numpy = sys.modules.get("numpy.random")
        return torch.default_generator.get_state(), random.getstate(), numpy.get_state() if numpy is not None else None

    @staticmethod
    def _set(states: Any) -> None:
        torch.default_generator.set_state(states[0])
        random.setstate(states[1])
        if states[2] is not None:
            sys.modules["numpy.random"].set_state(states[2])

    def __enter__(self) -> None:
        self._loops = self._get()
        if self._own is not None:
            self._set(self._own)
            return
        seed = self._base_seed + self._worker
        random.seed(seed)
        torch.default_generator.manual_seed(seed)
        if "numpy.random" in sys.modules:
            numpys = getattr(torch.utils.data._utils.worker, "_generate_state", lambda base_seed, worker: seed % 2**32)
            sys.modules["numpy.random"].seed(numpys(self._base_seed, self._worker))

    def __exit__(self, *_: object) -> None:
        self._own = self._get()
        self._set(self._loops)


class _of_the_script:
    """Marks an exception as the script's own, which it would have without this loader too."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: Any, error: Any, __: Any) -> None:
        if error is not None and not isinstance(error, StopIteration):
            error._of_the_script = True


def _drawn_at_once(loader: Any) -> float:
    """How many batches can be asked for before the loop is there, because the sampler draws the order at once."""
    sampler = _sampler_of(loader)
    if type(loader.batch_sampler) is not BatchSampler or replaced(BatchSampler) or replaced(type(sampler)):
        return 0
    if type(sampler) is RandomSampler and sampler.generator is not None:
        count = len(sampler.data_source)
        if sampler.replacement or sampler.num_samples > count:
            return 0
        # At its end it draws once more.
        return math.inf if sampler.num_samples < count else count // max(1, loader.batch_sampler.batch_size)
    kinds = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler, range, tuple)
    return math.inf if type(sampler) in kinds else 0


def _is_persistent(loader: Any) -> bool:
    """Whether PyTorch would keep the workers after an epoch."""
    return bool(loader.persistent_workers and loader.num_workers > 0)


def _sampler_of(loader: Any) -> Any:
    """The sampler that is asked: the one of a ``BatchSampler`` that was given, too."""
    return loader.batch_sampler.sampler if type(loader.batch_sampler) is BatchSampler else loader.sampler


def _epoch_of(loader: Any) -> int | None:
    """The epoch that a ``DistributedSampler`` was told."""
    sampler = _sampler_of(loader)
    return sampler.epoch if isinstance(sampler, DistributedSampler) else None


def _generators(loader: Any) -> list[torch.Generator]:
    """The generators that an iteration draws from: the loader's, and its sampler's."""
    found: list[torch.Generator] = []
    for generator in (loader.generator, getattr(_sampler_of(loader), "generator", None)):
        generator = generator if isinstance(generator, torch.Generator) else torch.default_generator
        if not any(generator is known for known in found):
            found.append(generator)
    return found


def _saved(generator: torch.Generator) -> str:
    return base64.b64encode(generator.get_state().numpy().tobytes()).decode()


def _state(loader: Any, batch: int, generators: list[str], order: int, seed: int, persistent: bool) -> dict[str, Any]:
    """A position in an epoch.

    ``generators`` are as they were before the epoch, ``order`` tells the batches before ``batch`` from others, and ``seed`` is what
    random operations follow from. ``persistent``: the epoch did not draw the seed, because it has the workers of the one before. For
    a ``DistributedSampler`` the order is that of all ranks.
    """
    sampler, epoch = _sampler_of(loader), _epoch_of(loader)
    if epoch is not None:
        about = (len(sampler.dataset), sampler.num_replicas, sampler.shuffle, sampler.seed, sampler.drop_last, loader.batch_size)
        order = zlib.crc32(repr(about).encode())
    # What a state has besides, which is "data", is of the data set.
    return {
        "version": 2, "epoch": epoch, "batch": batch, "generators": generators, "order": order, "seed": seed, "persistent": persistent
    }  # fmt: skip


class _Unchanged:
    """Generators that an exception leaves as they were: who continues with PyTorch's loader draws what it would have drawn."""

    def __init__(self, generators: list[torch.Generator]) -> None:
        self._before = [(generator, generator.get_state()) for generator in generators]

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            for generator, state in self._before:
                generator.set_state(state)


class _AsSaved:
    """Generators as they were saved. Afterwards torch's own is what it was before; others stay after their draws."""

    def __init__(self, generators: list[torch.Generator], saved: list[str]) -> None:
        self._generators, self._saved = generators, saved

    def again(self) -> None:
        """Sets them to what was saved."""
        for generator, text in zip(self._generators, self._saved):
            generator.set_state(torch.frombuffer(bytearray(base64.b64decode(text, validate=True)), dtype=torch.uint8))

    def __enter__(self) -> _AsSaved:
        self._before = torch.default_generator.get_state()
        try:
            self.again()
        except (binascii.Error, TypeError, ValueError, RuntimeError) as error:
            torch.default_generator.set_state(self._before)
            raise OptionError(f"state_dict: generators: {error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        torch.default_generator.set_state(self._before)
