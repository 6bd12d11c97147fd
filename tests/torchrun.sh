# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# A real torchrun for tests. Sourced, after the options of the shell; brings tests/tap.sh and tests/port.sh along, and
# skips the test where none is that can start a program. TORCHRUN names another one than that in PATH, a wheel's for example.
#
#   in_four LIMIT PROGRAM...   as four ranks, for LIMIT seconds at most
here_of_torchrun=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/tap.sh
. "$here_of_torchrun/tap.sh"
# shellcheck source=tests/port.sh
. "$here_of_torchrun/port.sh"
torchrun=${TORCHRUN:-torchrun}

command -v "$torchrun" >/dev/null ||
    tap_skip_all "torchrun is not installed (package python3-torch, or PyTorch by pip)"
"$torchrun" --help >/dev/null 2>&1 || tap_skip_all "torchrun does not start (torchrun --help)"
for name in "${!SLUICE_@}" "${!TORCHELASTIC_@}"; do
    unset "$name"
done
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo

# PyTorch 1.13 under Python 3.11 crashes on its own default of -r and -t (no log files); the same said
# for a rank that does not exist it takes.
in_four() {
    timeout -k 5 "$1" "$torchrun" -r 9:1 -t 9:1 --nnodes=1 --node_rank=0 --master_addr=127.0.0.1 \
        --master_port="$(free_port)" --nproc_per_node=4 "${@:2}" 2>&1
}

# That of Debian 13 asks for a libuv that its PyTorch was built without.
why=$(in_four 60 --no_python true) || tap_skip_all "torchrun cannot start a program here: $(tail -n 1 <<<"$why")"
