"""The image cache that `stokehold.pillow` reads if `STOKEHOLD_IMAGE_CACHE` names one. It holds files that this process, an earlier
worker or a `stokehold.Loader` has packed, and that are decoded faster than JPEGs."""

from __future__ import annotations

import io
import mmap
import os
import warnings
import zlib
from typing import Any, Optional

from stokehold._stokehold import ImageCache, Jpeg, key_of_file
from stokehold.errors import StokeholdError

_SECOND = 10**9


class _State:
    """What is open in this process, from the first file on: a fork has a cache of its own."""

    opened = False
    cache: Optional[ImageCache] = None


_state = _State()
#: Caches of parent processes, which a forked child must not close.
_before: list[ImageCache] = []
#: The hashes of warnings that were given. Forked workers share it, so each warning is given once.
_said = mmap.mmap(-1, mmap.PAGESIZE)


def _open() -> Optional[ImageCache]:
    _state.opened = True
    try:
        _state.cache = ImageCache.open()
    except StokeholdError as error:
        _warn(f"{error}; images are read without a cache")
    return _state.cache


def _warn(text: str) -> None:
    slot = zlib.crc32(text.encode()) % len(_said)
    if not _said[slot]:
        _said[slot] = 1
        warnings.warn(f"stokehold.pillow: {text}", RuntimeWarning, stacklevel=3)


def begin_process() -> None:
    """Forgets the cache of the parent process. Called in a forked child."""
    if _state.cache is not None:
        _before.append(_state.cache)
    _state.opened, _state.cache = False, None


def key_of(file: Any) -> Optional[int]:
    """The key of an open file in the cache. None if it is no file of this machine, if it was changed just now, or if there is no
    cache."""
    if type(file) is not io.BufferedReader or type(file.raw) is not io.FileIO or type(file.name) is not str:
        return None
    if (_state.cache if _state.opened else _open()) is None:
        return None
    facts = os.fstat(file.fileno())
    times = *divmod(facts.st_mtime_ns, _SECOND), *divmod(facts.st_ctime_ns, _SECOND)
    return key_of_file(file.name, facts.st_ino, facts.st_size, times)


def unchanged(key: Optional[int], file: Any) -> Optional[int]:
    """The key of an open file, if it is what it was."""
    return key if key is not None and key_of(file) == key else None


def read(key: Optional[int], scale: int, grey: bool) -> Optional[Jpeg]:
    """The image of a file, decoded at a scale and maybe to grey, if it is there."""
    return None if _state.cache is None or key is None else _state.cache.read(key, scale, grey)


def offer(key: Optional[int], file: Any, source: Jpeg) -> None:
    """Has a file packed that had this key before it was read."""
    key = unchanged(key, file)
    if _state.cache is None or key is None:
        return
    _state.cache.offer(key, source.data)
    for sentence in _state.cache.news():
        _warn(sentence)
