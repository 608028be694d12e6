#!/usr/bin/env python3
"""The same training of a segmenter in PyTorch and in Stokehold: mean IoU, pixel accuracy and seconds per epoch of each.

    bench/segmentation.py DATA STOKEHOLD [--epochs 10] [--seeds 2] [--size 120x160] [--batch-size 8] [--lr 0.05] [--workers 2]

DATA is laid out as CamVid is: train/, trainannot/, val/ and valannot/. STOKEHOLD is the program. The network is fcn-resnet18: torchvision's FCN
on its ResNet-18, whose last stage is dilated. Both start from the same random weights, which torchvision made, for the same seed. Both train
with SGD, momentum 0.9 and a cosine schedule, on a crop of a quarter to all of the image, resized and flipped; PyTorch by torchvision's v2 on PIL
images and tensors of masks, in a DataLoader of processes. Both are judged on the whole images, resized. The trainings take turns, seed by seed.

Before that the loaders are timed alone, by CPU time, one thread each. With --seeds 0 nothing is trained.

It runs in a Python that has torch and torchvision. A line of JSON for each training, then a table.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision import tv_tensors
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.segmentation import FCN
from torchvision.models.segmentation.fcn import FCNHead
from torchvision.transforms import v2

CLASSES = 11
IGNORE = 255


def network() -> torch.nn.Module:
    """What replace_stride_with_dilation=[False, False, True] would be if torchvision had it for basic blocks."""
    net = torchvision.models.resnet18()
    first, second = net.layer4
    first.conv1.stride = first.downsample[0].stride = (1, 1)
    for conv in (second.conv1, second.conv2):
        conv.dilation = conv.padding = (2, 2)
    return FCN(IntermediateLayerGetter(net, {"layer4": "out"}), FCNHead(512, CLASSES))


class Pairs(torch.utils.data.Dataset):
    """Images and masks of one part."""

    def __init__(self, data: Path, part: str, transform: v2.Transform) -> None:
        self.pairs = [(path, data / f"{part}annot" / path.name) for path in sorted((data / part).iterdir())]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image, mask = (Image.open(path) for path in self.pairs[index])
        classes = np.asarray(mask).astype(np.int64)
        classes[classes >= CLASSES] = IGNORE
        image, classes = self.transform(image.convert("RGB"), tv_tensors.Mask(torch.from_numpy(classes)))
        return image, classes


def loader(options: argparse.Namespace, part: str) -> torch.utils.data.DataLoader:
    height, width = options.size
    finish = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    finish.append(v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    if part == "train":
        ratio = (0.75 * width / height, 4 / 3 * width / height)
        first = [v2.RandomResizedCrop((height, width), scale=(0.25, 1.0), ratio=ratio), v2.RandomHorizontalFlip()]
    else:
        first = [v2.Resize((height, width))]
    return torch.utils.data.DataLoader(
        Pairs(options.data, part, v2.Compose(first + finish)),
        batch_size=options.batch_size,
        shuffle=part == "train",
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )


def judged(net: torch.nn.Module, batches: torch.utils.data.DataLoader) -> dict[str, float]:
    """The definitions of torchvision's references/segmentation; a class that is nowhere is left out of the mean."""
    matrix = torch.zeros(CLASSES, CLASSES, dtype=torch.int64)
    net.eval()
    with torch.inference_mode():
        for images, masks in batches:
            found, there = net(images)["out"].argmax(1), masks < CLASSES
            matrix += torch.bincount(CLASSES * masks[there] + found[there], minlength=CLASSES**2).reshape(CLASSES, CLASSES)
    right, union = matrix.diag(), matrix.sum(1) + matrix.sum(0) - matrix.diag()
    iou = (right / union)[union > 0]
    return {"miou": iou.mean().item(), "pixel_accuracy": (right.sum() / matrix.sum()).item()}


def pytorch(options: argparse.Namespace, seed: int, weights: Path) -> dict[str, object]:
    torch.manual_seed(seed)
    net = network()
    net.load_state_dict(torch.load(weights))
    train, val = loader(options, "train"), loader(options, "val")
    optimizer = torch.optim.SGD(net.parameters(), lr=options.lr, momentum=0.9)
    steps = len(train) * options.epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    mious, seconds = [], []
    for _ in range(options.epochs):
        net.train()
        begin = time.perf_counter()
        for images, masks in train:
            loss = torch.nn.functional.cross_entropy(net(images)["out"], masks, ignore_index=IGNORE)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        seconds.append(time.perf_counter() - begin)
        scores = judged(net, val)
        mious.append(scores["miou"])
    return {"trainer": "pytorch", "seed": seed, "mious": mious, "seconds": seconds, **scores}


def stokehold(options: argparse.Namespace, seed: int, weights: Path, runs: str) -> dict[str, object]:
    height, width = options.size
    words = [options.stokehold, "train", options.data, "--model", "fcn-resnet18", "--weights", weights, "--runs", runs]
    words += ["--name", f"seed{seed}", "--image-size", f"{height}x{width}", "--epochs", options.epochs, "--seed", seed]
    words += ["--batch-size", options.batch_size, "--lr", options.lr, "--schedule", "cosine", "--workers", options.workers or 1]
    words += ["--keep-checkpoints", 0, "--ceiling-batches", 0, "--device", "cpu"]
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (Path(runs) / f"seed{seed}" / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    return {
        "trainer": "stokehold",
        "seed": seed,
        "mious": [line["miou"] for line in epochs],
        "seconds": [line["seconds"] for line in epochs],
        "miou": epochs[-1]["miou"],
        "pixel_accuracy": epochs[-1]["pixel_accuracy"],
    }


def feedings(options: argparse.Namespace, rounds: int = 5) -> None:
    """Images with masks per second of CPU time of the training loaders alone, one thread each, in turns."""
    train = loader(argparse.Namespace(**{**vars(options), "workers": 0}), "train")
    height, width = options.size
    ratio = [0.75 * width / height, 4 / 3 * width / height]
    pipeline = [
        {"type": "RandomResizedCrop", "size": [height, width], "scale": [0.25, 1.0], "ratio": ratio},
        {"type": "RandomHorizontalFlip"},
        {"type": "ToFloat"},
        {"type": "Normalize"},
    ]
    rates: dict[str, list[float]] = {"pytorch": [], "per-op": [], "fused": []}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"op": pipeline}, file)
        file.flush()
        words = [options.stokehold, "bench", "loader", options.data, "--pipeline", file.name, "--workers", 1, "--passes", 1, "--json"]
        words += ["--batch-size", options.batch_size, "--executor"]
        for _ in range(rounds):
            begin, images = time.process_time(), 0
            for batch, _ in train:
                images += len(batch)
            rates["pytorch"].append(images / (time.process_time() - begin))
            for executor in ("per-op", "fused"):
                done = subprocess.run([str(word) for word in [*words, executor]], check=True, capture_output=True)
                rates[executor].append(json.loads(done.stdout)["images_per_cpu_second"])
    print("\n| loader | images with masks per CPU second | times PyTorch's |\n|---|---|---|")
    for side, own in rates.items():
        ratio = statistics.median(a / b for a, b in zip(own, rates["pytorch"]))
        print(f"| {side} | {statistics.median(own):.1f} | {ratio:.2f} |")


def size(text: str) -> tuple[int, int]:
    height, width = text.split("x")
    return int(height), int(width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("stokehold", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--size", type=size, default=(120, 160), metavar="HEIGHTxWIDTH")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    feedings(options)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            weights = Path(folder) / f"seed{seed}.pth"
            torch.save(network().state_dict(), weights)
            turns = [lambda: pytorch(options, seed, weights), lambda: stokehold(options, seed, weights, folder)]
            for turn in turns if seed % 2 == 0 else turns[::-1]:
                results.append(turn())
                print(json.dumps(results[-1]), flush=True)
    if not results:
        return
    print(f"\n| trainer | mIoU (last epoch, {options.seeds} seeds) | pixel accuracy | seconds per epoch |\n|---|---|---|---|")
    for trainer in ("pytorch", "stokehold"):
        own = [result for result in results if result["trainer"] == trainer]
        mean = lambda key: statistics.mean(result[key] for result in own)
        seconds = statistics.median(second for result in own for second in result["seconds"])
        print(f"| {trainer} | {mean('miou'):.4f} | {mean('pixel_accuracy'):.4f} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
