#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The exported interface against the committed dump, tests/abi/sluice.abi: a call or a field that went or changed is a
# failure, and what was added is not. The dump is of the public headers: of a library with every call they declare.
# usage: abi_dump.sh SOURCE_ROOT            compares
#        abi_dump.sh --renew [SOURCE_ROOT]  writes the dump anew, after an addition or a change that is meant
set -uo pipefail
renew=''
[[ ${1:-} != --renew ]] || { renew=yes; shift; }
here=$(cd "$(dirname "$0")" && pwd)
root=${1:-$here/../..}
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"
dump=$here/sluice.abi
[[ $(uname -m) == x86_64 ]] || tap_skip_all "the dump is one of x86-64"
command -v abidiff >/dev/null || tap_skip_all "abidiff is not here (package abigail-tools)"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# library HEADERS OUT: of the calls that these declare; what they do is not looked at.
library() {
    local headers=$1 out=$2 here=$dir/library
    mkdir -p "$here" && echo '#include <sluice/sluice.h>' >"$here/declared.c" &&
        "${CC:-cc}" -I"$headers" -aux-info "$here/calls" -c "$here/declared.c" -o "$here/declared.o" || return
    { cat "$here/declared.c"
        sed -nE 's|^/\* .*:NC \*/ extern (.*sluice_[a-z_]+ \(.*\));.*|\1 { __builtin_trap(); }|p' "$here/calls"; } >"$here/library.c"
    [[ $(grep -c __builtin_trap "$here/library.c") -gt 20 ]] || { echo "calls found: $(cat "$here/library.c")"; return 1; }
    "${CC:-cc}" -g -shared -fPIC -I"$headers" -Wl,-soname,libsluice.so.0 -Wl,--version-script="$root/lib/sluice.map" \
        "$here/library.c" -o "$out"
}

# dumped HEADERS OUT: nothing in it tells where it was made.
dumped() {
    library "$1" "$dir/libsluice.so" &&
        abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --no-architecture --type-id-style hash \
            --out-file "$2" "$dir/libsluice.so" && sed -i -E "s| path='[^']*'||; s| comp-dir-path='[^']*'||" "$2"
}

# The structure that programs tell the size of grows behind what it is in the dump. abidiff 2.2 lets other changes of a
# structure pass, too, once it lets that one pass: what the structure had is compared beside it.
bits=$(sed -nE "s/.*class-decl name='sluice_config' size-in-bits='([0-9]+)'.*/\1/p" "$dump" 2>/dev/null)
cat >"$dir/growth" <<END
[suppress_type]
  name = sluice_config
  type_kind = struct
  has_data_member_inserted_at = ${bits:-0}
END

# Offset, name and type of its fields.
fields() {
    sed -n "/<class-decl name='sluice_config' /,/<\/class-decl>/p" "$1" | tr -d '\n' | sed 's/<data-member/\n&/g' |
        sed -nE "s/.*layout-offset-in-bits='([0-9]+)'.*<var-decl name='([^']*)' type-id='([^']*)'.*/\1 \2 \3/p"
}

keeps_its_fields() {
    local old now
    old=$(fields "$dump") now=$(fields "$1")
    [[ $(wc -l <<<"$old") -ge 9 ]] || { echo "fields in the dump: $old"; return 1; }
    diff <(echo "$old") <(echo "$now" | head -n "$(wc -l <<<"$old")")
}

# compares HEADERS: status 0 if nothing but additions is between the dump and these.
compares() {
    dumped "$1" "$dir/now.abi" && abidiff --no-added-syms --no-architecture --suppressions "$dir/growth" "$dump" "$dir/now.abi" &&
        keeps_its_fields "$dir/now.abi"
}

if [[ -n $renew ]]; then
    dumped "$root/include" "$dump" && echo "written: $dump"
    exit
fi

# with EDIT good|bad: what the comparison says of headers that a sed script has edited.
with() {
    local status=0
    rm -rf "$dir/edited" && cp -r "$root/include" "$dir/edited" && sed -i -E "$1" "$dir"/edited/sluice/*.h || return
    diff -rq "$root/include" "$dir/edited" >"$dir/edits" && { echo "nothing was edited"; return 1; }
    compares "$dir/edited" || status=$?
    if [[ $2 == good ]]; then [[ $status -eq 0 ]]; else [[ $status -ne 0 ]]; fi
}

tap_case nothing_went_or_changed_since_the_dump compares "$root/include"
tap_case a_call_may_be_added with 's/^SLUICE_API int sluice_version\(void\);/&\nSLUICE_API int sluice_news(void);/' good
tap_case a_structure_may_grow_at_its_end with 's/^    int reserved;.*/&\n    int64_t news;/' good
tap_case a_call_that_went_is_found with '/^SLUICE_API int sluice_version\(void\);/d' bad
tap_case an_argument_that_changed_is_found with 's/(sluice_dtype_size\(enum )sluice_dtype/\1sluice_op/' bad
tap_case a_field_that_changed_is_found with 's/^    int rank;/    int64_t rank;/' bad
tap_case a_field_that_moved_is_found with 's/^    int rank;.*/    int news;\n&/' bad
tap_case a_field_that_moved_while_it_grew_is_found with \
    's/^    int rank;/    int news;\n&/; s/^    int reserved;.*/&\n    int64_t news2;/' bad
tap_case a_number_that_changed_is_found with 's/SLUICE_F32 = 7/SLUICE_F32 = 17/' bad
tap_done
