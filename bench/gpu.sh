#!/usr/bin/env bash
# The executors gpu and fused on the same files: held equal first, then images a second and CPU time at loads 0, 1, 4, 8, 12.
#
#   bench/gpu.sh PHOTOS [DEVICE [WORKERS [BATCH [SIDE [PASSES]]]]]
#
# DEVICE is cuda:0 (the default) or vulkan:0. Builds crates/gpu's example for it, which needs neither CUDA nor Burn to compile
# (CubeCL's cuda feature downloads an LLVM bundle); BENCH_GPU names a binary that was built elsewhere, and CARGO_FLAGS adds flags.
set -euo pipefail

if [ $# -eq 0 ] || [ ! -d "$1" ]; then
    echo "usage: bench/gpu.sh PHOTOS [DEVICE [WORKERS [BATCH [SIDE [PASSES]]]]]" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
photos=$(realpath "$1")
device=${2:-cuda:0}
if [ -z "${BENCH_GPU:-}" ]; then
    # shellcheck disable=SC2086
    (cd "$root" && cargo build --release -p stokehold-gpu --features "${device%%:*}" --example bench_gpu ${CARGO_FLAGS:-})
    BENCH_GPU=${CARGO_TARGET_DIR:-$root/target}/release/examples/bench_gpu
fi
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
exec "$BENCH_GPU" "$photos" "$device" "${@:3}"
