"""What both DALI peers share: the pipeline, and passes of an exact number of batches.

What is done to an image is the trial dali's, of which `dali.py` among the trials of `stokehold compare` says more.
A pass is a whole number of batches: DALI fills the last one with images of the next shuffle, and they are counted.
`--workers` is num_threads; 0 counts as 1 because DALI has no mode without a thread of its own.
"""

from nvidia.dali import fn, pipeline_def, types
from protocol import BATCH_SIZE, Peer, Settings
from dali import PREFETCH, augmented, versions  # isort: skip


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

    return Peer(versions(), one_pass)


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
    encoded, _label = fn.readers.file(files=settings.files, random_shuffle=True, prefetch_queue_depth=2)
    return augmented(encoded, settings.load, settings.image_size, decoder)
