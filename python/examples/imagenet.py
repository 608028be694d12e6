"""PyTorch's ImageNet example (pytorch/examples/imagenet), cut down to its training loop, fed by Stokehold.

    python imagenet.py DATA --arch resnet18 --epochs 90
    torchrun --nproc-per-node 4 imagenet.py DATA --batch-size 256

Lines that differ from the script with torch.utils.data and torchvision.datasets end with  # stokehold. A run that was
interrupted continues with the next batch: --resume.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torchvision.models as models
import torchvision.transforms as transforms
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

from stokehold.torch import DataLoader, ImageFolder  # stokehold


def main() -> None:
    options = parse()
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    torch.manual_seed(options.seed)

    normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    train_set = ImageFolder(
        os.path.join(options.data, "train"),
        transforms.Compose(
            [
                transforms.RandomResizedCrop(options.image_size),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                normalize,
            ]
        ),
    )
    val_set = ImageFolder(
        os.path.join(options.data, "val"),
        transforms.Compose(
            [
                transforms.Resize(options.image_size * 8 // 7),
                transforms.CenterCrop(options.image_size),
                transforms.ToTensor(),
                normalize,
            ]
        ),
    )
    sampler = DistributedSampler(train_set) if world_size > 1 else None
    train = DataLoader(
        train_set, batch_size=options.batch_size, shuffle=sampler is None, sampler=sampler, num_workers=options.workers,
        pin_memory=True,
    )  # fmt: skip
    val = DataLoader(val_set, batch_size=options.batch_size, num_workers=options.workers, pin_memory=True)

    model: nn.Module = models.get_model(options.arch, num_classes=len(train_set.classes)).to(device)
    # What is saved and judged is the model by itself: that on one rank waits for no one.
    shared = DistributedDataParallel(model) if world_size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), options.lr, momentum=0.9, weight_decay=1e-4)
    first = 0
    if options.resume and os.path.exists(options.checkpoint):
        saved = torch.load(options.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        train.load_state_dict(saved["loader"])  # stokehold
        first = saved["epoch"]

    for epoch in range(first, options.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        train_epoch(train, shared, optimizer, device, epoch, lambda: save(model, optimizer, train, epoch, options.checkpoint))
        if dist.is_initialized() and dist.get_rank() != 0:
            continue
        print(f"epoch {epoch}: accuracy {accuracy(val, model, device):.3f}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def train_epoch(train, model, optimizer, device, epoch, save) -> None:
    model.train()
    start, images_seen = time.time(), 0
    for batch, (images, labels) in enumerate(train):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        images_seen += len(images)
        if batch % 100 == 0:
            print(f"epoch {epoch} batch {batch}: loss {loss.item():.4f}", flush=True)
            save()
    print(f"epoch {epoch}: {images_seen / (time.time() - start):.0f} images/s", flush=True)


def save(model, optimizer, train, epoch, checkpoint) -> None:
    if dist.is_initialized() and dist.get_rank() != 0:
        return
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    state["loader"] = train.state_dict()  # stokehold: the same on every rank
    torch.save(state, checkpoint + ".new")
    os.replace(checkpoint + ".new", checkpoint)


@torch.no_grad()
def accuracy(val, model, device) -> float:
    model.eval()
    right = total = 0
    for images, labels in val:
        right += (model(images.to(device)).argmax(1).cpu() == labels).sum().item()
        total += len(labels)
    return right / total


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a torchvision model on a folder of images.")
    parser.add_argument("data", help="folder with train/ and val/")
    parser.add_argument("--arch", default="resnet18")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
