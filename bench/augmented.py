#!/usr/bin/env python3
"""A side of bench/augment.py: one library at one recipe, on one core, in the main thread.

    bench/augmented.py LIBRARY RECIPE DATA

Libraries: `pil` and `v2`, torchvision's v2 transforms on PIL images and on uint8 tensors; `dali`, with every operator on the CPU;
`albumentations`, on images decoded by simplejpeg. All end with a random resized crop, a flip and ImageNet's
normalisation, as the recipe `plain` has nothing else. All of torchvision's and DALI's random policies work on the cropped image,
as torchvision's references do. DALI's RandAugment and TrivialAugment are `nvidia.dali.auto_aug`'s.

For each line on standard input it makes batches of 32 of every image once, and answers with {seconds, images, cpu_seconds, version}.
Decoding and the libraries' versions are those of the trials of `stokehold compare`, in crates/compare/trials.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crates" / "compare" / "trials"))

BATCH_SIZE, SIZE = 32, 224


def torchvision(library: str, recipe: str, files: list[str]):
    import torch
    from spec import IMAGENET_MEAN, IMAGENET_STD
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    more = {
        "plain": [],
        "jitter": [v2.RandomAffine(15, (0.1, 0.1), (0.9, 1.1)), v2.ColorJitter(0.4, 0.4, 0.4, 0.1)],
        "rand-augment": [v2.RandAugment()],
        "trivial-augment": [v2.TrivialAugmentWide()],
        "auto-augment": [v2.AutoAugment()],
        "aug-mix": [v2.AugMix()],
    }[recipe]
    first = [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()]
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    if library == "pil":
        from torchvision_pil import open_rgb as load, versions

        last = [v2.ToImage(), *last]
    else:
        from torchvision_v2 import decode as load, versions
    transform = v2.Compose([*first, *more, *last])

    def one_pass() -> int:
        for paths in batches_of(files):
            torch.stack([transform(load(path)) for path in paths])
        return len(files)

    return versions(), one_pass


def dali(_library: str, recipe: str, files: list[str]):
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.auto_aug import auto_augment, rand_augment, trivial_augment
    from dali import ANTIALIASED, CROP, versions
    from spec import IMAGENET_MEAN, IMAGENET_STD

    policy = {
        "plain": lambda image: image,
        "rand-augment": lambda image: rand_augment.rand_augment(image, n=2, m=9, fill_value=0),
        "trivial-augment": lambda image: trivial_augment.trivial_augment_wide(image, fill_value=0),
        "auto-augment": lambda image: auto_augment.auto_augment_image_net(image, fill_value=0),
    }[recipe]

    @pipeline_def(enable_conditionals=True)
    def pipeline():
        encoded, _label = fn.readers.file(files=files, random_shuffle=True)
        image = fn.decoders.image_random_crop(encoded, device="cpu", output_type=types.RGB, **CROP)
        image = policy(fn.resize(image, size=[SIZE, SIZE], **ANTIALIASED))
        return fn.crop_mirror_normalize(image, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(),
                                        mean=[255 * m for m in IMAGENET_MEAN], std=[255 * s for s in IMAGENET_STD])

    # Without a batch ahead: on one core it gains nothing, and would be made in another side's turn.
    pipe = pipeline(batch_size=BATCH_SIZE, num_threads=1, device_id=None, exec_pipelined=False, exec_async=False, seed=1)
    pipe.build()

    def one_pass() -> int:
        batches = -(-len(files) // BATCH_SIZE)
        for _ in range(batches):
            pipe.run()
        return batches * BATCH_SIZE

    return versions(), one_pass


def albumentations(_library: str, recipe: str, files: list[str]):
    import albumentations as A
    import numpy as np
    from albumentations_cv2 import Image, versions

    image = Image(0, SIZE)
    if recipe == "jitter":
        image.transform = A.Compose([
            *image.transform.transforms,
            A.Affine(rotate=(-15, 15), translate_percent=(-0.1, 0.1), scale=(0.9, 1.1), p=1.0),
            A.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1), p=1.0),
        ])

    def one_pass() -> int:
        for paths in batches_of(files):
            batch = np.empty((len(paths), 3, SIZE, SIZE), np.float32)
            for place, path in zip(batch, paths):
                image.fill(place, path)
        return len(files)

    return versions(), one_pass


def batches_of(files: list[str]):
    random.shuffle(files)
    return (files[start : start + BATCH_SIZE] for start in range(0, len(files), BATCH_SIZE))


LIBRARIES = {"pil": torchvision, "v2": torchvision, "dali": dali, "albumentations": albumentations}


def main() -> None:
    # What a library prints goes to standard error.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    library, recipe, data = sys.argv[1:]
    files = sorted(str(path) for path in Path(data).rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"})
    version, one_pass = LIBRARIES[library](library, recipe, files)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        images = one_pass()
        answer = {"seconds": time.perf_counter() - wall, "images": images, "cpu_seconds": time.process_time() - cpu}
        print(json.dumps(answer | {"version": version}), file=out, flush=True)


if __name__ == "__main__":
    main()
