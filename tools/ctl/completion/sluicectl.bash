# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Completion of sluicectl for bash.

_sluicectl() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' words i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --socket | --file | -o | --output | --folder) ((i++)) ;;
        -*) ;;
        *) command=${COMP_WORDS[i]} && break ;;
        esac
    done
    case $before in
    --socket | --file | --bundle | --plan)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    -o | --output)
        words=json
        [[ $command != graph ]] || words='dot svg'
        [[ $command != matrix ]] || words='text json svg'
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
        ;;
    --root | --folder)
        mapfile -t COMPREPLY < <(compgen -d -- "$word")
        return
        ;;
    --since | --by | --count | --ranks | --seed | --fault | --strength | --strengths | --trials | --healthy | --stall | --at | --path | --job | --false-isolations | --to | --from | --rail | --address | --gap-us | --bytes) return ;;
    esac
    case $command in
    '') words='status ports ranks top events verdicts ack clear probe doctor replay diagnose matrix explain graph simulate paths --socket --file -o --help --version' ;;
    paths) words='show set clear load --json job= rank= peer= path= port= weight= avoid use label=' ;;
    top) words='--count --socket -o' ;;
    events) words='--since --follow --socket -o' ;;
    verdicts) words='--all --socket -o' ;;
    ack) words='--by --socket -o' ;;
    clear) words='port nic gpu process host --socket -o' ;;
    probe) words='--to --from --rail --rdma --to-rail --traffic-class --address --count --gap-us --bytes --plan --socket -o' ;;
    doctor) words='--root --socket -o' ;;
    replay | explain | graph)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    diagnose)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        [[ $word != -* ]] || mapfile -t COMPREPLY < <(compgen -W '--live --follow --every --wait --for --stall --at --bundle --job --false-isolations -o' -- "$word")
        return
        ;;
    simulate) words='--ranks --seed --fault --strength --trials --strengths --healthy -o' ;;
    matrix)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        [[ $word != -* ]] || mapfile -t COMPREPLY < <(compgen -W '--path -o' -- "$word")
        return
        ;;
    *) words='--socket -o' ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _sluicectl sluicectl
