#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the form of sources and commits; `./dev lint` calls it after a build. Each check is one case of the last line,
# "N passed, N failed, N skipped". Changes nothing.
set -uo pipefail
export LC_ALL=C.UTF-8
cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1
checks=(format width tidy shell commits)
wanted=() passed=0 failed=0 skipped=0 all='' base='' given=''
llvm=14 # other versions format differently and warn of other things

usage() {
    cat <<'END'
usage: ./dev lint [--all] [--base COMMIT] [format|width|tidy|shell|commits]...

format    every C and C++ source is what clang-format 14 makes of it (.clang-format)
width     no line of a C or C++ source is longer than 100 characters
tidy      clang-tidy 14 (.clang-tidy) has no warning about the sources that differ from the base, or, with --all,
          about any; but for those of tests/ and bench/
shell     shellcheck has no complaint about any shell script (.shellcheckrc)
commits   commits since the base: the title is 'area: what', at most 72 characters long and about one thing (no ';'),
          and a body says why

Without names all of them. The base is where HEAD left origin/main or main. Where HEAD is in that already, tidy takes
the commit before HEAD, and commits looks at the last ten.
END
}

while [[ $# -gt 0 ]]; do
    case $1 in
    --all) all=yes ;;
    --base) given=${2:?--base needs a commit}; shift ;;
    -h | --help) usage; exit 0 ;;
    *) [[ " ${checks[*]} " == *" $1 "* ]] || { usage >&2; echo "lint: there is no check '$1'" >&2; exit 2; }
        wanted+=("$1") ;;
    esac
    shift
done
[[ ${#wanted[@]} -gt 0 ]] || wanted=("${checks[@]}")

is_repository() { git rev-parse -q --verify HEAD >/dev/null 2>&1; }

# The files of the tree, a line each: what git knows and does not ignore, or all outside of builds.
files() {
    { git ls-files --cached --others --exclude-standard 2>/dev/null || find . -path './build*' -prune -o -type f -printf '%P\n'; } |
        while IFS= read -r name; do [[ ! -f $name ]] || echo "$name"; done | sort
}

# Headers of earlier versions stay as they were.
sources() { files | grep -E '\.(c|h|cc|hh|cpp|cu)$' | grep -v '^tests/abi/old/include/'; }

scripts() {
    files | while IFS= read -r name; do
        if [[ $name == *.sh ]] || head -c 64 "$name" | head -n 1 | grep -qaE '^#!.*\b(ba)?sh\b'; then echo "$name"; fi
    done
}

# Where HEAD left the main line; nothing if it is in it.
left_main() {
    local name found
    for name in origin/main main; do
        found=$(git merge-base "$name" HEAD 2>/dev/null) || continue
        [[ $found == "$(git rev-parse HEAD)" ]] || echo "$found"
        return
    done
}

# tool NAME: NAME or NAME-14, the one whose version is 14.
tool() {
    local name
    for name in "$1-$llvm" "$1"; do
        "$name" --version 2>/dev/null | grep -qE "version $llvm\." && { echo "$name"; return; }
    done
    echo "$1 $llvm is not here (Debian 12: package $1-$llvm); there is: $("$1" --version 2>/dev/null | grep -m 1 version || echo none)" >&2
    return 1
}

in_parallel() { xargs -d '\n' -r -P "$(nproc)" "$@"; }

# Each check prints what it finds. Status 0: good; 77: skipped, the last line says why; else failed.

check_format() {
    local format
    format=$(tool clang-format) || return 77
    sources | in_parallel -n 16 "$format" --dry-run -Werror 2>&1 |
        sed -n 's/^\([^ :]*\):.*error: code should be clang-formatted.*/\1: clang-format -i makes it so/p' | uniq
    [[ ${PIPESTATUS[1]} -eq 0 ]]
}

check_width() {
    sources | python3 -c '
import sys
long = [f"{name}:{number}: {len(line)} characters" for name in sys.stdin.read().splitlines()
        for number, line in enumerate(open(name, encoding="utf8").read().split("\n"), 1) if len(line) > 100]
print("\n".join(long))
sys.exit(bool(long))'
}

# The sources to look at: those that were changed; of a header, the source of that name or one that includes it.
changed_sources() {
    local name
    { git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | sort -u |
        while IFS= read -r name; do
            case $name in
            *.c | *.cc | *.cpp) echo "$name" ;;
            *.h | *.hh)
                if [[ -f ${name%.*}.c ]]; then
                    echo "${name%.*}.c"
                else
                    sources | grep '\.c$' | in_parallel grep -lF "\"$name\"" | sort | head -n 1
                fi ;;
            esac
        done | sort -u
}

# Of the files in standard input those that are compiled here and are no test; build/ names them from where it lies.
compiled_sources() {
    python3 -c '
import json, os, sys
known = {os.path.relpath(os.path.join(e["directory"], e["file"])) for e in json.load(open("build/compile_commands.json"))}
asked = set(sys.stdin.read().splitlines())
print("\n".join(sorted(n for n in known & asked if not n.startswith(("tests/", "bench/", "build/")))))'
}

check_tidy() {
    local tidy list count
    tidy=$(tool clang-tidy) || return 77
    [[ -f build/compile_commands.json ]] || { echo "build/ is not configured (./dev build)"; return 77; }
    if [[ -n $all ]]; then
        list=$(sources | compiled_sources)
    elif ! is_repository; then
        echo "this tree has no history to compare with; --all looks at all of it"
        return 77
    else
        base=${given:-$(left_main)}
        base=${base:-$(git rev-parse -q --verify HEAD~1 || git rev-parse HEAD)}
        list=$(changed_sources | compiled_sources)
    fi
    count=$(grep -c . <<<"$list")
    echo "$count files"
    [[ $count -gt 0 ]] || return 0
    # Options of GCC that clang does not know are no error.
    in_parallel -n 1 "$tidy" -p build --quiet --extra-arg=-Wno-unknown-warning-option \
        --warnings-as-errors='*' <<<"$list" 2>/dev/null
}

check_shell() {
    command -v shellcheck >/dev/null || { echo "shellcheck is not here (package shellcheck)"; return 77; }
    scripts | in_parallel -n 16 shellcheck --format gcc
}

# faults COMMIT: what is wrong with its message.
faults() {
    local title body
    title=$(git log -1 --format=%s "$1") body=$(git log -1 --format=%b "$1")
    [[ $title =~ ^[A-Za-z0-9_./+-]+(, [A-Za-z0-9_./+-]+)*:\ [^\ ] ]] || echo "the title is not 'area: what'"
    [[ ${#title} -le 72 ]] || echo "the title has ${#title} characters, more than 72"
    [[ $title != *';'* ]] || echo "the title joins two things by ';'"
    [[ $body =~ [^[:space:]] ]] || echo "no body says why"
}

check_commits() {
    local from list commit found bad=0
    is_repository || { echo "this tree has no history"; return 77; }
    from=${given:-$(left_main)}
    if [[ -n $from ]]; then
        list=$(git rev-list --no-merges "$from..HEAD") || return 1
    else
        # Those before this check, and before what a shallow clone has, are not asked.
        from=$(git log -1 --format=%H --diff-filter=A -- tests/dev/lint.sh)
        list=$(git rev-list --no-merges --max-count=10 ${from:+"$from.."}HEAD)
    fi
    for commit in ${list:-HEAD}; do
        found=$(faults "$commit")
        [[ -z $found ]] || { bad=1; printf '%s\n%s\n' "$(git log -1 --format='%h %s' "$commit")" "$found"; }
    done
    return "$bad"
}

for check in "${wanted[@]}"; do
    started=$SECONDS status=0
    said=$("check_$check" 2>&1) || status=$?
    case $status in
    0) passed=$((passed + 1)); echo "$check: good, $((SECONDS - started)) s${said:+ ($said)}" ;;
    77) skipped=$((skipped + 1)); echo "skipped: lint: $check: $(tail -n 1 <<<"$said")" ;;
    *) failed=$((failed + 1)); printf '%s\n' "$said"; echo "FAILED: lint: $check" ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 ]]
