#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every public function has a page, every option of the tool is in its page, and man has no complaint.
# usage: pages_test.sh SOURCE_ROOT DIR_OF_MADE_PAGES
set -uo pipefail
root=$1 made=$2
# shellcheck source=tests/tap.sh
. "$root/tests/tap.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/man1" "$dir/man3" "$dir/man5" "$dir/man7" "$dir/man8"
cp "$root"/docs/man/*.1 "$dir/man1"
cp "$root"/docs/man/*.8 "$dir/man8"
cp "$made"/*.3 "$dir/man3"
cp "$root"/docs/man/*.7 "$made"/*.7 "$dir/man7"
# Of a configuration that this build has.
[[ ! -e $made/sluiced.conf ]] || cp "$made/sluiced.conf.5" "$dir/man5"
cd "$dir" || exit 1

functions() {
    sed -n '/^SLUICE_API/,/;/p' "$root"/include/sluice/*.h |
        grep -oE '\bsluice_[a-z0-9_]+ ?\(' | tr -d ' (' | sort -u
}

every_function_has_a_page() {
    local name failed=0
    for name in $(functions); do
        [[ -s man3/$name.3 ]] || { echo "no page: $name"; failed=1; }
    done
    return "$failed"
}

# Nothing else of the headers was taken for one.
every_page_is_of_a_function() {
    diff <(functions) <("$root/docs/man/make_man.py" --list "$root"/include/sluice/*.h | sed 's/\.3$//' | sort)
}

# Nobody promises that a failed collective leaves its result alone.
pages_promise_what_holds() {
    ! grep -l 'untouched on failure' man3/* && grep -q 'written in part' man3/sluice_allreduce.3 &&
        grep -q 'out is NULL' man3/sluice_comm_create.3
}

every_variable_is_in_the_page() {
    local name failed=0
    while read -r name; do
        grep -qx ".B $name" man7/sluice-env.7 || { echo "not in the page: $name"; failed=1; }
    done < <(sed -n 's/^## //p' "$root/docs/env.md")
    return "$failed"
}

# What is not installed cannot be read by whoever has the pages.
pages_point_to_what_is_installed() {
    ! grep -nE 'docs/[a-z_-]+\.md' man?/* | grep -v 'of the sources'
}

every_option_is_in_the_page() {
    local name failed=0
    while read -r name; do
        grep -qF -- "\\-\\-${name//-/\\-}" man1/sluice-bench.1 || { echo "not in the page: --$name"; failed=1; }
    done < <(grep -oE '^ +\{"[a-z_-]+", (no|required|optional)_argument' "$root/tools/bench/options.c" | cut -d'"' -f2)
    return "$failed"
}

every_key_of_the_agent_is_in_the_page() {
    local name failed=0
    [[ $(grep -c '^#[a-z]' "$made/sluiced.conf") -gt 10 ]] || return
    while read -r name; do
        grep -q "^.fB$name.fP = " man5/sluiced.conf.5 || { echo "not in the page: $name"; failed=1; }
    done < <(sed -n 's/^#\([a-z_]*\) = .*/\1/p' "$made/sluiced.conf")
    return "$failed"
}

man_has_no_complaint() {
    local page complaint failed=0
    for page in man?/*; do
        complaint=$(LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -E UTF-8 -l "$page" 2>&1 >page.txt)
        [[ -z $complaint && -s page.txt ]] || { echo "$page: ${complaint:-empty}"; failed=1; }
    done
    return "$failed"
}

# What whatis and apropos read.
every_name_line_can_be_indexed() {
    lexgrog man?/* >/dev/null
}

tap_case every_public_function_has_a_page every_function_has_a_page
tap_case every_page_of_section_3_is_of_a_public_function every_page_is_of_a_function
tap_case pages_promise_nothing_that_does_not_hold pages_promise_what_holds
tap_case every_variable_is_in_sluice_env every_variable_is_in_the_page
tap_case pages_point_to_nothing_that_is_not_installed pages_point_to_what_is_installed
tap_case every_option_of_the_benchmark_is_in_its_page every_option_is_in_the_page
if [[ -e $made/sluiced.conf ]]; then
    tap_case every_key_of_the_agent_is_in_sluiced_conf every_key_of_the_agent_is_in_the_page
else
    tap_skip every_key_of_the_agent_is_in_sluiced_conf "the node agent is not built"
fi
if command -v man >/dev/null && echo | man -l - >/dev/null 2>&1 && command -v lexgrog >/dev/null; then
    tap_case man_shows_every_page_without_a_warning man_has_no_complaint
    tap_case every_page_has_a_name_line_that_can_be_indexed every_name_line_can_be_indexed
else
    tap_skip man_shows_every_page_without_a_warning "man is not installed (package man-db)"
    tap_skip every_page_has_a_name_line_that_can_be_indexed "man is not installed (package man-db)"
fi
tap_done
