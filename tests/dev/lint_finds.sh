#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each check of `./dev lint` finds what it is for, in a small repository that is good before.
# usage: lint_finds.sh SOURCE_ROOT
set -uo pipefail
root=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
command -v git >/dev/null || tap_skip_all "git is not here"
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null HOME=$dir
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

commit() { git -C "$dir/tree" add -A && git -C "$dir/tree" commit -q --allow-empty "$@"; }

# A repository on its branch main, whose second commit is the change.
new_tree() {
    rm -rf "$dir/tree"
    mkdir -p "$dir/tree/tests/dev" "$dir/tree/core" "$dir/tree/build" && git -C "$dir/tree" init -q -b main || return
    cp "$root/tests/dev/lint.sh" "$dir/tree/tests/dev/" && cp "$root"/.clang-* "$root/.shellcheckrc" "$dir/tree/" || return
    echo '/build/' >"$dir/tree/.gitignore"
    printf 'int good(int a)\n{\n    return a + 1;\n}\n' >"$dir/tree/core/good.c"
    echo 'The last file is no script.' >"$dir/tree/words"
    printf '[{"directory": "%s/build", "file": "../core/good.c", "command": "cc -c ../core/good.c"}]\n' "$dir/tree" \
        >"$dir/tree/build/compile_commands.json"
    commit -m 'old; and with nothing to say' || return
    git -C "$dir/tree" checkout -q -b change && commit -m 'core: a change' -m 'It says why.'
}

# lint STATUS LINE CHECK...: its status and its last line.
lint() {
    local status=$1 line=$2 got=0
    shift 2
    "$dir/tree/tests/dev/lint.sh" "$@" >"$dir/output" 2>&1 || got=$?
    cat "$dir/output"
    [[ $got -eq $status && $(tail -n 1 "$dir/output") == "$line" ]]
}
good() { lint 0 '1 passed, 0 failed, 0 skipped' "$@"; }
bad() { lint 1 '0 passed, 1 failed, 0 skipped' "$@"; }
skipped() { lint 0 '0 passed, 0 failed, 1 skipped' "$@"; }
says() { grep -q -- "$1" "$dir/output" || { echo "it does not say: $1"; return 1; }; }

# titled SENTENCE TITLE [BODY]: a commit with that message is complained about, by a sentence with these words.
titled() {
    new_tree || return
    commit -m "$2" ${3:+-m "$3"} && bad commits && says "$1"
}

no_tool() { [[ $(command -v "$1-14") ]] || "$1" --version 2>/dev/null | grep -q 'version 14\.' || return 0; return 1; }

format() {
    new_tree && good format || return
    printf 'int  good(int a) { return a; }\n' >"$dir/tree/core/good.c"
    bad format && says 'core/good.c' && git -C "$dir/tree" diff --quiet -- tests
}

# Characters are counted: 100 of two bytes each are not too many.
width() {
    new_tree && printf '/* %s */\n' "$(printf 'ä%.0s' {1..94})" >"$dir/tree/core/good.c" && good width || return
    printf '/* %s */\n' "$(printf 'a%.0s' {1..95})" >"$dir/tree/core/good.c"
    bad width && says 'core/good.c:1: 101 characters'
}

tidy() {
    new_tree && good tidy && says '(0 files)' || return
    printf 'int good(int a)\n{\n    if (a == a)\n        return 1;\n    return 0;\n}\n' >"$dir/tree/core/good.c"
    bad tidy && says 'misc-redundant-expression' || return
    commit -m 'core: worse' -m why && git -C "$dir/tree" branch -qf main && bad tidy || return
    commit -m 'core: other' -m why && git -C "$dir/tree" branch -qf main && good tidy && bad --all tidy
}

shell() {
    new_tree && good shell || return
    # shellcheck disable=SC2016
    printf '#!/bin/bash\nrm -rf $1/x\n' >"$dir/tree/tool"
    bad shell && says 'tool:2:.*SC2086'
}

# What main has is not asked for again: its title here is as bad as can be.
commits() { new_tree && good commits; }

# Of what main has the last ten are, but not those before the check came.
commits_of_main() {
    new_tree && git -C "$dir/tree" checkout -q main && bad commits && says 'old; and' || return
    commit -m 'core: since' -m why && good commits || return
    commit -m 'core: no body' && commit -m 'core: later' -m why && bad commits && says 'no body'
}

shallow() {
    new_tree && git clone -q --depth 1 "file://$dir/tree" "$dir/shallow" || return
    "$dir/shallow/tests/dev/lint.sh" commits && rm -rf "$dir/shallow"
}

no_history() {
    new_tree && rm -rf "$dir/tree/.git" && skipped commits && says 'no history' && skipped tidy &&
        printf '/* %s */\n' "$(printf 'a%.0s' {1..95})" >"$dir/tree/core/good.c" && bad width
}

# Another version formats differently; nothing is said about what it would do.
other_version() {
    new_tree && mkdir -p "$dir/bin" || return
    printf '#!/bin/sh\necho Debian clang-format version 19.1.7\n' >"$dir/bin/clang-format"
    cp "$dir/bin/clang-format" "$dir/bin/clang-format-14"
    chmod +x "$dir"/bin/*
    PATH=$dir/bin:$PATH skipped format && says 'clang-format 14 is not here.*there is: .* 19'
}

# needing NAME PROGRAM CASE: a case that runs where the program is.
needing() {
    if no_tool "$2"; then tap_skip "$1" "$2 14 is not here"; else tap_case "$1" "$3"; fi
}

needing a_source_in_another_format_is_found_and_left_as_it_is clang-format format
tap_case a_line_of_more_than_100_characters_is_found width
needing a_likely_mistake_in_a_changed_source_is_found clang-tidy tidy
if command -v shellcheck >/dev/null; then
    tap_case a_likely_mistake_in_a_script_is_found shell
else
    tap_skip a_likely_mistake_in_a_script_is_found "shellcheck is not here"
fi
tap_case commits_before_the_change_are_not_asked commits
tap_case on_the_main_line_the_last_commits_are_asked commits_of_main
tap_case a_title_without_an_area_is_found titled "not 'area: what'" 'Change things' why
tap_case a_title_that_is_too_long_is_found titled '73 characters' "core: $(printf 'a%.0s' {1..67})" why
tap_case a_title_of_two_things_is_found titled 'joins two things' 'core: this; that' why
tap_case a_commit_without_a_body_is_found titled 'no body' 'core: this'
tap_case a_shallow_clone_is_enough shallow
tap_case without_history_the_rest_is_checked no_history
tap_case another_version_of_clang_format_is_a_reason_to_skip other_version
tap_done
