"""Training of a network of torchvision with PyTorch: cross entropy, SGD with momentum, memory format channels last.

AMP is autocast in float16 with a GradScaler on CUDA, and autocast in bfloat16, which needs no scaler, on a CPU. Without
AMP everything is PyTorch's default, so convolutions on CUDA use TF32. A step ends when its loss has been read, which
waits for the device.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np
from spec import Cannot, Failed, Spec

INSTALL = "pip install torch torchvision"


def device_of(spec: Spec, options: dict[str, Any]) -> str:
    """cpu or cuda, of what is asked for and what there is; fails where the network or the device is not there."""
    wanted = {"device": str, "amp": bool, "lr": (int, float), "momentum": (int, float)}
    if not isinstance(options, dict) or options.keys() != wanted.keys() or not all(
        isinstance(options[name], kind) for name, kind in wanted.items()
    ):
        raise Failed(f"trainer: torch must be {{device, amp, lr, momentum}}, not {options!r}")
    try:
        import torch
        import torchvision
    except ModuleNotFoundError as error:
        raise Cannot(f"PyTorch cannot train: {error.name} is not installed", INSTALL) from None
    except (ImportError, OSError) as error:
        raise Cannot(f"PyTorch cannot train: {error}") from None
    if spec.model not in torchvision.models.list_models(module=torchvision.models):
        raise Cannot(f"torchvision {torchvision.__version__} has no network called {spec.model}")
    device = options["device"]
    if device not in ("auto", "cpu", "cuda"):
        raise Failed(f"trainer: device must be auto, cpu or cuda, not {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        if torch.version.cuda is None:
            raise Cannot(f"torch {torch.__version__} is a build for CPUs and has no CUDA", INSTALL)
        raise Cannot(f"torch {torch.__version__}, built for CUDA {torch.version.cuda}, finds no GPU or no driver for one")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


class TorchTrainer:
    """A network, its optimizer and its device."""

    def __init__(self, spec: Spec, options: dict[str, Any]):
        import torch
        import torchvision

        torch.manual_seed(spec.seed)
        cuda = spec.device == "cuda"
        # All batches have the same shape, so the search for the fastest convolutions pays.
        torch.backends.cudnn.benchmark = True
        self.torch, self.where = torch, torch.device(spec.device)
        network = torchvision.models.get_model(spec.model, weights=None, num_classes=spec.classes)
        self.network = network.to(self.where, memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=options["lr"], momentum=options["momentum"])
        self.criterion = torch.nn.CrossEntropyLoss()
        self.scaler = torch.amp.GradScaler(enabled=cuda and options["amp"])
        lower = torch.float16 if cuda else torch.bfloat16
        self.autocast = contextlib.nullcontext
        if options["amp"]:
            self.autocast = lambda: torch.autocast(self.where.type, dtype=lower)
        self.device = f"cuda ({torch.cuda.get_device_name()})" if cuda else "cpu"
        if options["amp"]:
            self.device += f", AMP {str(lower).replace('torch.', '')}"
        self.versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}"

    def step(self, images: Any, labels: np.ndarray) -> tuple[float, float, float]:
        """Trains with a batch: seconds that it took, 0 for copying, which is not measured, and the loss."""
        begun = time.perf_counter()
        torch = self.torch
        images = torch.as_tensor(images).to(self.where, non_blocking=True, memory_format=torch.channels_last)
        targets = torch.from_numpy(labels.astype(np.int64)).to(self.where, non_blocking=True)
        self.optimizer.zero_grad()
        with self.autocast():
            loss = self.criterion(self.network(images), targets)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        loss = loss.item()
        if self.where.type == "cuda":
            # The loss is there before the optimizer's last kernels end.
            torch.cuda.synchronize(self.where)
        return time.perf_counter() - begun, 0.0, loss
