"""The command line that came with this package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from stokehold.errors import UsageError


def program() -> str:
    """The path of the program ``stokehold`` that was installed with this package.

    Raises:
        UsageError: the package was made without it.
    """
    for path in _places():
        if os.access(path, os.X_OK):
            return str(path)
    raise UsageError(
        "there is no command line in this installation of stokehold, as it was compiled by pip from its sources; install a "
        "wheel that has it: python/build of a clone of the repository makes one"
    )


def _places() -> Iterator[Path]:
    """Where an installer has put it, as it has noted; pip's --target moves it without a note."""
    # It takes longer to import than the rest of this package.
    import importlib.metadata

    try:
        files = importlib.metadata.files("stokehold") or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "stokehold":
            yield Path(str(file.locate())).resolve()
    yield Path(__file__).parent.parent / "bin" / "stokehold"
