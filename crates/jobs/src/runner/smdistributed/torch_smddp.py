"""`smdistributed.dataparallel.torch.torch_smddp`: importing it makes the backend "smddp" known to torch."""

from . import distributed

__all__ = ["distributed"]
