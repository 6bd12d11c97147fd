#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sluicectl diagnose says of PyTorch jobs over NCCL on a real GPU: four ranks share it, each a host of its own to NCCL, and
train by DistributedDataParallel over the plugin. One rank is stopped, killed, asleep, slow, its GPU does not come back, or it
calls something else; NCCL RAS, the files of the plugin's profiler, PyTorch's Flight Recorder and Kineto's traces have to tell.
usage: hw_diagnose.py PLUGIN.so SLUICECTL [CASE...]     HW_DIAGNOSE_KEEP=FOLDER: what was read is copied there"""
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from hw_torch_gpu import find_torch

RANKS = 4
READY = 15          # steps before anything happens
TRACED = 25         # steps in Kineto's traces
WORK_S, SLOW_S = 0.01, 0.08  # a step's work
STALL_S = 4
WATCHDOG_S = 20     # PyTorch's own timeout, after which it writes its Flight Recorder


# A fault of one rank, and what each source has to say of it; none: that nothing is wrong. Sources that are not named cannot know:
# RAS counts calls, whose kernels may have begun or not, and Flight Recorder has a file only of a process that still wrote one.
CASES = {
    "healthy": {"events": None, "ras": None, "kineto": None},
    "stopped": {"events": "host_stalled", "ras": "dead", "flight": "dead"},
    "killed": {"events": "dead", "ras": "dead"},
    "asleep": {"events": "host_stalled", "ras": "host_stalled", "flight": "host_stalled"},
    "gpu_stuck": {"events": "gpu_stuck", "flight": "gpu_stuck"},
    "other_call": {"events": "mismatch", "ras": "mismatch", "flight": "mismatch"},
    "slow": {"events": "slow_rank", "kineto": "slow_rank"},
}
GUILTY = 2
# Whose time is compared has to have the GPU at the same time as the others, not in turn: that takes NVIDIA's MPS.
AT_ONCE = ["healthy", "slow"]


# ---- one rank ----

def spin(seconds):
    """A kernel that takes so long."""
    import torch

    torch.cuda._sleep(int(seconds * getattr(torch.cuda.get_device_properties(0), "clock_rate", 1.98e6) * 1e3))  # kHz


def misbehave(case):
    import torch
    import torch.distributed as dist

    if case == "asleep":
        time.sleep(600)
    elif case == "gpu_stuck":
        spin(120)
    elif case == "other_call":
        dist.all_gather(list(torch.zeros(4, 1000, device="cuda")), torch.zeros(1000, device="cuda"))


def rank_main(case, folder):
    import datetime
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    guilty = rank == GUILTY and case != "healthy"
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=WATCHDOG_S))
    net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 16)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step():
        x = torch.randn(64, 512, device="cuda")
        if case in ("healthy", "slow"):
            spin(SLOW_S if guilty else WORK_S)
        loss = torch.nn.functional.cross_entropy(model(x), x[:, :16].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    for _ in range(READY):
        step()
    if case in ("healthy", "slow"):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            for _ in range(TRACED):
                step()
                profile.step()
        profile.export_chrome_trace(f"{folder}/kineto-{rank}.json.gz")
    with open(f"{folder}/ready-{rank}", "w", encoding="utf8"):
        pass
    if guilty:
        time.sleep(1)  # so that the others wait
        misbehave(case)
    end = time.monotonic() + 120
    while time.monotonic() < end:
        step()


# ---- the job ----

class Job:
    def __init__(self, case, plugin, folder):
        self.folder = folder
        self.ras_port, port = free_port(), free_port()
        env = dict(os.environ, WORLD_SIZE=str(RANKS), LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                   NCCL_NET="Sluice", NCCL_NET_PLUGIN=plugin, NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_MAX_CTAS="2",
                   NCCL_PROFILER_PLUGIN=plugin, SLUICE_NCCL_PROFILE="kernels", SLUICE_TRANSPORT="tcp",
                   NCCL_RAS_ADDR=f"localhost:{self.ras_port}", TORCH_FR_BUFFER_SIZE="2000", TORCH_NCCL_DUMP_ON_TIMEOUT="1",
                   TORCH_NCCL_ENABLE_TIMING="1", TORCH_FR_DUMP_TEMP_FILE=f"{folder}/flight_", OMP_NUM_THREADS="1")
        self.ranks = []
        for rank in range(RANKS):
            with open(f"{folder}/log-{rank}", "w", encoding="utf8") as log:
                self.ranks.append(subprocess.Popen([sys.executable, __file__, "--rank", case, folder], stdout=log, stderr=subprocess.STDOUT,
                                                   env=dict(env, RANK=str(rank), NCCL_HOSTID=f"h{rank}")))

    def wait_ready(self):
        end = time.monotonic() + 90
        while len(glob.glob(f"{self.folder}/ready-*")) < RANKS:
            ended = [rank for rank, process in enumerate(self.ranks) if process.poll() is not None]
            assert not ended and time.monotonic() < end, f"ranks {ended} ended, or 90 s passed:\n{self.logs()}"
            time.sleep(0.05)

    def events(self):
        return [name for process in self.ranks for name in glob.glob(f"/dev/shm/sluice-nccl-{process.pid}-*")]

    def logs(self):
        text = ""
        for rank in range(RANKS):
            with open(f"{self.folder}/log-{rank}", encoding="utf8") as log:
                text += f"rank {rank}: ..." + log.read()[-1200:] + "\n"
        return text

    def listener(self):
        """The rank that answers for RAS, whose port is the first one's of a host."""
        with open("/proc/net/tcp", encoding="utf8") as sockets:
            of = {line.split()[9] for line in sockets if line.split()[1].endswith(f":{self.ras_port:04X}") and line.split()[3] == "0A"}
        for rank, process in enumerate(self.ranks):
            for fd in glob.glob(f"/proc/{process.pid}/fd/*"):
                try:
                    if os.readlink(fd)[8:-1] in of:
                        return rank
                except OSError:
                    pass
        raise AssertionError(f"no rank listens for RAS at port {self.ras_port}")

    def end(self):
        for process in self.ranks:
            process.kill()
            process.wait()
        for name in self.events():
            os.unlink(name)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# ---- what diagnose says ----

def diagnose(ctl, *args, kill_after=60):
    """Its verdicts, and the seconds it took."""
    begun = time.monotonic()
    try:
        done = subprocess.run([ctl, "diagnose", "-o", "json", "--stall", str(STALL_S), *args], capture_output=True, text=True, timeout=kill_after, check=False)
    except subprocess.TimeoutExpired:
        return [], kill_after, "it did not end"
    try:
        verdicts = json.loads(done.stdout)["verdicts"]
    except (ValueError, KeyError):
        verdicts = []
    return verdicts, time.monotonic() - begun, done.stderr.strip()


def in_words(verdicts):
    said = []
    for verdict in verdicts:
        who = verdict["accused"]
        others = ["/".join(str(one.get(key)) for key in ("rank", "from", "to") if key in one) for one in verdict.get("others", [])]
        said.append(f"{verdict['class']} {who['kind']} {who.get('rank', (who.get('from'), who.get('to')))}" + (f" or {others}" if others else ""))
    return said


def is_right(case, guilty, source, verdicts):
    """Whether the source said what it had to; None where it has to say nothing."""
    if source not in CASES[case]:
        return None
    wanted = CASES[case][source]
    if wanted is None:
        return all(one["class"] == "not_hung" for one in verdicts)
    return [(one["class"], one["accused"].get("rank", one["accused"].get("from"))) for one in verdicts] == [(wanted, guilty)]


def ask_sources(case, job, ctl, guilty, hurt_at):
    """Whether all said what they had to; prints what each said."""
    good = True

    def ask(source, *args):
        nonlocal good
        verdicts, seconds, errors = diagnose(ctl, *args)
        right = is_right(case, guilty, source, verdicts)
        good &= right is not False
        mark = {None: "", True: " (right)", False: " (WRONG)"}[right]
        print(f"# {case} of rank {guilty}, {source}: {'; '.join(in_words(verdicts)) or 'nothing'} after {seconds:.1f} s{mark}", flush=True)
        for line in errors.splitlines()[:4]:
            print(f"#   {line}")
        for line in [line for one in verdicts for line in one["evidence"][:6]]:
            print(f"#   - {line}", flush=True)

    if case in ("healthy", "slow"):
        ask("kineto", *sorted(glob.glob(f"{job.folder}/kineto-*")))
    if "ras" in CASES[case]:
        ask("ras", "--live", f"ras:localhost:{job.ras_port}", "--for", "9" if case == "healthy" else "25")
    time.sleep(max(0, hurt_at + STALL_S + 2 - time.monotonic()))
    ask("events", *job.events())
    if "flight" in CASES[case]:
        wanted = [f"{job.folder}/flight_{rank}" for rank in range(RANKS) if case != "stopped" or rank != guilty]
        end = time.monotonic() + WATCHDOG_S + 15
        while not all(map(os.path.exists, wanted)) and time.monotonic() < end:
            time.sleep(0.2)
        time.sleep(1)
        ask("flight", "--at", str(int(time.time())), *sorted(glob.glob(f"{job.folder}/flight_*")))
    return good


def share_gpu(folder, on):
    """MPS of its own, for jobs that are started while it is on."""
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = folder
    subprocess.run(["nvidia-cuda-mps-control"] + (["-d"] if on else []), input=None if on else "quit\n", text=True, check=True, timeout=30)
    if not on:
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]


def run(case, plugin, ctl):
    if case not in AT_ONCE:
        return run_job(case, plugin, ctl)
    with tempfile.TemporaryDirectory() as folder:
        share_gpu(folder, True)
        try:
            return run_job(case, plugin, ctl)
        finally:
            share_gpu(folder, False)


def run_job(case, plugin, ctl):
    with tempfile.TemporaryDirectory() as folder:
        job = Job(case, plugin, folder)
        try:
            job.wait_ready()
            # Who answers for RAS is not hurt from outside: nobody would answer.
            guilty = GUILTY if case not in ("stopped", "killed") or job.listener() != GUILTY else GUILTY - 1
            if case == "stopped":
                job.ranks[guilty].send_signal(signal.SIGSTOP)
            elif case == "killed":
                job.ranks[guilty].kill()
            good = ask_sources(case, job, ctl, guilty, time.monotonic() + 1)
            if not good:
                print("".join(f"#   {line}\n" for line in job.logs().splitlines()), end="", flush=True)
            return good
        finally:
            job.end()
            if os.environ.get("HW_DIAGNOSE_KEEP"):
                shutil.copytree(folder, f"{os.environ['HW_DIAGNOSE_KEEP']}/{case}")


def main(plugin, ctl, cases):
    torch = find_torch()
    if torch is None:
        return 0
    print(f"# torch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, {torch.cuda.get_device_name()}")
    failed = 0
    for number, case in enumerate(cases, 1):
        if case in AT_ONCE and shutil.which("nvidia-cuda-mps-control") is None:
            print(f"ok {number} - diagnose_{case} # SKIP there is no nvidia-cuda-mps-control, and by turns on one GPU ranks differ")
            continue
        try:
            good = run(case, plugin, ctl)
        except AssertionError as error:
            good = False
            print("".join(f"# {line}\n" for line in str(error).splitlines()), end="")
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - diagnose_{case}", flush=True)
    print(f"1..{len(cases)}")
    return failed != 0


if sys.argv[1:2] == ["--rank"]:
    rank_main(*sys.argv[2:])
else:
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:] or list(CASES)))
