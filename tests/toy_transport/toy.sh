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

# A toy that speaks of 66 paths to each peer: a state page shows 65, so 325 of a rank among six.
a_toy_with_paths_is_built() {
    mkdir many many/toy && cp toy/module.c many/toy && awk '/^const struct sl_transport_ops sl_toy_ops/ { print "#include \"core/state.h\"\n" \
        "static size_t toy_stats(const struct sl_ep *ep, struct sl_state_path *out, size_t cap)\n{\n" \
        "    for (size_t i = 0; i < 65 && i < cap; i++)\n" \
        "        out[i] = (struct sl_state_path){.number = (int)i, .sent_bytes = 4096, .state = \"up\", .name = \"a way\"};\n" \
        "    return 66;\n}\n" } { print } /ep_describe = / { print "    .ep_stats = toy_stats," }' toy/toy.c >many/toy/toy.c &&
        (cd many && SLUICE=$root sh -e ../build.sh)
}

stats_show_all_of_them() {
    SLUICE_MODULES_DIR=$work/many timeout 100 "$bench" -n 6 -t toy -C alltoall -b 64K -e 64K -v --json out.json >out 2>&1 &&
        [[ $(grep -cE '^# +0 +[1-5] +[0-9]+  a way  up  +4096 ' out) -eq 325 ]] &&
        grep -q '^# 1625 more paths of other ranks: up, without a failure' out &&
        grep -q '^# 30 more paths are not known' out || { cat out; return 1; }
    ! grep -q 'without a state page' out || return 1
    # A build without json-c has none.
    [[ ! -s out.json ]] || [[ $(grep -c '"name": *"a way"' out.json) -eq 1950 && $(grep -c '"event": *"toy_up"' out.json) -eq 30 ]]
}

without_pages_stats_say_so() {
    SLUICE_STATE=off SLUICE_MODULES_DIR=$work/many timeout 100 "$bench" -n 6 -t toy -C alltoall -b 64K -e 64K -v >out 2>&1 &&
        grep -q '^# 6 ranks without a state page ' out && ! grep -q '^# Paths' out || { cat out; return 1; }
}

tap_case the_page_has_the_sources the_page_has_the_sources
tap_case its_commands_build_a_module its_commands_build_a_module
tap_case it_exports_one_symbol it_exports_one_symbol
tap_case its_commands_run_an_allreduce its_commands_run_an_allreduce
tap_case its_variables_count_once_it_is_loaded its_variables_count_once_it_is_loaded
tap_case a_foreign_one_is_listed_with_the_reason a_foreign_one_is_listed_with_the_reason
tap_case a_toy_with_paths_is_built a_toy_with_paths_is_built
tap_case stats_show_all_of_them stats_show_all_of_them
tap_case without_pages_stats_say_so without_pages_stats_say_so
tap_done
