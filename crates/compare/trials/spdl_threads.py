"""SPDL: its pipeline of threads, and its decoder and filters, which are FFmpeg's.

Crop, resize and flips are done in the planes in which the JPEG file has its pixels, often with fewer pixels of colour
than of brightness, and converted to RGB at the end: less work than torchvision_pil's, and not the same rounding. A crop
of such an image begins at an even pixel. The resize is FFmpeg's bilinear scaler, which is antialiased as torchvision's is.

Tuned: all flips and rotations of an image are composed into one mirroring and one angle, performed by one FFmpeg `rotate`,
nearest-neighbour, with the same difference that DALI's composed matrix has: what one rotation would turn out of the
image and fill with black, the next may turn in again. Twelve `rotate` after each other take five times as long. A
thread makes a whole batch, so the pipeline's own work is once a batch, in memory that is used again and again.
"""

from __future__ import annotations

import math
import queue
import random
from collections.abc import Iterator
from importlib.metadata import version

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder
from spec import CROP_AREA, CROP_RATIO, IMAGENET_MEAN, IMAGENET_STD, Cannot, Failed, Spec

AHEAD = 2  # batches that are ready


def batches(spec: Spec) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The batches of the stream, without end."""
    try:
        spdl.io.decode_config()
    except RuntimeError as error:
        raise Cannot(f"SPDL finds no FFmpeg library: {str(error)[:300]}", "apt-get install ffmpeg") from None
    image = Image(spec.load, spec.image_size, spec.seed)
    # Of every worker, of what is ready, and one each on the way between them and with the trainer.
    free: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()
    for _ in range(spec.workers + AHEAD + 2):
        free.put(np.zeros(spec.shape, np.float32))

    def load(indices: list[int]) -> tuple[np.ndarray, np.ndarray] | str:
        """A batch, or the reason why it cannot be loaded: SPDL would go on without a batch that raises an exception."""
        batch = free.get()
        for place, index in zip(batch, indices):
            path = spec.files[index]
            try:
                image.fill(place, path)
            except Exception as error:
                return f"{path}: {error}"
        return batch, spec.labels[indices]

    pipeline = (
        PipelineBuilder()
        .add_source(spec.batches_of_indices())
        .pipe(load, concurrency=spec.workers, output_order="input")
        .add_sink(AHEAD)
        .build(num_threads=spec.workers, use_thread_output_queue=True)
    )
    pipeline.start()
    for batch in pipeline:
        if isinstance(batch, str):
            raise Failed(batch)
        yield batch
        free.put(batch[0])


def versions() -> str:
    """The library that does the work."""
    return f"spdl {version('spdl')}"


class Image:
    """What is done to one image, from its file to its place in a batch."""

    def __init__(self, load: int, size: int, seed: int):
        self.load, self.size, self.random = load, size, random.Random(seed)
        self.scale = [np.float32(1 / (255 * std)) for std in IMAGENET_STD]
        self.shift = [np.float32(-mean / std) for mean, std in zip(IMAGENET_MEAN, IMAGENET_STD)]

    def fill(self, place: np.ndarray, path: str) -> None:
        """Writes the image into its place, (3, size, size)."""
        packets = spdl.io.demux_image(path)
        if packets.codec.width == 0:
            raise OSError("FFmpeg finds no image in it")
        filters = self.filters(packets.codec.width, packets.codec.height)
        frames = spdl.io.decode_packets(packets, filter_desc=filters)
        pixels = spdl.io.to_numpy(spdl.io.convert_frames(frames))
        for channel, plane in enumerate(place):
            np.multiply(pixels[:, :, channel], self.scale[channel], out=plane)
            plane += self.shift[channel]

    def filters(self, width: int, height: int) -> str:
        """FFmpeg's filters for one image, with everything drawn."""
        draw = self.random
        filters = []
        if self.load > 0:
            mirrored, angle = False, 0.0
            for _ in range(self.load):
                if draw.random() < 0.5:
                    mirrored, angle = not mirrored, -angle
                if draw.random() < 0.5:
                    mirrored, angle = not mirrored, math.pi - angle
                angle += math.radians(draw.uniform(-5, 5))
            filters += ["hflip"] if mirrored else []
            filters.append(f"rotate={angle:.6f}:bilinear=0")
        top, left, crop_height, crop_width = draw_crop(draw, height, width)
        filters.append(f"crop={crop_width}:{crop_height}:{left}:{top}")
        filters.append(f"scale={self.size}:{self.size}:flags=bilinear")
        if self.load == 0 and draw.random() < 0.5:
            filters.append("hflip")
        return ",".join([*filters, "format=rgb24"])


def draw_crop(draw: random.Random, height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of a crop, as torchvision's RandomResizedCrop draws them."""
    for _ in range(10):
        area = height * width * draw.uniform(*CROP_AREA)
        ratio = math.exp(draw.uniform(math.log(CROP_RATIO[0]), math.log(CROP_RATIO[1])))
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            return draw.randint(0, height - crop_height), draw.randint(0, width - crop_width), crop_height, crop_width
    if width / height < CROP_RATIO[0]:
        crop_height, crop_width = round(width / CROP_RATIO[0]), width
    elif width / height > CROP_RATIO[1]:
        crop_height, crop_width = height, round(height * CROP_RATIO[1])
    else:
        crop_height, crop_width = height, width
    return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width
