"""A peer of bench/augment.py: one library at one recipe, which the variables LIBRARY and RECIPE name.

Libraries: `pil` and `v2`, PyTorch's DataLoader with torchvision's v2 transforms on PIL images and on uint8 tensors; `dali`, with every
operator on the CPU; `albumentations`, on images decoded by simplejpeg. All end with a random resized crop, a flip and ImageNet's
normalisation, as the recipe `plain` has nothing else. All of torchvision's and DALI's random policies work on the cropped image,
as torchvision's references do.

Where a library has no such operation it says so. DALI's RandAugment and TrivialAugment are `nvidia.dali.auto_aug`'s.
"""

import os
import random

from protocol import BATCH_SIZE, Peer, Settings, Unsupported, run

LIBRARY, RECIPE = os.environ["LIBRARY"], os.environ["RECIPE"]


def torchvision_peer(settings: Settings) -> Peer:
    import torch
    from spec import IMAGENET_MEAN, IMAGENET_STD
    from torch_common import data_loader_peer
    from torchvision.transforms import v2

    more = {
        "plain": [],
        "jitter": [v2.RandomAffine(15, (0.1, 0.1), (0.9, 1.1)), v2.ColorJitter(0.4, 0.4, 0.4, 0.1)],
        "rand-augment": [v2.RandAugment()],
        "trivial-augment": [v2.TrivialAugmentWide()],
        "auto-augment": [v2.AutoAugment()],
        "aug-mix": [v2.AugMix()],
    }[RECIPE]
    first, last = [v2.RandomResizedCrop(settings.image_size, antialias=True), v2.RandomHorizontalFlip()], [
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
    ]
    if LIBRARY == "pil":
        from torchvision_pil import open_rgb as load, versions

        return data_loader_peer(settings, load, v2.Compose([*first, *more, v2.ToImage(), *last]), versions())
    from torchvision_v2 import decode, versions

    return data_loader_peer(settings, decode, v2.Compose([*first, *more, *last]), versions())


def dali_peer(settings: Settings) -> Peer:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.auto_aug import auto_augment, rand_augment, trivial_augment
    from dali import CROP, ANTIALIASED, PREFETCH, versions  # isort: skip
    from dali_common import Schedule
    from spec import IMAGENET_MEAN, IMAGENET_STD

    policies = {
        "plain": lambda image: image,
        "rand-augment": lambda image: rand_augment.rand_augment(image, n=2, m=9, fill_value=0),
        "trivial-augment": lambda image: trivial_augment.trivial_augment_wide(image, fill_value=0),
        "auto-augment": lambda image: auto_augment.auto_augment_image_net(image, fill_value=0),
    }
    if RECIPE not in policies:
        raise Unsupported(f"DALI's own operators make no {RECIPE}")

    @pipeline_def(enable_conditionals=True)
    def pipeline():
        encoded, _label = fn.readers.file(files=settings.files, random_shuffle=True, prefetch_queue_depth=2)
        image = fn.decoders.image_random_crop(encoded, device="cpu", output_type=types.RGB, **CROP)
        image = fn.resize(image, size=[settings.image_size] * 2, **ANTIALIASED)
        image = policies[RECIPE](image)
        return fn.crop_mirror_normalize(image, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(),
                                        mean=[255 * m for m in IMAGENET_MEAN], std=[255 * s for s in IMAGENET_STD])

    pipe = pipeline(batch_size=BATCH_SIZE, num_threads=max(1, settings.workers), device_id=None,
                    prefetch_queue_depth=PREFETCH, seed=1)
    pipe.build()
    batches, scheduled = -(-len(settings.files) // BATCH_SIZE), Schedule(pipe)

    def one_pass() -> int:
        return sum(BATCH_SIZE for _ in scheduled.run(batches))

    return Peer(versions(), one_pass)


def albumentations_peer(settings: Settings) -> Peer:
    import numpy as np
    from albumentations_cv2 import Image, versions  # isort: skip
    import albumentations as A

    image = Image(0, settings.image_size)
    if RECIPE == "jitter":
        image.transform = A.Compose([
            *image.transform.transforms,
            A.Affine(rotate=(-15, 15), translate_percent=(-0.1, 0.1), scale=(0.9, 1.1), p=1.0),
            A.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1), p=1.0),
        ])
    elif RECIPE != "plain":
        raise Unsupported(f"Albumentations has no {RECIPE}")
    files, size = list(settings.files), settings.image_size

    def one_pass() -> int:
        random.shuffle(files)
        for start in range(0, len(files), BATCH_SIZE):
            paths = files[start : start + BATCH_SIZE]
            batch = np.empty((len(paths), 3, size, size), np.float32)
            for place, path in zip(batch, paths):
                image.fill(place, path)
        return len(files)

    return Peer(versions(), one_pass)


PEERS = {"pil": torchvision_peer, "v2": torchvision_peer, "dali": dali_peer, "albumentations": albumentations_peer}

if __name__ == "__main__":
    run(f"{LIBRARY} {RECIPE}", PEERS[LIBRARY])
