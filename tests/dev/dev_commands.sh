#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands of `dev` in README's order, as on a machine on which nothing is installed yet: in a tree of one program
# and one test, with a package manager and a pkg-config that only say what is there.
# usage: dev_commands.sh SOURCE_ROOT
set -uo pipefail
root=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for name in "${!SLUICE_@}"; do
    unset "$name"
done
export CI=true

# tool NAME: a program of that name, from standard input, before all others.
mkdir "$dir/bin"
tool() {
    cat >"$dir/bin/$1"
    chmod +x "$dir/bin/$1"
}
tool apt-get <<END
#!/bin/bash
said_twice() { (("\$(grep -c ' s: unpacking$' "$dir/output")" >= 2)); }
echo "apt-get \$*" >>"$dir/apt.log"
[[ ! -e $dir/slow-apt ]] || { echo unpacking; . "$root/tests/wait.sh"; until_true 20 said_twice; }
[[ " \$* " != *" libcmocka-dev "* ]] || touch "$dir/has-cmocka"
[[ " \$* " != *" clang "* ]] || ln -sf /bin/false "$dir/bin/clang"
END
tool sudo <<'END'
#!/bin/bash
[[ $1 != -n ]] || shift
exec "$@"
END
# This machine's services are no business of these tests.
tool systemctl <<END
#!/bin/bash
echo "systemctl \$*" >>"$dir/apt.log"
END
tool pkg-config <<END
#!/bin/bash
case " \$* " in
*" cmocka "*) [[ -e "$dir/has-cmocka" ]] ;;
*" json-c "*) false ;; # never there, so that something is to be installed each time
esac
END
export PATH=$dir/bin:$PATH

# A new clone in $dir/tree: what `dev` and tests/run need of the real one.
fresh_tree() {
    rm -rf "$dir/tree" "$dir/has-cmocka"
    mkdir -p "$dir/tree/tests" "$dir/tree/tools/bench"
    cp "$root/dev" "$dir/tree/dev"
    cp "$root/tests/run" "$dir/tree/tests/run"
    cat >"$dir/tree/meson.build" <<'END'
project('tiny', 'c')
subdir('tools/bench')
if get_option('tests')
  test('quick', executable('quick', 'main.c'), suite: 'unit', protocol: 'tap')
  test('slow', executable('slow', 'main.c'), suite: ['long', 'patience'], protocol: 'tap')
endif
END
    cat >"$dir/tree/meson_options.txt" <<'END'
option('tests', type: 'boolean', value: true)
option('gpu_archs', type: 'array', value: [])
END
    echo "executable('sluice-bench', '../../main.c')" >"$dir/tree/tools/bench/meson.build"
    printf '%s\n' '#include <stdio.h>' 'int main(void) { puts("ok 1 - it_works\n1..1"); return 0; }' >"$dir/tree/main.c"
}

# dev ARGUMENTS...: its output also in $dir/output.
dev() {
    (cd "$dir" && timeout 300 "$dir/tree/dev" "$@" </dev/null) >"$dir/output" 2>&1
    local status=$?
    cat "$dir/output"
    return "$status"
}

last_line_is() { [[ $(tail -n 1 "$dir/output") == "$1" ]] || { echo "the last line is not: $1"; return 1; }; }

# Where meson did not know of cmocka at first: the second command knows of it, and runs the tests.
bench_then_test() {
    fresh_tree
    dev bench && grep -q it_works "$dir/output" || return
    dev test quick && last_line_is '1 passed, 0 failed, 0 skipped'
}

# The long test is another program than the quick one, and each is found where it is.
long_ones_by_themselves() {
    fresh_tree
    dev test slow && return 1
    last_line_is '0 passed, 1 failed, 0 skipped' && grep -q "with --long there is slow" "$dir/output" || return
    dev test --long && grep -q 'patience/slow: 1 passed' "$dir/output" &&
        last_line_is '1 passed, 0 failed, 0 skipped' || return
    dev test --long quick && return 1
    dev test --long --list && last_line_is 'patience: slow' && dev test --slice-of 0123456789 && last_line_is patience
}

# What is long says what it is at: the last line of its log.
long_installation() {
    fresh_tree
    touch "$dir/slow-apt"
    DEV_SILENT_S=0.2 dev build
    local status=$?
    rm "$dir/slow-apt"
    [[ $status -eq 0 ]] && (($(grep -c ' s: unpacking$' "$dir/output") >= 2))
}

# Copied to where anybody may read it.
fresh_without_root() {
    local nobody=()
    [[ $EUID -ne 0 ]] || nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    fresh_tree
    mkdir -p "$dir/tree/tests/dev"
    cp "$root/tests/dev/fresh.sh" "$dir/tree/tests/dev/"
    chmod -R a+rX "$dir"
    HOME=$dir "${nobody[@]}" "$dir/tree/tests/dev/fresh.sh" --quick >"$dir/output" 2>&1 || { cat "$dir/output"; return 1; }
    grep -q '^skipped: fresh: needs root' "$dir/output" && last_line_is '0 passed, 0 failed, 1 skipped'
}

# Also where build-fuzz/ is from before a target had its name.
fuzz_targets_by_their_names() {
    fresh_tree
    printf '#!/bin/bash\nexec cc "$@"\n' | tool clang
    mkdir "$dir/tree/tests/fuzz"
    echo "option('fuzz', type: 'boolean', value: false)" >>"$dir/tree/meson_options.txt"
    echo "subdir('tests/fuzz')" >>"$dir/tree/meson.build"
    echo "executable('fuzz_old', '../../main.c')" >"$dir/tree/tests/fuzz/meson.build"
    dev fuzz --list && last_line_is old || return
    echo "executable('fuzz_new', '../../main.c')" >"$dir/tree/tests/fuzz/meson.build"
    dev fuzz --list && last_line_is new || return
    rm "$dir/bin/clang"
}

tap_case bench_and_then_test_in_a_new_clone_both_work bench_then_test
tap_case long_tests_run_with_long_alone long_ones_by_themselves
tap_case an_installation_that_takes_long_says_what_it_is_at long_installation
tap_case bare_machines_are_skipped_with_a_reason_without_root fresh_without_root
tap_case fuzz_targets_are_listed_by_the_names_they_have fuzz_targets_by_their_names
tap_done
