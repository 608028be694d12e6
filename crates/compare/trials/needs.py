"""What every trial needs of a Python; as a program, what of it this Python lacks.

It reads a line, {"trials": [name, ..], "torch": whether PyTorch trains}, and answers {"lacks": {"modules": [[module, [trial, ..]], ..],
"install": [command, ..]}}.
"""

from __future__ import annotations

import importlib.util
import json
import sys

WHEEL = "pip install stokehold-*.whl (python/build{} in Stokehold's repository makes it)"
FFCV = "apt-get install libopencv-dev libturbojpeg0-dev pkg-config g++ && pip install ffcv"
TORCH = ("torch", "torchvision")

#: The program of every trial, the library without which it cannot run, what installs that, and the modules that it imports.
TRIALS = {
    "torchvision": ("torchvision_pil", "torchvision", "pip install torch torchvision", (*TORCH, "PIL")),
    "fast-images": ("fast_images", "Stokehold's Python package", WHEEL.format(""), (*TORCH, "PIL", "stokehold")),
    "torchvision-v2": ("torchvision_v2", "torchvision", "pip install torch torchvision", (*TORCH, "PIL")),
    "albumentations": ("albumentations_cv2", "Albumentations", "pip install albumentations simplejpeg", ("albumentations", "cv2", "simplejpeg")),
    "dali": ("dali", "DALI", "pip install nvidia-dali-cuda120", ("nvidia.dali",)),
    "dali-gpu": ("dali", "DALI", "pip install nvidia-dali-cuda120", ("nvidia.dali",)),
    "ffcv": ("ffcv_jpeg", "FFCV", FFCV, ("ffcv", "numba", "torch", "PIL")),
    "ffcv-raw": ("ffcv_jpeg", "FFCV", FFCV, ("ffcv", "numba", "torch", "PIL")),
    "spdl": ("spdl_threads", "SPDL", "pip install spdl", ("spdl",)),
    "stokehold": ("stokehold_python", "Stokehold's Python package", WHEEL.format(""), ("stokehold",)),
    "stokehold-gpu": ("stokehold_python", "Stokehold's Python package", WHEEL.format(" --features cuda"), ("stokehold",)),
}


def is_there(module: str) -> bool:
    """Whether this Python finds a module; nothing of it runs but the packages that it lies in."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def lacking(trials: list[str], torch: bool) -> tuple[dict[str, list[str]], list[str]]:
    """The modules that are not there, each with the trials that need it, and the commands that install them."""
    modules: dict[str, list[str]] = {}
    installs: list[str] = []
    for trial in trials:
        *_, install, own = TRIALS[trial]
        for needed, how in (
            (("numpy",), "pip install numpy"),
            (own, install),
            (TORCH if torch else (), "pip install torch torchvision"),
        ):
            missing = [module for module in needed if not is_there(module)]
            for module in missing:
                modules.setdefault(module, [])
                if trial not in modules[module]:
                    modules[module].append(trial)
            if missing and how not in installs:
                installs.append(how)
    return modules, installs


if __name__ == "__main__":
    # With -c the folder of whoever calls comes first, where no trial looks.
    sys.path[:] = [place for place in sys.path if place]
    asked = json.loads(sys.stdin.readline())
    modules, installs = lacking(asked["trials"], asked["torch"])
    print(json.dumps({"lacks": {"modules": list(modules.items()), "install": installs}}), flush=True)
