"""What torchvision makes of real photos, with the parameters it drew itself.

usage: torchvision_steps.py PHOTOS OUT

Writes OUT/cases.json: a list of {name, input, width, height, steps, expected, kind, out_width, out_height}. `steps` is
what torchvision drew, in the form that stokehold-pipeline reads; `expected` is a file of what torchvision made of it:
bytes (height, width, 3) or float32 (3, height, width).

usage: torchvision_steps.py --goldens OUT

Writes the goldens: OUT/steps.json, the same of pictures that are made by a formula (tests/it/golden.rs), where a hash or
some of the values stand for the result, OUT/draws.json, the moments of torchvision's draws, OUT/augment.json, what the policies
draw, OUT/compositions.json, how often compositions perform what, and OUT/perspectives.json, the coefficients of changes of perspective.
"""

import json
import math
import os
import random
import sys
from pathlib import Path

import numpy as np
import PIL

# How MKL rounds depends on the processor, unless it is told not to.
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")

import torch
import torchvision
from PIL import Image, ImageFilter
from torchvision import transforms as T
from torchvision.transforms import functional as F
from torchvision.transforms import InterpolationMode as I
from torchvision.transforms import v2

OUT = Path(sys.argv[2])
NAMES = {I.NEAREST: "nearest", I.BILINEAR: "bilinear", I.BICUBIC: "bicubic"}
GOLDENS = sys.argv[1] == "--goldens"
torch.manual_seed(20)
random.seed(20)


def rotate(image, degrees, interpolation, expand=False, center=None, fill=0):
    angle = T.RandomRotation.get_params([-degrees, degrees])
    step = {"type": "Rotate", "angle": angle, "interpolation": NAMES[interpolation], "expand": expand,
            "center": center, "fill": fill}
    return [step], F.rotate(image, angle, interpolation, expand, center, fill)


def resized_crop(image, size, interpolation):
    top, left, height, width = T.RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3])
    steps = [{"type": "Crop", "left": left, "top": top, "width": width, "height": height},
             {"type": "Resize", "width": size, "height": size, "interpolation": NAMES[interpolation]}]
    return steps, F.resize(F.crop(image, top, left, height, width), [size, size], interpolation)


def resize(image, width, height, interpolation):
    step = {"type": "Resize", "width": width, "height": height, "interpolation": NAMES[interpolation]}
    return [step], F.resize(image, [height, width], interpolation)


def pad(image, sides, fill, mode):
    step = {"type": "Pad", "sides": sides, "fill": fill, "mode": mode}
    fill = tuple(fill) if isinstance(fill, list) else fill
    return [step], F.pad(image, sides, fill, mode)


def jitter(image):
    order, b, c, s, h = T.ColorJitter.get_params((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1))
    steps = []
    for i in order.tolist():
        name, key, value, f = [("Brightness", "factor", b, F.adjust_brightness), ("Contrast", "factor", c, F.adjust_contrast),
                               ("Saturation", "factor", s, F.adjust_saturation), ("Hue", "shift", h, F.adjust_hue)][i]
        steps.append({"type": name, key: value})
        image = f(image, value)
    return steps, image


def single(name, key, value, f):
    return lambda image: ([{"type": name, key: value}], f(image, value))


def erase(image, value):
    tensor = F.normalize(F.to_tensor(image), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    top, left, height, width, v = T.RandomErasing.get_params(tensor, (0.02, 0.33), (0.3, 3.3), [value])
    steps = [{"type": "ToFloat"}, {"type": "Normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
             {"type": "Erase", "left": left, "top": top, "width": width, "height": height,
              "content": {"Rgb": [value] * 3}}]
    return steps, F.erase(tensor, top, left, height, width, v)


def drawn(transform, image):
    """The numbers that a transform of v2 draws, the same every time; no other case's draws depend on it."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return transform.make_params([image])


def affine(image, mode, **options):
    transform = v2.RandomAffine(interpolation=mode, **options)
    params = drawn(transform, image)
    step = {"type": "Affine", **params, "interpolation": NAMES[mode], "center": transform.center, "fill": transform.fill}
    return [step], transform.transform(image, params)


AFFINES = {
    "all": dict(degrees=180, translate=(0.1, 0.3), scale=(0.5, 1.5), shear=(-20, 20, -30, 30), fill=[9, 100, 250]),
    "center": dict(degrees=(10, 20), shear=15, center=[20.0, 5.5], fill=77),
    # Rows stay rows.
    "smaller": dict(degrees=0, scale=(0.3, 0.8)),
    "larger": dict(degrees=0, translate=(0.2, 0.2), scale=(1.1, 2.9)),
    "moved": dict(degrees=0, translate=(0.4, 0.4)),
    # Corners beyond 16 bits.
    "smallest": dict(degrees=90, scale=(0.01, 0.011), shear=(60, 80)),
}


def perspective(image, mode, scale, fill=0):
    transform = v2.RandomPerspective(scale, 1.0, mode, fill)
    params = drawn(transform, image)
    step = {"type": "Perspective", **params, "interpolation": NAMES[mode], "fill": fill}
    return [step], transform.transform(image, params)


def steps_of(name, magnitude, interpolation=I.NEAREST, fill=0):
    """A change of AutoAugment and the like as steps."""
    still = {"type": "Affine", "angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0],
             "interpolation": NAMES[interpolation], "center": None, "fill": fill}
    degrees = math.degrees(math.atan(magnitude))
    return {
        "Identity": [],
        "ShearX": [{**still, "shear": [degrees, 0.0], "center": [0.0, 0.0]}],
        "ShearY": [{**still, "shear": [0.0, degrees], "center": [0.0, 0.0]}],
        "TranslateX": [{**still, "translate": [int(magnitude), 0]}],
        "TranslateY": [{**still, "translate": [0, int(magnitude)]}],
        "Rotate": [{"type": "Rotate", "angle": magnitude, "interpolation": NAMES[interpolation], "expand": False,
                    "center": None, "fill": fill}],
        "Brightness": [{"type": "Brightness", "factor": 1.0 + magnitude}],
        "Color": [{"type": "Saturation", "factor": 1.0 + magnitude}],
        "Contrast": [{"type": "Contrast", "factor": 1.0 + magnitude}],
        "Sharpness": [{"type": "Sharpness", "factor": 1.0 + magnitude}],
        "Posterize": [{"type": "Posterize", "bits": int(magnitude)}],
        "Solarize": [{"type": "Solarize", "threshold": 255.0 * magnitude}],
        "AutoContrast": [{"type": "AutoContrast"}],
        "Equalize": [{"type": "Equalize"}],
        "Invert": [{"type": "Invert"}],
    }[name]


def change(name, magnitude, mode):
    fill = 77
    apply = v2.RandAugment()._apply_image_or_video_transform
    return lambda im: (steps_of(name, magnitude, mode, fill),
                       apply(im, name, magnitude, mode, v2._utils._setup_fill_arg(fill)))


class Recorded(v2.AugMix):
    """torchvision's mixture with its own draws. It changes PIL images instead of tensors, as all other transforms here do, and keeps
    what it drew."""

    def _sample_dirichlet(self, params):
        self.shares.append(super()._sample_dirichlet(params))
        return self.shares[-1]

    def _apply_image_or_video_transform(self, image, name, magnitude, interpolation, fill):
        # Every chain begins with the image itself, under a name of its own for the tensor of a batch.
        if image is self.batch:
            self.chains.append([])
        self.batch = self.batch if self.batch is not None else image
        self.chains = self.chains or [[]]
        self.chains[-1] += steps_of(name, magnitude, I(interpolation), self.fill)
        changed = super()._apply_image_or_video_transform(v2.functional.to_pil_image(image[0]), name, magnitude, interpolation, fill)
        # What changes nothing may not be taken for the beginning of a chain.
        return v2.functional.pil_to_tensor(changed)[None].clone()


def augmix(image, seed, **options):
    transform = Recorded(**options)
    transform.shares, transform.chains, transform.batch = [], [], None
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        result = transform(image)
    (mine,), (chains,) = transform.shares
    combined = (chains * mine[1]).tolist()
    assert len(combined) == len(transform.chains)
    step = {"type": "Mix", "share": float(mine[0]),
            "chains": [{"share": share, "steps": steps} for share, steps in zip(combined, transform.chains)]}
    return [step], result


# Magnitudes of all three, weak and strong.
CHANGES = [
    *[(name, magnitude, mode) for name in ("ShearX", "ShearY") for magnitude in (-0.99, 0.09, 0.3)
      for mode in (I.NEAREST, I.BILINEAR)],
    *[(name, magnitude, I.NEAREST) for name in ("TranslateX", "TranslateY") for magnitude in (-59.8, 0.7, 13.0)],
    *[("Rotate", magnitude, I.NEAREST) for magnitude in (-135.0, 9.0)],
    *[(name, magnitude, I.NEAREST) for name in ("Brightness", "Color", "Contrast", "Sharpness") for magnitude in (-0.99, 0.27)],
    *[("Posterize", magnitude, I.NEAREST) for magnitude in (2.0, 7.0)],
    *[("Solarize", magnitude, I.NEAREST) for magnitude in (0.0, 0.6999999)],
    *[(name, 0.0, I.NEAREST) for name in ("Identity", "AutoContrast", "Equalize", "Invert")],
]


CASES = {
    "horizontal-flip": lambda im: ([{"type": "HorizontalFlip"}], F.hflip(im)),
    "vertical-flip": lambda im: ([{"type": "VerticalFlip"}], F.vflip(im)),
    "rotate-nearest": lambda im: rotate(im, 5, I.NEAREST),
    "rotate-nearest-wide": lambda im: rotate(im, 180, I.NEAREST),
    "rotate-fill-expand": lambda im: rotate(im, 45, I.NEAREST, True, None, 200),
    "rotate-center": lambda im: rotate(im, 30, I.NEAREST, False, [10.0, 20.0], 0),
    "rotate-bilinear": lambda im: rotate(im, 30, I.BILINEAR),
    "rotate-bicubic": lambda im: rotate(im, 30, I.BICUBIC),
    "resized-crop-bilinear": lambda im: resized_crop(im, 224, I.BILINEAR),
    "resized-crop-bicubic": lambda im: resized_crop(im, 96, I.BICUBIC),
    "resized-crop-nearest": lambda im: resized_crop(im, 160, I.NEAREST),
    "resize-down": lambda im: resize(im, 100, 77, I.BILINEAR),
    "resize-up": lambda im: resize(im, 700, 600, I.BICUBIC),
    "crop": lambda im: ([{"type": "Crop", "left": 5, "top": 9, "width": 64, "height": 48}], F.crop(im, 9, 5, 48, 64)),
    "pad-constant": lambda im: pad(im, [3, 0, 10, 7], [1, 2, 3], "constant"),
    "pad-edge": lambda im: pad(im, [3, 5, 10, 7], 0, "edge"),
    "pad-reflect": lambda im: pad(im, [3, 5, 10, 7], 0, "reflect"),
    "pad-symmetric": lambda im: pad(im, [3, 5, 10, 7], 0, "symmetric"),
    "brightness-up": single("Brightness", "factor", 1.37, F.adjust_brightness),
    "brightness-down": single("Brightness", "factor", 0.61, F.adjust_brightness),
    "contrast-up": single("Contrast", "factor", 1.52, F.adjust_contrast),
    "contrast-down": single("Contrast", "factor", 0.43, F.adjust_contrast),
    "saturation-up": single("Saturation", "factor", 1.9, F.adjust_saturation),
    "saturation-down": single("Saturation", "factor", 0.25, F.adjust_saturation),
    "hue-left": single("Hue", "shift", -0.31, F.adjust_hue),
    "hue-right": single("Hue", "shift", 0.18, F.adjust_hue),
    "color-jitter": jitter,
    "grayscale": lambda im: ([{"type": "Grayscale"}], F.to_grayscale(im, 3)),
    **{f"permute-{''.join(map(str, order))}": single("Permute", "channels", order, v2.functional.permute_channels)
       for order in ([2, 0, 1], [0, 2, 1])},
    "augmix": lambda im: augmix(im, 1, fill=77),
    "augmix-severe": lambda im: augmix(im, 2, severity=10, mixture_width=5, chain_depth=4, alpha=0.4, interpolation=I.NEAREST, fill=0),
    "augmix-partial": lambda im: augmix(im, 3, severity=10, mixture_width=1, all_ops=False, fill=0),
    "invert": lambda im: ([{"type": "Invert"}], F.invert(im)),
    **{f"posterize-{bits}": single("Posterize", "bits", bits, F.posterize) for bits in (1, 3, 8)},
    **{f"solarize-{at}": single("Solarize", "threshold", at, F.solarize) for at in (0, 100.5, 128, 255)},
    "autocontrast": lambda im: ([{"type": "AutoContrast"}], F.autocontrast(im)),
    # Little contrast, so that there is something to stretch.
    "brightness-autocontrast": lambda im: ([{"type": "Brightness", "factor": 0.37}, {"type": "AutoContrast"}],
                                           F.autocontrast(F.adjust_brightness(im, 0.37))),
    "equalize": lambda im: ([{"type": "Equalize"}], F.equalize(im)),
    # So few pixels that there is less than one for each level.
    "crop-equalize": lambda im: ([{"type": "Crop", "left": 5, "top": 9, "width": 14, "height": 15}, {"type": "Equalize"}],
                                 F.equalize(F.crop(im, 9, 5, 15, 14))),
    "crop-equalize-few": lambda im: ([{"type": "Crop", "left": 5, "top": 9, "width": 18, "height": 16}, {"type": "Equalize"}],
                                     F.equalize(F.crop(im, 9, 5, 16, 18))),
    **{f"sharpness-{factor}": single("Sharpness", "factor", factor, F.adjust_sharpness) for factor in (0, 0.4, 1, 2.3)},
    "crop-sharpness": lambda im: ([{"type": "Crop", "left": 5, "top": 9, "width": 14, "height": 2},
                                   {"type": "Sharpness", "factor": 3.0}], F.adjust_sharpness(F.crop(im, 9, 5, 2, 14), 3.0)),
    **{f"change-{name}-{magnitude}-{mode.value}": change(name, magnitude, mode) for name, magnitude, mode in CHANGES},
    "gaussian-blur": lambda im: ([{"type": "GaussianBlur", "kernel": [5, 9], "sigma": 1.3}],
                                 F.gaussian_blur(im, [5, 9], [1.3, 1.3])),
    "dilation": lambda im: ([{"type": "Dilate", "kernel": 5}], im.filter(ImageFilter.MaxFilter(5))),
    **{f"affine-{name}-{mode.value}": lambda im, mode=mode, options=options: affine(im, mode, **options)
       for name, options in AFFINES.items() for mode in NAMES},
    **{f"perspective-{scale}-{mode.value}": lambda im, mode=mode, scale=scale: perspective(im, mode, scale, [9, 100, 250])
       for scale in (0.2, 0.5, 1.0) for mode in NAMES},
    "to-float": lambda im: ([{"type": "ToFloat"}], F.to_tensor(im)),
    "erase": lambda im: erase(im, 0.5),
}


def published(image, load):
    """The load experiment, drawn by torchvision: flips, flips, rotations, then the crop."""
    steps = []
    for _ in range(load):
        if random.random() < 0.5:
            steps.append({"type": "HorizontalFlip"})
            image = F.hflip(image)
        if random.random() < 0.5:
            steps.append({"type": "VerticalFlip"})
            image = F.vflip(image)
        more, image = rotate(image, 5, I.NEAREST)
        steps += more
    more, image = resized_crop(image, 224, I.BILINEAR)
    return steps + more, image


for load in (1, 4, 12):
    CASES[f"published-{load}"] = lambda im, load=load: published(im, load)


def of_photos(folder):
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in (".jpeg", ".jpg"))
    files = files[:: max(1, len(files) // 2)][:2]
    cases = []
    for number, file in enumerate(files):
        image = Image.open(file).convert("RGB")
        source = OUT / f"{number}.rgb"
        source.write_bytes(np.asarray(image).tobytes())
        for name, make in CASES.items():
            steps, result = make(image)
            data, kind, out_width, out_height = plain(result)
            path = OUT / f"{number}-{name}.out"
            path.write_bytes(data.tobytes())
            cases.append(dict(name=name, input=str(source), width=image.width, height=image.height, steps=steps,
                              expected=str(path), kind=kind, out_width=out_width, out_height=out_height))
    (OUT / "cases.json").write_text(json.dumps(cases))


def plain(result):
    """The values, their kind, width and height."""
    if isinstance(result, torch.Tensor):
        return result.numpy().astype("<f4"), "float", result.shape[2], result.shape[1]
    return np.asarray(result), "bytes", *result.size


def made(width, height):
    """Gradients, edges and noise."""
    y, x, c = np.mgrid[0:height, 0:width, 0:3].astype(np.int64)
    noise = (x * 31 + y * 17 + c * 11) * (x + 3 * y + 1) % 23
    value = x * x // (11 + 5 * c) + y * (7 - 2 * c) + 70 * ((x // 9 + y // 7) % 2) + noise
    return Image.fromarray(np.minimum(value % 311, 255).astype(np.uint8))


def fnv(data):
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 % 2**32
    return f"{value:08x}"


def goldens():
    cases = []
    for width, height in ((173, 131), (90, 210)):
        image = made(width, height)
        for name, make in CASES.items():
            steps, result = make(image)
            data, kind, out_width, out_height = plain(result)
            case = dict(name=name, width=width, height=height, steps=steps, kind=kind, out_width=out_width,
                        out_height=out_height)
            if kind == "bytes" and name != "gaussian-blur":
                case["hash"] = fnv(data.tobytes())
            else:
                # A step that meets all columns, rows and channels.
                step = max(1, data.size // 500)
                while math.gcd(step, 3 * out_width * out_height) > 1:
                    step += 1
                case["step"] = step
                case["values"] = data.reshape(-1)[::step].tobytes().hex()
            cases.append(case)
    write("steps.json", cases)
    write("draws.json", draws())
    write("augment.json", augment())
    write("compositions.json", compositions())
    write("perspectives.json", perspectives())


def augment():
    """All that the three can draw for an image of 400 x 300, each with its probability."""

    def changes(space, name, bins, at):
        make, signed = space[name]
        magnitudes = make(bins, 300, 400)
        magnitude = 0.0 if magnitudes is None else float(magnitudes[at])
        signs = (1, -1) if magnitudes is not None and signed else (1,)
        return [(steps_of(name, sign * magnitude), 1 / len(signs)) for sign in signs]

    def even(transform, bins, at):
        space = transform._AUGMENTATION_SPACE
        return [(steps, p / len(space) / len(at)) for name in space for i in at for steps, p in changes(space, name, bins, i)]

    answers = []
    for bins, magnitude in ((31, 9), (10, 9), (11, 0)):
        op = {"type": "RandAugment", "num_ops": 1, "magnitude": magnitude, "num_magnitude_bins": bins}
        answers.append((op, even(v2.RandAugment, bins, [magnitude])))
    twice = answers[0][1]
    answers.append(({"type": "RandAugment"}, [(a + b, p * q) for a, p in twice for b, q in twice]))
    for bins in (31, 8):
        op = {"type": "TrivialAugmentWide", "num_magnitude_bins": bins}
        answers.append((op, even(v2.TrivialAugmentWide, bins, range(bins))))
    for policy in v2.AutoAugmentPolicy:
        pairs, outcomes = v2.AutoAugment(policy)._policies, []
        for pair in pairs:
            either = []
            for name, p, at in pair:
                done = changes(v2.AutoAugment._AUGMENTATION_SPACE, name, 10, at or 0)
                either.append([([], 1 - p), *((steps, p * q) for steps, q in done)])
            outcomes += [(a + b, p * q / len(pairs)) for a, p in either[0] for b, q in either[1]]
        answers.append(({"type": "AutoAugment", "policy": policy.value}, outcomes))
    # One change of one chain.
    for more, every in ((True, v2.AugMix._AUGMENTATION_SPACE), (False, v2.AugMix._PARTIAL_AUGMENTATION_SPACE)):
        op = {"type": "AugMix", "mixture_width": 1, "chain_depth": 1, "all_ops": more, "severity": 4, "interpolation": "nearest"}
        answers.append((op, [(steps, p / len(every) / 4) for name in every for i in range(4)
                             for steps, p in changes(every, name, 10, i)]))
    return [dict(op=op, width=400, height=300, outcomes=[o for o in outcomes if o[1] > 0]) for op, outcomes in answers]


class Mark(torch.nn.Module):
    """Stands for an operation: adds its name to those that were performed."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, names):
        return [*names, self.name]


def composed(op):
    """torchvision's composition of an operation of ours."""
    if "op" not in op:
        return Mark({"RandomInvert": "Invert", "RandomEqualize": "Equalize", "RandomAutocontrast": "AutoContrast"}[op["type"]])
    kind = getattr(v2, op["type"])
    return kind([composed(one) for one in op["op"]], **{key: op[key] for key in op if key == "p"})


def compositions():
    """How often each list of operations is performed."""
    invert, equalize, stretch = ({"type": name, "p": 1.0} for name in ("RandomInvert", "RandomEqualize", "RandomAutocontrast"))
    count, answers = 20_000, []
    torch.manual_seed(20)
    for op in (
        {"type": "RandomApply", "op": [invert, equalize]},
        {"type": "RandomApply", "p": 0.2, "op": [invert]},
        {"type": "RandomChoice", "op": [invert, equalize, stretch]},
        {"type": "RandomChoice", "p": [1.0, 0.0, 3.0], "op": [invert, equalize, stretch]},
        {"type": "RandomOrder", "op": [invert, equalize, stretch]},
        {"type": "RandomOrder", "op": [{"type": "RandomApply", "op": [invert]}, equalize,
                                       {"type": "RandomChoice", "p": [0.3, 0.1], "op": [stretch, equalize]}]},
    ):
        transform = composed(op)
        answers.append(dict(op=op, count=count, outcomes=counted(count, lambda: transform([]))))
    image = torch.zeros(3, 9, 9)
    for op in ({"type": "RandomPhotometricDistort"}, {"type": "RandomPhotometricDistort", "p": 0.8}):
        transform = v2.RandomPhotometricDistort(p=op.get("p", 0.5))
        answers.append(dict(op=op, count=count, outcomes=counted(count, lambda: distortions(transform.make_params([image])))))
    return answers


def counted(count, draw):
    outcomes = {}
    for _ in range(count):
        names = " ".join(draw())
        outcomes[names] = outcomes.get(names, 0) + 1
    return dict(sorted(outcomes.items()))


def distortions(params):
    """The changes in the order in which RandomPhotometricDistort makes them."""
    before = params["contrast_before"]
    order = [("Brightness", "brightness_factor", True), ("Contrast", "contrast_factor", before), ("Saturation", "saturation_factor", True),
             ("Hue", "hue_factor", True), ("Contrast", "contrast_factor", not before), ("Permute", "channel_permutation", True)]
    return [name for name, key, here in order if here and params[key] is not None]


def perspectives():
    """The coefficients of corners: of drawn ones, and of such as cross each other."""
    random, answers = np.random.default_rng(3), []
    for width, height, reach in ((400, 300, 0.5), (33, 1000, 0.2), (4000, 3000, 0.9), (2, 3, 0.0), (64, 64, 1.0)):
        for _ in range(20):
            most = [int(reach * (side // 2)) for side in (width, height)]
            corners = [[int(random.integers(0, m + 1)) + (side - m - 1 if far else 0)
                        for m, side, far in zip(most, (width, height), fars)]
                       for fars in ((False, False), (True, False), (True, True), (False, True))]
            ends = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
            answers.append(dict(width=width, height=height, corners=corners,
                                coefficients=v2.functional._geometry._get_perspective_coeffs(ends, corners)))
    return answers


def draws():
    """Mean and standard deviation of what is drawn, by the steps' types and fields."""
    count, image = 40_000, Image.new("RGB", (400, 300))
    tensor = torch.zeros(3, 300, 400)

    def crop():
        top, left, height, width = T.RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3])
        return {"Crop.left": left, "Crop.top": top, "Crop.width": width, "Crop.height": height}

    def random_crop():
        top, left, _, _ = T.RandomCrop.get_params(image, (100, 80))
        return {"Crop.left": left, "Crop.top": top}

    def affine():
        options = dict(degrees=[-20, 50], translate=[0.1, 0.3], scale=[0.7, 1.4], shear=[-10, 5, 3, 20])
        params = v2.RandomAffine(**options).make_params([image])
        return {"Affine.angle": params["angle"], "Affine.scale": params["scale"], **numbered("Affine.translate", params["translate"]),
                **numbered("Affine.shear", params["shear"])}

    def numbered(name, values):
        return {f"{name}.{number}": value for number, value in enumerate(values)}

    def color_jitter():
        _, b, c, s, h = T.ColorJitter.get_params((0.6, 1.4), (0.3, 1.7), (0.9, 1.1), (-0.1, 0.1))
        return {"Brightness.factor": b, "Contrast.factor": c, "Saturation.factor": s, "Hue.shift": h}

    def erasing():
        top, left, height, width, _ = T.RandomErasing.get_params(tensor, (0.02, 0.33), (0.3, 3.3), [0.0])
        return {"Erase.left": left, "Erase.top": top, "Erase.width": width, "Erase.height": height}

    def distort():
        params = v2.RandomPhotometricDistort(p=1.0).make_params([tensor])
        return {"Brightness.factor": params["brightness_factor"], "Contrast.factor": params["contrast_factor"],
                "Saturation.factor": params["saturation_factor"], "Hue.shift": params["hue_factor"],
                **numbered("Permute.channels", params["channel_permutation"].tolist())}

    def resized(transform):
        size = transform.make_params([image])["size"]
        # One number is the shorter edge.
        return numbered("Resize", F.resize(image, size).size if len(size) == 1 else size[::-1])

    def widths(transform):
        return lambda: {f"Resize.{name}": value for name, value in zip(("width", "height"), resized(transform).values())}

    drawn = {
        '{"type": "RandomResizedCrop", "size": 224}': crop,
        '{"type": "RandomCrop", "size": [100, 80]}': random_crop,
        '{"type": "RandomRotation", "degrees": [-20, 50]}': lambda: {"Rotate.angle": T.RandomRotation.get_params([-20, 50])},
        '{"type": "ColorJitter", "brightness": 0.4, "contrast": 0.7, "saturation": 0.1, "hue": 0.1}': color_jitter,
        '{"type": "GaussianBlur", "kernel_size": 5}': lambda: {"GaussianBlur.sigma": T.GaussianBlur.get_params(0.1, 2.0)},
        '{"type": "RandomErasing", "p": 1.0}': erasing,
        '{"type": "RandomAffine", "degrees": [-20, 50], "translate": [0.1, 0.3], "scale": [0.7, 1.4], "shear": [-10, 5, 3, 20]}':
            affine,
        '{"type": "RandomPerspective", "p": 1.0}': lambda: numbered(
            "Perspective.coefficients", v2.RandomPerspective(p=1.0).make_params([image])["coefficients"]),
        '{"type": "RandomPhotometricDistort", "p": 1.0}': distort,
        '{"type": "RandomChannelPermutation"}': lambda: numbered(
            "Permute.channels", v2.RandomChannelPermutation().make_params([tensor])["permutation"].tolist()),
        '{"type": "RandomZoomOut", "p": 1.0, "side_range": [1.5, 4.0]}': lambda: numbered(
            "Pad.sides", v2.RandomZoomOut(p=1.0, side_range=(1.5, 4.0)).make_params([image])["padding"]),
        '{"type": "ScaleJitter", "target_size": [500, 200]}': widths(v2.ScaleJitter((500, 200))),
        '{"type": "RandomShortestSize", "min_size": [60, 100, 145], "max_size": 180}': widths(
            v2.RandomShortestSize([60, 100, 145], 180)),
        '{"type": "RandomResize", "min_size": 50, "max_size": 54}': widths(v2.RandomResize(50, 54)),
    }
    answers = []
    for op, draw in drawn.items():
        fields = [draw() for _ in range(count)]
        moments = {key: [np.mean([f[key] for f in fields]), np.std([f[key] for f in fields])] for key in fields[0]}
        answers.append(dict(op=json.loads(op), width=400, height=300, count=count, moments=moments))
    return answers


def write(name, value):
    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}, Pillow {PIL.__version__}"
    (OUT / name).write_text(json.dumps(dict(versions=versions, cases=value)) + "\n")


if GOLDENS:
    goldens()
else:
    of_photos(Path(sys.argv[1]))
