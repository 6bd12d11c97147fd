#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluice-compress: what it encodes comes back, what it says of files and links, what it refuses.
# usage: compress_tool.sh SLUICE_COMPRESS
# meson says in MESON_EXE_WRAPPER what runs a program for another processor.
set -uo pipefail
tool=$1
here=$(dirname "$0")
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
read -ra wrapper <<<"${MESON_EXE_WRAPPER:-}"

tool() { "${wrapper[@]}" "$tool" "$@"; }

# Normally distributed numbers, and their upper halves.
python3 - "$dir" <<'END'
import array, random, sys
random.seed(7)
floats = array.array('f', (random.gauss(0, 1) for _ in range(30001)))
open(sys.argv[1] + '/a.f32', 'wb').write(floats.tobytes())
halves = array.array('H', (bits >> 16 for bits in array.array('I', floats.tobytes())))
open(sys.argv[1] + '/a.bf16', 'wb').write(halves.tobytes())
END

# json PYTHON: what is true of the object on standard input, d.
json() { python3 -c "import json, sys; d = json.load(sys.stdin); assert $1, d"; }

lossless_codecs_give_the_file_back() {
    local codec file
    for codec in raw palette rans palette:dtype=bf16 rans:dtype=bf16; do
        file=$dir/a.f32
        [[ $codec != *bf16 ]] || file=$dir/a.bf16
        tool encode --codec "$codec" "$file" "$dir/b" && tool decode "$dir/b" "$dir/c" && cmp "$file" "$dir/c" &&
            tool inspect --json --original "$file" "$dir/b" | json "d['codec'] == '$codec' and d['differ'] == 0 and d['nmse'] == 0" || return
    done
    tool inspect --json "$dir/b" | json "d['ratio'] < 0.7 and d['elements'] == 30001 and d['raw_frames'] == 0 and 'nmse' not in d"
}

a_lossy_codec_says_its_error() {
    tool encode --codec bq8 "$dir/a.f32" "$dir/b" && tool decode "$dir/b" "$dir/c" &&
        [[ $(stat -c %s "$dir/c") == $(stat -c %s "$dir/a.f32") ]] &&
        tool inspect --json --original "$dir/a.f32" "$dir/b" |
        json "0.25 < d['ratio'] < 0.26 and 3e-5 < d['nmse'] < 5e-5 and d['differ'] > 29000 and 0 < d['error_max'] < 0.03" &&
        tool inspect --original "$dir/a.f32" "$dir/b" | grep -q '^error  *4\.[0-9]*e-05 of the square' &&
        tool inspect "$dir/b" | grep -q '^codec  *bq8$'
}

standard_input_and_output_are_files_too() {
    tool encode --codec rans - - <"$dir/a.f32" | tool decode - - >"$dir/c" && cmp "$dir/c" "$dir/a.f32" &&
        tool encode --codec rans - - <"$dir/a.f32" | tool inspect --json - | json "d['elements'] == 30001"
}

a_file_of_nothing_is_one_frame() {
    : >"$dir/none"
    tool encode --codec rans "$dir/none" "$dir/b" && tool inspect --json "$dir/b" | json "d['frames'] == 1 and d['elements'] == 0" &&
        tool decode "$dir/b" "$dir/c" && [[ -e $dir/c && ! -s $dir/c ]]
}

frames_may_follow_each_other() {
    tool encode --codec rans "$dir/a.f32" "$dir/b" && cat "$dir/b" "$dir/b" >"$dir/two" && cat "$dir/a.f32" "$dir/a.f32" >"$dir/twice" &&
        tool decode "$dir/two" "$dir/c" && cmp "$dir/c" "$dir/twice" &&
        tool inspect --json --original "$dir/twice" "$dir/two" | json "d['frames'] == 2 and d['elements'] == 60002"
}

# fails STATUS TEXT ARGUMENT...
fails() {
    local status=$1 text=$2 got=0
    shift 2
    tool "$@" >"$dir/out" 2>"$dir/err" </dev/null || got=$?
    [[ $got == "$status" && ! -s $dir/out ]] && grep -qF -- "$text" "$dir/err" ||
        { echo "$* ended with $got, not $status"; cat "$dir/err"; return 1; }
}

what_cannot_be_is_refused() {
    tool encode --codec rans "$dir/a.f32" "$dir/b" && rm -f "$dir/c" || return
    fails 1 'there is no codec "zip"' encode --codec zip "$dir/a.f32" "$dir/c" &&
        fails 2 'one --codec' encode "$dir/a.f32" "$dir/c" && fails 2 '2 files, not 1' decode "$dir/b" &&
        fails 2 'takes no option --json' decode --json "$dir/b" "$dir/c" && fails 2 'no command frob' frob &&
        fails 2 'what is --frob' table --frob && fails 2 '1Gbit' table --link fast && fails 2 '1 to 4096' table --mib 0 &&
        fails 1 'both read and written' encode --codec rans "$dir/a.f32" "$dir/a.f32" && [[ -s $dir/a.f32 ]] &&
        fails 1 'No such file' inspect "$dir/no" && fails 1 'fewer elements' inspect --original /dev/null "$dir/b" &&
        head -c 1001 "$dir/a.f32" >"$dir/odd" && fails 1 'within an element' encode --codec rans "$dir/odd" "$dir/c" && [[ ! -e $dir/c ]]
}

# Damage anywhere: nothing half decoded is left.
damaged_files_are_refused() {
    local at len
    tool encode --codec rans "$dir/a.f32" "$dir/b" && len=$(stat -c %s "$dir/b") || return
    for at in 0 4 5 16 23 40 63 64 $((len / 2)) $((len - 1)); do
        cp "$dir/b" "$dir/bad" && printf '\xa7' | dd of="$dir/bad" bs=1 seek="$at" conv=notrunc status=none || return
        cmp -s "$dir/b" "$dir/bad" || fails 1 'sluice-compress: ' decode "$dir/bad" "$dir/c" || return
    done
    head -c $((len - 1)) "$dir/b" >"$dir/bad" && fails 1 "$dir/bad" decode "$dir/bad" "$dir/c" && fails 1 'frame' decode "$dir/a.f32" "$dir/c" &&
        fails 1 'is empty' decode /dev/null "$dir/c" && [[ ! -e $dir/c ]]
}

the_table_says_what_follows_from_the_measurement() {
    tool table --json --mib 1 --link 1Mbit >"$dir/json" &&
        python3 - "$dir/json" <<'END'
import json, sys
table = json.load(open(sys.argv[1]))
assert table['link_bytes_per_second'] == 125e3 and table['message_bytes'] == 1 << 20
codecs = {row['codec']: row for row in table['codecs']}
assert {'bq8', 'sign', 'palette', 'rans', 'rans:dtype=bf16'} <= set(codecs) and 'raw' not in codecs, codecs.keys()
for name, row in codecs.items():
    w = row['wire']
    # At a megabit each second, whatever is saved pays, and the wire alone counts.
    assert 0 < w < 1 and 0.95 < row['gain'] * w <= 1.001 and row['pays_from_bytes'] >= 4096, row
    assert row['encode_bytes_per_second'] > 0 and row['decode_bytes_per_second'] > 0 and row['add_bytes_per_second'] > 0, row
    # A codec pays up to about the rate at which its processor encodes, sums and decodes; what it leaves of the wire is in that.
    busy = 1.5 / row['encode_bytes_per_second'] + 1.5 / row['decode_bytes_per_second'] + 0.5 / row['add_bytes_per_second']
    assert 0.05 / busy < row['pays_below'] < 3 / busy, (row, 1 / busy)
END
    tool table --mib 1 --link 400GB --codec bq8 --codec rans:dtype=f16 | grep -cE '^(bq8|rans:dtype=f16) .* never ' | grep -qx 2
}

# What predictions go by is not far from what is measured, of elements in memory and by optimised code for this processor.
ratios_are_near_those_measured() {
    tool table --json --mib 16 --codec bf16 --codec bq8 --codec bq4 --codec sign --codec e4m3 >"$dir/json" && python3 - "$dir/json" <<'END'
import json, sys
for row in json.load(open(sys.argv[1]))['codecs']:
    for kind, measured in row['work'].items():
        assert 1 / 4 < measured / row['work_by_engine'][kind] < 4, (row['codec'], kind, measured, row['work_by_engine'])
END
}

help_names_all_commands_and_codecs() {
    local word
    for word in encode decode inspect table --codec --original --link --mib --json palette rans bq8 Examples; do
        tool --help | grep -q -- "$word" || { echo "$word"; return 1; }
    done
    tool --version | grep -q '^sluice-compress '
}

completion_knows_the_options() {
    local option
    for option in $(tool --help | sed '/^Codecs/q' | grep -oE -- '--[a-z]+' | sort -u); do
        grep -q -- "$option" "$here/../../../tools/compress/completion/sluice-compress.bash" &&
            grep -q -- "$option" "$here/../../../tools/compress/completion/_sluice-compress" &&
            grep -q -- "${option//-/\\\\-}" "$here/../../../docs/man/sluice-compress.1" || { echo "$option"; return 1; }
    done
}

tap_case lossless_codecs_give_the_file_back lossless_codecs_give_the_file_back
tap_case a_lossy_codec_says_its_error a_lossy_codec_says_its_error
tap_case standard_input_and_output_are_files_too standard_input_and_output_are_files_too
tap_case a_file_of_nothing_is_one_frame a_file_of_nothing_is_one_frame
tap_case frames_may_follow_each_other frames_may_follow_each_other
tap_case what_cannot_be_is_refused what_cannot_be_is_refused
tap_case damaged_files_are_refused damaged_files_are_refused
tap_case the_table_says_what_follows_from_the_measurement the_table_says_what_follows_from_the_measurement
if [[ -n ${RATIOS:-} ]]; then
    tap_case ratios_of_codecs_are_near_those_measured ratios_are_near_those_measured
else
    tap_skip ratios_of_codecs_are_near_those_measured "this build is not one for speed"
fi
tap_case help_names_all_commands_and_codecs help_names_all_commands_and_codecs
tap_case completion_and_the_page_know_the_options completion_knows_the_options
tap_done
