#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs test scripts of guest/ in the guest, in order, as one TAP stream: their cases numbered through, with
# the script's name in front. Before each script, all faults are cleared.
# usage: run_guest.sh BUILD [SCRIPT...]    each is called with BUILD, the build directory
#
# With VM_QUICK=1 only the cases that the file quick names; one that does not come is a failure.
#
# $VM_OUT/ended names the scripts that are over. They do not run again when the folder is that of an earlier boot, whose
# cases $VM_OUT/count tells.
# A script gets 300 s, or what a line "# limit: N s" of it says.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
shift
# shellcheck source=tests/vm/faults.sh
. "$here/faults.sh"
[[ $# -gt 0 ]] || set -- "$here"/guest/*.sh
export CMOCKA_MESSAGE_OUTPUT=TAP
state=$(mktemp)
count=0
[[ ! -s $VM_OUT/count ]] || read -r count <"$VM_OUT/count"
echo "$count 0" >"$state"

# renumber NAME: one script's TAP to the stream's; leaves in $state the count so far and the cases seen and
# planned here. Line by line, so that what passed is known while the next one runs.
renumber() {
    local name=$1 count seen=0 planned=-1 line text
    read -r count _ <"$state"
    while IFS= read -r line; do
        if [[ $line =~ ^1\.\.([0-9]+)(.*)$ ]]; then
            planned=${BASH_REMATCH[1]}
            text=${BASH_REMATCH[2]}
            [[ $planned -ne 0 ]] || echo "ok $((count += 1)) - $name # SKIP ${text##*SKIP }"
        elif [[ $line =~ ^(not\ )?ok\ *[0-9]*\ *-?\ *(.*)$ ]]; then
            seen=$((seen + 1))
            echo "${BASH_REMATCH[1]}ok $((count += 1)) - $name: ${BASH_REMATCH[2]}"
        elif [[ $line == Bail\ out!* ]]; then
            planned=-2
            echo "# $line"
        else
            echo "$line"
        fi
    done
    echo "$count $seen $planned" >"$state"
}

failed=0
for script in "$@"; do
    name=$(basename "$script" .sh)
    if [[ -s $VM_OUT/ended ]] && grep -qxF "$name" "$VM_OUT/ended"; then
        continue
    fi
    wanted=
    if [[ -n ${VM_QUICK:-} ]]; then
        wanted=$(sed -n "s/^$name \([^ ]*\)$/\1/p" "$here/quick" | paste -sd ' ')
        [[ -n $wanted ]] || continue
    fi
    limit=$(sed -n 's/^# limit: \([0-9]*\) s$/\1/p' "$script")
    clear_faults
    TAP_ONLY=$wanted timeout -k 5 "${limit:-300}" "$script" "$build" </dev/null | renumber "$name"
    status=${PIPESTATUS[0]}
    read -r count seen planned <"$state"
    if [[ $planned -ne 0 && $seen -ne $planned ]] || { [[ $status -ne 0 && $status -ne 1 ]]; }; then
        count=$((count + 1))
        echo "not ok $count - $name: ended (status $status) after $seen of $planned cases"
        failed=1
    fi
    if [[ -n $wanted && $seen -ne $(wc -w <<<"$wanted") ]]; then
        count=$((count + 1))
        echo "not ok $count - $name: only $seen of the cases that ${here##*/}/quick names: $wanted"
        failed=1
    fi
    [[ $status -eq 0 ]] || failed=1
    echo "$count 0" >"$state"
    echo "$name" >>"$VM_OUT/ended"
done
read -r count _ <"$state"
echo "1..$count"
exit "$failed"
