"""A Lightning DataModule over Stokehold.

Lightning puts a DistributedSampler into PyTorch's own DataLoader only, so ranks are told here. Its checkpoints keep the
loader's place by themselves, also in mid-epoch.
"""

import lightning
import stokehold
from stokehold import transforms as T


class Loader(stokehold.Loader):
    """As Lightning uses a loader: it begins an epoch before it lets go of the last one, and resumes behind an epoch in the next."""

    def __iter__(self):
        self.stop()
        return super().__iter__()

    def load_state_dict(self, state_dict: dict) -> None:
        super().load_state_dict(state_dict)
        if state_dict["batch"] == len(self):
            self.set_epoch(state_dict["epoch"] + 1)


class Images(lightning.LightningDataModule):
    def __init__(self, data: str, batch_size: int = 256, image_size: int = 224) -> None:
        super().__init__()
        self.data, self.batch_size = data, batch_size
        to_float = [T.ToTensor(), T.Normalize(T.MEAN, T.STD)]
        self.train = T.Compose([T.RandomResizedCrop(image_size), T.RandomHorizontalFlip(), *to_float])
        self.val = T.Compose([T.Resize(image_size * 8 // 7), T.CenterCrop(image_size), *to_float])

    def train_dataloader(self) -> Loader:
        return Loader(
            self.data, self.train, batch_size=self.batch_size, drop_last=True,
            rank=self.trainer.global_rank, world_size=self.trainer.world_size,
        )  # fmt: skip

    def val_dataloader(self) -> Loader:
        return Loader(
            self.data, self.val, split="val", shuffle=False, batch_size=self.batch_size,
            rank=self.trainer.global_rank, world_size=self.trainer.world_size,
        )  # fmt: skip
