#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ours against Open MPI, MPICH and Gloo of the distribution, and UCC where it is installed, size by size, in one interleaved run.

Every library runs the same loop (loop.h). In each round every library runs once, one after the other;
a figure is the median over the rounds of the slowest rank's median, beside it the lowest and highest
round. f32, sum, root 0, out of place (broadcast: in place). A size is nccl-tests' own: the whole buffer
of allreduce and broadcast, all blocks of the others.
"""
import argparse
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "build")
OUT = os.path.join(BUILD, "compare")
KIB, MIB = 1024, 1024 * 1024
SIZES = [8, 64 * KIB, MIB, 16 * MIB, 64 * MIB]
OTHER_SIZES = [KIB, MIB, 16 * MIB]
COLLS = ["allreduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "barrier"]
IDLE_SHARE = 0.95


def cores():
    return sorted(os.sched_getaffinity(0))


class Library:
    """A peer program: how it is built and started."""

    def __init__(self, name, transports, compile_command, package):
        self.name, self.transports = name, transports
        self.compile_command, self.package = compile_command, package
        self.reason = None  # why it is out

    def build(self):
        program, sources = self.compile_command[-1], [os.path.join(HERE, "loop.h"), __file__]
        sources += [part for part in self.compile_command if part.startswith(HERE)]
        if not shutil.which(self.compile_command[0]):
            self.reason = f"{self.compile_command[0]} is not there (package {self.package})"
        elif not os.path.exists(program) or any(
                os.path.getmtime(s) > os.path.getmtime(program) for s in sources):
            result = subprocess.run(self.compile_command, capture_output=True, text=True)
            if result.returncode != 0:
                lines = [l for l in result.stderr.splitlines() if "error" in l] or ["?"]
                self.reason = f"does not build (package {self.package}): {lines[0]}"

    def commands(self, transport, ranks, directory):
        """[(command, environment, core or None)], one for each process that we start ourselves."""
        raise NotImplementedError


def under_shim(option, join, transport):
    """Options of a launcher that put its ranks under libsluice-preload.so."""
    shim = os.path.join(BUILD, "tools", "preload", "libsluice-preload.so")
    return [word for name, value in (("LD_PRELOAD", shim), ("SLUICE_TRANSPORT", transport))
            for word in ([option, f"{name}={value}"] if join else [option, name, value])]


class OpenMpi(Library):
    def __init__(self, name, pml, shim=False):
        super().__init__(name, ["shm", "tcp"],
                         ["mpicc.openmpi", "-O2", os.path.join(HERE, "peer_mpi.c"), "-o",
                          os.path.join(OUT, "peer_openmpi")], "libopenmpi-dev")
        self.pml, self.shim = pml, shim

    def commands(self, transport, ranks, directory):
        command = ["mpirun.openmpi", "-np", str(ranks)]
        if ranks <= len(cores()):
            command += ["--bind-to", "core"]
        else:
            command += ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        if self.pml == "ob1":
            command += ["--mca", "pml", "ob1", "--mca", "btl"]
            command += ["self,vader"] if transport == "shm" else [
                "self,tcp", "--mca", "btl_tcp_if_include", "lo"]
        else:
            command += ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca",
                        "pml_ucx_devices", "any"]
            command += ["-x", "UCX_TLS=self,posix,cma"] if transport == "shm" else [
                "-x", "UCX_TLS=self,tcp", "-x", "UCX_NET_DEVICES=lo"]
        command += under_shim("-x", True, transport) if self.shim else []
        environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return [(command + [self.compile_command[-1]], environment, None)]


class Mpich(Library):
    def __init__(self, name, shim=False):
        super().__init__(name, ["shm", "tcp"],
                         ["mpicc.mpich", "-O2", os.path.join(HERE, "peer_mpi.c"), "-o",
                          os.path.join(OUT, "peer_mpich")], "libmpich-dev")
        self.shim = shim

    def commands(self, transport, ranks, directory):
        command = ["mpirun.mpich", "-np", str(ranks)]
        command += ["-bind-to", "core"] if ranks <= len(cores()) else []
        if transport == "shm":
            command += ["-env", "UCX_TLS", "self,posix,cma"]
        else:
            command += ["-env", "MPIR_CVAR_NOLOCAL", "1", "-env", "UCX_TLS", "self,tcp", "-env",
                        "UCX_NET_DEVICES", "lo"]
        command += under_shim("-env", False, transport) if self.shim else []
        return [(command + [self.compile_command[-1]], {}, None)]


def words_of(*words):
    """What a program prints, or nothing."""
    try:
        return subprocess.run(words, capture_output=True, text=True).stdout.split()
    except OSError:
        return []


class Ucc(OpenMpi):
    """No package of Debian 12 or PyPI has it: one that is installed, by UCC_HOME or pkg-config. Open MPI starts it."""

    def __init__(self):
        super().__init__("ucc", "ob1")
        home = os.environ.get("UCC_HOME")
        flags = [f"-I{home}/include", f"-L{home}/lib", f"-Wl,-rpath,{home}/lib", "-lucc"] if home else words_of(
            "pkg-config", "--cflags", "--libs", "ucc")
        self.compile_command = ["mpicc.openmpi", "-O2", os.path.join(HERE, "peer_ucc.c"), *flags, "-o",
                                os.path.join(OUT, "peer_ucc")]
        self.missing = not flags
        self.package = "libopenmpi-dev; UCC by UCC_HOME=PREFIX"

    def build(self):
        if self.missing:
            self.reason = "UCC is not there: neither UCC_HOME names it nor does pkg-config know it"
        else:
            super().build()

    def commands(self, transport, ranks, directory):
        tls = ["-x", "PEER_YIELD=1"] if ranks > len(cores()) else []
        tls += ["-x", "UCX_TLS=self,posix,cma"] if transport == "shm" else [
            "-x", "UCX_TLS=self,tcp", "-x", "UCX_NET_DEVICES=lo"]
        (command, environment, core), = super().commands(transport, ranks, directory)
        return [(command[:-1] + tls + command[-1:], environment, core)]


class Gloo(Library):
    """Has no shared memory. Not pinned: its second thread then stalls for milliseconds."""

    def __init__(self):
        program = os.path.join(OUT, "peer_gloo")
        super().__init__("gloo", ["tcp"],
                         ["c++", "-O2", "-std=c++17", os.path.join(HERE, "peer_gloo.cc"), "-lgloo",
                          "-pthread", "-o", program], "libgloo-dev")

    def commands(self, transport, ranks, directory):
        return [([self.compile_command[-1], str(rank), str(ranks), directory], {}, None)
                for rank in range(ranks)]


class Sluice(Library):
    def __init__(self):
        library = os.path.join(BUILD, "lib")
        super().__init__("sluice", ["shm", "tcp"],
                         ["cc", "-O2", "-I" + os.path.join(ROOT, "include"),
                          os.path.join(HERE, "peer_sluice.c"), "-L" + library, "-lsluice",
                          "-Wl,-rpath," + library, "-o", os.path.join(OUT, "peer_sluice")], "./dev build")

    def commands(self, transport, ranks, directory):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            root = f"127.0.0.1:{probe.getsockname()[1]}"
        pinned = ranks <= len(cores())
        return [([self.compile_command[-1]],
                 {"SLUICE_RANK": str(rank), "SLUICE_SIZE": str(ranks), "SLUICE_ROOT": root,
                  "SLUICE_TRANSPORT": transport},
                 cores()[rank] if pinned else None) for rank in range(ranks)]


def idle_share(seconds=0.3):
    """How idle the machine was over the next moment."""
    def read():
        with open("/proc/stat") as stat:
            fields = [int(field) for field in stat.readline().split()[1:9]]
        return fields[3] + fields[4], sum(fields)

    idle, total = read()
    time.sleep(seconds)
    idle_later, total_later = read()
    return (idle_later - idle) / max(1, total_later - total)


def wait_until_idle(limit):
    deadline = time.monotonic() + limit
    share = idle_share()
    while share < IDLE_SHARE and time.monotonic() < deadline:
        share = idle_share()
    return share


def launch(library, transport, ranks, arguments, limit):
    """Runs the library once. Returns the lines of rank 0, or raises RuntimeError with the reason."""
    with tempfile.TemporaryDirectory() as directory:
        processes = []
        for command, extra, core in library.commands(transport, ranks, directory):
            pin = (lambda c=core: os.sched_setaffinity(0, {c})) if core is not None else None
            environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
            # The caller may try settings of ours: COMPARE_SLUICE_TCP_ENGINE=epoll and the like.
            environment.update({k[len("COMPARE_"):]: v for k, v in os.environ.items()
                                if k.startswith("COMPARE_SLUICE_")})
            environment.update(extra)
            processes.append(subprocess.Popen(command + arguments, env=environment, preexec_fn=pin,
                                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE, text=True,
                                              # A session would be a group of the scheduler of its own, and yields
                                              # between ranks without effect; mpirun's ranks share one.
                                              process_group=0))
        text, complaint, deadline = "", "", time.monotonic() + limit
        try:
            for process in processes:
                out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
                text, complaint = text + out, complaint + err
        except subprocess.TimeoutExpired:
            complaint = f"no end within {limit} s"
        finally:
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.communicate()
        if any(process.returncode != 0 for process in processes):
            lines = [line for line in complaint.strip().splitlines() if line.strip(" -")]
            raise RuntimeError(lines[0] if lines else "ended with an error")
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class Race:
    """One collective, transport and number of ranks."""

    def __init__(self, args, libraries, coll, transport, ranks):
        self.args, self.coll, self.transport, self.ranks = args, coll, transport, ranks
        self.libraries = [l for l in libraries if transport in l.transports and l.reason is None]
        self.sizes = sizes_of(args, coll)
        self.rounds = {l.name: {size: [] for size in self.sizes} for l in self.libraries}
        self.errors, self.busy, self.launches = {}, 0, 0

    def run(self):
        arguments = [self.coll, ",".join(map(str, self.sizes)), str(self.args.budget_ms)]
        if self.args.compute:
            arguments += [str(self.args.compute), str(self.args.touch)]
        for number in range(self.args.rounds):
            for library in self.libraries:
                if library.name in self.errors:
                    continue
                if sys.stderr.isatty():
                    print(f"\r\x1b[K{self.title()}: round {number + 1}, {library.name}", end="",
                          file=sys.stderr, flush=True)
                self.busy += wait_until_idle(self.args.idle_wait) < IDLE_SHARE
                self.launches += 1
                self.run_once(library, arguments)
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)

    def run_once(self, library, arguments):
        try:
            lines = launch(library, self.transport, self.ranks, arguments, self.args.limit)
        except RuntimeError as error:
            self.errors[library.name] = str(error)
            return
        if len(lines) != len(self.sizes):
            self.errors[library.name] = f"{len(lines)} results for {len(self.sizes)} sizes"
        for line in lines:
            if line["wrong"]:
                self.errors[library.name] = f"{line['wrong']} wrong elements at {line['bytes']} bytes"
            self.rounds[library.name][line["bytes"]].append(line["p50_us"])

    def title(self):
        after = f", after {self.args.compute:g} us of computing in {self.args.touch} KiB" if self.args.compute else ""
        return f"{self.coll}, {self.transport}, {self.ranks} ranks{after}"

    def rows(self):
        """[{bytes, figures: {library: [median, min, max]}, best, ratio}]"""
        rows = []
        for size in self.sizes:
            figures = {}
            for library in self.libraries:
                values = self.rounds[library.name][size]
                if values and library.name not in self.errors:
                    figures[library.name] = [statistics.median(values), min(values), max(values)]
            others = {name: f[0] for name, f in figures.items() if name != "sluice" and not name.endswith("+shim")}
            best = min(others, key=others.get) if others else None
            ours = figures.get("sluice")
            ratio = others[best] / ours[0] if best and ours and ours[0] > 0 else None
            rows.append({"bytes": size, "figures": figures, "best": best, "ratio": ratio})
        return rows

    def show(self):
        pinned = "one rank per core" if self.ranks <= len(cores()) else f"on {len(cores())} cores"
        print(f"\n{self.title()} ({pinned}): median µs (lowest-highest of {self.args.rounds} rounds)")
        names = [l.name for l in self.libraries if l.name not in self.errors]
        print(f"{'bytes':>10}" + "".join(f"{name:>27}" for name in names) + "  best/ours")
        for row in self.rows():
            line = f"{row['bytes']:>10}"
            for name in names:
                figure = row["figures"].get(name)
                line += f"{span(figure):>27}" if figure else f"{'-':>27}"
            print(line + (f"  {row['ratio']:8.2f}x" if row["ratio"] else f"  {'-':>9}"))
        for name, error in self.errors.items():
            print(f"  {name} is out: {error}")
        if self.busy:
            print(f"  {self.busy} of {self.launches} runs began on a machine less than 95 % idle: "
                  "take the figures as rough")
        sys.stdout.flush()


def span(figure):
    def digits(value):
        return f"{value:.2f}" if value < 100 else f"{value:.0f}"

    return f"{digits(figure[0])} ({digits(figure[1])}-{digits(figure[2])})"


def parse_size(text):
    units = {"k": KIB, "m": MIB, "g": 1024 * MIB}
    return int(float(text[:-1]) * units[text[-1].lower()]) if text[-1].isalpha() else int(text)


def sizes_of(args, coll):
    if coll == "barrier":
        return [0]
    if args.sizes:
        return args.sizes
    sizes = SIZES if coll == "allreduce" else OTHER_SIZES
    return sizes[:3] if args.quick else sizes


def machine():
    with open("/proc/cpuinfo") as info:
        model = next((l.split(":")[1].strip() for l in info if l.startswith("model name")), "?")
    return f"{model}, {len(cores())} cores, Linux {platform.release()}"


def parse_arguments():
    def words(text):
        return text.split(",")

    parser = argparse.ArgumentParser(prog="./dev compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coll", type=words, default=["allreduce"],
                        help=f"{','.join(COLLS)} or all (default allreduce)")
    parser.add_argument("--transport", type=words, default=["shm", "tcp"])
    parser.add_argument("--ranks", type=lambda t: [int(r) for r in t.split(",")], default=[2, 4])
    parser.add_argument("--sizes", type=lambda t: [parse_size(s) for s in t.split(",")],
                        help="such as 8,64k,1M (default 8,64k,1M,16M,64M; others 1k,1M,16M)")
    parser.add_argument("--peers", type=words, 
                        help="only these: openmpi,openmpi-ucx,mpich,ucc,gloo; and openmpi+shim,mpich+shim: the same "
                             "programs under libsluice-preload.so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget-ms", type=float, default=100, help="measuring time per size and round")
    parser.add_argument("--compute", type=float, default=0, metavar="US",
                        help="every rank computes for US of processor time before each call, as programs do; figures "
                             "are of both together")
    parser.add_argument("--touch", type=int, default=1024, metavar="KIB", help="memory that the computing goes over")
    parser.add_argument("--hpcc", action="store_true",
                        help="HPC Challenge instead, as it is and under the shim (hpcc.py has options of its own)")
    parser.add_argument("--quick", action="store_true", help="3 rounds, sizes to 1 MiB")
    parser.add_argument("--json", metavar="FILE", help="write every round's figures too")
    parser.add_argument("--idle-wait", type=float, default=5,
                        help="seconds to wait for a machine 95 %% idle before each run")
    parser.add_argument("--limit", type=float, default=60, help="seconds one run may take")
    args = parser.parse_args()
    args.rounds = 3 if args.quick else args.rounds
    args.coll = COLLS if args.coll == ["all"] else args.coll
    unknown = set(args.coll) - set(COLLS)
    if unknown:
        parser.error(f"no collective {', '.join(unknown)}: {', '.join(COLLS)} or all")
    return args


def main():
    args = parse_arguments()
    if args.hpcc:
        return subprocess.run([os.path.join(HERE, "hpcc.py"), "--rounds", str(args.rounds)]).returncode
    os.makedirs(OUT, exist_ok=True)
    peers = [OpenMpi("openmpi", "ob1"), OpenMpi("openmpi-ucx", "ucx"), Mpich("mpich"), Ucc(), Gloo()]
    shims = [OpenMpi("openmpi+shim", "ob1", True), Mpich("mpich+shim", True)]
    libraries = [Sluice()] + [p for p in peers if not args.peers or p.name in args.peers]
    libraries += [s for s in shims if s.name in (args.peers or [])]
    print(f"{machine()}; every size {args.budget_ms:g} ms a round")
    for library in libraries:
        library.build()
        if library.reason:
            print(f"  {library.name} is out: {library.reason}")
    results, failed = [], False
    for coll in args.coll:
        for transport in args.transport:
            for ranks in args.ranks:
                race = Race(args, libraries, coll, transport, ranks)
                race.run()
                race.show()
                failed |= "sluice" in race.errors
                results.append({"coll": coll, "transport": transport, "ranks": ranks,
                                "rows": race.rows(), "rounds_us": race.rounds, "errors": race.errors,
                                "busy_runs": race.busy, "runs": race.launches})
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"machine": machine(), "results": results}, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
