"""What stands in the place of a library's functions in this process.

`stokehold.pillow` and `stokehold.decoders` are one :class:`Service` each. It replaces functions and gives them back, compares images
with the library's, and counts what was made and what was left to the library.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import signal
import sys
import threading
import time
import warnings
from types import ModuleType
from typing import Any, Callable, Optional

from stokehold import _originals

_HERE = os.path.dirname(os.path.abspath(__file__))
_NOT_THE_SCRIPTS = ("<", _HERE, os.path.dirname(os.__file__) + os.sep)
#: Different reasons that are kept.
_REASONS_MOST = 100
#: Larger images, also between two passes of a resize, are the library's, which raises what it has to.
PIXELS_MOST = 1 << 26
#: What turns an image of each EXIF orientation upright: a method of Pillow's `Image.transpose`.
UPRIGHT = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


def test_pattern(wide: int = 67, high: int = 45) -> bytes:
    """Three bytes for each pixel: an image on which decoders and resizes of another kind show."""
    levels = [x * 3 + y * 5 + x * y // 7 for y in range(high) for x in range(wide)]
    return bytes([(level + shift) & 255 for level in levels for shift in (0, 90, 180)])


class Service:
    """One of them, and what it counts."""

    def __init__(self, kind: str, variable: str) -> None:
        """A process leaves its counts in a file that begins with `kind`. `variable` is the environment's that turns this off."""
        self.kind, self.variable = kind, variable
        #: Every so many images one is compared with the library's; 0 for none.
        self.every = 0
        #: Functions and methods that were replaced: the owner, its attribute, what was there, or None, and what is.
        self.replaced: list[tuple[Any, str, Any, Any]] = []
        #: The folder for the counts of the processes, and when they are written again.
        self.folder: Optional[str] = None
        self.next_write = 0.0
        self._writing = threading.Lock()
        self._watches_forks = self._writes_at_end = False
        #: Whether an image differed from the library's: it makes all images of this process from then on.
        self.has_differed = False
        self.clear()

    def clear(self) -> None:
        self.asked = self.cached = self.made = self.compared = self.different = self.left = 0
        #: Seconds of this thread's CPU time for the images that were compared, here and by the library.
        self.own_seconds = self.library_seconds = 0.0
        #: How often the library did what it was asked for itself, by reason.
        self.reasons: dict[str, int] = {}

    def counts(self) -> dict[str, Any]:
        names = ("asked", "cached", "made", "compared", "different", "own_seconds", "library_seconds", "left")
        return {**{name: getattr(self, name) for name in names}, "reasons": dict(self.reasons)}

    # Beginning and end.

    def begin(self, every: Optional[int], folder: Optional[str]) -> bool:
        """Takes the settings of an `install`, which the script has called. False where the environment turns this off, and where
        an image has differed."""
        setting = os.environ.get(self.variable, "")
        if setting == "off" or self.has_differed:
            return False
        if every is None:
            known = re.fullmatch(r"check(?::0*([1-9]\d*))?", setting)
            every = int(known[1] or 100) if known else 0
            if not known and setting not in ("", "on", "1"):
                warnings.warn(f"{self.variable}={setting!r}: there are off, on, check and check:N", RuntimeWarning, stacklevel=3)
        self.every = every
        if folder is not None:
            if self.folder is None:
                atexit.register(self.write)
            self.folder = folder
        self._write_at_end()
        return True

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Puts a function in the place of another one, which it names, and which can still be pickled."""
        old = owner.__dict__.get(name)
        if old is not None and not hasattr(new, "_stokehold_instead_of"):
            if not hasattr(old, "__get__"):
                new = _BuiltIn(new)
            functools.update_wrapper(new, old)
            new._stokehold_instead_of = old
            if isinstance(owner, ModuleType):
                if old.__module__ != owner.__name__:
                    # A built-in one, or one that stays where it was made: pickle finds that there.
                    new.__module__, new.__qualname__ = owner.__name__, name
                if old.__module__ in (None, owner.__name__):
                    _originals.move(old, owner.__name__)
        self.replaced.append((owner, name, old, new))
        setattr(owner, name, new)

    def uninstall(self) -> None:
        """Gives everything that was replaced back to its library."""
        while self.replaced:
            owner, name, old, new = self.replaced.pop()
            _originals.move_back(old)
            if owner.__dict__.get(name) is not new:
                # The script has put its own there.
                continue
            if old is None:
                delattr(owner, name)
            else:
                setattr(owner, name, old)

    def watch_forks(self, **more: Callable[[], Any]) -> None:
        """Has a forked process begin with counts of its own; `before` is called in its parent."""
        if not self._watches_forks and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.begin_process, **more)
        self._watches_forks = True

    def begin_process(self) -> None:
        self._writing = threading.Lock()
        self.clear()
        self._write_at_end()

    # Images.

    def leave(self, reason: str) -> None:
        """Counts an image that is left to the library; in a recording with the script's line."""
        self.left += 1
        # Every damaged file has a place of its own.
        reason = re.sub(r" \(at byte \d+\)", "", reason)
        if self.folder is not None:
            reason += _line()
        if reason in self.reasons or len(self.reasons) < _REASONS_MOST:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def is_due(self) -> bool:
        """Whether the next image is compared with the library's. The first ones of a process are slow and tell nothing of its
        speed."""
        return bool(self.every) and self.made % self.every == min(8, self.every // 2)

    def compare(self, made: Any, own_seconds: float, by_library: Callable[[], Any], same: Callable[[Any, Any], bool], what: str) -> Any:
        """The image, compared with the library's; where that differs, the library's, and the process goes back to the library."""
        # The library's code has not run for a while: only the second time tells what it usually takes.
        by_library()
        began = time.thread_time()
        expected = by_library()
        self.library_seconds += time.thread_time() - began
        self.own_seconds += own_seconds
        self.compared += 1
        if same(made, expected):
            return made
        self.different += 1
        self.has_differed = True
        self.uninstall()
        warnings.warn(f"{what}. Please report this with the file and the versions of the library and stokehold", RuntimeWarning, stacklevel=4)
        return expected

    # The file of a process.

    def write_now_and_then(self) -> None:
        """A worker may be ended without a word."""
        if self.folder is not None and time.monotonic() >= self.next_write:
            self.next_write = time.monotonic() + 0.1
            self.write(0)

    def write(self, patience: float = 1) -> None:
        """Leaves the counts of this process in the folder, as `KIND-PID.json`; not if another thread, or this one before a signal,
        still writes them after these seconds."""
        folder = self.folder
        if folder is None or not self.asked and not self.left or not self._writing.acquire(timeout=patience):
            return
        # Few processes write any, and importing this takes longer than the rest of the module.
        import json

        path = os.path.join(folder, f"{self.kind}-{os.getpid()}.json")
        try:
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                file.write(json.dumps(self.counts()))
            os.replace(f"{path}.new", path)
        except OSError:
            if not os.path.isdir(folder):
                self.folder = None
        finally:
            self._writing.release()

    def _write_at_end(self) -> None:
        """Has a worker of multiprocessing leave its counts: it runs no functions of atexit."""
        util: Any = sys.modules.get("multiprocessing.util")
        if self.folder is not None and util is not None and not self._writes_at_end:
            self._writes_at_end = True
            util.Finalize(None, self.write, exitpriority=100)
            # A worker that is being forked forgets it first.
            util.register_after_fork(self, lambda _: util.Finalize(None, self.write, exitpriority=100))


def is_of_a_handler(error: BaseException) -> bool:
    """Whether a handler of signals that the program has set has raised this, wherever the program was."""
    codes, place = set(), error.__traceback__
    while place is not None:
        codes.add(place.tb_frame.f_code)
        place = place.tb_next
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        handler = getattr(handler, "func", handler)
        handler = getattr(handler, "__func__", handler)
        if getattr(handler, "__code__", None) in codes or getattr(getattr(type(handler), "__call__", None), "__code__", None) in codes:
            return True
    return False


def let_through(error: BaseException) -> bool:
    """Raises an exception of a handler of signals again, which belongs to the program. False for every other one."""
    if is_of_a_handler(error):
        raise error
    return False


class _BuiltIn:
    """Replaces a built-in function: not a descriptor, as built-ins are not, so a class attribute does not bind."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> str:
        # Pickle and copy find it by its name.
        return str(self.__dict__["__qualname__"])


def _line() -> str:
    """The line of the script that asked: the nearest one outside of installed packages and Python's own. In a worker there may be none."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_NOT_THE_SCRIPTS) and f"{os.sep}site-packages{os.sep}" not in name and "_stokehold_hook" not in name:
            return f" (at {name}:{frame.f_lineno})"
        frame = frame.f_back
    return ""


def memory_of(tensor: Any) -> tuple[int, int]:
    """Where a tensor's numbers lie, and how many bytes they take."""
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()
