"""Keeps vision training fed: a data loader for PyTorch and NumPy, written in Rust.

    import stokehold
    from stokehold import transforms as T

    loader = stokehold.Loader(
        "imagenet",  # imagenet/train/<class>/*.jpg, shards made by `stokehold prepare`, s3://.., or a list of (path, label)
        T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(T.MEAN, T.STD)]),
        batch_size=256,
    )
    for epoch in range(90):
        for images, labels in loader:  # (N, 3, H, W) float32, (N,) int64
            ...

* :class:`Loader` is what replaces a DataLoader.
* :mod:`stokehold.transforms` are the operations, with torchvision's names; ``from_torchvision`` converts a Compose.
* :mod:`stokehold.torch` has ``ImageFolder`` and ``DataLoader`` with PyTorch's signatures, for scripts that exist.
* :func:`decode` and :func:`decode_batch` decode images, to the bit as Pillow does; :mod:`stokehold.pillow` makes Pillow itself faster,
  and :mod:`stokehold.decoders` cv2, torchvision.io, simplejpeg and PyTurboJPEG.
* :func:`profile`, :func:`step` and :func:`wrap` show what a training loop waits for, with any loader.
* :func:`advise` says what would make a run of ``stokehold train`` faster; ``python -m stokehold`` is the command line.
* :mod:`stokehold.errors` are the exceptions.
"""

import importlib
from typing import TYPE_CHECKING, Any

from stokehold._stokehold import __version__

if TYPE_CHECKING:
    from stokehold import errors, images, transforms
    from stokehold._advise import Advice, Advised, advise
    from stokehold._loader import Loader
    from stokehold._profile import Recording, profile, step, wrap
    from stokehold.errors import BadImageWarning, DataError, OptionError, StokeholdError, UsageError
    from stokehold.images import decode, decode_batch

__all__ = [
    "Advice",
    "Advised",
    "BadImageWarning",
    "DataError",
    "Loader",
    "OptionError",
    "Recording",
    "StokeholdError",
    "UsageError",
    "__version__",
    "advise",
    "decode",
    "decode_batch",
    "errors",
    "profile",
    "step",
    "transforms",
    "wrap",
]

#: Modules and their names above. A module is imported when one of its names is first used: a worker that only opens images with
#: `stokehold.pillow` needs none of them.
_MODULES = {
    "_advise": ("Advice", "Advised", "advise"),
    "_loader": ("Loader",),
    "_profile": ("Recording", "profile", "step", "wrap"),
    "errors": ("BadImageWarning", "DataError", "OptionError", "StokeholdError", "UsageError", "errors"),
    "images": ("decode", "decode_batch", "images"),
    "transforms": ("transforms",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            found = importlib.import_module(f"{__name__}.{module}")
            value = globals()[name] = found if name == module else getattr(found, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
