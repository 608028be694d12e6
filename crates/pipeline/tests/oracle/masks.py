"""What torchvision's transforms (v2) make of pairs (PIL image, tv_tensors.Mask), with the parameters they drew themselves.

usage: masks.py OUT

Writes OUT/cases.json: a list of {name, width, height, steps, out_width, out_height, expected, expected_image}. `expected` is a
file of class numbers (height, width), `expected_image` one of bytes (height, width, 3), left out where per-op may differ. Images
and masks are made by a formula (tests/it/masks.rs).

usage: masks.py --goldens OUT

Writes OUT/masks.json, the same with a hash (FNV-1a) instead of files.
"""

import json
import os
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import PIL

# How MKL rounds depends on the processor, unless it is told not to.
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")

import torch
import torchvision
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode as I
from torchvision.transforms import v2

GOLDENS = sys.argv[1] == "--goldens"
OUT = Path(sys.argv[-1])
warnings.filterwarnings("ignore")
torch.manual_seed(31)
random.seed(31)
FILL = {tv_tensors.Mask: 255, "others": 9}


def mask_of(width, height):
    """21 classes, no two neighbours alike."""
    x, y = np.meshgrid(np.arange(width, dtype=np.int64), np.arange(height, dtype=np.int64))
    return ((x * 7919 + y * 104729 + (x // 3) * (y // 5) * 31) % 21).astype(np.uint8)


def image_of(width, height):
    mask = mask_of(width, height).astype(np.int64)
    return np.stack([mask * 12, 255 - mask * 12, (mask * 37) % 256], 2).astype(np.uint8)


def hash_of(data):
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def both(transform, pair, steps):
    """Draws once and transforms image and mask; `steps` makes our steps of the draw."""
    params = transform.make_params(list(pair))
    return steps(params), tuple(transform.transform(each, params) for each in pair)


def rotation(degrees, expand=False, center=None):
    def case(pair):
        transform = v2.RandomRotation(degrees, I.NEAREST, expand, center, FILL)
        return both(transform, pair, lambda p: [{"type": "Rotate", "angle": p["angle"], "interpolation": "nearest",
                                                  "expand": expand, "center": center, "fill": 9}])
    return case


def affine(**options):
    def case(pair):
        transform = v2.RandomAffine(interpolation=I.NEAREST, fill=FILL, **options)
        return both(transform, pair, lambda p: [{"type": "Affine", **p, "interpolation": "nearest",
                                                  "center": transform.center, "fill": 9}])
    return case


def perspective(scale):
    def case(pair):
        transform = v2.RandomPerspective(scale, 1.0, I.NEAREST, FILL)
        return both(transform, pair, lambda p: [{"type": "Perspective", **p, "interpolation": "nearest", "fill": 9}])
    return case


def crop_step(p):
    return {"type": "Crop", "left": p["left"], "top": p["top"], "width": p["width"], "height": p["height"]}


def resized_crop(size):
    def case(pair):
        height, width = size
        transform = v2.RandomResizedCrop(size, scale=(0.05, 1.0))
        return both(transform, pair, lambda p: [crop_step(p), {"type": "Resize", "width": width, "height": height,
                                                               "interpolation": "bilinear"}])
    return case


def resize(size, interpolation):
    def case(pair):
        done = tuple(v2.Resize(size, interpolation)(each) for each in pair)
        height, width = done[1].shape[-2:]
        return [{"type": "Resize", "width": width, "height": height, "interpolation": interpolation.value}], done
    return case


def random_crop(size, **options):
    def case(pair):
        mode = options.get("padding_mode", "constant")
        transform = v2.RandomCrop(size, fill=FILL, **options)
        def steps(p):
            if "needs_pad" in p and not p["needs_pad"]:
                return [crop_step(p)]
            left, top, right, bottom = p["padding"]
            # Ours pads in turn; torchvision adds the borders up.
            return [{"type": "Pad", "sides": [left, top, right, bottom], "fill": 9, "mode": mode}, crop_step(p)]
        return both(transform, pair, steps)
    return case


def center_crop(size):
    def case(pair):
        done = v2.CenterCrop(size)(*pair)
        (height, width), (crop_h, crop_w) = pair[1].shape[-2:], size
        half = lambda d: int(round(d / 2.0))
        return [{"type": "Crop", "left": half(width - crop_w), "top": half(height - crop_h), "width": crop_w,
                 "height": crop_h}], done
    return case


def pad(sides, mode):
    def case(pair):
        return ([{"type": "Pad", "sides": sides, "fill": 9, "mode": mode}],
                v2.Pad(sides, fill=FILL, padding_mode=mode)(*pair))
    return case


def flip(name, transform):
    return lambda pair: ([{"type": name}], transform(1.0)(*pair))


def passed(steps, transform):
    """What does not touch a mask; the image is compared elsewhere."""
    return lambda pair: (steps, (None, transform(*pair)[1]))


def chain(*cases):
    def case(pair):
        steps = []
        for each in cases:
            more, pair = each(pair)
            steps += more
        return steps, pair
    return case


COLORS = [{"type": "Brightness", "factor": 1.4}, {"type": "Hue", "shift": 0.1}, {"type": "Grayscale"}, {"type": "Invert"},
          {"type": "Equalize"}, {"type": "GaussianBlur", "kernel": [3, 3], "sigma": 1.0}]
color = v2.Compose([v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.Grayscale(3), v2.RandomInvert(1.0), v2.RandomEqualize(1.0),
                    v2.RandomPosterize(3, 1.0), v2.RandomSolarize(77, 1.0), v2.RandomAutocontrast(1.0),
                    v2.RandomAdjustSharpness(2.0, 1.0), v2.GaussianBlur(3)])
numbers = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.RandomErasing(1.0),
                      v2.Normalize([0.5] * 3, [0.2] * 3)])

CASES = {
    "horizontal-flip": flip("HorizontalFlip", v2.RandomHorizontalFlip),
    "vertical-flip": flip("VerticalFlip", v2.RandomVerticalFlip),
    "rotation": rotation(180),
    "rotation-small": rotation(5),
    "rotation-expand": rotation(45, True),
    "rotation-center": rotation(30, False, [10.0, 20.5]),
    **{f"rotation-{angle}{'-expand' * expand}": rotation((angle, angle), expand)
       for angle in (0, 90, 180, 270, -90, 45) for expand in (False, True)},
    "affine": affine(degrees=180, translate=(0.1, 0.3), scale=(0.5, 1.5), shear=(-20, 20, -30, 30)),
    "affine-center": affine(degrees=(10, 20), shear=15, center=[20.0, 5.5]),
    "affine-moved": affine(degrees=0, translate=(0.4, 0.4)),
    "affine-larger": affine(degrees=0, translate=(0.2, 0.2), scale=(1.1, 2.9)),
    "affine-twice": affine(degrees=0, scale=(2.0, 2.0)),
    "affine-half": affine(degrees=0, scale=(0.5, 0.5)),
    "affine-quarter-turn": affine(degrees=(90, 90)),
    "affine-shear": affine(degrees=0, shear=(45, 45)),
    "affine-smallest": affine(degrees=90, scale=(0.01, 0.011), shear=(60, 80)),
    "perspective-weak": perspective(0.2),
    "perspective-strong": perspective(0.9),
    "resized-crop": resized_crop((64, 48)),
    "resized-crop-up": resized_crop((301, 277)),
    "resize-bilinear": resize([77, 100], I.BILINEAR),
    "resize-shorter-side": resize([50], I.BICUBIC),
    "resize-nearest": resize([301, 211], I.NEAREST),
    "random-crop": random_crop((20, 16)),
    "random-crop-padded": random_crop((40, 35), padding=[3, 4, 5, 6], pad_if_needed=True),
    "random-crop-reflect": random_crop((30, 25), padding=4, padding_mode="reflect"),
    "center-crop": center_crop((21, 18)),
    **{f"pad-{mode}": pad([3, 5, 10, 7], mode) for mode in ("constant", "edge", "reflect", "symmetric")},
    "colors": passed(COLORS, color),
    "numbers": passed([{"type": "ToFloat"}, {"type": "Normalize", "mean": [0.5] * 3, "std": [0.2] * 3},
                       {"type": "Erase", "left": 1, "top": 2, "width": 5, "height": 6, "content": {"Rgb": [0.0] * 3}}], numbers),
}
CASES["chain"] = chain(CASES["random-crop-padded"], CASES["rotation"], CASES["affine"], CASES["horizontal-flip"])
CASES["chain-resized"] = chain(CASES["rotation-expand"], CASES["resized-crop"], CASES["perspective-weak"])

SIZES = [(61, 83), (64, 64), (33, 48), (300, 222), (37, 30)]
cases = []
for name, case in CASES.items():
    for number, (width, height) in enumerate(SIZES):
        for again in range(1 if GOLDENS else 3):
            image, mask = image_of(width, height), mask_of(width, height)
            steps, (got_image, got) = case((Image.fromarray(image), tv_tensors.Mask(mask)))
            got = np.ascontiguousarray(np.asarray(got, dtype=np.uint8))
            if got_image is not None and got_image.size != got.shape[::-1]:
                # torchvision's mask of an expanding rotation can be a pixel larger or smaller than its own image.
                assert any(step.get("expand") for step in steps), name
                continue
            record = {"name": f"{name}-{width}x{height}-{again}", "width": width, "height": height, "steps": steps,
                      "out_width": got.shape[1], "out_height": got.shape[0]}
            if GOLDENS:
                record["hash"] = hash_of(got.tobytes())
            else:
                path = lambda kind: str(OUT / f"{name}-{number}-{again}.{kind}")
                (OUT / f"{name}-{number}-{again}.mask").write_bytes(got.tobytes())
                record["expected"] = path("mask")
                resized = any(step["type"] == "Resize" for step in steps)
                if got_image is not None and not resized:
                    (OUT / f"{name}-{number}-{again}.image").write_bytes(np.asarray(got_image).tobytes())
                    record["expected_image"] = path("image")
            cases.append(record)
if GOLDENS:
    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}, Pillow {PIL.__version__}"
    (OUT / "masks.json").write_text(json.dumps({"versions": versions, "cases": cases}) + "\n")
else:
    (OUT / "cases.json").write_text(json.dumps(cases))
