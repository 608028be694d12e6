#!/usr/bin/env bash
# What each way of bringing data from a bucket gives: copied, mounted, piped, cached, streamed; beside the local disk. And files and
# shards, in the bucket and in a folder, side by side.
#
#   bench/storage.sh PHOTOS [LATENCY_MS [IMAGES_PER_S]]     # 20 ms a request; a trainer of 300 images/s, and none
#
# The server computes the checksum of a whole object at every request, so what streams parts of shards from it is slower than from S3.
# Puts PHOTOS behind an S3 server on this machine that answers so late, and runs `stokehold bench storage` twice: paced by a trainer, and as
# fast as it goes, where server and loader share the machine's cores. FastFile and Cache want FUSE.
set -euo pipefail
if [ $# -eq 0 ] || [ ! -d "$1" ]; then
    echo "usage: bench/storage.sh PHOTOS [LATENCY_MS [IMAGES_PER_S]]" >&2
    exit 2
fi
photos=$(realpath "$1") latency=${2:-20} rate=${3:-300}
cd "$(dirname "$0")/.."

cargo build --release --locked --features full -p stokehold -p stokehold-s3-server --features stokehold-s3-server/server --bin stokehold --example serve
programs=${CARGO_TARGET_DIR:-target}/release

work=$(mktemp -d)
trap 'exec 3>&-; rm -rf "$work"' EXIT
mkdir "$work/buckets"
cp -r "$photos" "$work/buckets/photos"
"$programs/stokehold" prepare "$work/buckets/photos" "$work/buckets/shards"
mkfifo "$work/until"
"$programs/examples/serve" "$work/buckets" "$latency" <"$work/until" >"$work/settings" &
# It serves until this end of its input is closed.
exec 3>"$work/until"
for _ in $(seq 600); do
    grep -q AWS_REGION "$work/settings" && break
    sleep 0.1
done
. "$work/settings"

for pace in "--trainer-images-per-s $rate" ""; do
    # shellcheck disable=SC2086
    "$programs/stokehold" bench storage s3://photos $pace
    echo
done
"$programs/stokehold" bench storage s3://photos s3://shards "$work/buckets/photos" "$work/buckets/shards" \
    --trainer-images-per-s "$rate"
