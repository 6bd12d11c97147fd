# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of sluice-compress for bash.

_sluice_compress() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words=''
    COMPREPLY=()
    case $before in
    --codec)
        # The program knows its codecs.
        words=$("${COMP_WORDS[0]}" --help 2>/dev/null | sed -n '/^Codecs/,/^$/s/^  \([a-z0-9]*\) .*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
        ;;
    --link)
        mapfile -t COMPREPLY < <(compgen -W '100Mbit 1Gbit 10Gbit 25Gbit 100Gbit 400Gbit' -- "$word")
        return
        ;;
    --mib) return ;;
    esac
    if ((COMP_CWORD == 1)); then
        words='encode decode inspect table --help --version'
    elif [[ $word == -* ]]; then
        case ${COMP_WORDS[1]} in
        encode) words='--codec' ;;
        inspect) words='--original --json' ;;
        table) words='--link --codec --mib --json' ;;
        esac
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _sluice_compress sluice-compress
