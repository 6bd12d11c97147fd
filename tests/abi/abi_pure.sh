#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What runs in the simulator is handed clock, chance and settings; its objects name nothing that fetches them.
# usage: abi_pure.sh ARCHIVE ARCHIVE_OF_TESTING
set -u
banned='clock_gettime|gettimeofday|time|clock|nanosleep|clock_nanosleep|usleep|sleep|rand|rand_r|random|srandom|drand48|getrandom|getentropy|getenv|secure_getenv|environ'
pure() {
    nm -A "$@" "$archive" | grep -E ':[^:]*(schedules|kernels|collectives)_[a-z0-9_]+\.c\.o:'
    nm -A "$@" "$testing"
}
archive=$1 testing=$2
found=$(pure --undefined-only | awk '{sub(/@.*/, "", $NF); print $1, $NF}' | grep -E " ($banned)\$")
echo 1..1
for object in collectives_exec schedules_ring kernels_reduce sim_net; do
    pure | grep -q "$object\.c\.o:" && continue
    echo "not ok 1 - objects of the simulator and the collectives are looked at"
    echo "# $object was not found in $archive, $testing"
    exit 0
done
if [ -n "$found" ]; then
    echo "not ok 1 - the simulator and the collectives fetch no clock, chance or environment"
    echo "$found" | sed 's/^/# /'
else
    echo "ok 1 - the simulator and the collectives fetch no clock, chance or environment"
fi
