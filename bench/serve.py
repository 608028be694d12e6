#!/usr/bin/env python3
"""What a server of batches makes per core, beside the local loader: `bench/serve.py DATA [ROUNDS]`.

Both sides take turns. The loader has one worker on the first core. The server has one worker on the same core, threads for the
network included, and the trainer's side is on the second core. Images per CPU second are those of the loader's process,
of the server's and of the trainer's side. STOKEHOLD names the program, by default target/release/stokehold.
"""

import json
import os
import subprocess
import sys
from statistics import median

STOKEHOLD = os.environ.get("STOKEHOLD", "target/release/stokehold")
TICK = os.sysconf("SC_CLK_TCK")


def on(core, *words):
    return ["taskset", "-c", str(core), STOKEHOLD, *words]


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def bench(core, data, kind, *more):
    words = on(core, "bench", "loader", data, "--sample-type", kind, "--passes", "3", "--json", *more)
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    return (report[0] if isinstance(report, list) else report.get("reports", [report])[0])


def main():
    data, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    print("| numbers | local, images/s | server, images/s | ratio by the clock | ratio per CPU second | trainer's side, us an image |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind in ("u8", "f16", "f32"):
        rows = []
        for _ in range(rounds):
            local = bench(0, data, kind, "--workers", "1")
            server = subprocess.Popen(
                on(0, "serve", data, "--listen", "127.0.0.1:0", "--workers", "1"), stdout=subprocess.PIPE, text=True
            )
            try:
                address = next(word for word in server.stdout.readline().split() if "://" in word)
                before = cpu_seconds(server.pid)
                remote = bench(1, data, kind, "--loader", address)
                # Three passes, and the one that warms up.
                served = 4 * remote["images"] / (cpu_seconds(server.pid) - before)
            finally:
                server.terminate()
                server.wait()
            rows.append(
                (
                    local["images_per_second"],
                    remote["images_per_second"],
                    remote["images_per_second"] / local["images_per_second"],
                    served / local["images_per_cpu_second"],
                    1e6 / remote["images_per_cpu_second"],
                )
            )
        middle = [median(column) for column in zip(*rows)]
        print("| {} | {:.0f} | {:.0f} | {:.3f} | {:.3f} | {:.0f} |".format(kind, *middle), flush=True)


if __name__ == "__main__":
    main()
