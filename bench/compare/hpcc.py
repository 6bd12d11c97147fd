#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HPC Challenge (Debian's hpcc, over Open MPI) as it is and under libsluice-preload.so, in turns.

A real program: it computes between its calls. A figure is the median over the rounds, beside it the lowest and the
highest. hpcc measures most of them once in a run: MPIFFT of size 800 is a single transform of a millisecond, so
its figure scatters by three; take a larger size for that.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHIM = os.path.join(ROOT, "build", "tools", "preload", "libsluice-preload.so")
EXAMPLE = "/usr/share/doc/hpcc/examples/_hpccinf.txt"
FIGURES = [("HPL_Tflops", "HPL, GFlop/s", 1000), ("PTRANS_GBs", "PTRANS, GB/s", 1),
           ("MPIFFT_Gflops", "MPIFFT, GFlop/s", 1), ("MPIRandomAccess_GUPs", "MPIRandomAccess, MUP/s", 1000)]


def missing():
    for program, package in (("hpcc", "hpcc"), ("mpirun.openmpi", "openmpi-bin")):
        if not shutil.which(program):
            return f"{program} is not there (package {package})"
    return None if os.path.exists(EXAMPLE) else f"{EXAMPLE} is not there (package hpcc)"


def write_input(directory, size):
    with open(EXAMPLE) as example:
        lines = example.read().splitlines()
    lines = [f"{size} Ns" if line.split()[1:] == ["Ns"] else line for line in lines]
    with open(os.path.join(directory, "hpccinf.txt"), "w") as out:
        out.write("\n".join(lines) + "\n")


def run(args, shim):
    """{name: value} of one run, or raises RuntimeError."""
    command = ["mpirun.openmpi", "-np", "4", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
               "--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
    command += ["-x", f"LD_PRELOAD={SHIM}", "-x", "SLUICE_TRANSPORT=shm"] if shim else []
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory() as directory:
        write_input(directory, args.size)
        result = subprocess.run(command + ["hpcc"], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=args.limit)
        path = os.path.join(directory, "hpccoutf.txt")
        if result.returncode != 0 or not os.path.exists(path):
            raise RuntimeError((result.stderr.strip().splitlines() or ["no result"])[0])
        with open(path) as out:
            pairs = [line.strip().split("=", 1) for line in out if "=" in line]
    values = {name: value for name, value in pairs}
    if values.get("Success") != "1":
        raise RuntimeError("hpcc does not say Success=1")
    return {name: float(values[name]) * factor for name, _, factor in FIGURES}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=800, help="N of HPL; the other sizes follow")
    parser.add_argument("--limit", type=float, default=300, help="seconds one run may take")
    args = parser.parse_args()
    reason = missing()
    if reason:
        print(f"hpcc is out: {reason}")
        return 0
    seen = {False: [], True: []}
    for _ in range(args.rounds):
        for shim in seen:
            try:
                seen[shim].append(run(args, shim))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"hpcc {'under the shim' if shim else 'as it is'} is out: {error}")
                return 1
    print(f"hpcc, N = {args.size}, 2 x 2 ranks: median (lowest-highest of {args.rounds} rounds)")
    for name, title, _ in FIGURES:
        cells = []
        for values in seen.values():
            row = [v[name] for v in values]
            cells.append(f"{statistics.median(row):9.3f} ({min(row):.3f}-{max(row):.3f})")
        print(f"{title:>24}  Open MPI {cells[0]:<26}  with the shim {cells[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
