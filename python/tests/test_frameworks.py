"""The examples for Lightning and timm, in those."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from conftest import HAS_TORCH

for needed in ("torch", "lightning", "timm"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed in this environment", allow_module_level=True)

import lightning
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Classifier(lightning.LightningModule):
    """Notes what it gets."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.seen, self.validated = [], 0

    def training_step(self, batch, number):
        images, labels = batch
        self.seen.append((labels.tolist(), images.double().sum().item()))
        return torch.nn.functional.cross_entropy(self.layer(images.mean((2, 3))), labels)

    def validation_step(self, batch, number):
        self.validated += len(batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.filterwarnings("ignore")
def test_lightning_goes_on_in_mid_epoch(folder, tmp_path):
    def fit(steps, resume=None, **options):
        trainer = lightning.Trainer(
            max_steps=steps, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False, default_root_dir=tmp_path, **options,
        )  # fmt: skip
        classifier = Classifier()
        images = example("lightning_data").Images(str(folder), batch_size=4, image_size=16)
        trainer.fit(classifier, datamodule=images, ckpt_path=resume)
        trainer.save_checkpoint(tmp_path / f"{steps}.ckpt")
        return classifier

    # An epoch is nine batches; in the midst of one, and behind one.
    whole = fit(20)
    assert len(whole.seen) == 20 and len({total for _, total in whole.seen}) == 20
    for steps in (13, 18):
        first = fit(steps)
        rest = fit(20, resume=tmp_path / f"{steps}.ckpt")
        assert first.seen + rest.seen == whole.seen, steps
    # Epochs that are left early.
    limited = fit(10, limit_train_batches=5)
    assert limited.seen == whole.seen[:5] + whole.seen[9:14] and limited.validated == 2 * 9 + 8


def test_lightning_deals_a_loader_out_among_ranks(folder):
    """As it does for PyTorch's: it makes the loader anew, with a DistributedSampler."""
    from lightning.fabric.utilities.data import _update_dataloader
    from torch.utils.data.distributed import DistributedSampler
    from torchvision import transforms

    from stokehold.torch import DataLoader, ImageFolder

    data = ImageFolder(folder / "train", transforms.Compose([transforms.CenterCrop(8), transforms.ToTensor()]))
    loader = DataLoader(data, 4, shuffle=True, num_workers=1, dtype="float16", samples=True)
    seen = []
    for rank in range(2):
        dealt = _update_dataloader(loader, DistributedSampler(data, 2, rank))
        assert type(dealt) is DataLoader and dealt.dtype == "float16"
        seen.extend(number for _, _, numbers in dealt for number in numbers.tolist())
    assert len(seen) == 38 and set(seen) == set(range(37))


def test_timms_transforms_are_converted():
    import stokehold
    import stokehold.transforms as T
    from timm.data import create_transform

    mean, std = (torch.tensor(numbers).tolist() for numbers in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    end = [T.ToTensor(), T.Normalize(mean, std)]
    evaluation = create_transform(64, crop_pct=0.875, interpolation="bicubic")
    assert T.from_torchvision(evaluation).transforms == [T.Resize(73, "bicubic"), T.CenterCrop(64), *end]
    given = {"is_training": True, "color_jitter": None, "hflip": 0.0}
    training = create_transform(64, interpolation="bicubic", scale=(0.2, 1.0), **given)
    assert T.from_torchvision(training).transforms == [T.RandomResizedCrop(64, (0.2, 1.0), interpolation="bicubic"), *end]
    with pytest.raises(stokehold.OptionError, match="draws its interpolation"):
        T.from_torchvision(create_transform(64, interpolation="random", **given))


def test_timm_gets_what_its_own_loader_gives(folder):
    import timm
    from timm import data as timm_data

    model = timm.create_model("resnet18", num_classes=3)
    config = timm_data.resolve_data_config({"input_size": (3, 64, 64)}, model=model)
    create_loader = example("timm_loader").create_loader
    ours = create_loader(str(folder), config, 9, executor="per-op")
    theirs = timm_data.create_loader(
        timm_data.create_dataset("", str(folder / "val")), config["input_size"], 9, use_prefetcher=False, num_workers=0,
        **{name: config[name] for name in ("interpolation", "mean", "std", "crop_pct")},
    )  # fmt: skip
    ((images, labels),), ((expected, labels_expected),) = ours, theirs
    assert torch.equal(labels, labels_expected)
    assert (images - expected).abs().max() * min(config["std"]) * 255 < 1.01

    train = create_loader(str(folder), config, 8, is_training=True, color_jitter=0.4, re_prob=0.25)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for images, labels in train:
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
