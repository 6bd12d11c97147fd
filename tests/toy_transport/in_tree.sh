#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Is a transport one folder and one line of meson? The toy of docs/adding-a-transport.md is put into a copy of the tree, which is
# built without tests and run. What has no part in that is not configured, and nothing is optimized: it is 330 files still, and
# with the ordinary options this took more than ten minutes of a slow machine.
# usage: in_tree.sh SOURCE_ROOT
set -u
root=$(realpath "$1")
page=$root/docs/adding-a-transport.md
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

it_is_put_into_a_copy_of_the_tree() {
    (cd "$root" && tar -c --exclude='./build*' --exclude=./.git .) | tar -x -C "$work" || return 1
    mkdir "$work/toy" || return 1
    "$root/tests/toy_transport/extract.sh" "$page" 'c toy/toy.c' >"$work/toy/toy.c" || return 1
    "$root/tests/toy_transport/extract.sh" "$page" 'meson toy/meson.build' >"$work/toy/meson.build" || return 1
    sed -i "s/^subdir('lib')/subdir('toy')\nsubdir('lib')/" "$work/meson.build"
    [[ $(diff "$root/meson.build" "$work/meson.build" | grep -c '^>') -eq 1 ]]
}

it_is_built() {
    local feature options=(-Dtests=false -Dbuildtype=debug -Ddebug=false -Doptimization=0 -Dcuda=disabled)
    for feature in dpdk ebpf liburing monitor mpi pmix probes tls verbs; do
        options+=("-D$feature=disabled")
    done
    { meson setup "${options[@]}" "$work/build" "$work" && ninja -C "$work/build" tools/bench/sluice-bench; } \
        >"$work/log" 2>&1 || { tail -20 "$work/log"; return 1; }
}

it_runs() {
    SLUICE_MODULES_DIR=/nowhere timeout 60 "$work/build/tools/bench/sluice-bench" -n 2 -t toy -C allreduce -b 8 -e 8K >"$work/log" 2>&1 &&
        grep -q 'paths: toy to 1 rank' "$work/log" && grep -q 'Out of bounds values : 0 OK' "$work/log" || { cat "$work/log"; return 1; }
}

tap_case it_is_put_into_a_copy_of_the_tree it_is_put_into_a_copy_of_the_tree
tap_case it_is_built it_is_built
tap_case it_runs it_runs
tap_done
