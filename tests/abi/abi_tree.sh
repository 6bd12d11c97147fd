#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tree's own rules: who may include whom, and a licence on top of every source file.
# usage: abi_tree.sh SOURCE_ROOT
set -uo pipefail
root=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
cd "$root" || exit 1

sources() {
    find core gdr tcp shm verbs dpdk multipath launch schedules kernels compress collectives lib ebpf monitor tools testing include examples tests bench dev .ci \
        \( -name '*.[ch]' -o -name '*.cc' -o -name '*.sh' -o -name '*.py' -o -name '*.build' \
        -o -path dev -o -path '.ci/run' -o -path tests/run \) -type f | sort
}

# arrows FOLDER ALLOWED...: files of FOLDER include by path only from itself, include/ and ALLOWED.
arrows() {
    local folder=$1 allowed="$1|sluice" other found apart=()
    [[ $folder != compress ]] || apart=(--exclude-dir=cuda) # a layer of its own
    shift
    for other in "$@"; do
        allowed+="|$other"
    done
    found=$(grep -rnE "${apart[@]}" --include='*.[ch]' --include='*.cc' --include='*.cu' --include='*.hh' '^ *# *include *["<]' "$folder" |
        grep -E 'include *["<](core|gdr|multipath|tcp|shm|verbs|dpdk|launch|schedules|kernels|collectives|lib|tools|testing|tests|compress|ebpf|monitor)/' |
        grep -vE "include *[\"<]($allowed)/")
    [[ -z $found ]] || { echo "may include only from $allowed:"; echo "$found"; return 1; }
    # No folder is reached by the back door either.
    found=$(grep -rnE --include='*.[ch]' '^ *# *include *"\.\./' "$folder")
    [[ -z $found ]] || { echo "an include starts with ../ :"; echo "$found"; return 1; }
}

every_file_starts_with_spdx() {
    local file failed=0
    while IFS= read -r file; do
        [[ -s $file ]] || continue
        [[ $file == *.build && $file != ./meson.build ]] && continue
        head -n 2 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
            { echo "no licence line: $file"; failed=1; }
    done < <(sources)
    return "$failed"
}

# Public headers end up next to others' code: their guards start with SLUICE_, ours with SL_ or SB_.
no_ifdef_have() {
    grep -rnE --include='*.[ch]' '^ *# *if(def|ndef)? .*HAVE_' core gdr tcp shm verbs dpdk multipath launch schedules kernels compress collectives lib ebpf monitor tools testing &&
        return 1
    return 0
}

# What moves bytes under multipath/ is behind its table: not even a word of it, but in comments.
no_lane_by_name() {
    grep -rnEi --include='*.[ch]' '(sl_verbs|sl_dpdk|ibv_|config->)|"verbs' multipath && return 1
    return 0
}

# meson ends where such a folder is missing, and with it the whole configuration: an optional dependency is asked for by
# a compiler's argument, or found.
no_include_directory_outside_the_tree() {
    find . -name meson.build -not -path './build*' -exec grep -nE "include_directories\(.*'/" {} + && return 1
    return 0
}

tap_case core_includes_only_core_and_the_public_headers arrows core
for folder in gdr tcp shm launch schedules kernels; do
    tap_case "${folder}_includes_only_core_and_itself" arrows "$folder" core
done
tap_case compress_includes_only_core arrows compress core
tap_case codecs_for_gpus_include_only_core_gdr_and_codecs arrows compress/cuda core gdr compress
tap_case multipath_includes_only_core_and_gdr arrows multipath core gdr
tap_case multipath_knows_no_lane_by_name no_lane_by_name
tap_case verbs_include_only_core_gdr_and_multipath arrows verbs core gdr multipath
tap_case dpdk_includes_only_core_and_multipath arrows dpdk core multipath
tap_case collectives_see_transports_only_through_core arrows collectives core schedules kernels
tap_case lib_includes_only_core_launch_collectives_codecs_and_backends arrows lib core gdr schedules kernels compress collectives launch tcp shm
tap_case ebpf_includes_only_core arrows ebpf core
tap_case monitor_includes_only_core_and_ebpf arrows monitor core ebpf
tap_case tools_include_only_lib_core_and_what_they_drive arrows tools core lib schedules kernels collectives launch monitor compress
tap_case testing_includes_only_core_dpdk_and_schedules arrows testing core dpdk schedules
tap_case every_source_file_starts_with_its_licence every_file_starts_with_spdx
tap_case a_missing_feature_is_a_file_not_built_and_never_an_ifdef no_ifdef_have
tap_case no_folder_of_this_machine_has_to_be_there_for_meson no_include_directory_outside_the_tree
tap_done
