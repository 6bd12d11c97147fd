#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on real pictures by every method (build/tests/train/train) and writes what came out.

usage: ./dev train [--data digits|fashion]... [--method NAME]... [--seed N] [--out FOLDER]

Into FOLDER, build/train where it is not said: results.json (a line a method), table.md, and loss.svg where matplotlib is
installed. Exit code 1: some method is out of its band.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NAMES = {"digits": "digits", "fashion": "Fashion-MNIST"}


def run(options, data, results):
    """Appends to results. Returns the exit code."""
    command = [f"{ROOT}/build/tests/train/train", "--data", data, "--json", results, "--root", f"{ROOT}/build/data",
               "--seed", str(options.seed)]
    for method in options.method:
        command += ["--method", method]
    return subprocess.run(command, env={"SLUICE_LOG": "error", **os.environ}, check=False).returncode


def cell(rows, data, method):
    row = rows.get((data, method))
    if row is None:
        return " | | |"
    loss = "diverges" if row["loss"] > 1e6 else f"{row['loss']:.4f}"
    return f" {loss} | {row['right']:.2f} | {row['ratio']:.1f} |"


def write_table(lines, path):
    rows = {(line["data"], line["method"]): line for line in lines}
    sets = [data for data in NAMES if any(key[0] == data for key in rows)]
    methods = list(dict.fromkeys(line["method"] for line in lines))
    helps = {line["method"]: line["help"] for line in lines}
    with open(path, "w", encoding="utf-8") as out:
        out.write("| method | |" + "".join(f" {NAMES[data]}: loss | % right | times fewer bytes |" for data in sets) + "\n")
        out.write("|---|---|" + "---:|---:|---:|" * len(sets) + "\n")
        for method in methods:
            out.write(f"| {method} | {helps[method]} |" + "".join(cell(rows, data, method) for data in sets) + "\n")


def plot(lines, path):
    """Loss against bytes, of what is no control. False: there is no matplotlib."""
    try:
        import matplotlib  # pylint: disable=import-outside-toplevel
        matplotlib.use("svg")
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "train"})
        from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    except ImportError:
        return False
    sets = [data for data in NAMES if any(line["data"] == data for line in lines)]
    figure, axes = pyplot.subplots(1, len(sets), figsize=(7 * len(sets), 6), squeeze=False)
    for axis, data in zip(axes[0], sets):
        shown = [line for line in lines if line["data"] == data and not line["control"] and line["loss"] < 1e6]
        for number, line in enumerate(shown):
            axis.plot(line["ratio"], line["loss"], "o", color="tab:blue")
            # Above and below in turns: many lie side by side.
            axis.annotate(line["method"], (line["ratio"], line["loss"]), xytext=(3, (4, -9)[number % 2]),
                          textcoords="offset points", fontsize=7)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("times fewer bytes than fp32")
        axis.set_ylabel("loss on the pictures trained on")
        axis.set_title(NAMES[data])
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    return True


def main():
    parser = argparse.ArgumentParser(prog="./dev train", usage=__doc__.split("usage: ")[1].split("\n\n", maxsplit=1)[0],
                                     description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--data", action="append", choices=list(NAMES), help="pictures; both where it is not said")
    parser.add_argument("--method", action="append", default=[], help="by its name in the table; all where it is not said")
    parser.add_argument("--seed", type=int, default=1, help="of the first parameters and of the order of pictures; 1 where it is not said")
    parser.add_argument("--out", metavar="FOLDER", default=f"{ROOT}/build/train", help="build/train where it is not said")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    results = os.path.join(options.out, "results.json")
    if os.path.exists(results):
        os.remove(results)
    code = 0
    for data in options.data or list(NAMES):
        code |= run(options, data, results)
    if not os.path.exists(results):
        if code == 0:
            print("dev: nothing was trained: its pictures are not here", file=sys.stderr)
        return code
    with open(results, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    write_table(lines, os.path.join(options.out, "table.md"))
    said = "results.json, table.md"
    if plot(lines, os.path.join(options.out, "loss.svg")):
        said += ", loss.svg"
    else:
        print("dev: no plot: matplotlib is not installed", file=sys.stderr)
    print(f"{options.out}: {said}")
    return code


if __name__ == "__main__":
    sys.exit(main())
