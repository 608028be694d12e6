"""Decodes JPEGs with Pillow (libjpeg-turbo) and writes their RGB pixels to standard output.

Reads "FACTOR PATH" lines from standard input; libjpeg-turbo shrinks the image by the factor (1, 2, 4 or 8) while it decodes. Answers each with a line "WIDTH HEIGHT" and the pixels, three bytes each, or
with a line "error WHAT".
"""

import sys

from PIL import Image, ImageFile

Image.MAX_IMAGE_PIXELS = None


def shrink(image, factor):
    """What image.draft does, of whose factors an image may be too small for one."""
    image._size = tuple(-(-side // factor) for side in image.size)
    (tile,) = image.tile
    image.tile = [ImageFile._Tile(tile.codec_name, (0, 0) + image._size, tile.offset, tile.args)]
    image.decoderconfig = (factor, 0)


for line in sys.stdin:
    factor, path = line.rstrip("\n").split(" ", 1)
    try:
        with Image.open(path, formats=["JPEG"]) as image:
            if factor != "1":
                shrink(image, int(factor))
            pixels = image.convert("RGB")
    except Exception as error:  # whatever Pillow says, the decoder under test is asked too
        answer = ("error %s\n" % " ".join(str(error).split())).encode()
    else:
        answer = b"%d %d\n" % pixels.size + pixels.tobytes()
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
