"""FFCV reading pixels that its writer has stored decoded (`write_mode="raw"`), its fastest form; `ffcv_common` says the rest.

The work is not the others': nothing is decoded, and the packed file is as large as the pixels, several times the JPEGs. It stands beside
Stokehold's prepared shards, which also are made once, and are smaller than the JPEGs. The file lies in the page cache here;
where a data set does not fit into memory, its size is what is paid.
"""

import numpy as np
from ffcv.fields import RGBImageField
from ffcv_common import ffcv_peer
from PIL import Image
from protocol import run


def pixels(path: str) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


if __name__ == "__main__":
    run("ffcv_raw", lambda settings: ffcv_peer(settings, RGBImageField(write_mode="raw"), pixels))
