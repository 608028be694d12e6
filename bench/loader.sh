#!/usr/bin/env bash
# The headline measurement: the loader alone, on photographs, on one core, without and with the published load.
#
#   bench/loader.sh PHOTOS [OPTION of bench/run.py ..]
#
# Stokehold's fused and per-op executors, and fused from prepared shards, against PyTorch's DataLoader (PIL, v2 tensors), DALI, FFCV
# (the files' JPEGs, and its own file of pixels) and Albumentations. The README's table is of this.
# Build first (cargo build --release) and make the peers' environments (bench/peers/setup.sh). Takes about five minutes.
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: bench/loader.sh PHOTOS [OPTION of bench/run.py ..]" >&2
    exit 2
fi
exec "$(dirname "$0")/run.py" "$1" \
    --executors fused,per-op --prepared --peers torch_pil,torch_v2,dali,ffcv,ffcv_raw,albumentations \
    --loads 0,12 --cores 1 --rounds 7 --max-images 100 "${@:2}"
