#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# examples/ddp.py under a real torchrun: it learns as well with a codec as without, for fewer bytes, and goes on from its
# checkpoint. TORCHRUN names another torchrun than the one in PATH, a wheel's for example.
# usage: ddp_example.sh SOURCE_ROOT libsluice.so
set -uo pipefail
root=$1 library=$2
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"
# shellcheck source=tests/port.sh
. "$root/tests/port.sh"
torchrun=${TORCHRUN:-torchrun}

command -v "$torchrun" >/dev/null ||
    tap_skip_all "torchrun is not installed (package python3-torch, or PyTorch by pip)"
"$torchrun" --help >/dev/null 2>&1 || tap_skip_all "torchrun does not start (torchrun --help)"
for name in "${!SLUICE_@}" "${!TORCHELASTIC_@}"; do
    [[ $name == SLUICE_LOG ]] || unset "$name"
done
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

# As it is installed: both modules in a folder, and the library found from there.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/prefix/share/sluice" "$dir/prefix/lib" "$dir/left"
cp "$root"/tools/torch/*.py "$dir/prefix/share/sluice"
cp "$library" "$dir/prefix/lib/libsluice.so.0"
export PYTHONPATH=$dir/prefix/share/sluice${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo PYTHONDONTWRITEBYTECODE=1

# PyTorch 1.13 under Python 3.11 crashes on its own default of -r and -t (no log files); the same said
# for a rank that does not exist it takes.
in_four() {
    timeout -k 5 200 "$torchrun" -r 9:1 -t 9:1 --nnodes=1 --node_rank=0 --master_addr=127.0.0.1 --master_port="$(free_port)" --nproc_per_node=4 "$@" 2>&1
}
ddp() { in_four "$root/examples/ddp.py" "$@"; }

# That of Debian 13 asks for a libuv that its PyTorch was built without.
why=$(in_four --no_python true) || tap_skip_all "torchrun cannot start a program here: $(tail -n 1 <<<"$why")"

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
    local first second
    first=$(ddp --steps 100 --checkpoint "$dir/left") && second=$(ddp --steps 100 --checkpoint "$dir/left") ||
        { echo "$first"; echo "$second"; return 1; }
    good "$first" 100 50 && good "$second" 200 90
}

tap_case ddp_learns_by_a_codec_as_well_as_without as_without_a_codec
tap_case ddp_goes_on_from_its_checkpoint from_its_checkpoint
tap_done
