"""What both DALI peers share: the pipeline, and passes of an exact number of batches.

Load 0 uses DALI's fastest way, the decoder that draws the crop first and decodes only that part; from load 1 on the
whole image is decoded because the flips and rotations come before the crop, as in torch_pil. The crop is antialiased.
A pass is a whole number of batches: DALI fills the last one with images of the next shuffle, and they are counted.
`--workers` is num_threads; 0 counts as 1 because DALI has no mode without a thread of its own.

Tuned: all flips and rotations of an image are composed into one matrix (`fn.transforms`) and performed by one `warp_affine`,
nearest-neighbour (torchvision's default; DALI's own default would be bilinear and slower). That is less work than
torch_pil's in one place: what one rotation would turn out of the image and fill with black, the next may turn in again.
One `fn.flip` and `fn.rotate` after the other took five times as long at load 12.
"""

import nvidia.dali as dali
from nvidia.dali import fn, pipeline_def, types
from protocol import BATCH_SIZE, IMAGENET_MEAN, IMAGENET_STD, Peer, Settings

PREFETCH = 2  # batches in flight, DALI's default
CROP = {"random_area": [0.08, 1.0], "random_aspect_ratio": [3 / 4, 4 / 3]}
ANTIALIASED = {"interp_type": types.INTERP_LINEAR, "antialias": True}


def dali_peer(settings: Settings, device_id: int | None) -> Peer:
    """A peer with every operator on the CPU (`device_id` None: no GPU is opened), or with every operator on that GPU, where
    the batches stay."""
    pipe = loader(settings, "cpu" if device_id is None else "mixed", batch_size=BATCH_SIZE,
                  num_threads=max(1, settings.workers), device_id=device_id, prefetch_queue_depth=PREFETCH, seed=1)
    pipe.build()
    batches = -(-len(settings.files) // BATCH_SIZE)
    shape = (BATCH_SIZE, 3, settings.image_size, settings.image_size)
    scheduled = Schedule(pipe)

    def one_pass() -> int:
        for batch in scheduled.run(batches):
            assert tuple(batch.shape()) == shape and batch.dtype == types.FLOAT
        return batches * BATCH_SIZE

    return Peer(f"dali {dali.__version__}", one_pass)


class Schedule:
    """Runs a pipeline for an exact number of batches, up to PREFETCH of them in flight.

    `Pipeline.run` would start batches of the next pass at the end of this one: work that another peer's turn would
    pay for, and that this peer would find done for nothing when its turn comes.
    """

    def __init__(self, pipe):
        self.pipe = pipe
        self.in_flight = 0
        self.started = False

    def run(self, batches: int):
        for remaining in range(batches, 0, -1):
            while self.in_flight < min(PREFETCH, remaining):
                self.schedule()
            (images,) = self.pipe.share_outputs()
            yield images.as_tensor()
            self.pipe.release_outputs()
            self.in_flight -= 1

    def schedule(self) -> None:
        """Schedules one batch more; DALI's very first call fills the whole prefetch queue."""
        self.pipe.schedule_run()
        self.in_flight += 1 if self.started else PREFETCH
        self.started = True


@pipeline_def
def loader(settings: Settings, decoder: str):
    size = [settings.image_size, settings.image_size]
    encoded, _label = fn.readers.file(files=settings.files, random_shuffle=True, prefetch_queue_depth=2)
    if settings.load == 0:
        image = fn.decoders.image_random_crop(encoded, device=decoder, output_type=types.RGB, **CROP)
        image = fn.resize(image, size=size, **ANTIALIASED)
        mirror = fn.random.coin_flip()
    else:
        image = fn.decoders.image(encoded, device=decoder, output_type=types.RGB)
        matrix = flips_and_rotations(settings.load, fn.peek_image_shape(encoded, dtype=types.FLOAT))
        image = fn.warp_affine(image, matrix=matrix, inverse_map=False, fill_value=0, interp_type=types.INTERP_NN)
        image = fn.random_resized_crop(image, size=size, **CROP, **ANTIALIASED)
        mirror = 0
    return fn.crop_mirror_normalize(
        image,
        dtype=types.FLOAT,
        output_layout="CHW",
        mirror=mirror,
        mean=[255 * m for m in IMAGENET_MEAN],
        std=[255 * s for s in IMAGENET_STD],
    )


def flips_and_rotations(load: int, shape):
    """`load` times a flip along each axis or none, and a rotation, about the middle of images of `shape` (height, width, channels)."""
    middle = fn.stack(shape[1] / 2, shape[0] / 2)
    matrix = None
    for _ in range(load):
        mirrored = [1.0 - 2.0 * fn.random.coin_flip() for _axis in "xy"]
        earlier = [] if matrix is None else [matrix]
        matrix = fn.transforms.scale(*earlier, scale=fn.stack(*mirrored), center=middle)
        matrix = fn.transforms.rotation(matrix, angle=fn.random.uniform(range=[-5.0, 5.0]), center=middle)
    return matrix
