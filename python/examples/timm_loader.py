"""The loaders of a timm training script, by Stokehold.

timm's `create_loader` takes what `resolve_data_config` says of a model; so does this.
"""

from typing import Any

import stokehold
from stokehold import transforms as T


def create_loader(
    data: str, config: dict[str, Any], batch_size: int, is_training: bool = False, hflip: float = 0.5,
    color_jitter: float = 0.0, re_prob: float = 0.0, **more: Any,
) -> stokehold.Loader:  # fmt: skip
    """`config` as timm's: input_size (3, H, W), interpolation, mean, std, crop_pct."""
    _, height, width = config["input_size"]
    interpolation = config.get("interpolation", "bilinear")
    to_float = [T.ToTensor(), T.Normalize(config["mean"], config["std"])]
    if is_training:
        pipeline = [
            T.RandomResizedCrop((height, width), interpolation=interpolation),
            T.RandomHorizontalFlip(hflip),
            T.ColorJitter(color_jitter, color_jitter, color_jitter),
            *to_float,
            T.RandomErasing(re_prob, value="random"),
        ]
    else:
        scaled = int(min(height, width) / config.get("crop_pct", 0.875))
        pipeline = [T.Resize(scaled, interpolation), T.CenterCrop((height, width)), *to_float]
    return stokehold.Loader(
        data, T.Compose(pipeline), split="train" if is_training else "val", batch_size=batch_size, shuffle=is_training,
        drop_last=is_training, **more,
    )  # fmt: skip
