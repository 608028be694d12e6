"""Albumentations on images decoded by simplejpeg.

What is done to an image is the trial albumentations', of which `albumentations_cv2.py` among the trials of `stokehold compare` says
more. `--workers` threads make one image each (OpenCV and NumPy release the interpreter's lock); 0 works in the main
thread.
"""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from protocol import BATCH_SIZE, Peer, Settings, run
from albumentations_cv2 import Image, versions  # isort: skip


def build(settings: Settings) -> Peer:
    size, files = settings.image_size, list(settings.files)
    fill = Image(settings.load, size).fill
    pool = ThreadPoolExecutor(settings.workers) if settings.workers > 1 else None

    def one_pass() -> int:
        random.shuffle(files)
        for start in range(0, len(files), BATCH_SIZE):
            paths = files[start : start + BATCH_SIZE]
            batch = np.empty((len(paths), 3, size, size), np.float32)
            for _ in (pool.map if pool else map)(fill, batch, paths):
                pass
        return len(files)

    return Peer(versions(), one_pass)


if __name__ == "__main__":
    run("albumentations", build)
