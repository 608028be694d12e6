#!/usr/bin/env bash
# What packed images are worth: their bytes, how fast their coefficients and planes are read and written, the loader from files, from
# shards and from the cache, beside its best peers and in Python, what filling the cache costs, and more workers than cores.
#
#   bench/packed.sh PHOTOS [CLOTHING]
#
# Build first (cargo build --release). PYTHON (default python3) is one with the peers and the wheel, as bench/peers/setup.sh all makes it; a
# peer that is not there is named. Nothing else should run: takes a quarter of an hour.
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
"$here/run.py" "$1" --executors fused --prepared --cached --loads 0,12 --cores 1 --rounds 7
echo "== beside its peers, on one core"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
taskset -c "$last" "${CARGO_TARGET_DIR:-$here/../target}/release/stokehold" compare "$1" --python "${PYTHON:-python3}" \
    --trials fused,cached,stokehold,albumentations,ffcv,ffcv-raw --cache "$out/cache" --models resnet18 --loads 0,12 --workers 1 \
    --trainer emulated --images-per-second 100000 --out "$out/compare"
echo "== the cache, while it fills"
"$here/cache.py" "${2:-$1}"
echo "== more workers than cores"
"$here/scaling.py" "$1"
