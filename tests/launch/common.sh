# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts of this folder share: an environment without launchers, and how their output is judged.

# shellcheck source=tests/port.sh
. "$(dirname "${BASH_SOURCE[0]}")/../port.sh"

for name in "${!SLUICE_@}" "${!OMPI_@}" "${!PMI@}" "${!SLURM_@}" "${!TORCHELASTIC_@}"; do
    unset "$name"
done
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

# one_table OUTPUT RANKS: one rank printed, for all of them, and nothing was wrong.
one_table() {
    echo "$1"
    [[ $(grep -c '^# sluice-bench ' <<<"$1") -eq 1 ]] || { echo "not exactly one head"; return 1; }
    grep -q "^# ranks: $2 on 1 host" <<<"$1" || { echo "not $2 ranks on one host"; return 1; }
    grep -qE '^# Out of bounds values *: 0 OK' <<<"$1"
}

# all_said OUTPUT RANKS LAUNCHER: each rank of the gather program said once who it is and by whom.
all_said() {
    local rank
    echo "$1"
    for ((rank = 0; rank < $2; rank++)); do
        [[ $(grep -c "^rank $rank of $2 by $3\$" <<<"$1") -eq 1 ]] ||
            { echo "not exactly one rank $rank of $2 by $3"; return 1; }
    done
    [[ $(grep -c '^rank ' <<<"$1") -eq $2 ]]
}
