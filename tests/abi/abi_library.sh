#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What libsluice.so shows and needs: it exports the public calls and nothing else, and loads libc only.
# usage: abi_library.sh libsluice.so SOURCE_ROOT
set -uo pipefail
library=$1 root=$2
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

exports() {
    nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u
}

# Names that follow SLUICE_API in the public headers.
declared() {
    cat "$root"/include/sluice/*.h | tr '\n' ' ' |
        grep -oE 'SLUICE_API [^;(]*\(' | grep -oE 'sluice_[a-z_0-9]+ *\(' | tr -d ' (' | sort -u
}

only_public_names() {
    local foreign
    foreign=$(exports | grep -v '^sluice_')
    [[ -z $foreign ]] || { echo "exported but not public:" "$foreign"; return 1; }
}

# Symbols that programs compiled earlier call; what the headers have by that name is inline now.
kept=(sluice_config_init)

declared_equals_exported() {
    [[ $(declared | wc -l) -gt 20 ]] || { echo "found only: $(declared)"; return 1; }
    diff <({ declared; printf '%s\n' "${kept[@]}"; } | sort -u) <(exports) | sed -n 's/^</declared, not exported:/p; s/^>/exported, not declared:/p' |
        grep . && return 1
    return 0
}

# ld-linux is libc's own loader: it appears where thread-local variables do.
needs_libc_only() {
    local foreign
    foreign=$(readelf -dW "$library" | grep -F '(NEEDED)' | grep -oE '\[.*\]' |
        grep -vE '\[(libc\.so\.6|ld-linux.*|ld64\.so.*|libc\.musl.*)\]')
    [[ -z $foreign ]] || { echo "also needs:" "$foreign"; return 1; }
}

has_its_soname() {
    readelf -dW "$library" | grep -F '(SONAME)' | grep -F '[libsluice.so.0]'
}

# A program may be hardened as it likes: no executable stack, no text relocations.
is_hardened() {
    readelf -lW "$library" | grep -E 'GNU_STACK.*RWE' && return 1
    readelf -dW "$library" | grep -F '(TEXTREL)' && return 1
    return 0
}

# Libraries that are opened at run time share little memory for what each thread has from the start.
takes_little_of_each_thread() {
    local size
    size=$(readelf -lW "$library" | awk '$1 == "TLS" { print $6 }')
    [[ -z $size || $((size)) -le 256 ]] || { echo "$((size)) bytes of static thread-local memory"; return 1; }
}

tap_case only_names_that_start_with_sluice_are_exported only_public_names
tap_case every_declared_call_is_exported_and_every_export_is_declared declared_equals_exported
tap_case libc_is_all_it_needs needs_libc_only
tap_case its_soname_carries_the_abi_number has_its_soname
tap_case it_has_no_executable_stack_and_no_text_relocations is_hardened
tap_case it_takes_at_most_256_bytes_of_each_thread takes_little_of_each_thread
tap_done
