"""What `stokehold.pillow` and `stokehold.decoders` count alike: reasons, images that are compared, and the file of a process."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Any, Callable

_HERE = os.path.dirname(os.path.abspath(__file__))
_NOT_THE_SCRIPTS = ("<", _HERE, os.path.dirname(os.__file__) + os.sep)
#: Different reasons that are kept.
_MOST = 100


def count(reasons: dict[str, int], reason: str, with_line: bool) -> None:
    """Counts a reason, with the script's line where that is wanted."""
    # Every damaged file has a place of its own.
    reason = re.sub(r" \(at byte \d+\)", "", reason)
    if with_line:
        reason += _line()
    if reason in reasons or len(reasons) < _MOST:
        reasons[reason] = reasons.get(reason, 0) + 1


def _line() -> str:
    """The line of the script that asked: the nearest one outside of installed packages and Python's own. In a worker there may be none."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_NOT_THE_SCRIPTS) and f"{os.sep}site-packages{os.sep}" not in name and "_stokehold_hook" not in name:
            return f" (at {name}:{frame.f_lineno})"
        frame = frame.f_back
    return ""


def due(state: Any) -> bool:
    """Whether the next image is compared with the library's. The first ones of a process are slow and tell nothing of its speed."""
    return bool(state.every) and state.made % state.every == min(8, state.every // 2)


def every(variable: str, setting: str) -> int:
    """Every so many images one is compared, by an environment variable; 0 for none. To be called by what the program calls."""
    kind, _, number = setting.partition(":")
    if kind != "check":
        if setting not in ("", "on", "1"):
            warnings.warn(f"{variable}={setting!r}: there are off, on, check and check:N", RuntimeWarning, stacklevel=3)
        return 0
    return int(number) if number.isdigit() and int(number) > 0 else 100


def write_at_end(state: Any, write: Callable[[], None]) -> None:
    """Has a worker of multiprocessing leave its counts: it runs no functions of atexit."""
    util: Any = sys.modules.get("multiprocessing.util")
    if state.folder is not None and util is not None:
        util.Finalize(None, write, exitpriority=100)
        # A worker that is being forked forgets it first.
        util.register_after_fork(state, lambda _: util.Finalize(None, write, exitpriority=100))


def write(state: Any, kind: str, counts: dict[str, Any]) -> None:
    """Leaves the counts of this process in the state's folder, as `KIND-PID.json`."""
    # Few processes write any, and importing this takes longer than the rest of the module.
    import json

    path = os.path.join(state.folder, f"{kind}-{os.getpid()}.json")
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(json.dumps(counts))
        os.replace(f"{path}.new", path)
    except OSError:
        state.folder = None
