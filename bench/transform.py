#!/usr/bin/env python3
"""How busy `stokehold transform` keeps a model: the share of the time between the first and the last batch in which the
model computes. The models are Python scripts that are busy for batch / rate seconds without computing, as an accelerator
is, at several rates.

    python3 bench/transform.py STOKEHOLD PYTHON IMAGES [--repeats 3]

PYTHON has NumPy. IMAGES is a folder. Rounds are interleaved.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

SCRIPT = """
import json, time
RATE, LOG = {rate}, {log!r}
busy, first = 0.0, None

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    global busy, first
    begin = time.perf_counter()
    first = first or begin
    end = begin + len(data) / RATE
    time.sleep(max(0.0, end - time.perf_counter() - 0.0005))
    while time.perf_counter() < end:
        pass
    busy += end - begin
    with open(LOG, "w") as log:
        json.dump({{"busy": busy, "seconds": time.perf_counter() - first}}, log)
    return [0] * len(data)
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("stokehold")
    parser.add_argument("python")
    parser.add_argument("images")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rates", default="100,200,400")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "model").mkdir()
        shares = {}
        for repeat in range(args.repeats):
            for rate in map(float, args.rates.split(",")):
                log = folder / "log.json"
                script = folder / "script.py"
                script.write_text(SCRIPT.format(rate=rate, log=str(log)))
                command = [args.stokehold, "transform", folder / "model", args.images, folder / f"out-{repeat}-{rate}"]
                subprocess.run([*command, "--script", script, "--python", args.python, "--assemble"], check=True)
                said = json.loads(log.read_text())
                shares.setdefault(rate, []).append(said["busy"] / said["seconds"])
        for rate, found in shares.items():
            print(f"{rate:5.0f} images/s: busy {', '.join(f'{100 * share:.1f} %' for share in found)}")


main()
