#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The rules of the diagnosis are handed what was read and what time it is: their objects name nothing that fetches it. Readers and cases are not rules.
# usage: abi_diagnosis.sh ARCHIVE
set -u
banned='clock_gettime|gettimeofday|time|clock|nanosleep|usleep|sleep|rand|rand_r|random|srandom|getrandom|getentropy|getenv|secure_getenv|environ|setlocale'
banned+='|open|openat|fopen|fopen64|fread|socket|connect|send|sendmsg|recv|recvmsg|read|pread|write|rename|unlink|stat|gethostname|getpid'
objects() {
    nm -A --undefined-only "$1" | awk '{sub(/@.*/, "", $NF); print $1, $NF}' | grep -vE '[:/](\.\._|read_|cases_)'
}
echo 1..1
if ! objects "$1" | grep -q '[:/]fuse\.c\.o:' || ! objects "$1" | grep -q '[:/]hang\.c\.o:'; then
    echo "not ok 1 - fuse.c or hang.c was not found in $1"
elif objects "$1" | grep -qE " ($banned)\$"; then
    echo "not ok 1 - the rules of the diagnosis have no I/O, clock or chance"
    objects "$1" | grep -E " ($banned)\$" | sed 's/^/# /'
else
    echo "ok 1 - the rules of the diagnosis have no I/O, clock or chance"
fi
