#!/usr/bin/env bash
# Two ranks on this machine beside one, with emulated accelerators, so that the CPU is not the limit: what sums of gradients cost
# a step. One and two ranks take turns. Needs an MPI, and a program built with --features mpi (STOKEHOLD, by default
# target/release/stokehold).
#
#   bench/ranks.sh DATA [ROUNDS]
set -euo pipefail
data=$1
rounds=${2:-3}
stokehold=${STOKEHOLD:-target/release/stokehold}
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
speed() {
    sed -n 's/.*"images_per_second": \([0-9.]*\),*/\1/p' "$runs/$1/summary.json" | head -1
}
# Network, images per second of an accelerator, images of a rank's share.
for spec in "resnet18 100 64" "resnet50 50 64"; do
    read -r model rate images <<<"$spec"
    for round in $(seq "$rounds"); do
        options=(--model "$model" --trainer emulated --images-per-second "$rate" --image-size 64 --epochs 1
            --ceiling-batches 0 --workers 1 --runs "$runs")
        name=$model-$round
        "$stokehold" train "$data" "${options[@]}" --batch-size "$images" --max-images $((12 * images)) \
            --name "one-$name" >/dev/null 2>&1
        "$stokehold" launch -n 2 -- train "$data" "${options[@]}" --batch-size $((2 * images)) \
            --max-images $((24 * images)) --name "two-$name" >/dev/null 2>&1
        one=$(speed "one-$name")
        two=$(speed "two-$name")
        awk -v m="$model" -v o="$one" -v t="$two" -v n="$images" 'BEGIN {
            printf "%s: one rank %.1f images/s, two %.1f, efficiency %.3f, %.0f ms a step more\n",
                m, o, t, t / o / 2, 1000 * n * (2 / t - 1 / o) }'
    done
done
