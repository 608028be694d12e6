#!/bin/sh
# Makes what the README shows of `stokehold compare`: runs it with its defaults, anew, and leaves
#   docs/guide/compare-example.txt   what it printed
#   docs/guide/compare-example.md    the tables for the README
#   docs/guide/compare-example.png   its page, where a Chromium is installed
# Run it on a machine that does nothing else.
# Usage: bench/readme.sh [HEIGHT]   pixels of the page that are drawn; the default ends above the tables
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
profile=$(mktemp -d)
trap 'rm -rf "$out" "$profile"' EXIT

cargo run --release --quiet -- compare --out "$out/compare" >"$out/printed.txt"
mkdir -p docs/guide
# The last line names a folder that will be gone.
sed '/^written: /d' "$out/printed.txt" >docs/guide/compare-example.txt
cp "$out/compare/compare.md" docs/guide/compare-example.md

for chromium in chromium chromium-browser google-chrome; do
    if command -v "$chromium" >/dev/null; then
        "$chromium" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars \
            --disable-background-networking --disable-component-update --disable-sync \
            --user-data-dir="$profile" --window-size=1200,"${1:-1532}" \
            --screenshot="$PWD/docs/guide/compare-example.png" "file://$out/compare/compare.html" 2>/dev/null
        echo "docs/guide/compare-example.png is drawn; look at it" >&2
        exit 0
    fi
done
echo "no chromium here: docs/guide/compare-example.png is as it was" >&2
