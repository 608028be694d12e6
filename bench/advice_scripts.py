#!/usr/bin/env python3
"""How far `stokehold advise` is from what scripts take: of every number of workers that it predicts, and of fast images.

    bench/advice_scripts.py STOKEHOLD PYTHON [CASE:WORKERS,WORKERS,..] .. [--images DIR] [--busy] [--seconds 5] [--keep DIR]

Each cell records a PyTorch script with one number of workers and asks for advice. Then every prediction of another number that was
recorded, too, is compared with the mean of the epochs that the script itself timed, from the call of `iter` to the end of the loop.
With --images, scripts that open the JPEGs of a folder are recorded, and run again with fast images. --busy runs a program that takes
a core next to all of it. Without cases all of them run, with 1, 2, 4, 8 and 16 workers; that takes 15 minutes.

PYTHON needs torch; with --images also torchvision and the package stokehold.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

#: Turns of the loop below for a millisecond of a free core.
UNIT = 20_000


def spin(ms):
    x = 0
    for i in range(int(ms * UNIT)):
        x = (x * 31 + i) & 0xFFFFFF


# The script that is recorded.


def job(case, workers, seconds, images):
    import numpy
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Data(Dataset):
        """Samples that wait and compute, in milliseconds; `slow` of one in `of` wait longer."""

        def __init__(self, count, wait=0.0, cpu=0.0, shape=(64,), slow=0.0, of=16):
            self.count, self.wait, self.cpu, self.shape, self.slow, self.of = count, wait, cpu, shape, slow, of

        def __len__(self):
            return self.count

        def __getitem__(self, i):
            wait = self.slow if self.slow and (i * 2654435761 >> 7) % self.of == 0 else self.wait
            if wait:
                time.sleep(wait / 1e3)
            if self.cpu:
                spin(self.cpu)
            return torch.full(self.shape, float(i % 7)), i % 2

    class Uneven(Data):
        def __getitem__(self, i):
            spin(1 + ((i * 2654435761 >> 7) % 9))
            return torch.full(self.shape, float(i % 7)), i % 2

    class Photos(Dataset):
        def __init__(self, count, transform):
            from glob import glob

            found = sorted(name for name in glob(f"{images}/**/*", recursive=True) if name.lower().endswith((".jpg", ".jpeg")))
            self.names, self.transform = [found[i * 7 % len(found)] for i in range(count)], transform

        def __len__(self):
            return len(self.names)

        def __getitem__(self, i):
            from PIL import Image

            return self.transform(Image.open(self.names[i]).convert("RGB")), i % 2

    def crops(*more):
        from torchvision import transforms as T

        return T.Compose([T.RandomResizedCrop(160), *more, T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])

    def evaluation():
        from torchvision import transforms as T

        return T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()])

    def jitter():
        from torchvision import transforms as T

        return crops(T.ColorJitter(0.4, 0.4, 0.4))

    def collate(samples):
        spin(20)
        return torch.utils.data.default_collate(samples)

    # The data set, images of a batch, a step's milliseconds of waiting and of computing, and more arguments of the loader.
    cases = {
        "waits": lambda: (Data(384, wait=10), 8, 5, 0, {}),
        "long-steps": lambda: (Data(384, wait=8, cpu=0.5), 8, 30, 0, {}),
        "computes": lambda: (Data(1280, cpu=2), 16, 10, 0, {}),
        "computes-long": lambda: (Data(384, cpu=8), 16, 30, 0, {}),
        "both": lambda: (Data(480, wait=5, cpu=3), 12, 12, 0, {}),
        "rounds": lambda: (Data(176, wait=20), 16, 0, 0, {}),
        "tail": lambda: (Data(384, wait=2, cpu=0.5, slow=150), 8, 20, 0, {}),
        "uneven": lambda: (Uneven(512), 8, 12, 0, {}),
        "large": lambda: (Data(1536, shape=(3, 224, 224)), 32, 25, 0, {}),
        "late": lambda: (Data(384, wait=8), 8, 10, 0, {"worker_init_fn": lambda _: time.sleep(0.5)}),
        "late-computes": lambda: (Data(384, wait=8), 8, 10, 0, {"worker_init_fn": lambda _: spin(300)}),
        "persistent": lambda: (Data(480, wait=4, cpu=2), 12, 10, 0, {"persistent_workers": workers > 0}),
        "trains": lambda: (Data(480, cpu=4), 12, 0, 50, {}),
        "collates": lambda: (Data(800, cpu=0.2, wait=1), 10, 8, 0, {"collate_fn": collate}),
        "bursts": lambda: (Data(640, cpu=1, slow=300, of=64), 10, 15, 0, {}),
        "small-batches": lambda: (Data(1200, wait=1, cpu=1), 2, 3, 0, {}),
        "crops": lambda: (Photos(640, crops()), 16, 5, 0, {}),
        "crops-train": lambda: (Photos(640, crops()), 16, 0, 20, {}),
        "evaluates": lambda: (Photos(320, evaluation()), 8, 10, 0, {}),
        "jitters": lambda: (Photos(480, jitter()), 16, 5, 0, {}),
    }
    class First(Data):
        """Each worker opens something of 300 ms for its first sample."""

        opened = False

        def __getitem__(self, i):
            if not self.opened:
                time.sleep(0.2)
                spin(100)
                self.opened = True
            return super().__getitem__(i)

    class Tailed(Data):
        """Samples whose waits are exponential, as those of a store over a network."""

        def __getitem__(self, i):
            time.sleep(random.Random(i).expovariate(1 / self.wait) / 1e3)
            spin(self.cpu)
            return torch.full(self.shape, float(i % 7)), i % 2

    class Stream(torch.utils.data.IterableDataset):
        """Samples that workers deal among themselves."""

        def __init__(self, count, wait, cpu):
            self.count, self.wait, self.cpu = count, wait, cpu

        def __len__(self):
            return self.count

        def __iter__(self):
            worker = torch.utils.data.get_worker_info()
            own, of = (worker.id, worker.num_workers) if worker else (0, 1)
            for i in range(own, self.count, of):
                time.sleep(self.wait / 1e3)
                spin(self.cpu)
                yield torch.full((256,), float(i % 7)), i % 2

    class Crowd(Data):
        """Targets of dictionaries and lists, as detection has them."""

        def __getitem__(self, i):
            spin(self.cpu)
            count = 1 + i * 7 % 40
            return torch.zeros(3, 320, 320), {"boxes": torch.zeros(count, 4), "labels": list(range(count)), "name": f"{i:06}.jpg"}

    class Growing(Data):
        """Samples in their order, each a little larger than the one before."""

        def __getitem__(self, i):
            spin(1 + 5 * i / self.count)
            return torch.full(self.shape, float(i % 7)), i % 2

    class Sorted(Data):
        """Computes in NumPy, without the lock of the interpreter."""

        def __getitem__(self, i):
            numpy.sort(numpy.random.default_rng(i).random(40_000))
            time.sleep(self.wait / 1e3)
            return torch.full(self.shape, float(i % 7)), i % 2

    class Lists(Data):
        """Samples of Python's objects, which are pickled."""

        def __getitem__(self, i):
            spin(self.cpu)
            return [float(x) for x in range(3000)], i % 2

    class Files(Data):
        """Reads files of 300 kB, which are in memory."""

        def __getitem__(self, i):
            with open(__file__, "rb") as file:
                text = file.read() * 20
            return torch.tensor([zlib.crc32(text) % 7]), i % 2

    def lists(samples):
        return torch.zeros(len(samples), 1), samples

    class Batches:
        """Batches of 4 to 28 samples."""

        def __init__(self, count):
            self.count = count

        def __iter__(self):
            order = torch.randperm(self.count).tolist()
            while order:
                some = 4 + order[0] * 7 % 25
                yield order[:some]
                order = order[some:]

    also = {
        "opens-first": lambda: (First(400, wait=3, cpu=1), 8, 8, 0, {}),
        "tailed": lambda: (Tailed(480, wait=6, cpu=1), 12, 10, 0, {}),
        "streams": lambda: (Stream(640, 4, 1), 16, 12, 0, {}),
        "detects": lambda: (Crowd(240, cpu=6), 4, 10, 4, {"collate_fn": lambda samples: tuple(zip(*samples, strict=True))}),
        "prefetches": lambda: (Data(480, wait=7, cpu=1, slow=60, of=8), 10, 9, 0, {"prefetch_factor": 6 if workers else None}),
        "persists-late": lambda: (
            Data(480, wait=6, cpu=1),
            12,
            6,
            6,
            {"persistent_workers": workers > 0, "worker_init_fn": lambda _: time.sleep(0.3)},
        ),
        "drops": lambda: (Data(750, cpu=1.5), 32, 0, 35, {"drop_last": True}),
        "light": lambda: (Data(4000, cpu=0.1, shape=(32, 32)), 50, 4, 2, {}),
    }
    weights = torch.arange(1, 481).double()
    held_out = {
        "grows": lambda: (Growing(480), 12, 10, 2, {"shuffle": False}),
        "weighted": lambda: (Data(480, wait=3, cpu=2), 20, 15, 0, {"shuffle": None, "sampler": torch.utils.data.WeightedRandomSampler(weights, 480)}),
        "batch-sizes": lambda: (Data(600, wait=4, cpu=1), 1, 8, 0, {"shuffle": None, "batch_sampler": Batches(600)}),
        "accumulates": lambda: (Data(640, cpu=3), 8, 6, 3, {}),
        "sorts": lambda: (Sorted(480, wait=2), 16, 12, 0, {}),
        "pickles": lambda: (Lists(320, cpu=2), 8, 8, 0, {"collate_fn": lists}),
        "reads": lambda: (Files(1200), 24, 6, 6, {}),
        "waits-long": lambda: (Data(120, wait=60), 6, 3, 0, {}),
    }
    if case in ("?", "held-out"):
        print(*(name for name in (held_out if case == "held-out" else cases | also) if images or name not in PHOTOS))
        return
    data, batch, wait, cpu, more = (cases | also | held_out)[case]()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, first = torch.nn.Linear(8, 2), torch.zeros(1, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    more.setdefault("shuffle", None if isinstance(data, torch.utils.data.IterableDataset) else True)
    loader = DataLoader(data, batch, num_workers=workers, **more)
    every = 4 if case == "accumulates" else 1
    began, epochs, total = time.perf_counter(), [], 0
    while len(epochs) < 2 or (time.perf_counter() - began < seconds and len(epochs) < 8):
        start = time.perf_counter()
        for number, (x, _) in enumerate(loader, 1):
            model(first).sum().backward()
            time.sleep(wait / 1e3)
            spin(cpu)
            if number % every == 0:
                optimizer.step()
                optimizer.zero_grad()
            total += float(x.double().sum()) if case in PHOTOS and not epochs else 0
        epochs.append(time.perf_counter() - start)
    print(json.dumps({"epochs": epochs, "first": total}))


PHOTOS = ("crops", "crops-train", "evaluates", "jitters")

# The cells.


def run(words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def mean(values):
    return sum(values) / len(values)


def cell(args, case, workers, keep):
    """What an epoch took, what is predicted for other numbers of workers, and, of photos, of fast images and how long these took."""
    script = [args.python, __file__, "--job", case, workers, args.seconds, args.images or ""]
    folder = keep / f"{case}-{workers}"
    said = json.loads(run([args.stokehold, "profile", *(["--fast-images"] if case in PHOTOS else []), "-o", folder, "--", *script]).splitlines()[-1])
    advised = json.loads(run([args.stokehold, "advise", folder, "--json"]))
    predicted, fast = {}, None
    for row in advised["advice"]:
        change = row["change"]
        if change["kind"] == "workers" and not change.get("persistent"):
            predicted[change["workers"]] = row["seconds_per_epoch"]
        if change["kind"] == "fast-images":
            fast = row["seconds_per_epoch"]
    others = advised["workload"].get("others_cores") or 0.0
    measured = None
    if case in PHOTOS:
        after = json.loads(run([args.stokehold, "run", "--fast-images", "--", *script]).splitlines()[-1])
        if after["first"] != said["first"]:
            sys.exit(f"{case}: other pixels with fast images")
        measured = mean(after["epochs"])
    took = mean(said["epochs"])
    print(f"{case}, {workers} workers: {took:.3f} s an epoch, others took {others:.2f} cores", flush=True)
    return took, predicted, fast, measured


def within(rows, name):
    ratios = [abs(row[-1] - 1) for row in rows]
    if ratios:
        share = [100 * sum(ratio <= limit for ratio in ratios) / len(ratios) for limit in (0.1, 0.2)]
        print(f"{name}: {len(ratios)} predictions, {share[0]:.0f} % within 10 %, {share[1]:.0f} % within 20 %")


def main():
    if sys.argv[1:2] == ["--job"]:
        _, _, case, workers, seconds, images = sys.argv
        return job(case, int(workers), float(seconds), images)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stokehold")
    parser.add_argument("python")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--images")
    parser.add_argument("--held-out", action="store_true", help="the eight scripts that nobody looked at while the model was made")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    names = run([args.python, __file__, "--job", "held-out" if args.held_out else "?", 0, 0, args.images or ""]).split()
    cases = [word.partition(":") for word in args.cases or names]
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if args.busy else None
    try:
        with tempfile.TemporaryDirectory() as folder:
            keep = args.keep or Path(folder)
            keep.mkdir(exist_ok=True)
            numbers, images = [], []
            for case, _, counts in cases:
                found = {n: cell(args, case, n, keep) for n in map(int, (counts or "1,2,4,8,16").split(","))}
                for now, (_, predicted, fast, measured) in found.items():
                    numbers += [(case, now, n, seconds, found[n][0], seconds / found[n][0]) for n, seconds in predicted.items() if n in found and n != now]
                    if fast is not None and measured is not None:
                        images.append((case, now, fast, measured, fast / measured))
    finally:
        if busy is not None:
            busy.kill()
    print("\ncase, workers, predicted for, predicted s, measured s, ratio")
    for row in numbers:
        print("{:14} {:3} {:3} {:8.3f} {:8.3f} {:6.2f}".format(*row))
    print("\ncase, workers, with fast images: predicted s, measured s, ratio")
    for row in images:
        print("{:14} {:3} {:8.3f} {:8.3f} {:6.2f}".format(*row))
    within(numbers, "numbers of workers")
    within(images, "fast images")


if __name__ == "__main__":
    main()
