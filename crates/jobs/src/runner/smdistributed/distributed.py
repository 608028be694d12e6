"""`smdistributed.dataparallel.torch.distributed`: torch.distributed, with a default backend and the local rank."""

import os

import torch as _torch
import torch.distributed as _dist
from torch.distributed import *  # noqa: F403


def _backend():
    return "nccl" if _torch.cuda.is_available() else "gloo"


def init_process_group(backend=None, **options):
    """As torch's; `backend` may be left out, and "smddp" is gloo on CPUs and NCCL on GPUs."""
    if backend in (None, "smddp"):
        backend = _backend()
    return _dist.init_process_group(backend, **options)


def get_local_rank():
    """The number of this process among those of its machine, from 0."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def get_local_size():
    """The number of processes of this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
