"""A Lightning DataModule over Stokehold.

Lightning puts a DistributedSampler into PyTorch's own DataLoader only, so ranks are told here; its checkpoints keep the
loader's place.
"""

import lightning
import stokehold
from stokehold import transforms as T


class Images(lightning.LightningDataModule):
    def __init__(self, data: str, batch_size: int = 256, image_size: int = 224) -> None:
        super().__init__()
        self.data, self.batch_size = data, batch_size
        to_float = [T.ToTensor(), T.Normalize(T.MEAN, T.STD)]
        self.train = T.Compose([T.RandomResizedCrop(image_size), T.RandomHorizontalFlip(), *to_float])
        self.val = T.Compose([T.Resize(image_size * 8 // 7), T.CenterCrop(image_size), *to_float])
        self.loader: stokehold.Loader | None = None
        self.saved: dict | None = None

    def train_dataloader(self) -> stokehold.Loader:
        self.loader = stokehold.Loader(
            self.data, self.train, batch_size=self.batch_size, drop_last=True,
            rank=self.trainer.global_rank, world_size=self.trainer.world_size,
        )  # fmt: skip
        if self.saved is not None:
            self.loader.load_state_dict(self.saved)
        return self.loader

    def val_dataloader(self) -> stokehold.Loader:
        return stokehold.Loader(self.data, self.val, split="val", shuffle=False, batch_size=self.batch_size)

    def state_dict(self) -> dict:
        return {} if self.loader is None else {"loader": self.loader.state_dict()}

    def load_state_dict(self, state_dict: dict) -> None:
        self.saved = state_dict.get("loader")
