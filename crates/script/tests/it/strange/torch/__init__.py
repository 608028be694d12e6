"""A torch of another time: it has modules of the same names, and nothing that the hook knows."""

__version__ = "0.0.1"
