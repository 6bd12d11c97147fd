#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What every transport promises, of verbs over rxe: between two devices, by a path each way, and over one device.
# limit: 2400 s
set -uo pipefail
build=$1
contract=$build/tests/contract/contract_verbs
if [[ ! -x $contract ]]; then
    echo "1..0 # SKIP $contract was not built (libibverbs-dev)"
    exit 0
fi

export SLUICE_INTERFACE=lo
count=0 failed=0

# stream NAME GROUP: the cases of a group, numbered through.
stream() {
    local name=$1 line seen=0 planned=-1
    while IFS= read -r line; do
        if [[ $line =~ ^1\.\.([0-9]+) ]]; then
            planned=${BASH_REMATCH[1]}
        elif [[ $line =~ ^(not\ )?ok\ +[0-9]+\ +-\ +(.*)$ ]]; then
            seen=$((seen + 1)) count=$((count + 1))
            [[ -z ${BASH_REMATCH[1]} ]] || failed=1
            echo "${BASH_REMATCH[1]}ok $count - ${name}_$2_${BASH_REMATCH[2]}"
        elif [[ $line != "ok - "* ]]; then # cmocka's word on the group
            echo "# ${line#\# }"
        fi
    done < <(timeout -k 5 400 "$contract" "$2" 2>&1)
    [[ $seen -eq $planned ]] && return
    failed=1 count=$((count + 1))
    echo "not ok $count - ${name}_$2: ended after $seen of $planned cases"
}

for group in traffic room life memory channels channels_close channels_random forked; do
    SLUICE_VERBS_DEVICES=rxe0,rxe1 SLUICE_VERBS_PATHS='0>1,1>0' stream two_devices "$group"
    SLUICE_VERBS_DEVICES=rxe2 stream one_device "$group"
done
echo "1..$count"
exit "$failed"
