#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Vectors wider than 128 bits live in the kernels' own archives, which run only after the CPU was asked.
# usage: abi_wide.sh ARCHIVE
set -u
echo 1..1
name="no object outside the kernels' archives uses ymm or zmm registers"
if ! command -v objdump >/dev/null; then
    echo "ok 1 - $name # SKIP objdump is not installed (binutils)"
    exit 0
fi
# Line by line: "x.c.o:     file format elf64-x86-64", then its instructions.
out=$(objdump -d --no-show-raw-insn "$1" | awk '
    /file format/ { object = $1; if ($NF ~ /x86-64/) objects++; next }
    /%[yz]mm[0-9]/ { count[object]++ }
    END { print objects + 0; for (o in count) print "# " o " " count[o] " instructions" }')
objects=${out%%$'\n'*}
if [ "$objects" -eq 0 ]; then
    echo "ok 1 - $name # SKIP $1 holds no objects for x86-64"
elif [ "$out" = "$objects" ]; then
    echo "ok 1 - $name"
else
    echo "not ok 1 - $name"
    tail -n +2 <<<"$out"
fi
