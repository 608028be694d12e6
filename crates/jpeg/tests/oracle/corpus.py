"""Writes a corpus of JPEGs with Pillow's encoder (libjpeg-turbo) into the folder given; with the word `few` behind it a
small one of small files, for tests/goldens.

The samplings that Pillow offers, qualities from 1 to 100, sizes around the edges of blocks and MCUs, restart intervals,
optimised tables, progressive files, grey and CMYK. Content: a photograph-like mixture of gradients, edges and noise.
"""

import random
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

out = Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
few = sys.argv[2:] == ["few"]
random.seed(7)


def picture(width, height):
    noise = Image.effect_noise((width, height), 60)
    image = Image.merge("RGB", [noise.rotate(a) for a in (0, 90, 180)]).filter(ImageFilter.GaussianBlur(1))
    draw = ImageDraw.Draw(image)
    for _ in range(6):
        box = sorted(random.randrange(width + 1) for _ in range(2)), sorted(random.randrange(height + 1) for _ in range(2))
        color = tuple(random.randrange(256) for _ in range(3))
        draw.rectangle((box[0][0], box[1][0], box[0][1], box[1][1]), fill=color)
    return Image.blend(image, Image.radial_gradient("L").resize((width, height)).convert("RGB"), 0.3)


count = 0


def save(image, name, **options):
    global count
    image.save(out / f"{count:04d}_{name}_{image.width}x{image.height}.jpg", "JPEG", **options)
    count += 1


SAMPLINGS = ["4:4:4", "4:2:2", "4:2:0"]
SIZES = [(1, 1), (2, 3), (5, 2), (3, 40), (8, 8), (9, 17), (16, 16), (17, 33), (31, 15), (64, 48), (65, 49), (100, 75)]
if few:
    SIZES = [(33, 17), (49, 40)]

for sampling in SAMPLINGS:
    name = sampling.replace(":", "")
    for size in SIZES + [(random.randrange(1, 140), random.randrange(1, 140)) for _ in range(0 if few else 12)]:
        for progressive in (False, True):
            quality = random.choice([1, 10, 30, 50, 75, 85, 92, 95, 100])
            options = {"quality": quality, "progressive": progressive, "optimize": random.random() < 0.5}
            if random.random() < 0.4:
                key = random.choice(["restart_marker_blocks", "restart_marker_rows"])
                options[key] = random.randrange(1, 12)
            kind = "progressive" if progressive else "baseline"
            save(picture(*size), f"{name}_q{quality}_{kind}", subsampling=sampling, **options)
    for quality in () if few else (1, 5, 20, 60, 90, 98, 100):
        save(picture(123, 91), f"{name}_q{quality}", subsampling=sampling, quality=quality)
    for quality in () if few else (30, 90):
        save(picture(300, 220), f"{name}_q{quality}_large", subsampling=sampling, quality=quality)

rgb_size = SIZES[0] if few else (111, 73)
save(picture(*rgb_size), "rgb", quality=90, keep_rgb=True)
save(picture(*rgb_size), "rgb_progressive", quality=90, keep_rgb=True, progressive=True)

for size in SIZES:
    for progressive in (False, True):
        quality = random.choice([5, 50, 90, 100])
        save(picture(*size).convert("L"), f"grey_q{quality}", quality=quality, progressive=progressive)
        save(picture(*size).convert("CMYK"), f"cmyk_q{quality}", quality=quality, progressive=progressive)

# Coefficients as large as they get: pixels that jump between black and white.
random_bits = Image.frombytes("L", (96, 96), bytes(random.choice((0, 255)) for _ in range(96 * 96)))
for quality in () if few else (1, 50, 100):
    for sampling in SAMPLINGS:
        bits = Image.merge("RGB", [random_bits, random_bits.rotate(90), random_bits.rotate(180)])
        save(bits, f"bits_q{quality}", quality=quality, subsampling=sampling)
