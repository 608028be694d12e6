"""Images of every kind that a folder may hold, and what PIL's convert("RGB") makes of them.

usage: formats.py OUT

Writes OUT/NAME (the file) and OUT/NAME.rgb (width and height as two u32, then the bytes), also NAME.upright for files
with an EXIF orientation.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

OUT = Path(sys.argv[1])
y, x = np.mgrid[0:61, 0:83]
smooth = np.stack([128 + 100 * np.sin(x / 9), 128 + 90 * np.cos(y / 7), 128 + 80 * np.sin((x + y) / 11)], 2)
rgb = Image.fromarray(smooth.astype(np.uint8))
rgba = rgb.copy()
rgba.putalpha(Image.fromarray((x * 3).astype(np.uint8)))


def save(name, image, **options):
    image.save(OUT / name, **options)
    for suffix, turn in ((".rgb", lambda i: i), (".upright", ImageOps.exif_transpose)):
        read = turn(Image.open(OUT / name)).convert("RGB")
        size = np.array(read.size, "<u4").tobytes()
        (OUT / (name + suffix)).write_bytes(size + np.asarray(read).tobytes())


save("rgb.jpg", rgb, quality=90, subsampling=0)
save("halved.jpg", rgb, quality=90, subsampling=2)
save("progressive.jpg", rgb, quality=85, progressive=True)
save("grey.jpg", rgb.convert("L"), quality=90)
save("cmyk.jpg", rgb.convert("CMYK"), quality=95)
save("wrong-name.png", rgb, format="JPEG", quality=90)
save("rgb.png", rgb)
save("grey.png", rgb.convert("L"))
save("grey-alpha.png", rgba.convert("LA"))
save("rgba.png", rgba)
save("palette.png", rgb.quantize(40))
save("palette-alpha.png", rgba.quantize(40, method=2))
save("bilevel.png", rgb.convert("1"))
save("lossless.webp", rgb, lossless=True)
save("alpha.webp", rgba, lossless=True)
save("one-pixel.png", rgb.crop((5, 5, 6, 6)))
save("one-pixel.jpg", rgb.crop((5, 5, 6, 6)), quality=95)
save("wide.png", rgb.resize((20000, 10)))
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    save(f"exif-{orientation}.jpg", rgb, quality=95, subsampling=0, exif=exif)
    save(f"exif-{orientation}.png", rgb, exif=exif)
