"""What the hook of `stokehold profile` costs a PyTorch script, in steps of a given length.

    bench/hook.py STOKEHOLD [PYTHON]

Runs a script with and without the hook in turns, and prints the mean time that a step takes longer with it. A step is a tiny
model and a loop that computes for the given time; the loader has no workers, so all of the hook's work is in the loop's thread.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = '''
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
length, count = float(sys.argv[1]), int(sys.argv[2])

class Data(Dataset):
    def __len__(self): return count
    def __getitem__(self, index): return torch.zeros(8)

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def epoch():
    begin = time.perf_counter()
    for batch in DataLoader(Data(), batch_size=1):
        model(batch).sum().backward(); optimizer.step(); optimizer.zero_grad()
        end = time.perf_counter() + length
        while time.perf_counter() < end: pass
    return (time.perf_counter() - begin) / count

epoch()
print(min(epoch() for _ in range(3)))
'''
ROUNDS = 5


def main() -> None:
    program = sys.argv[1]
    python = sys.argv[2] if len(sys.argv) > 2 else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "steps.py")
        script.write_text(SCRIPT)
        runs = 0

        def step(length: float, count: int, *options: str) -> float:
            nonlocal runs
            runs += 1
            run = Path(folder, f"run{runs}")
            words = [program, "profile", *options, "-o", str(run), "--", python, str(script), str(length), str(count)]
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            return float(done.stdout)

        print("| step | without the hook | longer with it | of the step |\n|---|---|---|---|")
        for length, count in ((0.001, 1000), (0.01, 200), (0.1, 20)):
            pairs = [(step(length, count, "--no-python-hook"), step(length, count)) for _ in range(ROUNDS)]
            plain = statistics.median(without for without, _ in pairs)
            longer = statistics.median(hooked - without for without, hooked in pairs)
            print(f"| {1e3 * length:.0f} ms | {1e3 * plain:.3f} ms | {1e6 * longer:.0f} µs | {100 * longer / plain:.2f} % |", flush=True)


if __name__ == "__main__":
    main()
