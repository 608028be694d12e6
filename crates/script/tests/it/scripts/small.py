"""A training script: sleeping reads, two epochs, a validation after each. Arguments: KEY=VALUE."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

given = dict(word.split("=") for word in sys.argv[1:])
WORKERS = int(given.get("workers", "1"))
READ = float(given.get("read", "0.02"))
STEP = float(given.get("step", "0.01"))
ACCUMULATE = int(given.get("accumulate", "1"))
EPOCHS = int(given.get("epochs", "2"))


class Images(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == int(given.get("bad", "-1")):
            raise ValueError("this sample is bad")
        self.read()
        return torch.zeros(3, 8, 8), index % 10

    def read(self):
        """Waits for a sleep, or for what others compute."""
        helper = given.get("helper")
        if helper == "thread":
            thread = threading.Thread(target=compute, args=(READ,))
            thread.start()
            thread.join()
        elif helper == "child":
            # It computes at least as long as Python takes to start.
            subprocess.run([sys.executable, "-S", "-c", "sum(range(3_000_000))"], check=True)
        elif helper in ("pool", "sleeping"):
            if not hasattr(self, "pool"):
                self.pool = ThreadPoolExecutor(1)
                self.pool.submit(int).result()
            self.pool.submit(compute if helper == "pool" else time.sleep, READ).result()
        else:
            if helper == "openmp":
                torch.set_num_threads(2)
                torch.ones(900, 900) @ torch.ones(900, 900)
            if given.get("file") == "1":
                with open(__file__, "rb") as file:
                    file.read()
            elif given.get("file") == "cold":
                with open(os.environ["COLD"], "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    file.read()
            time.sleep(READ)


def in_background(loader):
    """A loader's batches, taken by a thread."""
    queue = Queue(2)

    def take():
        for batch in loader:
            queue.put(batch)
        queue.put(None)

    threading.Thread(target=take, daemon=True).start()
    yield from iter(queue.get, None)


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(bytes(1 << 16)).digest()


def gets_ready(_):
    time.sleep(float(given["init"]))


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(40):
            time.sleep(READ)
            yield torch.zeros(3, 8, 8), index % 10


class OwnLoader(DataLoader):
    """A subclass that has its own way of iterating."""

    def __iter__(self):
        for batch in super().__iter__():
            yield batch


def validate(model, loader, most=None):
    with torch.no_grad():
        for number, (images, _) in enumerate(loader, 1):
            model(images)
            if number == most:
                break


def main():
    torch.set_num_threads(1)
    kind = OwnLoader if given.get("loader") == "own" else DataLoader
    data = Stream() if given.get("data") == "stream" else Images()
    more = {"multiprocessing_context": given["start"]} if "start" in given else {}
    if "init" in given:
        more["worker_init_fn"] = gets_ready
    for _ in range(int(given.get("noise", "0")) * (os.cpu_count() or 1)):
        threading.Thread(target=compute, args=(1e9,), daemon=True).start()
    if WORKERS and given.get("keep"):
        more["persistent_workers"] = True
    train = kind(data, batch_size=4, num_workers=WORKERS, **more)
    valid = DataLoader(Images(), batch_size=8)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if given.get("validate") == "left":
        validate(model, valid, 2)
    for _ in range(EPOCHS):
        for number, (images, labels) in enumerate(in_background(train) if given.get("background") else train, 1):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            time.sleep(STEP)
            if number % ACCUMULATE == 0:
                optimizer.step()
                optimizer.zero_grad()
            if given.get("validate") == "amid" and number == 5:
                validate(model, valid)
            if given.get("validate") == "left-amid" and number == 5:
                validate(model, valid, 2)
        validate(model, valid, 2 if given.get("validate", "").startswith("left") else None)
    print("loss", loss.item(), flush=True)


if __name__ == "__main__":
    main()
