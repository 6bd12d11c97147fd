#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# examples/ddp.py under a real torchrun: it learns as well with a codec as without, for fewer bytes, and goes on from its
# checkpoint.
# usage: ddp_example.sh SOURCE_ROOT libsluice.so
set -uo pipefail
root=$1 library=$2
# shellcheck source=tests/torchrun.sh
. "$root/tests/torchrun.sh"

# As it is installed: both modules in a folder, and the library found from there.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/prefix/share/sluice" "$dir/prefix/lib" "$dir/left"
cp "$root"/tools/torch/*.py "$dir/prefix/share/sluice"
cp "$library" "$dir/prefix/lib/libsluice.so.0"
export PYTHONPATH=$dir/prefix/share/sluice${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1

ddp() { in_four 200 "$root/examples/ddp.py" "$@"; }

# said OUTPUT: step, per cent right, bytes, bytes of the elements.
said() { sed -nE 's/^step ([0-9]+): ([0-9.]+) % right; ([0-9]+) bytes in place of ([0-9]+)$/\1 \2 \3 \4/p' <<<"$1"; }

# good OUTPUT STEP LEAST: that many steps, and at least LEAST % right.
good() {
    local step right bytes raw
    read -r step right bytes raw <<<"$(said "$1")"
    [[ ${step:-} == "$2" ]] && awk -v right="$right" -v least="$3" 'BEGIN { exit !(right >= least) }' || { echo "$1"; return 1; }
}

as_without_a_codec() {
    local plain coded bytes raw
    plain=$(ddp --codec '') && good "$plain" 200 90 || { echo "$plain"; return 1; }
    coded=$(ddp --codec bq4:feedback=on,min=0,when=always) || { echo "$coded"; return 1; }
    read -r _ right _ <<<"$(said "$plain")"
    good "$coded" 200 "$(awk -v right="$right" 'BEGIN { print right - 2 }')" || return 1
    read -r _ _ bytes raw <<<"$(said "$coded")"
    [[ $((raw / bytes)) -eq 7 ]] && grep -q 'times fewer, by' <<<"$coded" || { echo "$coded"; return 1; }
}

from_its_checkpoint() {
    local first second codec=bq4:feedback=on,min=0,when=always
    first=$(ddp --codec "$codec" --steps 100 --checkpoint "$dir/left") && second=$(ddp --codec "$codec" --steps 100 --checkpoint "$dir/left") ||
        { echo "$first"; echo "$second"; return 1; }
    good "$first" 100 50 && good "$second" 200 90
}

tap_case ddp_learns_by_a_codec_as_well_as_without as_without_a_codec
tap_case ddp_goes_on_from_its_checkpoint from_its_checkpoint
tap_done
