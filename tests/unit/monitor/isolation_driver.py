# SPDX-License-Identifier: Apache-2.0
"""What the tests of isolation share: the driver as a child that is told what happens, and TAP."""
import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import time
import traceback


class Driver:
    """isolation_driver over a folder of its own; what it tells is kept as it comes."""

    def __init__(self, program, folder, environment=None, **keys):
        self.program, self.folder, self.environment = program, folder, environment
        os.makedirs(folder, exist_ok=True)
        self.configure(**keys)
        self.child, self.lines, self.metric_lines = None, [], None

    def configure(self, **keys):
        with open(self.folder + "/conf", "w", encoding="ascii") as conf:
            conf.write(f"[store]\npath = {self.folder}/state.db\n[isolate]\n")
            for key, value in keys.items():
                conf.write(f"{key} = {value}\n")

    def begin(self):
        self.lines, self.metric_lines = [], None
        self.child = subprocess.Popen([self.program, self.folder + "/conf"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True, bufsize=1,
                                      env={**os.environ, **(self.environment or {})})
        threading.Thread(target=self._read, args=(self.child,), daemon=True).start()
        return self

    def _read(self, child):
        pending = []
        for line in child.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))
            elif line == "# EOF\n":
                self.metric_lines, pending = pending, []
            else:
                pending.append(line)

    def say(self, *commands):
        for command in commands:
            self.child.stdin.write(command + "\n")
        self.child.stdin.flush()

    def metric(self, sample):
        self.metric_lines = None
        self.say("metrics")
        wait_for(lambda: self.metric_lines is not None, "metrics")
        for line in self.metric_lines:
            if line.startswith(sample + " "):
                return float(line.split(" ")[-1])
        raise AssertionError(f"there is no {sample} in {self.metric_lines}")

    def results(self, action="out"):
        return [line["result"] for line in self.lines if line["action"] == action]

    def wait(self, result, action="out", count=1, seconds=20):
        """Until so many actions had that result; the last of them."""
        def found():
            return [line for line in self.lines if line["action"] == action and line["result"] == result]
        wait_for(lambda: len(found()) >= count, f"{count} {action} {result}", seconds, lambda: self.lines)
        return found()[-1]

    def kill(self):
        self.child.kill()
        self.child.wait()

    def end(self):
        if self.child is not None:
            if self.child.poll() is None:
                self.child.stdin.close()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                raise


def wait_for(condition, what, seconds=20, more=lambda: ""):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what} {more()}")
        time.sleep(0.02)


def judge(case):
    """None, or how it failed."""
    try:
        case()
        return None
    except Exception:  # pylint: disable=broad-except
        return traceback.format_exc()


def run(cases, at_once=1):
    """Cases are functions without arguments, so many of which may run at once; prints TAP, and ends."""
    failed = 0
    wanted = os.environ.get("TAP_ONLY", "").split()
    cases = [case for case in cases if not wanted or case.__name__ in wanted]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for number, (case, wrong) in enumerate(zip(cases, pool.map(judge, cases)), 1):
            print(f"{'ok' if wrong is None else 'not ok'} {number} - {case.__name__}", flush=True)
            if wrong is not None:
                failed = 1
                print("".join("# " + line + "\n" for line in wrong.splitlines()), end="", flush=True)
    print(f"1..{len(cases)}")
    sys.exit(failed)
