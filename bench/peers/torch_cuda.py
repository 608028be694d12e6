"""torchvision on an NVIDIA GPU: `decode_jpeg` by batches (nvJPEG), then v2's transforms on the images where they lie.

The same work as torch_v2. `--workers` threads read the files of the next batch while the device has this one; 0 reads in the
main thread. A pass ends when the device has finished.
"""

import concurrent.futures
import random

import torch
import torchvision
from protocol import BATCH_SIZE, Peer, Settings, Unsupported, run
from spec import IMAGENET_MEAN, IMAGENET_STD
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2 as T


def build(settings: Settings) -> Peer:
    if not torch.cuda.is_available():
        raise Unsupported("PyTorch finds no CUDA device")
    repeated = [T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomRotation(5)] * settings.load
    crop = [T.RandomResizedCrop(settings.image_size, antialias=True)]
    flip = [T.RandomHorizontalFlip()] if settings.load == 0 else []
    # One draw for each image, as a DataLoader's workers do; to float once for the batch, which is faster.
    draw = T.Compose(repeated + crop + flip)
    to_float = T.Compose([T.ToDtype(torch.float32, scale=True), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)])
    shape = (3, settings.image_size, settings.image_size)

    def one_pass() -> int:
        images = 0
        for files in read_ahead(settings):
            decoded = decode_jpeg(files, mode=ImageReadMode.RGB, device="cuda")
            batch = to_float(torch.stack([draw(image) for image in decoded]))
            assert batch.shape[1:] == shape and batch.is_cuda
            images += batch.shape[0]
        torch.cuda.synchronize()
        return images

    device = torch.cuda.get_device_name()
    return Peer(f"torch {torch.__version__}, torchvision {torchvision.__version__}, {device}", one_pass)


def read_ahead(settings: Settings):
    """The bytes of each batch of a shuffled pass, read one batch ahead."""
    files = random.sample(settings.files, len(settings.files))
    batches = [files[i : i + BATCH_SIZE] for i in range(0, len(files), BATCH_SIZE)]
    if settings.workers == 0:
        yield from ([read_file(file) for file in batch] for batch in batches)
        return
    with concurrent.futures.ThreadPoolExecutor(settings.workers) as threads:
        ahead = [threads.submit(read_file, file) for file in batches[0]]
        for following in [*batches[1:], []]:
            now, ahead = ahead, [threads.submit(read_file, file) for file in following]
            yield [read.result() for read in now]


if __name__ == "__main__":
    run("torch_cuda", build)
