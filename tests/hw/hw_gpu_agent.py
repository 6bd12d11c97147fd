#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The agent on a host with a GPU and its driver: what NVML's process reads against nvidia-smi, an XID that a program of this
test causes, and a reader that is stopped. Says why it skips where there is no GPU.
usage: hw_gpu_agent.py SLUICED HW_GPU_FAULT"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sluiced, fault = sys.argv[1:]
PERIOD_MS = 100     # of the agent; NVML is read each fifth time
folder = tempfile.mkdtemp()


class Skip(Exception):
    pass


def until(what, ask, seconds=20):
    """Asks twenty times a second, and returns the first answer that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


def periods(count):
    """Waits for so many periods of the agent, each of which writes the text file anew."""
    for _ in range(count):
        before = os.stat(f"{folder}/sluice.prom").st_mtime_ns
        until("another period", lambda before=before: os.stat(f"{folder}/sluice.prom").st_mtime_ns != before)


def sources(*on):
    """Lines of [sources]: all are off but these."""
    printed = subprocess.run([sluiced, "--print-config"], capture_output=True, text=True, check=True).stdout
    keys = re.findall(r"# on; off; auto: .*\n#(\w+) = ", printed.split("[sources]\n")[1].split("\n[")[0])
    return "\n".join(f"{key} = {'on' if key in on else 'off'}" for key in keys)


def begin():
    with open(f"{folder}/conf", "w", encoding="utf8") as conf:
        conf.write(f"""[store]
path = {folder}/state.db
[output]
events = {folder}/events
textfile = {folder}/sluice.prom
[sources]
period_ms = {PERIOD_MS}
{sources("gpu", "kmsg")}
[api]
socket =
""")
    with open(f"{folder}/log", "wb") as log:
        return subprocess.Popen([sluiced, "--config", f"{folder}/conf"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)


def events(**keys):
    if not os.path.exists(f"{folder}/events"):
        return []
    with open(f"{folder}/events", encoding="utf8") as lines:
        found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [one for one in found if all(one.get(key) == value for key, value in keys.items())]


def metric(name, **labels):
    """Its value, or None."""
    if not os.path.exists(f"{folder}/sluice.prom"):
        return None
    with open(f"{folder}/sluice.prom", encoding="utf8") as lines:
        for line in lines:
            at = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)\n", line)
            if at and at[1] == name and dict(re.findall(r'(\w+)="([^"]*)"', at[2] or "")) == labels:
                return float(at[3])
    return None


def smi():
    """Of each GPU, by its PCI address as the kernel writes it: what nvidia-smi says."""
    keys = ["pci.bus_id", "temperature.gpu", "ecc.errors.uncorrected.volatile.total"]
    try:
        text = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(keys)}", "--format=csv,noheader,nounits"], capture_output=True,
                              text=True, check=True, timeout=60).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise Skip(f"nvidia-smi says nothing: {error}") from error
    return {line.split(", ")[0][4:].lower(): line.split(", ")[1:] for line in text.splitlines()}


def reader(agent):
    """The process that talks to NVML; 0: none."""
    with open(f"/proc/{agent.pid}/task/{agent.pid}/children", encoding="utf8") as children:
        for pid in children.read().split():
            try:
                with open(f"/proc/{pid}/comm", encoding="utf8") as name:
                    if name.read() == "sluiced-nvml\n":
                        return int(pid)
            except FileNotFoundError:
                pass
    return 0


def what_is_read_is_what_nvidia_smi_says(_agent):
    for gpu, (temperature, ecc) in smi().items():
        until(f"a temperature of {gpu}", lambda gpu=gpu: metric("sluice_gpu_temperature_celsius", gpu=gpu))
        assert abs(metric("sluice_gpu_temperature_celsius", gpu=gpu) - float(temperature)) <= 10, temperature
        if ecc.isdigit():
            assert metric("sluice_gpu_errors_total", gpu=gpu, kind="ecc_uncorrected") >= 0
    assert metric("sluice_probe_up", probe="gpu", how="nvml") == 1


def a_healthy_gpu_is_accused_of_nothing(_agent):
    periods(3 * 5)
    assert events(kind="gpu") == [], events(kind="gpu")


def kernel_says_xids():
    with open("/dev/kmsg", encoding="utf8", errors="replace") as log:
        os.set_blocking(log.fileno(), False)
        try:
            return any("NVRM: Xid" in line for line in log)
        except OSError:
            return False


def an_error_of_a_program_is_told_with_its_xid(_agent):
    done = subprocess.run([fault], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 77:
        raise Skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout
    if not until("the driver's line in the log", lambda: kernel_says_xids() or events(kind="gpu"), 5):
        raise Skip("the driver's messages are not in this kernel's log")
    told = until("an event of the GPU", lambda: events(kind="gpu", check="gpu_error"))
    assert "Xid" in told[0]["text"] and told[0]["subject"] in smi(), told
    print(f"# {told[0]['subject']}: {told[0]['text']}")
    assert events(kind="gpu", check="gpu_fatal") == []


def a_reader_that_hangs_is_told_and_begun_anew(agent):
    first = until("NVML's process", lambda: reader(agent))
    begun = time.monotonic()
    os.kill(first, signal.SIGSTOP)
    until("that the driver does not answer", lambda: [one for one in events(check="gpu_driver") if one["to"] in ("suspect", "bad")])
    print(f"# told after {time.monotonic() - begun:.1f} s")
    second = until("another process of NVML", lambda: reader(agent) not in (0, first) and reader(agent))
    until("that it answers again", lambda: events(check="gpu_driver")[-1]["to"] in ("ok", "recovering"), 30)
    assert second != first and metric("sluice_gpu_reader_restarts_total") >= 1


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="utf8") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reading_costs_little(agent):
    pid = until("NVML's process", lambda: reader(agent))
    before, begun = cpu_s(pid), time.monotonic()
    periods(10 * 5)
    part = (cpu_s(pid) - before) / (time.monotonic() - begun)
    with open(f"/proc/{pid}/status", encoding="utf8") as status:
        memory = re.search(r"VmRSS:\s+(\d+)", status.read())[1]
    print(f"# NVML's process: {100 * part:.2f} % of a core at {1000 / PERIOD_MS / 5:.0f} readings a second, {int(memory) / 1024:.1f} MiB")
    assert part < 0.1


def main():
    cases = [what_is_read_is_what_nvidia_smi_says, a_healthy_gpu_is_accused_of_nothing, reading_costs_little,
             an_error_of_a_program_is_told_with_its_xid, a_reader_that_hangs_is_told_and_begun_anew]
    if not os.path.exists("/dev/nvidiactl"):
        print("1..0 # SKIP there is no NVIDIA driver here: no /dev/nvidiactl")
        return 0
    failed, agent = 0, begin()
    try:
        for number, case in enumerate(cases, 1):
            try:
                case(agent)
                print(f"ok {number} - {case.__name__}", flush=True)
            except Skip as why:
                print(f"ok {number} - {case.__name__} # SKIP {why}", flush=True)
            except Exception:  # pylint: disable=broad-except
                failed += 1
                print(f"not ok {number} - {case.__name__}")
                with open(f"{folder}/log", encoding="utf8") as log:
                    for line in (traceback.format_exc() + log.read()[-2000:] + json.dumps(events(), indent=1)[-4000:]).splitlines():
                        print(f"# {line}", flush=True)
    finally:
        agent.terminate()
        agent.wait(20)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"1..{len(cases)}")
    return failed != 0


sys.exit(main())
