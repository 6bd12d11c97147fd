#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Does docs/adding-a-transport.md still make a transport? Its sources are taken from it, built by its commands, and run.
# usage: toy.sh SLUICE_BENCH SOURCE_ROOT [sanitized]
set -u
bench=$(realpath "$1") root=$(realpath "$2") sanitized=${3:-}
page=$root/docs/adding-a-transport.md
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
[[ -z $sanitized ]] || tap_skip_all "a module that the page's commands build lacks the sanitizer of the program"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/toy" "$work/bin"
ln -s "$bench" "$work/bin/sluice-bench"
cd "$work" || exit 1

take_block() { "$root/tests/toy_transport/extract.sh" "$page" "$1"; }

the_page_has_the_sources() {
    take_block 'c toy/toy.c' >toy/toy.c && take_block 'c toy/module.c' >toy/module.c &&
        take_block 'meson toy/meson.build' >toy/meson.build
}

its_commands_build_a_module() {
    take_block 'sh build' >build.sh && SLUICE=$root sh -e build.sh && [[ -f sluice-toy.so ]]
}

it_exports_one_symbol() {
    local names
    names=$(nm -D --defined-only sluice-toy.so | awk '{print $NF}')
    [[ $names == sluice_module ]] || { echo "it exports: $names"; return 1; }
}

# With checked results, as every run of the bench.
its_commands_run_an_allreduce() {
    take_block 'sh run' >run.sh
    PATH=$work/bin:$PATH timeout 100 sh -e run.sh >out 2>&1 || { cat out; return 1; }
    grep -qE '^transport +toy +toy0 ' out && grep -q 'paths: toy to 3 ranks' out &&
        grep -q 'Out of bounds values : 0 OK' out || { cat out; return 1; }
}

its_variables_count_once_it_is_loaded() {
    SLUICE_MODULES_DIR=$work SLUICE_TOY_SOCKET_BYTES=many "$bench" --list >out 2>&1 && return 1
    grep -q "SLUICE_TOY_SOCKET_BYTES is 'many', but must be a size" out || { cat out; return 1; }
    SLUICE_MODULES_DIR=$work SLUICE_TOY_SOCKETBYTES=1 "$bench" --list >out 2>&1 || return 1
    grep -q 'no variable SLUICE_TOY_SOCKETBYTES; the nearest is SLUICE_TOY_SOCKET_BYTES' out || { cat out; return 1; }
}

a_foreign_one_is_listed_with_the_reason() {
    mkdir foreign && sed 's/SL_TRANSPORT_ABI [0-9]*/SL_TRANSPORT_ABI 999/' "$root/core/transport.h" >transport.h || return 1
    mkdir -p core && mv transport.h core/ && sed 's/-I\$SLUICE /-I. -I$SLUICE /; s/-o sluice-toy.so/-o foreign\/sluice-toy.so/' \
        build.sh >foreign.sh && SLUICE=$root sh -e foreign.sh || return 1
    SLUICE_MODULES_DIR=$work/foreign "$bench" --list >out 2>&1
    grep -qE '^transport +toy +out: .* was built for version 999 ' out || { cat out; return 1; }
    SLUICE_MODULES_DIR=$work/foreign "$bench" -n 2 -t toy -C barrier >out 2>&1 && return 1
    grep -q "there is no transport 'toy': .* was built for version 999 " out || { cat out; return 1; }
}

tap_case the_page_has_the_sources the_page_has_the_sources
tap_case its_commands_build_a_module its_commands_build_a_module
tap_case it_exports_one_symbol it_exports_one_symbol
tap_case its_commands_run_an_allreduce its_commands_run_an_allreduce
tap_case its_variables_count_once_it_is_loaded its_variables_count_once_it_is_loaded
tap_case a_foreign_one_is_listed_with_the_reason a_foreign_one_is_listed_with_the_reason
tap_done
