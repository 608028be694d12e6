"""torch.distributed as SageMaker's data parallel library offers it: with a default backend, the local rank, and its own
DistributedDataParallel.

    import smdistributed.dataparallel.torch.distributed as dist
    from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP

    dist.init_process_group()                     # gloo on CPUs, NCCL on GPUs, under torchrun, mpirun or a job
    model = DDP(model.to(device), device_ids=[dist.get_local_rank()] if torch.cuda.is_available() else None)

Everything else is torch.distributed's. Importing it makes the backend "smddp" known to torch, which is gloo or NCCL.
"""

from __future__ import annotations

import atexit
import os
import time
from typing import Any

import torch as _torch
import torch.distributed as _torch_distributed
from torch.distributed import *  # noqa: F403

# What it has depends on how torch was built.
_dist: Any = _torch_distributed


def init_process_group(backend: str | None = None, **options: Any) -> None:  # type: ignore[no-redef]
    """As torch's; `backend` may be left out, and "smddp" is gloo on CPUs and NCCL on GPUs."""
    if backend in (None, "smddp"):
        backend = "nccl" if _torch.cuda.is_available() else "gloo"
    _dist.init_process_group(backend, **options)
    _let_go_at_exit()


def _let_go() -> None:
    """Gives gloo's threads the time to let go of the last tensors: one that does so later, while Python ends, aborts the process
    ("terminate called without an active exception"), though its work is done."""
    time.sleep(0.1)


def _let_go_at_exit() -> None:
    atexit.unregister(_let_go)
    atexit.register(_let_go)


def get_local_rank() -> int:
    """The number of this process among those of its machine, from 0."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def get_local_size() -> int:
    """The number of processes of this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class DistributedDataParallel(_torch.nn.parallel.DistributedDataParallel):
    """As torch's; the process group is made if the script has not made it."""

    def __init__(self, module: _torch.nn.Module, *args: Any, **options: Any) -> None:
        if not _dist.is_initialized():
            init_process_group()
        super().__init__(module, *args, **options)


def _group(store: Any, rank: int, size: int, timeout: Any) -> Any:
    if _torch.cuda.is_available():
        options = _dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return _dist.ProcessGroupNCCL(store, rank, size, options)
    _let_go_at_exit()
    return _dist.ProcessGroupGloo(store, rank, size, timeout)


if not hasattr(_dist.Backend, "SMDDP"):
    _dist.Backend.register_backend("smddp", _group, devices=["cpu", "cuda"])
