"""Whether trainings that open JPEGs with Pillow lose a bit with `stokehold run --fast-images`: their first losses, without and with it.

    python bench/scripts.py [--only NAME ..] [--photos FOLDER] [--steps 20] [--json FILE]
    python bench/scripts.py [--no-cuda] [--module] --script train.py -- --data {data} --workers {workers} --output {out} ...

The first form trains small models with the libraries that this Python has: torchvision, timm, Hugging Face's `datasets` and `transformers`,
webdataset, Lightning, and open_clip's own training; it names those that are absent. The second form runs a script of somebody else as
it is. `{workers}` becomes 0 and 2, `{data}` a folder of classes with `train` and `val`, `{shards}` tar files for webdataset, `{csv}` a table of
files and captions, `{out}` an empty folder.

Every training runs four times: with 0 and with 2 workers, and each of them without and with fast images. One thread, fixed seeds
and PyTorch's deterministic algorithms make it repeatable. The tensor on which the script calls `backward` is the loss. `--no-cuda`
has `.cuda()` do nothing, `torch.hub.list` ask nobody, and NCCL be Gloo, for scripts that know no CPU. The images are generated
unless `--photos` names a folder with JPEGs.
"""

import argparse
import atexit
import importlib.util
import io
import json
import math
import os
import random
import resource
import runpy
import subprocess
import sys
import tarfile
import tempfile
import types

CLASSES = 8
SIZE = 64


# The data.


def generated(folder, count=192):
    """JPEGs of several kinds, with edges and noise, as `folder/N.jpg`."""
    import numpy
    from PIL import Image

    kinds = [{}, {"subsampling": 0, "quality": 95}, {"progressive": True}, {"mode": "L"}, {"mode": "CMYK"}, {"orientation": 6}, {"orientation": 3}, {"restart_marker_blocks": 8}]
    draws = numpy.random.default_rng(5)
    for number in range(count):
        options = dict(kinds[draws.integers(len(kinds))] if number % 2 else {})
        width, height = (int(edge) for edge in draws.integers(70, 420, 2))
        pixels = numpy.asarray(Image.fromarray(draws.integers(0, 256, (7, 9, 3), dtype=numpy.uint8)).resize((width, height), 3)).astype(int)
        image = Image.fromarray((pixels + draws.integers(-20, 21, pixels.shape)).clip(0, 255).astype(numpy.uint8)).convert(options.pop("mode", "RGB"))
        orientation = options.pop("orientation", None)
        if orientation is not None:
            options["exif"] = Image.Exif()
            options["exif"][0x0112] = orientation
        image.save(os.path.join(folder, f"{number:04}.jpg"), **{"quality": 88, **options})


def prepared(photos, folder):
    """The same images as a folder of classes, as shards and as a table."""
    if photos is None:
        photos = os.path.join(folder, "photos")
        os.mkdir(photos)
        generated(photos)
    paths = sorted(os.path.join(where, name) for where, _, names in os.walk(os.path.abspath(photos)) for name in names if name.lower().endswith((".jpg", ".jpeg")))[:400]
    data = {"data": os.path.join(folder, "data"), "shards": os.path.join(folder, "{000..003}.tar"), "csv": os.path.join(folder, "files.csv")}
    shards = [tarfile.open(os.path.join(folder, f"{shard:03}.tar"), "w") for shard in range(4)]
    with open(data["csv"], "w") as table:
        print("filepath\ttitle", file=table)
        for number, path in enumerate(paths):
            label = number % CLASSES
            for part in ("train", "val") if number < 4 * CLASSES else ("train",):
                where = os.path.join(data["data"], part, f"class{label}")
                os.makedirs(where, exist_ok=True)
                os.symlink(path, os.path.join(where, f"{number:04}.jpg"))
            print(f"{path}\tphoto {number} of class {label}", file=table)
            with open(path, "rb") as file:
                members = {"jpg": file.read(), "cls": str(label).encode(), "txt": f"photo {number} of class {label}".encode()}
            for kind, body in members.items():
                member = tarfile.TarInfo(f"{number:05}.{kind}")
                member.size = len(body)
                shards[number % 4].addfile(member, io.BytesIO(body))
    for shard in shards:
        shard.close()
    return data


# The trainings, in processes of their own. Each ends when `steps` losses are known.


def pipeline():
    from torchvision import transforms as T

    return T.Compose(
        [
            T.RandomResizedCrop(SIZE),
            T.RandomHorizontalFlip(),
            T.ColorJitter(0.4, 0.4, 0.4, 0.1),
            T.ToTensor(),
            T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )


def small_model():
    from torchvision.models import resnet18

    return resnet18(num_classes=CLASSES)


def train(loader):
    """PyTorch's own loop."""
    import torch

    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    while True:
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


def with_torchvision(data, workers):
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    train(DataLoader(ImageFolder(os.path.join(data["data"], "train"), pipeline()), 8, shuffle=True, num_workers=workers, drop_last=True))


def with_timm(data, workers):
    import torch
    from timm import create_model
    from timm.data import Mixup, create_dataset, create_loader
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV3

    dataset = create_dataset("", data["data"], split="train", is_training=True)
    loader = create_loader(
        dataset, (3, SIZE, SIZE), 8, is_training=True, auto_augment="rand-m6-mstd0.5-inc1", re_prob=0.25, re_mode="pixel", interpolation="random",
        num_workers=workers, use_prefetcher=True, device=torch.device("cpu"), persistent_workers=False,
    )  # fmt: skip
    model = create_model("resnet18", num_classes=CLASSES)
    mixup, criterion = Mixup(0.2, 1.0, num_classes=CLASSES), SoftTargetCrossEntropy()
    optimizer, average = create_optimizer_v2(model, "adamw", lr=1e-3), ModelEmaV3(model)
    while True:
        for images, labels in loader:
            images, labels = mixup(images, labels)
            optimizer.zero_grad()
            criterion(model(images), labels).backward()
            optimizer.step()
            average.update(model)


def with_datasets(data, workers):
    import torch
    from datasets import load_dataset
    from torch.utils.data import DataLoader

    rows = load_dataset("imagefolder", data_dir=data["data"], split="train", cache_dir=os.path.join(data["out"], "cache"))
    transform = pipeline()

    def transformed(batch):
        return {"pixels": [transform(image.convert("RGB")) for image in batch["image"]], "label": batch["label"]}

    def collated(chosen):
        return torch.stack([row["pixels"] for row in chosen]), torch.tensor([row["label"] for row in chosen])

    train(DataLoader(rows.with_transform(transformed), 8, shuffle=True, num_workers=workers, collate_fn=collated, drop_last=True))


def with_transformers(data, workers):
    import torch
    from datasets import load_dataset
    from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments, ViTImageProcessor

    rows = load_dataset("imagefolder", data_dir=data["data"], split="train", cache_dir=os.path.join(data["out"], "cache"))
    processor = ViTImageProcessor(size={"height": SIZE, "width": SIZE})

    def transformed(batch):
        made = processor([image.convert("RGB") for image in batch["image"]], return_tensors="pt")
        made["labels"] = batch["label"]
        return made

    def collated(chosen):
        return {"pixel_values": torch.stack([row["pixel_values"] for row in chosen]), "labels": torch.tensor([row["labels"] for row in chosen])}

    model = ResNetForImageClassification(ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=CLASSES))
    arguments = TrainingArguments(
        data["out"], per_device_train_batch_size=8, learning_rate=1e-3, remove_unused_columns=False, dataloader_num_workers=workers, use_cpu=True,
        report_to=[], seed=3, num_train_epochs=10, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    Trainer(model=model, args=arguments, train_dataset=rows.with_transform(transformed), data_collator=collated).train()


def with_webdataset(data, workers):
    import webdataset
    from torch.utils.data import DataLoader

    transform = pipeline()
    samples = webdataset.WebDataset(data["shards"], shardshuffle=4, seed=3).shuffle(50, seed=3).decode("pil").to_tuple("jpg", "cls")
    train(DataLoader(samples.map_tuple(transform, int).repeat(20).batched(8, partial=False), None, num_workers=workers))


def with_lightning(data, workers):
    import lightning
    import torch
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = small_model()

        def training_step(self, batch, at):
            images, labels = batch
            return torch.nn.functional.cross_entropy(self.model(images), labels)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            images = ImageFolder(os.path.join(data["data"], "train"), pipeline())
            return DataLoader(images, 8, shuffle=True, num_workers=workers, drop_last=True)

    lightning.seed_everything(3, workers=True)
    trainer = lightning.Trainer(
        max_epochs=20, accelerator="cpu", devices=1, deterministic="warn", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        default_root_dir=data["out"],
    )  # fmt: skip
    trainer.fit(Module(), datamodule=Data())


def with_open_clip(data, workers, kind="csv"):
    options = {"csv": ["--train-data", data["csv"]], "webdataset": ["--train-data", data["shards"], "--train-num-samples", "160"]}[kind]
    sys.argv = [
        "main.py", "--dataset-type", kind, *options, "--model", "ViT-S-32-alt", "--device", "cpu", "--batch-size", "4", "--workers", str(workers),
        "--lr", "1e-4", "--warmup", "5", "--epochs", "4", "--force-image-size", str(SIZE), "--logs", data["out"], "--precision", "fp32", "--save-frequency", "0",
    ]  # fmt: skip
    runpy.run_module("open_clip_train.main", run_name="__main__")


def with_open_clip_shards(data, workers):
    # Its shuffle takes the process's number and the time for a seed.
    from webdataset import filters

    class Seeded(random.Random):
        def __init__(self, seed=None):
            super().__init__(3)

    filters.random = types.SimpleNamespace(**{**vars(random), "Random": Seeded})
    with_open_clip(data, workers, "webdataset")


#: What is trained, and the modules that it needs.
TRAININGS = {
    "torchvision": (with_torchvision, ["torchvision"]),
    "timm": (with_timm, ["timm"]),
    "datasets": (with_datasets, ["datasets", "torchvision"]),
    "transformers": (with_transformers, ["transformers", "datasets", "accelerate"]),
    "webdataset": (with_webdataset, ["webdataset", "torchvision"]),
    "lightning": (with_lightning, ["lightning", "torchvision"]),
    "open_clip, files": (with_open_clip, ["open_clip_train"]),
    # Its loader of shards insists on workers, and on webdataset 0.2.86 or older, whose own shuffle has no seed.
    "open_clip, shards": (with_open_clip_shards, ["open_clip_train", "webdataset"]),
}
#: Trainings that do not run with 0 workers.
NEEDS_WORKERS = {"open_clip, shards"}


def record(options, rest):
    """Runs one training in this process, and leaves its losses in a file."""
    import numpy
    import torch

    random.seed(3)
    numpy.random.seed(3)
    torch.manual_seed(3)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    losses, process, backward = [], os.getpid(), torch.Tensor.backward

    def recorded(self, *args, **kwargs):
        if os.getpid() == process:
            if len(losses) == options.steps:
                raise SystemExit(0)
            losses.append(float(self.detach().sum()).hex())
        return backward(self, *args, **kwargs)

    torch.Tensor.backward = recorded
    if options.no_cuda:
        without_cuda(torch)
    data = json.loads(options.data)

    def leave():
        if os.getpid() == process:
            usage = {"process": resource.getrusage(resource.RUSAGE_SELF), "workers": resource.getrusage(resource.RUSAGE_CHILDREN)}
            with open(os.path.join(data["out"], "losses.json"), "w") as file:
                json.dump({"losses": losses, "cpu_seconds": {name: one.ru_utime + one.ru_stime for name, one in usage.items()}}, file)

    # At the end workers have been waited for, and their time is known.
    atexit.register(leave)
    if options.script is None:
        TRAININGS[options.record][0](data, options.workers)
        return
    sys.argv = [options.script, *rest]
    if options.module:
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(options.script))
        runpy.run_path(options.script, run_name="__main__")


def without_cuda(torch):
    import torch.distributed
    import torch.hub

    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *args, **kwargs: self
    torch.cuda.set_device = torch.cuda.synchronize = lambda *args: None
    torch.hub.list = lambda *args, **kwargs: []
    begin = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda backend=None, **kwargs: begin("gloo", **kwargs)
    parallel = torch.nn.parallel.DistributedDataParallel
    wrap = parallel.__init__
    parallel.__init__ = lambda self, module, device_ids=None, **kwargs: wrap(self, module, **kwargs)


# All of them.


def run(name, options, rest, data, workers, fast):
    """The losses of one training, its CPU time, and what stokehold said at the end."""
    with tempfile.TemporaryDirectory() as out:
        known = {**data, "out": out}
        command = [sys.executable, os.path.abspath(__file__), "--record", name, "--steps", str(options.steps), "--workers", str(workers), "--data", json.dumps(known)]
        if options.script is not None:
            for word, value in (*known.items(), ("workers", str(workers))):
                rest = [part.replace(f"{{{word}}}", value) for part in rest]
            command += ["--script", options.script, *["--module"] * options.module, *["--no-cuda"] * options.no_cuda, "--", *rest]
        if fast:
            command = [sys.executable, "-m", "stokehold", "run", "--fast-images", "--", *command]
        one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29571"} if options.no_cuda else {}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "3", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", **one_rank}
        done = subprocess.run(command, cwd=out, env=environment, capture_output=True, text=True, timeout=options.timeout, check=False)
        try:
            with open(os.path.join(out, "losses.json")) as file:
                found = json.load(file)
        except OSError:
            found = {"losses": [], "cpu_seconds": {"process": 0.0, "workers": 0.0}}
    lines = done.stderr.splitlines()
    found["said"] = [line for line in lines if "JPEGs were" in line or line.startswith("stokehold: ")]
    found["warnings"] = sorted({line.split("Warning: ", 1)[1] for line in lines if "Warning: " in line})
    if len(found["losses"]) < options.steps:
        print(f"{name}: it ended with {done.returncode} after {len(found['losses'])} steps\n" + "\n".join(lines[-12:]), file=sys.stderr)
    return found


def main():
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    arguments, rest = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--photos")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--json")
    parser.add_argument("--script")
    parser.add_argument("--module", action="store_true", help="--script names a module")
    parser.add_argument("--no-cuda", action="store_true")
    for hidden in ("--record", "--data"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, help="this many only")
    options = parser.parse_args(arguments)
    if options.record is not None:
        record(options, rest)
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = prepared(options.photos, folder)
        for name in TRAININGS if options.script is None else [options.script]:
            if options.only and not any(part in name for part in options.only):
                continue
            absent = [module for module in TRAININGS[name][1] if importlib.util.find_spec(module) is None] if name in TRAININGS else []
            if absent:
                print(f"{name}: skipped, as {' and '.join(absent)} cannot be imported")
                continue
            for workers in (0, 2) if options.workers is None else (options.workers,):
                if workers == 0 and name in NEEDS_WORKERS:
                    continue
                plain = run(name, options, rest, data, workers, False)
                if len(plain["losses"]) < options.steps:
                    print(f"{name}, {workers} workers: not compared")
                    rows.append({"script": name, "workers": workers, "equal": False, "plain": plain})
                    continue
                fast = run(name, options, rest, data, workers, True)
                again = plain if plain["losses"] == fast["losses"] else run(name, options, rest, data, workers, False)
                rows.append(row(name, workers, plain, fast, again))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0 if all(one["equal"] for one in rows) else 1


def row(name, workers, plain, fast, again):
    numbers = [float.fromhex(loss) for loss in plain["losses"]]
    equal = plain["losses"] == fast["losses"]
    verdict = "equal" if equal else "DIFFERENT"
    if plain["losses"] != again["losses"]:
        verdict = "NOT COMPARED, as they change from run to run without fast images"
    if not all(map(math.isfinite, numbers)):
        equal, verdict = False, "NOT FINITE"
    who = "workers" if workers else "process"
    seconds = [side["cpu_seconds"][who] for side in (plain, fast)]
    print(f"{name}, {workers} workers: {len(numbers)} losses, {verdict}; CPU of the {who} {seconds[0]:.2f} s, and {seconds[1]:.2f} s with fast images")
    for line in [*fast["said"], *(f"new warning: {text}" for text in fast["warnings"] if text not in plain["warnings"])]:
        print(f"    {line}")
    sys.stdout.flush()
    return {"script": name, "workers": workers, "equal": equal, "plain": plain, "fast": fast}


if __name__ == "__main__":
    sys.exit(main())
