#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the node agent costs beside a benchmark: its processor time and memory, by source too, and what the benchmark notices.

usage: bench/monitor_cost.py [--build DIR] [--tree TAR] [--ranks N] [--runs N] [--seconds N] [--json FILE] [--set SECTION.KEY=VALUE]...

The agent reads 8 RDMA ports of a tree of files whose counters move once a second (--tree: a recorded /sys/class/infiniband, as a
tar file; else one is made), beside N ranks (64) of a job that does little. sluice-bench with 2 ranks runs with the agent and without
it, in turns, --runs times each (10), and for --seconds (60) with the agent for its share of a processor.
"""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

COUNTERS = ["symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors",
            "port_xmit_discards", "port_xmit_constraint_errors", "port_rcv_constraint_errors", "local_link_integrity_errors",
            "excessive_buffer_overrun_errors", "VL15_dropped", "port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "port_xmit_wait"]
HW_COUNTERS = ["out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "duplicate_request", "out_of_buffer", "implied_nak_seq_err",
               "roce_slow_restart", "rx_icrc_encapsulated", "req_cqe_error", "resp_cqe_error"]
MOVING = ["port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets"]
# By a process of its own, which is not ours to measure; the same files, without a copy.
MOVER = """
import glob, sys, time
paths = [p for name in sys.argv[2:] for p in glob.glob(sys.argv[1] + "/*/ports/1/counters/" + name)]
files = [open(p, "r+") for p in paths]
values = [int(f.read().split()[0]) for f in files]
while True:
    time.sleep(1)
    for i, f in enumerate(files):
        values[i] += 1000000
        f.seek(0)
        f.write(f"{values[i]}\\n")
        f.flush()
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text + "\n")


def make_tree(root, tar):
    if tar:
        subprocess.run(["tar", "-xzf", tar, "-C", root, "--strip-components=1"], check=True)
        for device in sorted(os.listdir(root))[8:]:
            shutil.rmtree(os.path.join(root, device))
        return
    for i in range(8):
        port = f"{root}/mlx5_{i}/ports/1"
        write(f"{port}/state", "4: ACTIVE")
        write(f"{port}/phys_state", "5: LinkUp")
        write(f"{port}/rate", "400 Gb/sec (4X NDR)")
        write(f"{port}/link_layer", "InfiniBand")
        for name in COUNTERS:
            write(f"{port}/counters/{name}", "1000000" if name in MOVING else "0")
        for name in HW_COUNTERS:
            write(f"{port}/hw_counters/{name}", "0")


def family(pid):
    """The agent, and the processes that it keeps for what may hang."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [pid] + [int(child) for child in file.read().split()]


def run_ns(pid):
    """On a processor, all threads of all of them."""
    total = 0
    for process in family(pid):
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
    return total


def memory_kib(pid):
    """Resident now and at most; pages that they share are in it once for each."""
    resident = highest = 0
    for process in family(pid):
        with open(f"/proc/{process}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        resident += int(fields["VmRSS"].split()[0])
        highest += int(fields["VmHWM"].split()[0])
    return resident, highest


class Agent:
    def __init__(self, args, folder, tree):
        self.textfile = os.path.join(folder, "agent.prom")
        settings = {"store.path": os.path.join(folder, "state.db"), "output.events": os.path.join(folder, "events"), "output.textfile": self.textfile,
                    "sources.rdma_root": tree, "sources.kmsg": "auto"}
        if "#socket =" in subprocess.run([os.path.join(args.build, "tools/sluiced/sluiced"), "--print-config"], capture_output=True, text=True).stdout:
            settings["api.socket"] = os.path.join(folder, "api.sock")
        for setting in args.set or []:
            key, _, value = setting.partition("=")
            settings[key] = value
        program = os.path.join(args.build, "tools/sluiced/sluiced")
        self.config = os.path.join(folder, "conf")
        with open(self.config, "w") as file:
            for section in sorted({key.split(".")[0] for key in settings}):
                file.write(f"[{section}]\n" + "".join(f"{key.split('.')[1]} = {value}\n" for key, value in settings.items() if key.startswith(section + ".")))
        self.program, self.process, self.errors = program, None, open(os.path.join(folder, "err"), "ab")

    def start(self):
        self.process = subprocess.Popen([self.program, "--config", self.config], stderr=self.errors)
        time.sleep(2.5)
        if self.process.poll() is not None:
            sys.exit(f"monitor_cost.py: sluiced ended: {open(self.errors.name).read()}")

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def sources(self):
        with open(self.textfile) as file:
            text = file.read()
        return {f"{name} ({how})": float(value) for name, how, value in
                re.findall(r'^sluice_agent_source_seconds_total\{probe="([^"]*)",how="([^"]*)"\} (\S+)', text, re.M)}


def bench(args, options):
    command = [os.path.join(args.build, "tools/bench/sluice-bench"), "-n", "2", "--json", "-"] + options
    said = subprocess.run(command, capture_output=True, text=True, env={k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")})
    if said.returncode != 0:
        sys.exit(f"monitor_cost.py: sluice-bench failed: {said.stderr[-300:]}")
    rows = json.loads(said.stdout[said.stdout.index("{"):])["rows"]
    return {row["size_bytes"]: row["out_of_place"]["ranks"][0]["p50_us"] for row in rows}


def start_ranks(args, folder):
    ranks = []
    for rank in range(args.ranks):
        env = {**{k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}, "SLUICE_RANK": str(rank), "SLUICE_SIZE": str(args.ranks),
               "SLUICE_ROOT": "127.0.0.1:7799", "SLUICE_JOB": "cost", "SLUICE_SECRET": "only-for-this-test", "SLUICE_TRANSPORT": "shm", "SLUICE_SPIN_US": "0"}
        ranks.append(subprocess.Popen([os.path.join(args.build, "tests/monitor/monitor_rank"), "--bytes", "8", "--sleep-us", "1000000"], env=env,
                                      stdout=open(os.path.join(folder, f"rank{rank}"), "wb"), stderr=subprocess.STDOUT))
    deadline = time.monotonic() + 60
    while any(b"ready" not in open(os.path.join(folder, f"rank{rank}"), "rb").read() for rank in range(args.ranks)):
        if time.monotonic() > deadline or any(rank.poll() is not None for rank in ranks):
            end_ranks(ranks)
            sys.exit("monitor_cost.py: the ranks did not begin: " + open(os.path.join(folder, "rank0")).read()[-300:])
        time.sleep(0.2)
    return ranks


def end_ranks(ranks):
    if ranks and ranks[0].poll() is None:
        ranks[0].send_signal(signal.SIGTERM)
    for rank in ranks:
        try:
            rank.wait(10)
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()


def middle(values):
    return statistics.median(values)


def spread(values):
    """Half of the distance of the quartiles, in percent of the median; of one value 0."""
    if len(values) < 2:
        return 0.0
    quartiles = statistics.quantiles(values, n=4)
    return 50 * (quartiles[2] - quartiles[0]) / middle(values)


def beside_a_benchmark(args, agent, options):
    """In turns, so that what else the machine does meets both."""
    times = {"without": {}, "with": {}}
    for turn in range(2 * args.runs):
        which = ("without", "with") if turn // 2 % 2 == 0 else ("with", "without")
        which = which[turn % 2]
        if which == "with":
            agent.start()
        for size, us in bench(args, options).items():
            times[which].setdefault(size, []).append(us)
        if which == "with":
            agent.stop()
    return times


def share_of_a_core(args, agent):
    agent.start()
    pid, before, sources_before, since = agent.process.pid, run_ns(agent.process.pid), agent.sources(), time.monotonic()
    worker = subprocess.Popen([os.path.join(args.build, "tools/bench/sluice-bench"), "-n", "2", "-b", "1M", "-e", "1M", "-i", "100000000"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(args.seconds)
    seconds = time.monotonic() - since
    used, sources = (run_ns(pid) - before) / 1e9, agent.sources()
    resident, highest = memory_kib(pid)
    worker.terminate()
    worker.wait()
    agent.stop()
    return {"seconds": seconds, "cpu_percent": 100 * used / seconds, "resident_mib": resident / 1024, "highest_mib": highest / 1024,
            "us_per_second": {name: round(1e6 * (value - sources_before.get(name, 0)) / seconds, 1) for name, value in sources.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build"))
    parser.add_argument("--tree")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--set", action="append")
    parser.add_argument("--json")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="sluice-cost-")
    tree = os.path.join(folder, "infiniband")
    os.makedirs(tree)
    make_tree(tree, args.tree)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    mover = subprocess.Popen([sys.executable, "-c", MOVER, tree] + MOVING)
    ranks = []
    try:
        ranks = start_ranks(args, folder)
        agent = Agent(args, folder, tree)
        cost = share_of_a_core(args, agent)
        print(f"the agent, {cost['seconds']:.0f} s beside {args.ranks} ranks and a benchmark: {cost['cpu_percent']:.2f} % of a core, "
              f"{cost['resident_mib']:.1f} MiB resident, {cost['highest_mib']:.1f} at most", flush=True)
        for name, us in sorted(cost["us_per_second"].items(), key=lambda item: -item[1]):
            print(f"  {name:40} {us:8.1f} us a second", flush=True)
        times = {}
        for name, options in (("shm", ["-b", "8", "-e", "16M", "-f", "128", "-i", "300"]), ("tcp", ["-t", "tcp", "-b", "8", "-e", "16M", "-f", "128", "-i", "100"])):
            times[name] = beside_a_benchmark(args, agent, options)
            print(f"\nallreduce of 2 ranks over {name}, p50 in us, median of {args.runs} runs (half the distance of the quartiles)")
            print(f"{'bytes':>10} {'without':>12} {'':>8} {'with':>12} {'':>8} {'change':>8}")
            for size in times[name]["with"]:
                a, b = times[name]["without"][size], times[name]["with"][size]
                print(f"{size:10} {middle(a):12.2f} {spread(a):6.1f} % {middle(b):12.2f} {spread(b):6.1f} % {100 * (middle(b) / middle(a) - 1):+6.1f} %", flush=True)
        if args.json:
            with open(args.json, "w") as file:
                json.dump({"cost": cost, "times": times}, file)
    finally:
        end_ranks(ranks)
        mover.kill()
        mover.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
