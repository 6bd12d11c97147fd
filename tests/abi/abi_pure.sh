#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What runs in the simulator is handed clock, chance and settings; its objects name nothing that fetches them.
# usage: abi_pure.sh ARCHIVE
set -u
banned='clock_gettime|gettimeofday|time|clock|nanosleep|clock_nanosleep|usleep|sleep|rand|rand_r|random|srandom|drand48|getrandom|getentropy|getenv|secure_getenv|environ'
found=$(nm -A --undefined-only "$1" | grep -E ':[^:]*(sim|collectives)_[a-z0-9_]+\.c\.o:' |
    awk '{sub(/@.*/, "", $NF); print $1, $NF}' | grep -E " ($banned)\$")
count=$(nm -A "$1" | grep -cE ':[^:]*(sim|collectives)_[a-z0-9_]+\.c\.o:')
echo 1..1
if [ "$count" -eq 0 ]; then
    echo "not ok 1 - objects of the simulator and the collectives are looked at"
    echo "# none was found in $1"
elif [ -n "$found" ]; then
    echo "not ok 1 - the simulator and the collectives fetch no clock, chance or environment"
    echo "$found" | sed 's/^/# /'
else
    echo "ok 1 - the simulator and the collectives fetch no clock, chance or environment"
fi
