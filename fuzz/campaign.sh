#!/usr/bin/env bash
# Fuzzes targets one after the other for a CPU time each, and says what came of it.
#
#   fuzz/campaign.sh TARGET.. SECONDS
#
# At the lowest priority, with AddressSanitizer, 2 GiB of memory and 10 s of CPU time an input. The corpus grows in
# ${STOKEHOLD_FUZZ:-${XDG_CACHE_HOME:-$HOME/.cache}/stokehold/fuzz}/corpus/TARGET; each campaign adds a line to summary.tsv beside
# it: date, commit, target, executions, CPU seconds, edges covered, corpus files, findings. A finding ends its target's
# turn and lies in findings/TARGET. Exit code 1 where there was one.
#
# Needs a nightly toolchain and cargo-fuzz (cargo install cargo-fuzz --version 0.13.2 --locked). `differential` stands for
# the crate fuzz/differential, which compiles libjpeg-turbo and needs cmake and nasm.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: fuzz/campaign.sh TARGET.. SECONDS" >&2
    exit 2
fi
seconds=${!#}
set -- "${@:1:$#-1}"
root=$(cd "$(dirname "$0")/.." && pwd)
home=${STOKEHOLD_FUZZ:-${XDG_CACHE_HOME:-$HOME/.cache}/stokehold/fuzz}
slice=240 # seconds of wall time between two looks at the CPU time used
mkdir -p "$home"
[ -d "$home/seeds" ] || "$root/fuzz/seeds.sh" "$home/seeds"
commit=$(git -C "$root" rev-parse --short HEAD)

# The last number that libFuzzer printed behind a word.
last() { grep -o "$1 *[0-9]*" "$2" | tail -1 | grep -o '[0-9]*$' || echo 0; }

# Whether every input that took too long did so because the machine was busy: libFuzzer's limit is one of wall time.
only_waited() {
    local input
    for input in "$findings"/*; do
        [[ $input == */timeout-* || $input == */slow-unit-* ]] || return 1
        (ulimit -t 10 && "$program" -runs=1 "$input" >/dev/null 2>&1) || return 1
        rm "$input"
    done
}

found=0
for target in "$@"; do
    project=$root/fuzz features=()
    case $target in
    differential) project=$root/fuzz/differential ;;
    image | pipeline | recorded | shard | manifest | sides | samples | events | mask | classes | batch | cache) features=(--features rooms) ;;
    esac
    corpus=$home/corpus/$target findings=$home/findings/$target
    mkdir -p "$corpus" "$findings" "$home/bin" "$home/logs"
    (cd "$root" && cargo +nightly fuzz build --fuzz-dir "$project" "${features[@]}" "$target")
    # A copy, which stays what it is while others build.
    program=$home/bin/$target-$commit
    built=${CARGO_TARGET_DIR:-$project/target}/x86_64-unknown-linux-gnu/release/$target
    cp "$built" "$program"
    runs=0 used=0 broke=0
    while [ "$used" -lt "$seconds" ] && [ $broke = 0 ]; do
        log=$home/logs/$target-$(date -u +%Y%m%dT%H%M%S).log
        left=$((seconds - used))
        TIMEFORMAT='%U %S'
        { time nice -n 19 "$program" "$corpus" "$home/seeds" -artifact_prefix="$findings/" -max_len=16384 \
            -rss_limit_mb=2048 -timeout=120 -print_final_stats=1 \
            -max_total_time=$((left < slice ? left : slice)) >"$log" 2>&1 || broke=1; } 2>"$corpus.time"
        if [ $broke = 1 ] && only_waited; then broke=0; fi
        used=$((used + $(tail -1 "$corpus.time" | awk '{ printf "%d", $1 + $2 + 0.5 }')))
        runs=$((runs + $(last stat::number_of_executed_units: "$log")))
    done
    files=$(find "$corpus" -type f | wc -l)
    line=$(printf '%s\t' "$(date -u +%F)" "$commit" "$target" "$runs" "$used" "$(last cov: "$log")" "$files")$broke
    echo "$line" >>"$home/summary.tsv"
    echo "$line"
    if [ $broke = 1 ]; then
        found=1
        echo "$target: see the end of $log and $findings" >&2
    fi
done
exit $found
