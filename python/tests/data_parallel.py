"""One of the processes that torchrun starts for test_torch.py: trains a step by stokehold.distributed.

    torchrun --nproc-per-node 2 data_parallel.py OUT BACKEND
"""

import json
import sys
from pathlib import Path

import torch

import stokehold.distributed as dist
from stokehold.distributed import DistributedDataParallel

out, backend = sys.argv[1:]
if backend != "none":
    dist.init_process_group(backend)
model = DistributedDataParallel(torch.nn.Linear(3, 1, bias=False))
with torch.no_grad():
    model.module.weight.fill_(0)
# The gradient is the mean of the ranks' images: 1 of rank 0 and 3 of rank 1.
model(torch.full((4, 3), 1.0 + 2 * dist.get_rank())).mean().backward()
total = torch.tensor(float(dist.get_rank() + 1))
dist.all_reduce(total)
said = {
    "gradient": model.module.weight.grad.tolist(),
    "total": total.item(),
    "local": [dist.get_local_rank(), dist.get_local_size()],
    "world": dist.get_world_size(),
}
Path(out, f"parallel-{dist.get_rank()}.json").write_text(json.dumps(said))
dist.barrier()
dist.destroy_process_group()
