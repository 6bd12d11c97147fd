#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs test scripts of guest/ in the guest, in order, as one TAP stream: their cases numbered through, with
# the script's name in front. Before each script, all faults are cleared.
# usage: run_guest.sh BUILD [SCRIPT...]    each is called with BUILD, the build directory
#
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
echo 0 0 >"$state"

# renumber NAME: one script's TAP to the stream's; keeps in $state the count so far and the cases planned here.
renumber() {
    awk -v name="$1" -v file="$state" '
        BEGIN { getline < file; count = $1; planned = -1; seen = 0; close(file) }
        /^1\.\.[0-9]+/ {
            planned = substr($1, 4) + 0
            if (planned == 0) {
                reason = $0
                sub(/^1\.\.0 *(# *[Ss][Kk][Ii][Pp][^ ]* *)?/, "", reason)
                printf "ok %d - %s # SKIP %s\n", ++count, name, reason
            }
            next
        }
        /^(not )?ok/ {
            verdict = ($1 == "not") ? "not ok" : "ok"
            text = $0
            sub(/^(not )?ok *[0-9]* *(- *)?/, "", text)
            printf "%s %d - %s: %s\n", verdict, ++count, name, text
            seen++
            fflush()
            next
        }
        /^Bail out!/ { print "# " $0; planned = -2; next }
        { print; fflush() }
        END { print count, seen, planned > file }'
}

failed=0
for script in "$@"; do
    name=$(basename "$script" .sh)
    limit=$(sed -n 's/^# limit: \([0-9]*\) s$/\1/p' "$script")
    clear_faults
    timeout -k 5 "${limit:-300}" "$script" "$build" </dev/null | renumber "$name"
    status=${PIPESTATUS[0]}
    read -r count seen planned <"$state"
    if [[ $planned -ne 0 && $seen -ne $planned ]] || { [[ $status -ne 0 && $status -ne 1 ]]; }; then
        count=$((count + 1))
        echo "not ok $count - $name: ended (status $status) after $seen of $planned cases"
        failed=1
    fi
    [[ $status -eq 0 ]] || failed=1
    echo "$count 0" >"$state"
done
read -r count _ <"$state"
echo "1..$count"
exit "$failed"
