#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gloo as it is, under the shim, and under the shim with SLUICE_PRELOAD_EXACT=off, in turns: an allreduce by
size, and with --train the steps of train.py. Prints medians over the rounds, and the lowest and highest."""
import argparse
import os
import re
import statistics
import subprocess
import tempfile

KINDS = {"gloo": {}, "shim": {"shim": True}, "shim, not exact": {"shim": True, "SLUICE_PRELOAD_EXACT": "off"}}


def environment(shim, kind):
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    env["OMP_NUM_THREADS"] = "1"
    extra = dict(KINDS[kind])
    if extra.pop("shim", False):
        env["LD_PRELOAD"] = shim
    return {**env, **extra}


def run(command, env, pattern, cwd=None):
    text = subprocess.run(command, env=env, cwd=cwd, check=True, capture_output=True, text=True).stdout
    return float(re.search(pattern, text).group(1))


def measure(args, command, pattern):
    figures = {kind: [] for kind in KINDS}
    for _ in range(args.rounds):
        for kind in KINDS:
            with tempfile.TemporaryDirectory() as folder:
                figures[kind].append(run(command(folder), environment(args.shim, kind), pattern))
    return figures


def row(name, figures, unit):
    plain = statistics.median(figures["gloo"])
    cells = []
    for kind, values in figures.items():
        middle = statistics.median(values)
        ratio = "" if kind == "gloo" else f", {plain / middle:.1f}x"
        cells.append(f"{middle:.1f} ({min(values):.1f}–{max(values):.1f}{ratio})")
    print(f"| {name} | " + " | ".join(cells) + f" | {unit}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", default="64,4096,65536,1048576,16777216")
    parser.add_argument("--train", metavar="WIDTH", type=int, action="append", default=[],
                        help="of train.py's hidden layer; needs torchrun")
    parser.add_argument("--torchrun", default="torchrun")
    args = parser.parse_args()
    args.shim = os.path.abspath(f"{args.build}/tools/preload/libsluice-preload.so")
    here = os.path.dirname(os.path.abspath(__file__))

    print("| | " + " | ".join(KINDS) + " |")
    for size in [int(s) for s in args.sizes.split(",") if s]:
        times = "300" if size <= 65536 else "30"
        row(f"{size} B", measure(args, lambda folder: [
            f"{args.build}/tests/preload/gloo_program", str(args.ranks), folder, "speed", str(size), times],
            r"median ([0-9.]+) us"), "µs")
    for width in args.train:
        row(f"step, width {width}", measure(args, lambda folder: [
            args.torchrun, "-r", "9:1", "-t", "9:1", "--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1",
            "--master_port=28511", f"--nproc_per_node={args.ranks}", f"{here}/../tests/preload/train.py", "--epochs", "3", "--width",
            str(width)], r"step: median ([0-9.]+) ms"), "ms")


if __name__ == "__main__":
    main()
