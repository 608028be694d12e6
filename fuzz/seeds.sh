#!/usr/bin/env bash
# Makes the seeds of the targets: small JPEGs of every kind, files that have broken decoders before, and packed images of both.
#
#   fuzz/seeds.sh FOLDER
#
# From the tests' corpus (tests/oracle/corpus.py; $STOKEHOLD_TEST_PYTHON names a Python that has Pillow), from hostile/ and,
# where $STOKEHOLD_TEST_DATA names the test data, from its jpeg-corpus. Files above 8 KiB are left out: a fuzzer learns
# more from many small ones.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: fuzz/seeds.sh FOLDER" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
seeds=$1
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

"${STOKEHOLD_TEST_PYTHON:-python3}" "$root/crates/jpeg/tests/oracle/corpus.py" "$made"
mkdir -p "$seeds"
folders=("$made" "$root/hostile")
data=${STOKEHOLD_TEST_DATA:-}/jpeg-corpus
if [ -d "$data" ]; then folders+=("$data"); fi
# Named by content, as libFuzzer does, so that equal files are one.
find "${folders[@]}" -type f -size -8193c \( -name '*.jpg' -o -name '*.jpeg' -o -name '*.jpe' \) -print0 |
    while IFS= read -r -d '' file; do
        cp "$file" "$seeds/$(sha1sum <"$file" | cut -d' ' -f1)"
    done
# The same as packed images: the form that only this decoder reads.
cargo run --quiet --release --manifest-path "$root/fuzz/Cargo.toml" --example packed_seeds -- "$seeds"
echo "$(find "$seeds" -type f | wc -l) seeds in $seeds"
