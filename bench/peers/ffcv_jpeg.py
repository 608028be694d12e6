"""FFCV reading the original JPEG bytes; `ffcv_common` says the rest."""

from ffcv_common import ffcv_peer
from protocol import run
from ffcv_jpeg import OriginalJpeg, size_of  # isort: skip

if __name__ == "__main__":
    run("ffcv", lambda settings: ffcv_peer(settings, OriginalJpeg(), lambda path: (path, *size_of(path))))
