#!/bin/sh
# Predictions of `stokehold advise` against measurements: builds the program and runs bench/advice.py, which explains itself.
# Usage: bench/advice.sh [DATA] [--rounds N] [--json FILE] ..
#        bench/advice.sh --matrix FOLDER --data DATA --shards SHARDS [--minutes M]   # an emulated accelerator, many settings
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
(cd "$root" && cargo build --release --locked --quiet)
exec "$root/bench/advice.py" "$@"
