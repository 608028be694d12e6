"""Where a batch's memory ends up: torch tensors where torch is installed, else NumPy arrays; neither is a copy.

NumPy has no arrays on a GPU: without torch, images that ``executor="gpu"`` makes on a CUDA device are objects of DLPack, which
CuPy and JAX take.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from typing import TYPE_CHECKING, Any, Callable

from stokehold.errors import OptionError

if TYPE_CHECKING:
    from stokehold._stokehold import Memory

Take = Callable[["Memory"], Any]

#: Names of number types, as torch, NumPy and Stokehold's own files have them.
DTYPES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "uint8": "u8",
    "f32": "f32",
    "f16": "f16",
    "bf16": "bf16",
    "u8": "u8",
}


def name_of_dtype(dtype: Any) -> str:
    """Stokehold's name of a type that is given as text, ``torch.float16``, ``numpy.float16`` or ``numpy.dtype``."""
    text = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = DTYPES.get(text.rpartition(".")[2])
    if name is None:
        raise OptionError(f"dtype={dtype!r}: there are float32, float16, bfloat16 and uint8")
    return name


def has_torch() -> bool:
    """Whether torch is installed; it is not imported for that."""
    return importlib.util.find_spec("torch") is not None


def find_nvrtc() -> None:
    """Makes NVIDIA's compiler NVRTC and its headers findable where only PyTorch or a package of PyPI has them.

    What ``LD_LIBRARY_PATH`` names is loaded, or PyTorch is imported, whose own one is there then. ``CUDA_PATH`` is set, where
    neither it nor a toolkit is there, to the package ``nvidia-cuda-runtime-cu12``, or else to the one of NVRTC: kernels here
    include no header.
    """
    for name in ("libnvrtc.so", "libnvrtc.so.12"):
        try:
            ctypes.CDLL(name)
            break
        except OSError:
            pass
    else:
        if has_torch():
            import torch  # noqa: F401
    if "CUDA_PATH" in os.environ or os.path.isdir("/usr/local/cuda"):
        return
    for package in ("nvidia.cuda_runtime", "nvidia.cuda_nvrtc"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            return
        if found is not None and found.submodule_search_locations:
            os.environ["CUDA_PATH"] = next(iter(found.submodule_search_locations))
            return


def stacked(images: list[Any]) -> Any:
    """One batch of images, torch tensors or NumPy arrays."""
    if has_torch():
        import torch

        if isinstance(images[0], torch.Tensor):
            return torch.stack(images)
    import numpy

    return numpy.stack(images)


def maker(executor: str, device: Any) -> str | None:
    """The device whose kernels make the batches, as Stokehold names it; ``None`` where the CPU makes them.

    Raises:
        OptionError: executor and device exclude each other.
    """
    name = str(device)
    kind = name.partition(":")[0]
    if executor == "auto":
        raise OptionError(
            "executor='auto': which one is faster is found out by timing training steps, and a loader makes none; time some of "
            "your own with executor='gpu' and with 'fused', and give the faster one"
        )
    if executor != "gpu":
        if kind == "vulkan":
            raise OptionError(f"device={name!r}: executor={executor!r} does not use it; give executor='gpu', or device='cpu'")
        return None
    if kind not in ("cuda", "vulkan"):
        raise OptionError(f"device={name!r}: executor='gpu' makes batches on a GPU; give device='cuda:0' or 'vulkan:0'")
    if kind == "cuda":
        find_nvrtc()
    if name == "cuda" and has_torch():
        import torch

        if torch.cuda.is_available():
            return f"cuda:{torch.cuda.current_device()}"
    return name


def taker(dtype: str, device: Any, made_on: str | None) -> tuple[Take, Take]:
    """How images and how labels are taken over: both onto ``device``, where images are already if it has made them.

    Raises:
        OptionError: the device cannot be used, or NumPy has no such numbers.
    """
    if made_on is not None:
        # The memory of a Vulkan device has been copied to the CPU's.
        device = made_on if made_on.startswith("cuda") else "cpu"
    made_there = made_on is not None and device != "cpu"
    if not has_torch():
        return _numpy_taker(dtype, device, made_there)
    import torch
    from torch.utils.dlpack import from_dlpack

    try:
        where = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise OptionError(f"device={device!r}: {str(error).splitlines()[0]}") from None
    if where.type == "cpu":
        return from_dlpack, from_dlpack
    if where.type != "cuda":
        raise OptionError(f"device={device!r}: there are 'cpu' and 'cuda:N'; take batches on the CPU and move them")
    if not torch.cuda.is_available():
        instead = "install a torch that was built for CUDA" if made_there else "use device='cpu'"
        raise OptionError(f"device={device!r}: torch sees no CUDA device; {instead}")
    if where.index is not None and where.index >= torch.cuda.device_count():
        raise OptionError(f"device={device!r}: torch sees {torch.cuda.device_count()} CUDA device(s), numbered from 0 on")

    def to_cuda(memory: Memory) -> Any:
        # Pinned memory is torch's own and used again; only from there can a copy run next to the trainer's work.
        return from_dlpack(memory).pin_memory().to(where, non_blocking=True)

    return from_dlpack if made_there else to_cuda, to_cuda


def _numpy_taker(dtype: str, device: Any, made_there: bool) -> tuple[Take, Take]:
    import numpy

    if made_there:
        return lambda memory: memory, numpy.from_dlpack
    if str(device) != "cpu":
        raise OptionError(f"device={device!r}: torch is not installed, and NumPy arrays are on the CPU; install torch")
    if dtype == "bf16":
        raise OptionError("dtype='bfloat16': torch is not installed, and NumPy has no such type; use 'float16'")
    return numpy.from_dlpack, numpy.from_dlpack
