"""One of the processes that torchrun starts for test_torch.py: writes down two epochs' samples, then trains by the example.

    torchrun --nproc-per-node 2 ranks.py EXAMPLE FOLDER OUT
"""

import json
import os
import runpy
import sys
from pathlib import Path

from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms

from stokehold.torch import DataLoader, ImageFolder

example, folder, out = sys.argv[1:]
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

dataset = ImageFolder(Path(folder) / "train", transforms.Compose([transforms.CenterCrop(8), transforms.ToTensor()]))
sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
loader = DataLoader(dataset, 4, sampler=sampler, samples=True)
epochs = []
for epoch in (0, 5):
    sampler.set_epoch(epoch)
    epochs.append([samples.tolist() for _, _, samples in loader])
Path(out, f"rank-{rank}.json").write_text(json.dumps(epochs))

sys.argv = [example, folder, *"--epochs 2 --image-size 32 --batch-size 4 --workers 1 --lr 0.01 --checkpoint".split(), f"{out}/saved.pt"]
runpy.run_path(example, run_name="__main__")
