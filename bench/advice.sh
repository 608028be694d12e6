#!/bin/sh
# Predictions of `stokehold advise` against measurements: builds the program and runs bench/advice.py, which explains itself.
# Usage: bench/advice.sh [DATA] [--rounds N] [--json FILE] ..
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
(cd "$root" && cargo build --release --locked --quiet)
exec "$root/bench/advice.py" "$@"
