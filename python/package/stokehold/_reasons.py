"""Why a library made an image itself, counted by the reason and by the line of the script that asked."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

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
