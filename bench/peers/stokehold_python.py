"""Stokehold's own loader through its Python package, as tensors of torch; what bench/python.py compares with the Rust side.

`--workers` is num_workers: threads.
"""

import stokehold
from protocol import BATCH_SIZE, IMAGENET_MEAN, IMAGENET_STD, Peer, Settings, run
from stokehold import transforms as T


def build(settings: Settings) -> Peer:
    repeated = [T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomRotation(5)] * settings.load
    flip = [T.RandomHorizontalFlip()] if settings.load == 0 else []
    to_float = [T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    pipeline = T.Compose([*repeated, T.RandomResizedCrop(settings.image_size), *flip, *to_float])
    files = [(path, 0) for path in settings.files]
    loader = stokehold.Loader(files, pipeline, batch_size=BATCH_SIZE, num_workers=max(1, settings.workers))

    def one_pass() -> int:
        return sum(len(images) for images, _labels in loader)

    return Peer(f"stokehold {stokehold.__version__}", one_pass)


if __name__ == "__main__":
    run("stokehold_python", build)
