#!/usr/bin/env bash
# Makes the Python environments of the peers, each by itself, with the versions pinned in requirements/.
#
#   bench/peers/setup.sh [NAME..]      NAME: torch, dali, ffcv, albumentations, spdl, all, smdebug, toolkit, moto, optuna, wheel,
#                                      frameworks, nvrtc, zig (default: every one of them but all, nvrtc and zig)
#
# all has torch, DALI, FFCV, Albumentations and SPDL, so that one Python runs every trial of `stokehold compare`; the
# package stokehold is installed into it by itself (the wheel that python/build makes).
#
# wheel-tests is for other Pythons than the default's, of which python/check makes one each. zig is for wheels that are made for
# other machines (python/wheels).
#
# nvrtc is NVIDIA's compiler for kernels, for .ci/cuda; nvrtc-oldest is the oldest that does, for .ci/cuda --all.
#
# They lie under ${STOKEHOLD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stokehold}: torch/ (shared with the tests and the
# recipes), smdebug/, toolkit/, moto/, wheel/ and nvrtc/ (for the tests) and peers/NAME/. An environment that already has its pinned versions is left as it is.
# PYTHON names the interpreter to build them from (default python3.11, with which the pins were chosen).
#
# Where no NVIDIA driver is, torch is the build for CPUs, from PyTorch's own index: PyPI's build for Linux is the same
# version and brings 5 GB of CUDA. Where that index does not answer, PyPI's is taken. ffcv, all, optuna and frameworks stand
# on the environment torch, which is made for them, and have no torch of their own.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${STOKEHOLD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stokehold}
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null || {
    echo "there is no $python: name another one, PYTHON=python3 $0 $*" >&2
    exit 2
}

environment_of() {
    case $1 in
    torch | smdebug | toolkit | moto | wheel | wheel-tests | frameworks | nvrtc | nvrtc-oldest | zig) echo "$cache/$1" ;;
    *) echo "$cache/peers/$1" ;;
    esac
}

check_debian_packages() {
    local missing=()
    command -v g++ >/dev/null || missing+=(g++)
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    pkg-config --exists opencv4 2>/dev/null || missing+=(libopencv-dev)
    pkg-config --exists libturbojpeg 2>/dev/null || missing+=(libturbojpeg0-dev)
    if [ ${#missing[@]} -gt 0 ]; then
        echo "ffcv is compiled here and needs: apt-get install ${missing[*]}" >&2
        exit 1
    fi
}

# SPDL loads the libraries of FFmpeg 4 to 9, whichever there is.
check_ffmpeg() {
    if ! PATH=$PATH:/usr/sbin:/sbin ldconfig -p | grep libavdevice >/dev/null; then
        echo "SPDL needs FFmpeg's libraries: apt-get install ffmpeg (or libavdevice59 alone, in Debian 12)" >&2
        exit 1
    fi
}

torch_index=https://download.pytorch.org/whl/cpu

# Whether the environment's pip can take torch from PyTorch's index. It is asked once and briefly, because pip itself
# would ask five times, for minutes.
has_torch_index() {
    "$1/bin/python" - "$torch_index/torch/" <<'EOF'
import sys, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=5).close()
except OSError as error:
    sys.exit(f"{sys.argv[1]} does not answer ({error}): torch comes from PyPI, with CUDA, which takes 5 GB")
EOF
}

make_environment() {
    local name=$1 requirements=$here/requirements/$1.txt environment
    if [ ! -f "$requirements" ]; then
        echo "no peer environment is called $name; there are: torch dali ffcv albumentations spdl all smdebug toolkit moto optuna wheel frameworks nvrtc zig" >&2
        exit 2
    fi
    environment=$(environment_of "$name")
    # The copy of the requirements is written last, so an installation that broke off is taken up again.
    if cmp -s "$requirements" "$environment/requirements.txt"; then
        echo "$name: already at $environment"
        return
    fi
    case $name in
    ffcv) check_debian_packages ;;
    spdl) check_ffmpeg ;;
    all) check_debian_packages && check_ffmpeg ;;
    esac
    [ -x "$environment/bin/pip" ] || "$python" -m venv "$environment"
    local index=()
    case $name in
    torch)
        # A version of that index, 2.15.0+cpu, goes before PyPI's 2.15.0; all else is PyPI's.
        if [ "$(uname -s)" = Linux ] && [ ! -e /proc/driver/nvidia ] && has_torch_index "$environment"; then
            index=(--extra-index-url "$torch_index")
        fi
        ;;
    ffcv | all | optuna | frameworks)
        make_environment torch
        "$cache/torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
            >"$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
        ;;
    esac
    "$environment/bin/pip" install --quiet "${index[@]}" --requirement "$requirements"
    cp "$requirements" "$environment/requirements.txt"
    echo "$name: made at $environment"
}

if [ $# -eq 0 ]; then set -- torch dali ffcv albumentations spdl smdebug toolkit moto optuna wheel frameworks; fi
for name in "$@"; do make_environment "$name"; done
