#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library carries the probes that docs/probes.md lists, and no others; each site is a nop, one instruction.
# usage: abi_probes.sh libsluice.so built|absent SOURCE_ROOT verbs|plain
set -uo pipefail
library=$1 root=$3 transports=$4
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
[[ $2 == built ]] || tap_skip_all "sys/sdt.h was not there at build (package systemtap-sdt-dev)"

notes() { LC_ALL=C readelf -n "$library"; }

# Provider and name follow each other, a line each.
carried() {
    notes | awk '$1 == "Provider:" { provider = $2 } $1 == "Name:" && provider == "sluice" { print $2; provider = "" }' |
        sort -u
}

# First column of the tables in the documentation; without libibverbs at build, of the first alone.
documented() {
    awk -v all="$transports" '/^## Of RDMA/ && all != "verbs" { exit } { print }' "$root/docs/probes.md" |
        grep -oE '^\| `[a-z_]+`' | tr -d '|` ' | sort -u
}

carried_equals_documented() {
    [[ $(carried | wc -l) -ge 3 ]] || { echo "found only: $(carried)"; return 1; }
    diff <(documented) <(carried) | sed -n 's/^</documented, not carried:/p; s/^>/carried, not documented:/p' |
        grep . && return 1
    return 0
}

# The library may be of another machine than this: what a nop is there, its length, and who knows the opcodes.
case $(readelf -h "$library" | sed -n 's/^ *Machine: *//p') in
*X86-64*) nop='90\s+nop' nop_len=1 disassembler=x86_64-linux-gnu-objdump ;;
AArch64) nop='d503201f\s+nop' nop_len=4 disassembler=aarch64-linux-gnu-objdump ;;
*) nop= ;;
esac
command -v "${disassembler:-}" >/dev/null || disassembler=objdump

# Location: 0x... is an address of the code.
sites_are_nops() {
    local place count=0
    for place in $(notes | grep -A1 -E 'Name: (mr_|frame_post|write_post|complete)' | sed -n 's/.*Location: \(0x[0-9a-f]*\),.*/\1/p'); do
        "$disassembler" -d --start-address="$place" --stop-address=$((place + nop_len)) "$library" |
            grep -qE "^ +[0-9a-f]+:\s+$nop\s*\$" || { echo "no nop at $place"; return 1; }
        count=$((count + 1))
    done
    [[ $count -ge 2 ]]
}

# A semaphore would be a load and a branch at every site.
no_site_has_a_semaphore() {
    [[ $(notes | grep -c 'Semaphore: 0x0*$') -gt 0 ]] || return 1
    notes | grep 'Semaphore:' | grep -v 'Semaphore: 0x0*$' && return 1
    return 0
}

tap_case the_probes_are_those_that_the_documentation_lists carried_equals_documented
if [[ -n $nop ]]; then
    tap_case a_probe_is_a_nop sites_are_nops
else
    tap_skip a_probe_is_a_nop "nobody has said what a nop is on $(uname -m)"
fi
tap_case no_probe_has_a_semaphore no_site_has_a_semaphore
tap_done
