"""What stokehold.decoders gains: CPU time per image of cv2, torchvision.io, simplejpeg and PyTurboJPEG, without and with it.

    python bench/decoders.py PHOTOS [--rounds 6] [--only NAME ..] [--images 80] [--json FILE]

Each call decodes the JPEGs of a folder, in this process, with one thread. The two sides take turns, and every array or tensor of the
two is compared. A ratio is of the medians of the rounds; in brackets the ratio of the fastest ones. Libraries that are not installed
are left out.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
import warnings

import numpy

import stokehold.decoders


def calls(paths, datas):
    found = {}
    arrays = [numpy.frombuffer(data, numpy.uint8) for data in datas]
    try:
        import cv2

        cv2.setNumThreads(1)
        flags = {"IMREAD_COLOR": 1, "IMREAD_GRAYSCALE": 0, "IMREAD_REDUCED_COLOR_2": 17, "IMREAD_REDUCED_GRAYSCALE_4": 32}
        found["cv2.imread"] = lambda i: cv2.imread(paths[i])
        for name, flag in flags.items():
            found[f"cv2.imdecode, {name}"] = lambda i, flag=flag: cv2.imdecode(arrays[i], flag)
    except ImportError:
        pass
    try:
        import torch
        from torchvision import io

        torch.set_num_threads(1)
        tensors = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in datas]
        found["torchvision read_image"] = lambda i: io.read_image(paths[i])
        found["torchvision decode_jpeg, RGB"] = lambda i: io.decode_jpeg(tensors[i], io.ImageReadMode.RGB)
        found["torchvision decode_jpeg, GRAY"] = lambda i: io.decode_jpeg(tensors[i], io.ImageReadMode.GRAY)
    except ImportError:
        pass
    try:
        import simplejpeg

        found["simplejpeg, RGB"] = lambda i: simplejpeg.decode_jpeg(datas[i])
        found["simplejpeg, GRAY"] = lambda i: simplejpeg.decode_jpeg(datas[i], "GRAY")
    except ImportError:
        pass
    try:
        import turbojpeg

        decoder = turbojpeg.TurboJPEG()
        found["PyTurboJPEG, BGR"] = lambda i: decoder.decode(datas[i])
        found["PyTurboJPEG, GRAY"] = lambda i: decoder.decode(datas[i], turbojpeg.TJPF_GRAY)
    except (ImportError, RuntimeError, OSError):
        pass
    return found


def side(fast):
    if fast:
        assert stokehold.decoders.install(0)
    else:
        stokehold.decoders.uninstall()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("photos")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--images", type=int, default=80)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    paths = sorted(os.path.join(folder, name) for folder, _, names in os.walk(options.photos) for name in names if name.lower().endswith((".jpg", ".jpeg")))
    random.Random(1).shuffle(paths)
    paths = paths[: options.images]
    datas = []
    for path in paths:
        with open(path, "rb") as file:
            datas.append(file.read())
    found = calls(paths, datas)
    modules = {name: sys.modules.get(name) for name in ("cv2", "torchvision", "simplejpeg", "turbojpeg")}
    versions = ", ".join(f"{name} {getattr(module, '__version__', '?')}" for name, module in modules.items() if module is not None)
    print(f"{len(paths)} images of {options.photos}, {versions}, {options.rounds} rounds")
    print(f"{'call':42} {'library':>9} {'with it':>9}   ratio          bits")
    rows = []
    for name, call in found.items():
        if options.only and not any(part in name for part in options.only):
            continue
        equal = True
        for i in range(len(paths)):
            side(False)
            plain = numpy.asarray(call(i))
            side(True)
            quick = numpy.asarray(call(i))
            equal = equal and plain.shape == quick.shape and bool((plain == quick).all())
        left = stokehold.decoders.counts()["left"]
        times = {False: [], True: []}
        for number in range(options.rounds):
            for fast in (False, True) if number % 2 else (True, False):
                side(fast)
                began = time.process_time()
                for i in range(len(paths)):
                    call(i)
                times[fast].append((time.process_time() - began) / len(paths))
        plain, quick = (statistics.median(times[fast]) for fast in (False, True))
        row = {
            "call": name,
            "library_us": plain * 1e6,
            "stokehold_us": quick * 1e6,
            "ratio": plain / quick,
            "ratio_of_fastest": min(times[False]) / min(times[True]),
            "equal": equal,
            "left": left,
        }
        rows.append(row)
        print(
            f"{name:42} {plain * 1e6:6.0f} us {quick * 1e6:6.0f} us   {row['ratio']:.2f} ({row['ratio_of_fastest']:.2f})   "
            f"{'equal' if equal else 'DIFFERENT'}{f', {left} left to the library' if left else ''}",
            flush=True,
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 0 if all(row["equal"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
