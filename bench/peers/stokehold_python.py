"""Stokehold's own loader through its Python package, as tensors of torch; what bench/python.py compares with the Rust side.

`--workers` is num_workers: threads.
"""

import stokehold
from protocol import BATCH_SIZE, Peer, Settings, run
from stokehold_python import pipeline, versions  # isort: skip


def build(settings: Settings) -> Peer:
    loader = stokehold.Loader(
        [(path, 0) for path in settings.files],
        pipeline(settings.load, settings.image_size),
        batch_size=BATCH_SIZE,
        num_workers=max(1, settings.workers),
    )

    def one_pass() -> int:
        return sum(len(images) for images, _labels in loader)

    return Peer(versions(), one_pass)


if __name__ == "__main__":
    run("stokehold_python", build)
