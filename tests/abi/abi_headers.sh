#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone: the public ones as strict C11 and as C++17, ours as gnu17.
# usage: abi_headers.sh SOURCE_ROOT
set -uo pipefail
root=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
cd "$root" || exit 1

strict=(-fsyntax-only -Wall -Wextra -pedantic -Werror -Iinclude)

public_as_c11() {
    local header failed=0
    for header in include/sluice/*.h; do
        echo "#include <${header#include/}>" | "${CC:-cc}" -x c -std=c11 "${strict[@]}" - || failed=1
    done
    return "$failed"
}

public_as_cpp17() {
    local header failed=0
    for header in include/sluice/*.h; do
        echo "#include <${header#include/}>" | "${CXX:-c++}" -x c++ -std=c++17 "${strict[@]}" - || failed=1
    done
    return "$failed"
}

# Only what is installed beside them may be included: nothing of ours, nothing beyond the C library.
public_includes_are_public() {
    grep -nE '^ *# *include' include/sluice/*.h | grep -vE '<(sluice/[a-z]+|stddef|stdint)\.h>' && return 1
    return 0
}

# A header that opens with "Template:" is text for the file that includes it, and says what that defines. One that
# needs MPI's is looked at where MPI is.
internal_alone() {
    local header failed=0 mpi
    mpi=$(pkg-config --cflags ompi-c 2>/dev/null || pkg-config --cflags mpich 2>/dev/null)
    while IFS= read -r header; do
        head -n 4 "$header" | grep -q 'Template:' && continue
        [[ -z $mpi ]] && grep -q '<mpi.h>' "$header" && continue
        # shellcheck disable=SC2086
        echo "#include \"$header\"" |
            "${CC:-cc}" -x c -std=gnu17 -D_GNU_SOURCE -fsyntax-only -Wall -Wno-unused-function -Werror -I. \
                -Iinclude -I"$(dirname "$header")" $mpi - || { echo "not alone: $header"; failed=1; }
    done < <(find core tcp shm sim launch collectives lib tools -name '*.h' | sort)
    return "$failed"
}

tap_case every_public_header_compiles_alone_as_strict_c11 public_as_c11
if command -v "${CXX:-c++}" >/dev/null; then
    tap_case every_public_header_compiles_alone_as_cpp17 public_as_cpp17
else
    tap_skip every_public_header_compiles_alone_as_cpp17 "no C++ compiler here (package g++)"
fi
tap_case public_headers_include_only_public_headers public_includes_are_public
tap_case every_internal_header_compiles_alone internal_alone
tap_done
