#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Who may call whom: a symbol that a folder's objects leave undefined is defined in a folder that it may use. Includes are
# checked by abi_tree.sh; this sees a declaration that was copied, a table filled from above, C++ as well.
# usage: abi_symbols.sh ARCHIVE...
set -uo pipefail
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

# FOLDER: those that it may use; docs/architecture.md has the same.
arrows='
core:
gdr: core
kernels: core
compress: core
compress/cuda: core gdr compress
compress/train: core compress
multipath: core gdr
shm: core
tcp: core
verbs: core gdr multipath
launch: core
schedules: core
collectives: core schedules kernels
lib: core gdr kernels schedules compress compress/cuda collectives launch
testing: core schedules
ebpf: core
monitor: core ebpf
tools/bench: core lib collectives schedules kernels launch
tools/compress: core lib schedules compress
tools/ctl: core lib monitor
tools/sluiced: core lib monitor
tools/nccl: core lib
tools/preload: core lib
'

# "FOLDER SYMBOL" of each object, by nm's letters: of what it defines, or of what it uses.
symbols() {
    local archive
    for archive in "${archives[@]}"; do
        ar t "$archive"
    done | sort -u | xargs nm -A -g "$@" 2>/dev/null | awk '
        {
            split($1, at, ":")
            n = split(at[1], part, "/")
            object = part[n]
            folder = part[n - 2] # .../FOLDER/TARGET.p/OBJECT
            if (part[n - 3] == "tools" || part[n - 3] == "compress") folder = part[n - 3] "/" folder
            if (sub(/^(\.\._)+/, "", object)) { # of another folder, by its path from there
                split(object, word, "_")
                folder = word[1] == "tools" ? "tools/" word[2] : word[1]
            }
            print folder, $NF
        }' | sort -u
}

archives=("$@")
defined=$(symbols --defined-only)
undefined=$(symbols --undefined-only)

# Lines of FOLDER ALLOWED...: symbols that it uses of others.
strays() {
    local folder=$1
    shift
    awk -v folder="$folder" -v allowed="$folder $*" '
        BEGIN { split(allowed, list, " "); for (i in list) may[list[i]] = 1 }
        NR == FNR { where[$2] = where[$2] " " $1; next }
        $1 == folder && $2 in where {
            n = split(where[$2], by, " ")
            for (i = 1; i <= n; i++) if (by[i] in may) next
            print "uses " $2 " of" where[$2]
        }' <(echo "$defined") <(echo "$undefined")
}

check() {
    local folder=$1 found
    shift
    grep -q "^$folder " <<<"$defined" || { echo "no object of $folder was found"; return 1; }
    found=$(strays "$folder" "$@")
    # lib registers what was built, by the transports' tables.
    [[ $folder != lib ]] || found=$(grep -vE '^uses sl_[a-z0-9]+_ops of (shm|tcp|verbs)$' <<<"$found" | grep .)
    [[ -z $found ]] || { echo "$folder may use: ${*:-nothing}"; echo "$found"; return 1; }
}

# That the check sees: core uses something of its own that would be a stray, were core not allowed it.
uses_are_seen() {
    strays collectives | grep -q ' of core$'
}

tap_case uses_are_seen uses_are_seen
while IFS=: read -r folder allowed; do
    [[ -n $folder ]] || continue
    if [[ $folder == verbs || $folder == ebpf || $folder == monitor || $folder == tools/sluiced ]] && ! grep -q "^$folder " <<<"$defined"; then
        tap_skip "${folder}_calls_only_what_it_may" "this build has no $folder"
        continue
    fi
    # shellcheck disable=SC2086
    tap_case "${folder//\//_}_calls_only_what_it_may" check "$folder" $allowed
done <<<"$arrows"
tap_done
