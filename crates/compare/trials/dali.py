"""NVIDIA DALI, with every operator on the CPU (trial dali), or with its decoder of device "mixed" (the host parses, nvJPEG
decodes) and every other operator on the GPU (trial dali-gpu), where the batches stay.

At load 0 DALI's fastest way, the decoder that draws the crop first and decodes only that part; from load 1 on the whole
image is decoded, because the flips and rotations come before the crop. The crop is antialiased. Workers are DALI's
num_threads.

Tuned: all flips and rotations of an image are composed into one matrix (`fn.transforms`) and performed by one `warp_affine`,
nearest-neighbour (torchvision's default; DALI's own default would be bilinear and slower). That is less work than
torchvision_pil's in one place: what one rotation would turn out of the image and fill with black, the next may turn in
again. One `fn.flip` and `fn.rotate` after the other took five times as long at load 12. `use_fast_idct`, less exact, gained
nothing that could be measured, and is off. The reader goes through the files
in the order again and again, so there is no pause between epochs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.backend import GetCudaVersion, TensorCPU
from spec import CROP_AREA, CROP_RATIO, IMAGENET_MEAN, IMAGENET_STD, Cannot, Failed, Spec

PREFETCH = 2  # batches in flight, DALI's default
CROP = {"random_area": CROP_AREA, "random_aspect_ratio": CROP_RATIO}
ANTIALIASED = {"interp_type": types.INTERP_LINEAR, "antialias": True}


def batches(spec: Spec) -> Iterator[tuple[Any, np.ndarray]]:
    """The batches of the stream, without end."""
    on_gpu = spec.trial == "dali-gpu"
    if on_gpu and GetCudaVersion() <= 0:
        raise Cannot("DALI finds no CUDA driver")
    try:
        pipe = stream(spec, "mixed" if on_gpu else "cpu", batch_size=spec.batch_size, num_threads=spec.workers,
                      device_id=0 if on_gpu else None, prefetch_queue_depth=PREFETCH, seed=spec.seed % 2**31)
        pipe.build()
        while True:
            images, labels = pipe.run()
            yield hand_over(images.as_tensor(), spec), np.asarray(labels.as_tensor()).reshape(-1)
    except RuntimeError as error:
        raise Failed(f"DALI: {error}") from None


def versions() -> str:
    """The library that does the work."""
    return f"dali {dali.__version__}"


def hand_over(images: Any, spec: Spec) -> Any:
    """A batch as the trainer takes it; without a copy."""
    if spec.trial == "dali":
        return np.asarray(images)
    if spec.device is None:
        return OnDevice(images)
    import torch

    return torch.from_dlpack(images)


class OnDevice:
    """A batch that lies on a GPU, for an emulated accelerator."""

    dtype = "float32"
    memory: Any = None  # of the device, one batch of the same shape, allocated at the first copy

    def __init__(self, images: Any):
        self.images, self.shape = images, images.shape()
        if images.dtype != types.FLOAT:
            self.dtype = str(images.dtype)

    def copy_on_device(self) -> None:
        """Copies the batch once, from the device to the device."""
        if OnDevice.memory is None:
            OnDevice.memory = TensorCPU(np.zeros(self.shape, np.float32))._as_gpu()
        self.images.copy_to_external(ctypes.c_void_p(OnDevice.memory.data_ptr()), None, False)


@pipeline_def
def stream(spec: Spec, decoder: str) -> tuple[Any, Any]:
    """The pipeline: files in the order of the stream, which the reader repeats."""
    files, labels = [spec.files[index] for index in spec.order], spec.labels[spec.order].tolist()
    encoded, label = fn.readers.file(files=files, labels=labels, random_shuffle=False, prefetch_queue_depth=2)
    return augmented(encoded, spec.load, spec.image_size, decoder), label


def augmented(encoded: Any, load: int, image_size: int, decoder: str) -> Any:
    """The part of a pipeline that makes normalised images of files' bytes; with the decoder's device go all operators."""
    size = [image_size, image_size]
    if load == 0:
        image = fn.decoders.image_random_crop(encoded, device=decoder, output_type=types.RGB, **CROP)
        image = fn.resize(image, size=size, **ANTIALIASED)
        mirror = fn.random.coin_flip()
    else:
        image = fn.decoders.image(encoded, device=decoder, output_type=types.RGB)
        matrix = flips_and_rotations(load, fn.peek_image_shape(encoded, dtype=types.FLOAT))
        image = fn.warp_affine(image, matrix=matrix, inverse_map=False, fill_value=0, interp_type=types.INTERP_NN)
        image = fn.random_resized_crop(image, size=size, **CROP, **ANTIALIASED)
        mirror = 0
    return fn.crop_mirror_normalize(
        image,
        dtype=types.FLOAT,
        output_layout="CHW",
        mirror=mirror,
        mean=[255 * mean for mean in IMAGENET_MEAN],
        std=[255 * std for std in IMAGENET_STD],
    )


def flips_and_rotations(load: int, shape: Any) -> Any:
    """`load` times a flip along each axis or none, and a rotation, about the middle of images of `shape` (height, width, ..)."""
    middle = fn.stack(shape[1] / 2, shape[0] / 2)
    matrix = None
    for _ in range(load):
        mirrored = [1.0 - 2.0 * fn.random.coin_flip() for _axis in "xy"]
        earlier = [] if matrix is None else [matrix]
        matrix = fn.transforms.scale(*earlier, scale=fn.stack(*mirrored), center=middle)
        matrix = fn.transforms.rotation(matrix, angle=fn.random.uniform(range=[-5.0, 5.0]), center=middle)
    return matrix
