#!/usr/bin/env python3
"""Images per second of the augmentations of today's recipes, beside torchvision v2, DALI and Albumentations, on one core.

    bench/augment.py PHOTOS [--recipes plain,jitter,..] [--rounds 5] [--stokehold FILE] [--python FILE] [--json FILE]

Sides take turns as in bench/run.py, which explains the rounds and the ratios. A library takes no part in a recipe that it does
not have. What the libraries do is in bench/augmented.py. The Python is that of `bench/peers/setup.sh all`, unless --python names another.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import run

CROP = '[[op]]\ntype = "RandomResizedCrop"\nsize = 224\n[[op]]\ntype = "RandomHorizontalFlip"\n'
END = '[[op]]\ntype = "ToFloat"\n[[op]]\ntype = "Normalize"\n'
RECIPES = {
    "plain": "",
    "jitter": '[[op]]\ntype = "RandomAffine"\ndegrees = 15.0\ntranslate = [0.1, 0.1]\nscale = [0.9, 1.1]\n'
              '[[op]]\ntype = "ColorJitter"\nbrightness = 0.4\ncontrast = 0.4\nsaturation = 0.4\nhue = 0.1\n',
    "rand-augment": '[[op]]\ntype = "RandAugment"\n',
    "trivial-augment": '[[op]]\ntype = "TrivialAugmentWide"\n',
    "auto-augment": '[[op]]\ntype = "AutoAugment"\n',
    "aug-mix": '[[op]]\ntype = "AugMix"\n',
}
# What has the operations of each recipe.
PEERS = {
    "pil": set(RECIPES),
    "v2": set(RECIPES),
    "dali": {"plain", "rand-augment", "trivial-augment", "auto-augment"},
    "albumentations": {"plain", "jitter"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipes", type=run.names(RECIPES), default=list(RECIPES))
    parser.add_argument("--rounds", type=run.number(1), default=5)
    parser.add_argument("--max-images", type=run.number(1), default=128)
    parser.add_argument("--stokehold", type=Path, default=run.ROOT / "target" / "release" / "stokehold")
    cache = os.environ.get("STOKEHOLD_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stokehold"
    parser.add_argument("--python", type=Path, default=Path(cache) / "peers" / "all" / "bin" / "python")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    run.require_binary(options.stokehold)
    results, versions = [], set()
    with tempfile.TemporaryDirectory(prefix="stokehold-bench-") as folder:
        folder = Path(folder)
        data, images = run.gather(options.data, options.max_images, folder)
        # Recipes one after the other: no more processes than libraries at a time.
        for recipe in options.recipes:
            (folder / f"{recipe}.toml").write_text(CROP + RECIPES[recipe] + END)
            sides = [ours(options, recipe, executor, data, folder) for executor in ("fused", "per-op")]
            sides += [peer(options, recipe, library, data) for library in PEERS if recipe in PEERS[library]]
            run.alternate(sides, options.rounds, lambda side: run.cores_to_use(1), folder)
            results += [run.result_of(side, sides[0]) | {"recipe": recipe} for side in sides]
            versions |= {f"{side.name}: {side.version}" for side in sides if side.version}
    print(f"{images} images, one core, {options.rounds} rounds; ratios are medians of the rounds [smallest, largest].\n")
    print("| recipe | side | images/s | images per CPU s | fused is x times | x times by CPU time |\n|---|---|---:|---:|---:|---:|")
    for r in results:
        print(f"| {r['recipe']} | {r['name']} | {r['images_per_second']:.1f} | {r['images_per_cpu_second']:.1f} "
              f"| {run.spread(r['reference_is_times'])} | {run.spread(r['reference_is_times_cpu'])} |")
    print("\n" + "\n".join(sorted(versions)))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def ours(options: argparse.Namespace, recipe: str, executor: str, data: Path, folder: Path) -> run.Side:
    command = [str(options.stokehold), "bench", "loader", str(data), "--executor", executor, "--workers", "1", "--serve"]
    return run.Side(executor, 0, [*command, "--pipeline", str(folder / f"{recipe}.toml")])


def peer(options: argparse.Namespace, recipe: str, library: str, data: Path) -> run.Side:
    script = Path(__file__).resolve().with_name("augmented.py")
    name = {"pil": "torchvision, PIL", "v2": "torchvision, tensors"}.get(library, library)
    return run.Side(name, 0, [str(options.python), str(script), library, recipe, str(data)])


if __name__ == "__main__":
    sys.exit(main())
