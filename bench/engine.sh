#!/usr/bin/env bash
# Every figure of the engine in one table: decoding beside libjpeg-turbo 3, the loader beside its peers, shards, memory, cores.
#
#   bench/engine.sh PHOTOS [--quick] [--json FILE]
#
# Builds what it needs (cmake and nasm for libjpeg-turbo, Debian's libjpeg-turbo-progs for the sets), makes the sets of
# bench/make_sets.sh in ${STOKEHOLD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stokehold}/sets, and runs bench/engine.py. Peers come
# from bench/peers/setup.sh; those that are not there are named and left out. Takes about ten minutes on an idle machine
# once everything is built; --quick takes few files and rounds, to see that all of it works.
set -euo pipefail

if [ $# -eq 0 ] || [ ! -d "$1" ]; then
    echo "usage: bench/engine.sh PHOTOS [--quick] [--json FILE]" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
photos=$(realpath "$1")
cache=${STOKEHOLD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stokehold}
sets=$cache/sets/$(echo "$photos" | sha1sum | cut -c1-12)

(cd "$root" && cargo build --release --locked)
(cd "$root/bench/jpeg" && cargo build --release --locked)
"$root/bench/make_sets.sh" "$photos" "$sets"
exec "$root/bench/engine.py" "$photos" --sets "$sets" "${@:2}"
