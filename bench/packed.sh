#!/usr/bin/env bash
# What packed images are worth: their bytes, how fast their coefficients and planes are read and written, the loader from files, from
# shards and from the cache beside its best peers, what filling the cache costs, more workers than cores, and the loader in Python.
#
#   bench/packed.sh PHOTOS [CLOTHING]
#
# Build first (cargo build --release) and make the peers' environments (bench/peers/setup.sh albumentations ffcv torch); set STOKEHOLD_PYTHON
# to a Python with torch and the wheel for the last part, which is left out otherwise. Nothing else should run: takes a quarter of an hour.
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: bench/packed.sh PHOTOS [CLOTHING]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
last=$(($(nproc) - 1))
for data in "$@"; do
    echo "== packed: bytes, coefficients, planes of $data"
    (cd "$here/.." && taskset -c "$last" cargo run --quiet --release -p stokehold-jpeg --example packed -- "$(realpath "$data")" 5)
done
echo "== the loader of $1, on one core"
"$here/run.py" "$1" --executors fused --prepared --cached --peers albumentations,ffcv,ffcv_raw --loads 0,12 --cores 1 --rounds 7
echo "== the cache, while it fills"
"$here/cache.py" "${2:-$1}"
echo "== more workers than cores"
"$here/scaling.py" "$1"
if [ -n "${STOKEHOLD_PYTHON:-}" ]; then
    echo "== through Python"
    "$here/python.py" speed "$1" --cores 1 --loads 0 --max-images 400
fi
