#!/usr/bin/env bash
# What recording costs: CPU time at 500 ms and 100 ms of 64 simulated cores and 8 simulated GPUs, of this machine, and memory and disk
# over a simulated week.
#
#   bench/profiler.sh [SECONDS [WEEK_INTERVAL_MS]]      # 30 s for each interval, a week of ticks 5000 ms apart
#
# The simulated machine is a /proc of ordinary files below TMPDIR, which should be in memory (/dev/shm), and a library with the
# functions of NVML. What the kernel and a driver do to answer is not in it; `this machine` has the kernel's part of two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-30} interval=${2:-5000}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O1 -shared -fPIC -w -DGPUS=8 crates/profile/tests/it/nvml/fake.c -o "$work/libnvml.so"
cargo build --release --quiet -p stokehold-profile --example overhead
run=${CARGO_TARGET_DIR:-target}/release/examples/overhead

echo "64 cores and 8 GPUs, simulated"
"$run" cost "$work/libnvml.so" "$seconds"
echo "this machine"
"$run" real "$seconds"
echo "a week"
"$run" week "$work/libnvml.so" "$interval"
