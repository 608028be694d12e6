"""The loader."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Callable, Literal, Union

from stokehold import _stokehold
from stokehold import _values as as_
from stokehold._tensors import has_torch, maker, name_of_dtype, stacked, taker
from stokehold.errors import BadImageWarning, OptionError, UsageError, plain
from stokehold.transforms import with_dtype

#: A folder or a URL, or pairs of a path and a label.
Data = Union[str, "os.PathLike[str]", Iterable[tuple[Union[str, "os.PathLike[str]"], int]]]


class Loader:
    """Images in batches, epoch by epoch; what replaces ``torch.utils.data.DataLoader``.

    Iterating runs one epoch and yields ``(images, labels)``:

    * ``images``: (N, 3, H, W), numbers of ``dtype``, in the range that the pipeline ends with;
    * ``labels``: (N,), int64; a folder's classes are numbered as by ``torchvision.datasets.ImageFolder``;
    * of images with masks ``masks`` instead of labels: (N, H, W), int64, the class of each pixel, 255 for none: what
      ``torch.nn.CrossEntropyLoss(ignore_index=255)`` takes, which wants int64. They go through the geometry of their images;
    * with ``samples=True`` also the samples' numbers, (N,), int64: what ``name`` and ``draw`` take.

    They are torch tensors where torch is installed, else NumPy arrays, and are not copied: the memory is yours as long as you
    hold on to it, and the loader's again when you let go. (NumPy before 2.1 marks such arrays as read-only.)

    Every sample is a function of ``seed``, epoch and its number, so neither ``num_workers`` nor a resume changes what it looks
    like. Workers are threads, started by ``iter`` and ended with the iteration; a loader holds at most ``prefetch``
    batches beside those that you hold.

    Args:
        data: a data set's folder (``data/train/<class>/..`` and ``data/val/..``, or class folders), images and masks
            (docs/guide/segmentation.md), class folders in a bucket
            (``s3://bucket/prefix``, ``gs://``, ``az://``, ``http://``), what ``stokehold prepare`` made of it, or an iterable of
            (path, label), labels from 0 to 4294967295. An iterable is gone through once.
        pipeline: a ``stokehold.transforms.Compose``, a torchvision Compose that ``from_torchvision`` can convert, the name
            of a preset, or a file of TOML or JSON.
        batch_size: images in a batch, at least 1.
        shuffle: an order of its own for every epoch, drawn from ``seed`` and the epoch.
        seed: of the order and of every random operation, 0 to 2**64 - 1.
        num_workers: threads, 1 to 1024; ``None`` stands for one for each core that this process may use,
            and more, up to 128, where reads wait for storage.
        drop_last: leave a last batch out that is not full, and what does not divide evenly among ranks.
        rank, world_size: this process among those that share every epoch, as ``DistributedSampler`` deals it out: all
            get equally many batches.
        split_batches: ``batch_size`` is that of all ranks together, and every rank gets its part of the same batches. So a state
            also holds for another ``world_size``. Of a last batch with fewer samples than ranks, some get an empty part.
        dtype: ``"float32"``, ``"float16"``, ``"bfloat16"``, or ``"uint8"`` (0 to 255, for pipelines that end with ``ToTensor``);
            also torch's and NumPy's own names of these. By default float32, and uint8 where torchvision's transforms end in bytes.
        device: ``"cpu"``, or ``"cuda:N"``: batches are copied there through pinned memory, in the current stream. With
            ``executor="gpu"`` the device that makes them: ``"cuda:N"`` or ``"vulkan:N"``.
        split: ``"train"`` or ``"val"``, of a data set that has both.
        prefetch: batches in work or ready, at least 1; 0 stands for as few as keep all workers busy.
        bad_images: what becomes of an image that cannot be decoded: ``"skip"`` (its batch is smaller), ``"substitute"``
            (another one of its class) or ``"error"``. The first two warn, once for each, and give up after ``bad_image_limit``.
        bad_image_limit: bad images that ``"skip"`` and ``"substitute"`` take before they give up, at least 0.
        executor: ``"fused"``, or ``"per-op"``: every operation by itself as torchvision does it, several times slower; or
            ``"gpu"``: threads decode as far as a crop needs, and kernels on ``device`` make the images, the numbers of
            ``"fused"`` to the bit. On a CUDA device they stay there, without a copy; work with them in the stream that was
            current when they were taken, or have that stream wait; a stream must live as long as the tensors that came in
            it. Images of a Vulkan device are copied to the CPU's memory, because PyTorch cannot read its own. Needs a wheel that was built with ``cuda`` or ``vulkan``.
        gpu_decode: with ``executor="gpu"``, where the symbols of JPEGs and packed images are decoded: ``"hybrid"``
            (in threads) or ``"device"``.
        gpu_memory_budget: with ``executor="gpu"``, device memory for the two batches that are made at a time, bytes; ``None``
            stands for an eighth of a CUDA device's, on Vulkan for half of its largest buffer, and at least 1 GiB.
        exif: turn images upright as their EXIF orientation says; torchvision does not.
        samples: yield the samples' numbers too.
        sample_transform: called with every image, (3, H, W), behind the pipeline; what it returns takes the image's place, the
            same shape for all. For what no operation does: it is Python in the training thread, one image after the other,
            and holds everything up (``transform_seconds``). Random numbers that it draws are its own.
        batch_transform: the same with all images of a batch at once, (N, 3, H, W), which is faster.
        weights: draw every epoch's samples with these weights, a number of 0 or more for each sample, as
            ``torch.utils.data.WeightedRandomSampler``, from ``seed`` and the epoch. Needs ``shuffle=True``.
        class_balanced: the same with weights by which all classes are equally likely.
        replacement: with ``weights`` or ``class_balanced``: whether an epoch can have a sample again.
        subset: the numbers of the samples that an epoch has, each as often as it is there, as
            ``torch.utils.data.SubsetRandomSampler``.
        repeats: repeated augmentation, at least 1: a sample comes so often in a row, augmented anew each time, and an
            epoch keeps its length.
        epoch_samples: samples of an epoch, over all ranks; ``None`` stands for as many as there are, without
            ``replacement`` for as many as have a weight above 0.
        remote: addresses of servers (``stokehold serve``) that make the batches in place of this process, such as
            ``["tcp://a:7000", "tcp://b:7000"]``. Batches, order and resume stay the same, and a server that dies costs none.
            ``data`` is the folder that they serve. A number of ``num_workers`` lets threads of this process make some, too.
            The variable ``STOKEHOLD_TOKEN`` has the servers' token.
        cache: ``"DIR"`` or ``"DIR:SIZE"``, such as ``"/fast/disk:200GB"``: the first epoch reads JPEGs as they are and packs them
            into DIR, in spare moments; the next ones read what is packed, in less time. A loop that always waits for its loader has
            few such moments: give ``cache_share``, or fill the folder first. Pixels are the same. Without a size it takes up to
            four fifths of the free disk. If it takes no images though it lacks some, a ``RuntimeWarning`` says why, at an epoch's
            end. ``None`` stands for what the variable ``STOKEHOLD_IMAGE_CACHE`` says, which jobs with a channel of mode Cache
            set, ``False`` for no cache at all.
        cache_share: the share of the process's CPU time that packing may take when no core is idle, 0 to 1; ``None`` for what
            `STOKEHOLD_IMAGE_CACHE_SHARE` says, or 0.02.

    Raises:
        OptionError: an argument is out of range, or the pipeline does not make batches (a ``ValueError``).
        DataError: the data cannot be found or listed; while iterating, an image is bad (an ``OSError``).
        UsageError: used after ``close``, iterated on after another iteration began, or used in a fork (a ``RuntimeError``).
    """

    def __init__(
        self,
        data: Data | _stokehold.Source,
        pipeline: Any,
        *,
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int = 0,
        num_workers: int | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        split_batches: bool = False,
        dtype: Any = None,
        device: Any = "cpu",
        split: str = "train",
        prefetch: int = 0,
        bad_images: str = "skip",
        bad_image_limit: int = 100,
        executor: str = "fused",
        gpu_decode: str = "hybrid",
        gpu_memory_budget: int | None = None,
        exif: bool = False,
        samples: bool = False,
        sample_transform: Callable[[Any], Any] | None = None,
        batch_transform: Callable[[Any], Any] | None = None,
        weights: Iterable[float] | None = None,
        class_balanced: bool = False,
        replacement: bool = True,
        subset: Iterable[int] | None = None,
        repeats: int = 1,
        epoch_samples: int | None = None,
        remote: Iterable[str] = (),
        cache: str | os.PathLike[str] | Literal[False] | None = None,
        cache_share: float | None = None,
    ) -> None:
        as_.whole_numbers(batch_size=batch_size, seed=seed, rank=rank, world_size=world_size, prefetch=prefetch,
                          bad_image_limit=bad_image_limit)
        as_.whole_numbers(num_workers=1 if num_workers is None else num_workers)
        as_.whole_numbers(gpu_memory_budget=1 if gpu_memory_budget is None else gpu_memory_budget)
        as_.whole_numbers(repeats=repeats, epoch_samples=1 if epoch_samples is None else epoch_samples)
        as_.flags(shuffle=shuffle, drop_last=drop_last, exif=exif, samples=samples, replacement=replacement,
                 split_batches=split_batches, class_balanced=class_balanced)
        self._pipeline, natural = with_dtype(pipeline)
        numbers = name_of_dtype(natural if dtype is None else dtype)
        if natural == "uint8" and numbers != "u8":
            raise OptionError(f"dtype={dtype!r}: the transforms end in bytes; end them with ToTensor, or ToDtype(torch.float32, scale=True)")
        made_on = maker(executor, device)
        if sample_transform is not None and made_on is not None and made_on.startswith("cuda") and not has_torch():
            raise OptionError(
                "sample_transform: without torch a CUDA device's images come as one tensor of DLPack; install torch, or take the "
                "tensor over in batch_transform"
            )
        if made_on is None:
            # What cannot be taken over is said before anything is read.
            self._take_images, self._take_numbers = taker(numbers, device, None)
        self._source = open_source(data, split)
        self._samples = samples
        self._sample_transform = sample_transform
        self._batch_transform = batch_transform
        self._transform_seconds = 0.0
        self._seed = seed
        self._world_size = world_size
        self._warned_of_ranks = False
        self._core = _stokehold.Loader(
            self._source,
            self._pipeline,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            num_workers=num_workers,
            prefetch=prefetch,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            split_batches=split_batches,
            dtype=numbers,
            bad_images=bad_images,
            bad_image_limit=bad_image_limit,
            executor=executor,
            device=made_on,
            gpu_decode=gpu_decode,
            gpu_memory_budget=gpu_memory_budget,
            exif=exif,
            weights=None if weights is None else [as_.real("weights", weight) for weight in weights],
            class_balanced=class_balanced,
            replacement=replacement,
            subset=None if subset is None else [as_.index("subset", sample) for sample in subset],
            repeats=repeats,
            epoch_samples=epoch_samples,
            remote=[remote] if isinstance(remote, str) else list(remote),
            cache=None if cache is None or cache is False else as_.place("cache", cache),
            no_cache=cache is False,
            cache_share=None if cache_share is None else as_.real("cache_share", cache_share),
        )
        if made_on is not None:
            # The device's own error comes first: it says what to install.
            self._take_images, self._take_numbers = taker(numbers, device, made_on)

    def __len__(self) -> int:
        """Batches of an epoch, the same on every rank. Images that are skipped can make it fewer."""
        return len(self._core)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Starts an epoch: the one that ``set_epoch`` said, the rest of the one that ``load_state_dict`` said, else the next.

        It ends the iteration that is running, whose next batch is a ``UsageError``: a loader has one at a time.
        """
        self._warn_of_ranks()
        return Batches(self, self._core.begin())

    def _warn_of_ranks(self) -> None:
        """A process group of several ranks of which each would load everything."""
        torch = sys.modules.get("torch")
        ranks = getattr(torch, "distributed", None)
        if self._world_size > 1 or self._warned_of_ranks or ranks is None or not ranks.is_available() or not ranks.is_initialized():
            return
        if ranks.get_world_size() > 1:
            self._warned_of_ranks = True
            warnings.warn(
                f"torch.distributed has {ranks.get_world_size()} ranks, and each loads all images of this loader; to deal them out, "
                "give it rank= and world_size=",
                RuntimeWarning,
                stacklevel=3,
            )

    @property
    def epoch(self) -> int:
        """The epoch that is running, or the one that the next iteration begins; counted from 0."""
        return self._core.epoch

    @property
    def num_workers(self) -> int:
        """Worker threads of an epoch."""
        return self._core.num_workers

    @property
    def num_samples(self) -> int:
        """Images in the data."""
        return len(self._source)

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes (of images, or of pixels), a class's label being its place; ``None`` for a list of
        (path, label)."""
        return self._source.classes

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images, pixels."""
        _, height, width = self._core.shape
        return height, width

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration begin this epoch, as ``DistributedSampler.set_epoch``.

        Without it epochs count up by themselves. After ``load_state_dict`` into the midst of the same epoch it changes nothing.
        """
        self._core.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands: after the last batch that was yielded. Plain numbers, the same on every rank.

        Within the loop, after an epoch's last batch, it is the end of this epoch, of which nothing is left; after the loop it is
        the beginning of the next one.
        """
        state: dict[str, Any] = json.loads(self._core.state())
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Has the next iteration continue where ``state_dict()`` was taken: exactly the batches that were left, at once.

        A state taken inside the loop after the last batch gives one empty iteration; the next epoch follows.

        Raises:
            OptionError: the state is of other data, or of options that make other batches.
            UsageError: an iteration is running.
        """
        try:
            text = json.dumps(state_dict)
        except (TypeError, ValueError) as error:
            raise OptionError(f"state_dict: {error}; give what state_dict() of a loader returned") from None
        self._core.load_state(text)

    @property
    def labels(self) -> Any:
        """The labels of all samples by their numbers, (num_samples,), int64; of images with masks all are 0."""
        return self._take_numbers(self._source.labels())

    def name(self, sample: int) -> str:
        """The path of a sample, by its number."""
        return self._source.name(sample)

    def draw(self, epoch: int, sample: int, width: int, height: int) -> list[dict[str, Any]]:
        """What is done to a sample in an epoch, with every number that was drawn, if its image has this width and height."""
        steps: list[dict[str, Any]] = json.loads(self._pipeline.draw(self._seed, epoch, sample, width, height))
        return steps

    @property
    def transform_seconds(self) -> float:
        """Seconds that ``sample_transform`` and ``batch_transform`` have taken so far, all of them time of the training thread."""
        return self._transform_seconds

    def _transform(self, images: Any) -> Any:
        if self._sample_transform is None and self._batch_transform is None:
            return images
        begin = time.perf_counter()
        if self._sample_transform is not None:
            images = stacked([self._sample_transform(image) for image in images])
        if self._batch_transform is not None:
            images = self._batch_transform(images)
        self._transform_seconds += time.perf_counter() - begin
        return images

    def bad_images(self) -> list[tuple[int, str, str]]:
        """The images found so far that cannot be decoded: (sample, path, reason)."""
        return self._core.bad_images()

    @property
    def made(self) -> dict[str, int]:
        """The batches that each server of ``remote`` has made so far; ``"here"`` are those of this process."""
        return dict(self._core.made())

    @property
    def cache(self) -> dict[str, Any] | None:
        """What the cache has done: ``hits`` and ``misses`` (reads), ``added`` (images) and more; ``None`` without one."""
        facts = self._core.cache()
        return None if facts is None else json.loads(facts)

    def stop(self) -> None:
        """Ends the iteration that is running, if there is one. Leaving a ``for`` loop does the same.

        The next one begins the next epoch, unless no batch was taken of this one.
        """
        self._core.stop()

    def close(self) -> None:
        """Ends the iteration and gives its threads back. Using the loader after that is an error. A cache continues to pack what it
        was given until the loader is deleted."""
        self._core.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise UsageError("a loader has threads and cannot be pickled; make it in the process that uses it")

    def __repr__(self) -> str:
        return f"<stokehold.Loader: {self.num_samples} images, {len(self)} batches, {self.num_workers} workers>"


class Batches(Iterator[tuple[Any, ...]]):
    """One epoch's batches; made by ``iter(loader)``."""

    def __init__(self, loader: Loader, iteration: _stokehold.Iteration) -> None:
        self._loader = loader
        self._iteration = iteration

    def __next__(self) -> tuple[Any, ...]:
        parts = None
        try:
            parts = self._iteration.next()
        finally:
            # At the end and before an error there may be bad images that no batch came after.
            for name, reason in self._iteration.unreported() if parts is None else parts[3]:
                warnings.warn(plain(f"{name}: {reason}"), BadImageWarning, stacklevel=2)
            for news in self._loader._core.news() if parts is None else ():
                warnings.warn(news, RuntimeWarning, stacklevel=2)
        if parts is None:
            raise StopIteration
        memory, labels, samples, _ = parts
        loader = self._loader
        images = loader._transform(loader._take_images(memory))
        if loader._samples:
            return images, loader._take_numbers(labels), loader._take_numbers(samples)
        return images, loader._take_numbers(labels)


def open_source(data: Data | _stokehold.Source, split: str) -> _stokehold.Source:
    """The images of a folder, a bucket, shards or a list."""
    if isinstance(data, _stokehold.Source):
        return data
    if isinstance(data, (str, os.PathLike)):
        source = _stokehold.Source.open(data, split)
        for remark in source.remarks:
            warnings.warn(remark, UserWarning, stacklevel=3)
        return source
    if not isinstance(data, Iterable):
        raise OptionError(
            f"data={data!r}: must be a folder, a URL such as s3://bucket/prefix, or pairs of a path and a label"
        )
    return _stokehold.Source.listed(data)
