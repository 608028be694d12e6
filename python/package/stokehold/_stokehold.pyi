"""The compiled part of stokehold; see python/src."""

import os
from collections.abc import Iterable
from typing import Any

__version__: str

class Memory:
    shape: list[int]
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Source:
    classes: list[str] | None
    @staticmethod
    def open(path: str | os.PathLike[str], split: str) -> Source: ...
    @staticmethod
    def listed(pairs: Iterable[tuple[str | os.PathLike[str], int]]) -> Source: ...
    def __len__(self) -> int: ...
    def name(self, sample: int) -> str: ...
    def labels(self) -> Memory: ...

class Pipeline:
    size: tuple[int, int]
    def __new__(cls, json: str) -> Pipeline: ...
    @staticmethod
    def named(name: str | os.PathLike[str]) -> Pipeline: ...
    def json(self) -> str: ...
    def draw(self, seed: int, epoch: int, sample: int, width: int, height: int) -> str: ...

class Loader:
    num_workers: int
    epoch: int
    def __new__(
        cls,
        source: Source,
        pipeline: Pipeline,
        *,
        batch_size: int,
        shuffle: bool,
        seed: int,
        num_workers: int | None,
        prefetch: int,
        drop_last: bool,
        rank: int,
        world_size: int,
        dtype: str,
        bad_images: str,
        executor: str,
        exif: bool,
    ) -> Loader: ...
    def __len__(self) -> int: ...
    def bad_images(self) -> list[tuple[int, str, str]]: ...
    def begin(self) -> Iteration: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state(self) -> str: ...
    def load_state(self, json: str) -> None: ...

class Iteration:
    def next(self) -> tuple[Memory, Memory, Memory, list[tuple[str, str]]] | None: ...
