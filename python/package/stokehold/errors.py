"""The exceptions and the warning of Stokehold.

Each is also one of Python's own, so that code which knows nothing of Stokehold catches it: ``OptionError`` is a ``ValueError``,
``DataError`` an ``OSError``, ``UsageError`` a ``RuntimeError``.
"""

__all__ = ["BadImageWarning", "DataError", "OptionError", "StokeholdError", "UsageError"]


class StokeholdError(Exception):
    """What Stokehold cannot do; by itself, a fault of the machine or of Stokehold."""


class OptionError(StokeholdError, ValueError):
    """An argument, a pipeline or a state that cannot be; the message says what is allowed, a line for each of several reasons."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = reasons
        super().__init__(reasons[0] if len(reasons) == 1 else "".join(f"\n- {reason}" for reason in reasons))


class DataError(StokeholdError, OSError):
    """Images that cannot be found, read or decoded; the message begins with the path."""


class UsageError(StokeholdError, RuntimeError):
    """Something at the wrong time: after ``close``, in a fork, twice at once."""


class BadImageWarning(UserWarning):
    """An image could not be read or decoded and was left out or replaced; each is named once."""


def plain(text: str) -> str:
    """A text with every character written out that would control a terminal; line ends and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text)
