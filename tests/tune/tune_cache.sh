#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What jobs leave to each other about link costs: poisoned files are not used, and a job that measured
# beside busy loops does not change what the next one chooses.
# usage: tune_cache.sh SLUICE-BENCH [ROUNDS]   (ROUNDS: the long part, that many times)
set -u
# shellcheck source=tests/wait.sh
. "$(dirname "$0")/../wait.sh"
bench=$1 rounds=${2:-0}
folder=$(mktemp -d) || exit 1
loops=()
end_loops() {
    [ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null
    wait "${loops[@]}" 2>/dev/null
    loops=()
}
trap 'end_loops; rm -rf "$folder"' EXIT
export SLUICE_TUNE_DIR=$folder/tune

# Whether each of the loops has had the processor for a tenth of a second.
loops_run() {
    local pid
    for pid in "${loops[@]}"; do
        (("$(cut -d ' ' -f 14 "/proc/$pid/stat")" >= 10)) || return 1
    done
}
explain() { # the costs and choices of a job
    timeout 60 "$bench" -n 2 -t shm -b 8 -e 16m -f 128 --explain 2>&1
}
choices() { grep -o '[a-z]* (predicted fastest)' | tr '\n' ' '; }

number=0
report() { # result, name, what was seen when it failed
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then echo "ok $number - $2"; else
        echo "not ok $number - $2"
        echo "$3" | sed 's/^/# /'
    fi
}

# The figures of the file that was found in a user's cache, in the file of today, said to be settled; or slow ones
# that hardware could have.
poison() { # old, new or slow
    python3 - "$1" "$SLUICE_TUNE_DIR"/links-* <<'PYTHON'
import struct, sys
with open(sys.argv[2], "rb+") as file:
    bytes_ = bytearray(file.read())
    if sys.argv[1] == "old": # costs alone, and the trailer
        bytes_ = bytearray(struct.pack("<9dII", 16384, .03, 8192, .15, 917504, .03, .03, .05, 10, 1, 0)) + bytes_[-8:]
    else:
        struct.pack_into("<II", bytes_, 4, 1, 3)
        if sys.argv[1] == "new":
            struct.pack_into("<d", bytes_, 32, 16384)
            struct.pack_into("<d", bytes_, 64, 917504)
        else: # message, per byte; sync; between caches
            struct.pack_into("<2d", bytes_, 32, 4096, 3.5)
            struct.pack_into("<d", bytes_, 64, 2048)
            struct.pack_into("<d", bytes_, 88, 7)
    file.seek(0)
    file.truncate()
    file.write(bytes_)
PYTHON
}

poisoned() {
    local seen
    rm -rf "$SLUICE_TUNE_DIR"
    explain > /dev/null
    ls "$SLUICE_TUNE_DIR"/links-* > /dev/null 2>&1 ||
        { echo "ok $((number += 1)) - a poisoned file of $1 form is not used # SKIP nothing was kept: every measurement was impossible"; return; }
    poison "$1" || exit 1
    seen=$(explain)
    echo "$seen" | grep -q 'sync [0-9]* ns' && ! echo "$seen" | grep -qE 'sync 917504|host 16384 ns'
    report $? "a poisoned file of $1 form is not used" "$seen"
}

# Possible figures are believed until a job's operations take a quarter of what they predict.
contradicted() {
    local before seen
    rm -rf "$SLUICE_TUNE_DIR"
    for _ in 1 2 3 4; do explain > /dev/null; done
    ls "$SLUICE_TUNE_DIR"/links-* > /dev/null 2>&1 ||
        { echo "ok $((number += 1)) - costs that operations contradict are measured again # SKIP nothing was kept"; return; }
    poison slow || exit 1
    before=$(explain)
    timeout 60 "$bench" -n 2 -t shm -b 1m -e 1m -i 100 -c 0 > /dev/null 2>&1
    seen=$(explain)
    echo "$before" | grep -q '3 in a row): message in a host 4096 ns' &&
        echo "$seen" | grep -qE 'doubted by 1 jobs?|; looked in' && ! echo "$seen" | grep -q '3 in a row):'
    report $? "costs that operations contradict are measured again" "$before"$'\n'"$seen"
}

if [ "$rounds" -eq 0 ]; then
    echo 1..3
    poisoned old
    poisoned new
    contradicted
    exit
fi

echo 1..1
fresh=$(for _ in 1 2 3 4 5 6 7 8; do
    rm -rf "$SLUICE_TUNE_DIR"
    explain | choices
    echo
done | sort -u)
echo "# fresh jobs choose, for 8 B to 16 MiB: $(echo "$fresh" | tr '\n' '/')"
same=0 seen=""
for _ in $(seq "$rounds"); do
    rm -rf "$SLUICE_TUNE_DIR"
    for _ in $(seq "$(nproc)"); do
        (while :; do :; done) &
        loops+=($!)
    done
    until_true 20 loops_run || exit 1
    beside=$(explain)
    end_loops
    after=$(explain | choices)
    if ! echo "$fresh" | grep -qxF "$after"; then # a virtual machine may be another one by now: ask a fresh job again
        rm -rf "$SLUICE_TUNE_DIR"
        fresh+=$'\n'$(explain | choices)
    fi
    echo "$fresh" | grep -qxF "$after" && same=$((same + 1))
    seen+="beside the loops:$(echo "$beside" | grep -m1 -o 'costs (.*'); after: $after"$'\n'
done
[ "$same" -eq "$rounds" ]
report $? "after a job beside busy loops the next one chooses as a fresh one: $same of $rounds" "$seen"
