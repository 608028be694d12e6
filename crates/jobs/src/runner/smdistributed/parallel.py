"""`smdistributed.dataparallel.torch.parallel.distributed`: torch's DistributedDataParallel."""

import torch as _torch


class DistributedDataParallel(_torch.nn.parallel.DistributedDataParallel):
    """As torch's; the process group is made if the script has not made it."""

    def __init__(self, module, *args, **options):
        from ..distributed import init_process_group, is_initialized

        if not is_initialized():
            init_process_group()
        super().__init__(module, *args, **options)
