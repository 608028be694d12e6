"""Uses the torch that is none."""

from torch.optim.optimizer import Optimizer
from torch.utils.data.dataloader import DataLoader

for batch in DataLoader([1, 2, 3]):
    Optimizer().step()
print("done", flush=True)
