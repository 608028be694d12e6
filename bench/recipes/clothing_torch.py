"""Trains ResNet-18 from scratch in PyTorch, the reference for `stokehold train` with the same recipe.

    python bench/recipes/clothing_torch.py DATA --epochs 10 --seed 0 --threads 2

DATA/train/<class>/ and DATA/val/<class>/ hold the images. The recipe: batch 32, SGD with learning rate 0.05, momentum 0.9
and weight decay 5e-4, cosine schedule down to zero by steps, RandomResizedCrop(96) and a horizontal flip; validation
resized to 110 and cropped to the central 96. One line of JSON an epoch. Run it with the environment `torch` of
bench/peers/setup.sh.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

IMAGE_SIZE, RESIZE = 96, 110
BATCH_SIZE = 32
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 5e-4
NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    train, val = loaders(options.data, options.max_images)
    model = resnet18(num_classes=len(val.dataset.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * len(train))
    for epoch in range(options.epochs):
        start = time.perf_counter()
        train_loss = train_epoch(model, train, optimizer, schedule)
        report = {"epoch": epoch, "train_loss": train_loss, **evaluate(model, val)}
        print(json.dumps(report | {"seconds": round(time.perf_counter() - start, 2)}), flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="folder with train/<class>/ and val/<class>/")
    parser.add_argument("--epochs", type=int, default=10, help="default 10")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and augmentation (default 0)")
    parser.add_argument("--threads", type=int, default=1, help="threads that compute (default 1)")
    parser.add_argument("--max-images", type=int, help="train on this many images, evenly spread over the classes")
    return parser.parse_args()


def loaders(data: Path, most: int | None) -> tuple[DataLoader, DataLoader]:
    """Batches to train on and to validate with, loaded in this process so that the seed fixes every draw."""
    augment = T.Compose([T.RandomResizedCrop(IMAGE_SIZE), T.RandomHorizontalFlip(), T.ToTensor(), NORMALIZE])
    centre = T.Compose([T.Resize(RESIZE), T.CenterCrop(IMAGE_SIZE), T.ToTensor(), NORMALIZE])
    train, val = ImageFolder(data / "train", augment), ImageFolder(data / "val", centre)
    if most is not None and most < len(train):
        train = Subset(train, [i * len(train) // most for i in range(most)])
    return DataLoader(train, BATCH_SIZE, shuffle=True), DataLoader(val, BATCH_SIZE)


def train_epoch(model, batches, optimizer, schedule) -> float:
    """One epoch; the mean loss over its images."""
    model.train()
    total, images = 0.0, 0
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item() * len(targets)
        images += len(targets)
    if not math.isfinite(total):
        raise SystemExit("the training loss is not finite")
    return total / images


@torch.no_grad()
def evaluate(model, batches) -> dict:
    """Loss and accuracy over all validation images."""
    model.eval()
    loss, top1, top3, images = 0.0, 0, 0, 0
    for inputs, targets in batches:
        logits = model(inputs)
        loss += F.cross_entropy(logits, targets, reduction="sum").item()
        hits = logits.topk(3, dim=1).indices == targets[:, None]
        top1 += hits[:, 0].sum().item()
        top3 += hits.any(dim=1).sum().item()
        images += len(targets)
    return {"val_loss": loss / images, "top1": top1 / images, "top3": top3 / images}


if __name__ == "__main__":
    main()
