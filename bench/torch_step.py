#!/usr/bin/env python3
"""How fast PyTorch trains alone, with a batch at hand: forward, backward and SGD of torchvision's networks, without a loader.

    bench/torch_step.py [--models resnet18,resnet50,resnet152] [--json FILE]

float32 throughout, once with convolutions and matrix products in full float32 and once with TF32, which is what cuDNN takes
unless it is told not to. Images a second of the median step, after some that warm up.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torchvision


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default="resnet18,resnet50,resnet152", metavar="A,B", help="torchvision's names")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=20, help="timed steps (default 20)")
    parser.add_argument("--device", default="cuda", help="cuda (the default) or cpu")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    options = parser.parse_args()
    device = torch.device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, {name}, batch {options.batch_size}")
    results = []
    for model in options.models.split(","):
        # A CPU has no TF32.
        for tf32 in [False, True] if device.type == "cuda" else [False]:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
            rate = options.batch_size / statistics.median(step_seconds(model, device, options))
            print(f"{model:>9}, {'TF32' if tf32 else 'float32'}: {rate:.1f} images/s", flush=True)
            results.append({"model": model, "tf32": tf32, "images_per_second": rate, "torch": torch.__version__})
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def step_seconds(name: str, device: torch.device, options: argparse.Namespace) -> list[float]:
    model = getattr(torchvision.models, name)().to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.5)
    loss = torch.nn.CrossEntropyLoss()
    images = torch.randn(options.batch_size, 3, options.image_size, options.image_size, device=device)
    labels = torch.randint(0, 1000, (options.batch_size,), device=device)
    seconds = []
    for _ in range(3 + options.steps):
        begun = time.perf_counter()
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begun)
    return seconds[3:]


if __name__ == "__main__":
    sys.exit(main())
