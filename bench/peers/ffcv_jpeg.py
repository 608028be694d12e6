"""FFCV reading the original JPEG bytes; `ffcv_common` says the rest.

The packed file has the bytes of the JPEG files as they are, where FFCV's own writer would encode the pixels anew, so that it
decodes exactly what the other peers decode. Decoding uses libjpeg-turbo's fast, less exact inverse DCT.
"""

import numpy as np
from ffcv.fields import RGBImageField
from ffcv.fields.rgb_image import IMAGE_MODES
from ffcv_common import ffcv_peer
from PIL import Image
from protocol import run


class OriginalJpeg(RGBImageField):
    """An image field that stores a file's own bytes in place of newly encoded ones."""

    def encode(self, destination, path, malloc):
        encoded = np.fromfile(path, np.uint8)
        with Image.open(path) as image:
            destination["width"], destination["height"] = image.size
        destination["mode"] = IMAGE_MODES["jpg"]
        destination["data_ptr"], storage = malloc(encoded.nbytes)
        storage[:] = encoded


if __name__ == "__main__":
    run("ffcv", lambda settings: ffcv_peer(settings, OriginalJpeg(), str))
