"""`smdistributed.dataparallel.torch.torch_smddp`: importing it makes the backend "smddp" known to torch."""

import torch as _torch
import torch.distributed as _dist


def _group(store, rank, size, timeout):
    if _torch.cuda.is_available():
        options = _dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return _dist.ProcessGroupNCCL(store, rank, size, options)
    return _dist.ProcessGroupGloo(store, rank, size, timeout)


if not hasattr(_dist.Backend, "SMDDP"):
    _dist.Backend.register_backend("smddp", _group, devices=["cpu", "cuda"])
