"""What stokehold.pillow gains in scripts that open images with Pillow: CPU time per image, without and with it.

    python bench/images.py PHOTOS [--rounds 6] [--only NAME ..] [--images 200] [--cache DIR] [--json FILE]

Each script is a torchvision pipeline (or timm's, where timm is installed) over the JPEGs of a folder, in this process, with one
torch thread. The two sides take turns with equal seeds, and every tensor of the two is compared. A ratio is of the medians of the
rounds; in brackets the ratio of the fastest ones. With --cache, all images are packed in that image cache first, and a third side
reads them from it.
"""

import argparse
import hashlib
import io
import json
import os
import random
import statistics
import sys
import time

import numpy
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import stokehold
import stokehold.pillow
from stokehold import _cache

#: The image cache of each side.
CACHES = {"Pillow": None, "files": None}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
END = [T.ToTensor(), T.Normalize(MEAN, STD)]


def opened(path):
    return Image.open(path).convert("RGB")


def of_path(transform):
    return lambda path: transform(opened(path))


def detection(path):
    image = F.resize(opened(path), [640, 640])
    boxes = torch.tensor([[10.0, 20.0, 200.0, 220.0]])
    return torch.cat([F.to_tensor(image).flatten(), boxes.flatten()])


def of_bytes(transform):
    """As a row of Hugging Face's `datasets`, whose `Image` decodes it."""

    def read(path):
        with open(path, "rb") as file:
            row = {"bytes": file.read()}
        image = Image.open(io.BytesIO(row["bytes"]))
        image.load()
        if image.getexif().get(0x0112) is not None:
            from PIL import ImageOps

            image = ImageOps.exif_transpose(image)
        return transform(image.convert("RGB"))

    return read


def thumbnail(path):
    image = Image.open(path)
    image.thumbnail((256, 256))
    return F.pil_to_tensor(image.convert("RGB"))


def several(*transforms):
    def views(path):
        image = opened(path)
        return torch.cat([transform(image).flatten() for transform in transforms])

    return views


def scripts():
    crop = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]
    jitter = [T.RandomApply([T.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8), T.RandomGrayscale(0.2)]
    dino = [T.Compose([T.RandomResizedCrop(224, (0.4, 1.0), interpolation=T.InterpolationMode.BICUBIC), T.RandomHorizontalFlip(), *END])] * 2
    dino += [T.Compose([T.RandomResizedCrop(96, (0.05, 0.4), interpolation=T.InterpolationMode.BICUBIC), T.RandomHorizontalFlip(), *END])] * 8
    found = {
        "RandomResizedCrop 224, flip": of_path(T.Compose([*crop, *END])),
        "Resize 256, CenterCrop 224": of_path(T.Compose([T.Resize(256), T.CenterCrop(224), *END])),
        "detection: Resize to 640, boxes": detection,
        "rows of bytes": of_bytes(T.Compose([*crop, *END])),
        "DINO: 2 x 224 and 8 x 96": several(*dino),
        "two crops": several(*[T.Compose([*crop, *END])] * 2),
        "SimCLR: two crops with jitter": several(*[T.Compose([*crop, *jitter, *END])] * 2),
        "RandAugment": of_path(T.Compose([*crop, T.RandAugment(), *END])),
        "TrivialAugment": of_path(T.Compose([*crop, T.TrivialAugmentWide(), *END])),
        "v2, ToImage last": of_path(
            v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
        ),
        "v2, ToImage first": of_path(
            v2.Compose(
                [v2.ToImage(), v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
            )
        ),
        "thumbnail of 256": thumbnail,
        "Pad 32, CenterCrop 256": of_path(T.Compose([T.Pad(32, (124, 116, 104)), T.CenterCrop(256), *END])),
        "Grayscale, RandomResizedCrop 224": of_path(T.Compose([T.Grayscale(), *crop, T.ToTensor(), T.Normalize([0.45], [0.22])])),
        "np.asarray": lambda path: torch.from_numpy(numpy.array(opened(path))),
        "size alone": lambda path: torch.tensor(Image.open(path).size),
    }
    try:
        from timm.data import create_transform
    except ImportError:
        return found
    found["timm, plain"] = of_path(create_transform(224, is_training=True, hflip=0.5, color_jitter=None))
    found["timm, rand-m9"] = of_path(create_transform(224, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.25))
    return found


def epoch(script, paths, seed, digest=None):
    random.seed(seed)
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    began = time.process_time()
    for path in paths:
        try:
            made = script(path)
        except ValueError:
            # timm's RandAugment asks for 0 bits now and then, which Pillow 13 refuses, with either side.
            continue
        if digest is not None:
            digest.update(numpy.ascontiguousarray(made.numpy()).tobytes())
    return (time.process_time() - began) / len(paths)


def side(name):
    if name == "Pillow":
        stokehold.pillow.uninstall()
    else:
        assert stokehold.pillow.install(0)
        _cache._state.opened, _cache._state.cache = True, CACHES[name]


def fill(place, paths):
    """Has a loader pack all images, as `stokehold bench loader --cache-share 1` does, and opens the cache."""
    samples = [(path, 0) for path in paths]
    loader = stokehold.Loader(samples, "imagenet-train", batch_size=8, num_workers=1, cache=place, cache_share=1.0)
    while True:
        before = loader.cache["hits"]
        for _ in loader:
            pass
        if loader.cache["hits"] - before >= len(loader) * 8 - loader.cache["refused"]:
            break
        time.sleep(0.2)
    os.environ["STOKEHOLD_IMAGE_CACHE"] = place
    return _cache.ImageCache.open()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("photos")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--cache")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths = sorted(os.path.join(folder, name) for folder, _, names in os.walk(options.photos) for name in names if name.lower().endswith((".jpg", ".jpeg")))
    random.Random(1).shuffle(paths)
    paths = paths[: options.images]
    print(f"{len(paths)} images of {options.photos}, Pillow {Image.__version__}, torch {torch.__version__}, {options.rounds} rounds")
    if options.cache:
        CACHES["cache"] = fill(options.cache, paths)
    sides = list(CACHES)
    print(f"{'script':34} " + " ".join(f"{side:>9}" for side in sides) + "   ratios                 bits")
    rows = []
    for name, script in scripts().items():
        if options.only and not any(part in name for part in options.only):
            continue
        digests = set()
        for one in sides:
            side(one)
            digest = hashlib.sha256()
            epoch(script, paths, 7, digest)
            digests.add(digest.hexdigest())
        times = {one: [] for one in sides}
        for number in range(options.rounds):
            for one in sides if number % 2 else sides[::-1]:
                side(one)
                times[one].append(epoch(script, paths, number))
        medians = {one: statistics.median(times[one]) for one in sides}
        row = {"script": name, "equal": len(digests) == 1}
        for one in sides:
            row[f"{one}_us"] = medians[one] * 1e6
            row[f"{one}_ratio"] = medians["Pillow"] / medians[one]
            row[f"{one}_ratio_of_fastest"] = min(times["Pillow"]) / min(times[one])
        rows.append(row)
        ratios = " ".join(f"{row[f'{one}_ratio']:.2f} ({row[f'{one}_ratio_of_fastest']:.2f})" for one in sides[1:])
        print(
            f"{name:34} " + " ".join(f"{medians[one] * 1e6:6.0f} us" for one in sides) + f"   {ratios}   {'equal' if row['equal'] else 'DIFFERENT'}",
            flush=True,
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0 if all(row["equal"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
