# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Waiting in test scripts: for something to be so, with a deadline, which says what did not come. To be sourced.

# pause SECONDS: between two looks, without a process, on a pipe that nothing comes out of.
pause() {
    [[ -n ${pause_fd:-} ]] || exec {pause_fd}<> <(:)
    read -rt "$1" -u "$pause_fd"
    return 0
}

# until_true SECONDS COMMAND...: asks twenty times a second.
until_true() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || { echo "not within its time: $*" >&2; return 1; }
        pause 0.05
    done
}

# gone PID: whether that process has ended, waited for or not.
gone() { ! kill -0 "$1" 2>/dev/null; }
