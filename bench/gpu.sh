#!/usr/bin/env bash
# Every figure of the executor gpu on one machine, in one command:
#
#   bench/gpu.sh PHOTOS [--device cuda|vulkan] [--cores N] [--out DIR] [--quick]
#
# machine   the devices, and why the others cannot be used
# equal     the numbers of every photo held equal to fused's, then both ways to decode and fused beside each other at loads 0, 1, 4, 8
#           and 12, and the peak of device memory
# loader    per load in one interleaved run: gpu, gpu-device, fused
# trainer   forward, backward and optimiser of the published networks in PyTorch
# table     the published table: trial A per-op, trial B gpu; ResNet-18, 50, 152; loads 1, 4, 8, 12; batch 32; with the
#           percentiles of CPU, GPU and GPU memory
# peers     loaders in Python that feed PyTorch on the GPU: torchvision, DALI on the CPU and on the GPU, Stokehold likewise
#
# summary   all of it in one table (bench/gpu_table.py)
#
# Everything is printed and lies in DIR (default: gpu-bench) too, a file for each part. A part that lacks something is
# skipped, with what it lacks; one that fails does not keep the others from running, but the script then ends with 1. It ends with 2
# if nothing was measured. On NVIDIA's GPUs the driver is enough where NVRTC and CUDA's headers are: `stokehold devices` says which
# packages of PyPI have those that fit the driver, and which variables name them.
# N cores (default 8, or as many as there are) are used by all. --quick takes few images and small ones, to see that all of
# it works.
#
# Environment: STOKEHOLD, a binary built with the device's feature, and BENCH_GPU, crates/gpu's example bench_gpu built so;
# where one is not given it is built (the feature cuda needs no CUDA to compile). PYTHON (default python3), one that has
# PyTorch and torchvision, and for the peers nvidia.dali and Stokehold's package.
set -uo pipefail

usage() {
    echo "usage: bench/gpu.sh PHOTOS [--device cuda|vulkan] [--cores N] [--out DIR] [--quick]" >&2
    exit 2
}

if [ $# -eq 0 ] || [ ! -d "$1" ]; then usage; fi
photos=$(realpath "$1")
shift
device=cuda out=gpu-bench quick="" cores=8
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=${2:-} ;;
        --cores) cores=${2:-} ;;
        --out) out=${2:-} ;;
        --quick) quick=yes; shift; continue ;;
        *) usage ;;
    esac
    [ $# -ge 2 ] || usage
    shift 2
done
case $device in cuda | vulkan) ;; *) usage ;; esac
case $cores in '' | 0* | *[!0-9]* | ?????*) usage ;; esac

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
there=$(nproc)
[ "$cores" -le "$there" ] || cores=$there
# The last ones of those that may be used, as bench/run.py takes them.
pinned=$(python3 -c "import os; print(*sorted(os.sched_getaffinity(0))[-$cores:], sep=',')") || exit 1
mkdir -p "$out" || exit 1
out=$(realpath "$out")
# What lies in DIR is removed, so it has to be this script's.
if [ -n "$(ls -A "$out")" ] && [ ! -e "$out/of-bench-gpu" ]; then
    echo "bench/gpu.sh: $out has files of others; name a new or an empty folder with --out" >&2
    exit 2
fi
case $photos/ in "$out"/*)
    echo "bench/gpu.sh: the photos lie in $out, which is for results; name another folder with --out" >&2
    exit 2
    ;;
esac
touch "$out/of-bench-gpu" || exit 1
loads=(0 1 4 8 12) table_loads=1,4,8,12 models=resnet18,resnet50,resnet152 side=224 images=3200 round=1.5 rounds=5 passes=3
if [ "$quick" ]; then
    loads=(0 12) table_loads=1,12 models=resnet18 side=64 images=64 round=0.1 rounds=1 passes=1
fi

failed="" measured=""
# Runs a part, whose name is its function's, and keeps what it prints and says how long it took. A part returns 3 where it was
# skipped.
part() {
    local begin=$SECONDS
    echo
    echo "== $1"
    "$1" 2>&1 | tee "$out/$1.txt"
    local code=${PIPESTATUS[0]}
    echo "== $1: $((SECONDS - begin)) s"
    case $code:$1 in
        0:machine | 0:summary | 3:*) ;;
        0:*) measured=yes ;;
        *)
            echo "== $1 failed with exit code $code"
            # No figures of what was found to be wrong.
            mv "$out/$1.txt" "$out/$1.failed.txt"
            failed=yes
            ;;
    esac
}

skip() {
    echo "skipped: $1"
    return 3
}

# Where a program is: as given, or built.
binary() {
    local given=$1 built=$2
    shift 2
    if [ -n "$given" ]; then
        echo "$given"
    elif command -v cargo >/dev/null && [ -f "$root/Cargo.toml" ]; then
        (cd "$root" && cargo build --release --locked --features "$device" "$@" >&2) || return
        echo "${CARGO_TARGET_DIR:-$root/target}/release/$built"
    fi
}

# Why the binary cannot use the device; nothing where it can.
unusable() {
    if [ ! -x "$stokehold" ]; then
        echo "no binary: set STOKEHOLD to one that was built with --features $device, or build on a machine with cargo"
        return
    fi
    local line
    line=$("$stokehold" devices 2>/dev/null | grep "^$device" | head -n 1) || true
    case $line in
        '') echo "'$stokehold devices' does not say whether $device can be used" ;;
        *"not usable"* | *"cannot be used"*) echo "$line" ;;
    esac
}

# Whether the Python has PyTorch and torchvision, and these a CUDA device.
has_cuda() {
    "$python" -c "import sys, torch, torchvision; sys.exit(not torch.cuda.is_available())" 2>/dev/null
}

machine() {
    echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $cores of $there cores are used"
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    fi
    if [ -x "$stokehold" ]; then "$stokehold" devices; fi
}

equal() {
    if [ ! -x "$bench_gpu" ]; then
        skip "no example bench_gpu: set BENCH_GPU to one that was built with --features $device"
        return
    fi
    taskset -c "$pinned" "$bench_gpu" "$few" "$device:0" "$cores" 64 "$side" "$passes"
}

loader() {
    local why
    why=$(unusable)
    if [ -n "$why" ]; then
        skip "$why"
        return
    fi
    # One load at a time, so that few processes share the device's memory.
    local load code=0
    for load in "${loads[@]}"; do
        echo
        "$root/bench/run.py" "$few" --executors gpu,gpu-device,fused --loads "$load" --rounds "$rounds" --cores "$cores" \
            --image-size "$side" --device "$device" --stokehold "$stokehold" --json "$out/loader-$load.json" || code=$?
    done
    return "$code"
}

trainer() {
    if ! has_cuda; then
        skip "$python has no PyTorch and torchvision that find a CUDA device"
        return
    fi
    "$python" "$root/bench/torch_step.py" --models "$models" --image-size "$side" --json "$out/torch.json"
}

table() {
    local why
    why=$(unusable)
    if [ -n "$why" ]; then
        skip "$why"
        return
    fi
    if "$stokehold" devices 2>/dev/null | grep "^$device" | head -n 1 | grep -q "made of the CPU"; then
        skip "Burn's kernels do not run on a Vulkan device that is made of the CPU"
        return
    fi
    taskset -c "$pinned" "$stokehold" compare "$out/images" --trials per-op,gpu --gpu-decode device \
        --models "$models" --loads "$table_loads" --batch-size 32 --image-size "$side" --round "$round" \
        --workers "$cores" --device "$device" --out "$out/compare" || return
    echo
    cat "$out/compare/compare.md"
}

# compare names each trial whose library is missing, and measures the others.
peers() {
    if [ ! -x "$stokehold" ]; then
        skip "$(unusable)"
        return
    fi
    if ! has_cuda; then
        skip "$python has no PyTorch and torchvision that find a CUDA device"
        return
    fi
    taskset -c "$pinned" "$stokehold" compare "$out/images" --trials torchvision,dali,dali-gpu,stokehold,stokehold-gpu \
        --trainer torch --device cuda --python "$(command -v "$python")" --models resnet18 --loads "$table_loads" \
        --batch-size 32 --image-size "$side" --round "$round" --workers "$cores" --out "$out/peers" || return
    echo
    cat "$out/peers/compare.md"
}

# Links to the photos, from all of the folder, whose first files may be of one class: up to 400 for the loaders, and for the trainings
# two classes of as many as make an epoch last, which takes each photo several times where there are few.
prepare() {
    local most=400
    [ ! "$quick" ] || { most=8 images=64; }
    rm -rf "$out/images" "$out/few"
    python3 - "$photos" "$out" "$most" "$images" <<'END' || exit
import os, sys
from pathlib import Path

photos, out, most, images = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
files = sorted(
    os.path.join(folder, name)
    for folder, _, names in os.walk(photos, followlinks=True)
    for name in names
    if name.lower().endswith((".jpg", ".jpeg"))
)
if not files:
    print(f"bench/gpu.sh: {photos} holds no JPEG files (.jpg, .jpeg)", file=sys.stderr)
    sys.exit(2)
for folder in ("few", "images/a", "images/b"):
    (out / folder).mkdir(parents=True)
few = min(most, len(files))
for i in range(few):
    os.symlink(files[i * len(files) // few], out / "few" / f"{i}.jpg")
for i in range(images):
    file = files[i % len(files) if len(files) < images else i * len(files) // images]
    os.symlink(file, out / "images" / "ab"[i % 2] / f"{i}.jpg")
print(f"{len(files)} photos: {few} of them for loaders, {min(images, len(files))} for trainings")
END
    few=$out/few
}

summary() {
    "$root/bench/gpu_table.py" "$out"
}

# Without it some drivers write a warning to standard error.
export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-$out}
prepare
rm -rf "$out"/torch.json "$out"/loader-*.json "$out"/*.failed.txt "$out"/equal.txt "$out/compare" "$out/peers"
{
    [ ! "$quick" ] || echo "A quick run, to see that all of it works: its figures mean nothing."
    echo "$device, $cores of $there cores, images of $side pixels, $(date -u +%F), of $photos"
} >"$out/about.txt"
stokehold=$(binary "${STOKEHOLD:-}" stokehold) || exit 1
bench_gpu=$(binary "${BENCH_GPU:-}" examples/bench_gpu -p stokehold-gpu --example bench_gpu) || exit 1
for name in machine equal loader trainer table peers summary; do
    part "$name"
done
echo
echo "written: $out"
[ ! "$failed" ] || exit 1
if [ ! "$measured" ]; then
    echo "bench/gpu.sh: nothing was measured; each part says what it lacks" >&2
    exit 2
fi
