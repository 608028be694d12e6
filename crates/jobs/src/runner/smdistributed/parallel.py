"""`smdistributed.dataparallel.torch.parallel.distributed`: torch's DistributedDataParallel."""

from ..distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
