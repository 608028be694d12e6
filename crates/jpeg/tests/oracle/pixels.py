"""Decodes JPEGs with Pillow (libjpeg-turbo) and writes their RGB pixels to standard output.

Reads one path a line from standard input. Answers each with a line "WIDTH HEIGHT" and the pixels, three bytes each, or
with a line "error WHAT".
"""

import sys

from PIL import Image

Image.MAX_IMAGE_PIXELS = None

for line in sys.stdin:
    try:
        with Image.open(line.rstrip("\n"), formats=["JPEG"]) as image:
            pixels = image.convert("RGB")
    except Exception as error:  # whatever Pillow says, the decoder under test is asked too
        answer = ("error %s\n" % " ".join(str(error).split())).encode()
    else:
        answer = b"%d %d\n" % pixels.size + pixels.tobytes()
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
