#!/usr/bin/env bash
# Makes other kinds of a set of photographs, to see that what holds for one kind holds for the others.
#
#   bench/make_sets.sh PHOTOS FOLDER
#
#   FOLDER/420           chroma at half the resolution both ways, as cameras and most of the web have it: files that
#                        are 4:2:0 already as they are, the others encoded again by cjpeg at the quality that comes nearest to
#                        their quantisation tables
#   FOLDER/progressive   every file made progressive by jpegtran: the same coefficients in several scans
#
# Needs Debian's libjpeg-turbo-progs. Grey and CMYK files are left out of 420. A set that is there is left as it is; delete
# it to make it again.
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: bench/make_sets.sh PHOTOS FOLDER" >&2
    exit 2
fi
photos=$(realpath "$1") sets=$2
mkdir -p "$sets"

# Prints the factors of the components ("2x2,1x1,1x1") and the mean step of the luma table.
describe() {
    python3 - "$1" <<'PY'
import struct, sys
data, at, steps, factors = open(sys.argv[1], "rb").read(), 2, None, ""
while data[at + 1] != 0xDA:
    if data[at] != 0xFF or data[at + 1] == 0xFF:
        at += 1
        continue
    marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
    body = data[at + 4 : at + 2 + length]
    while marker == 0xDB and body:
        wide, number = body[0] >> 4, body[0] & 15
        table = struct.unpack(">64H" if wide else ">64B", body[1 : 129 if wide else 65])
        steps, body = (table if number == 0 else steps), body[129 if wide else 65 :]
    if marker in (0xC0, 0xC1, 0xC2):
        factors = ",".join(f"{s >> 4}x{s & 15}" for s in body[7::3])
    at += 2 + length
# The standard's luma table has a mean of 57.625; libjpeg scales it by 5000/q below quality 50, by 200 - 2q above.
scale = 100 * sum(steps) / 64 / 57.625
quality = (200 - scale) / 2 if scale <= 100 else 5000 / scale
print(factors, min(100, max(1, round(quality))))
PY
}

make_420() {
    local photo=$1 out=$2 factors quality
    read -r factors quality < <(describe "$photo")
    case $factors in
    2x2,1x1,1x1) cp "$photo" "$out" ;;
    *x*,*x*,*x*,*x*) ;;
    *x*,*x*,*x*) djpeg "$photo" | cjpeg -quality "$quality" -sample 2x2 >"$out" ;;
    esac
}

make_progressive() { jpegtran -copy all -progressive -optimize "$1" >"$2"; }

for set in 420 progressive; do
    if [ -d "$sets/$set" ]; then continue; fi
    rm -rf "$sets/$set.part"
    mkdir "$sets/$set.part"
    find "$photos" -type f \( -iname '*.jpg' -o -iname '*.jpeg' \) -print0 | sort -z |
        while IFS= read -r -d '' photo; do
            below=${photo#"$photos"/}
            mkdir -p "$sets/$set.part/$(dirname "$below")"
            "make_$set" "$photo" "$sets/$set.part/$below"
        done
    mv "$sets/$set.part" "$sets/$set"
    echo "$sets/$set: $(find "$sets/$set" -type f | wc -l) files"
done
