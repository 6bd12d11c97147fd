#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the cases of a meson test log, one a line, as "ok NAME", "ok NAME # SKIP REASON" or "not ok NAME".

usage: cases.py TESTLOG UNABLE

UNABLE lists what cannot work under qemu's user mode: a pattern of "test: case", a tab, the reason. Such a failure is
a skip with that reason; one that passes nevertheless counts as passed. Judged by tests/run's own rules.
"""
import fnmatch
import importlib.machinery
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def load_run():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("run", os.path.join(HERE, "..", "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
    loader.exec_module(module)
    return module


def read_unable(path):
    with open(path) as lines:
        rows = [line.rstrip("\n") for line in lines if line.strip() and not line.startswith("#")]
    return [row.split("\t", 1) for row in rows]


def why_unable(unable, sentence):
    return next((reason for pattern, reason in unable if fnmatch.fnmatchcase(sentence, pattern)), None)


def print_test(run, name, test, unable):
    """Failures of the program itself (its plan, its status, its time limit) are cases, too."""
    tally = run.Tally()
    run.judge_tap(test, tally, name, name)
    for verdict, case, reason in run.parse_tap(test.get("stdout") or ""):
        if verdict == "pass":
            print(f"ok {name}: {case}")
        elif verdict == "skip" or (verdict == "plan" and case == 0):
            print(f"ok {name}: {case} # SKIP {reason or 'no reason given'}")
    failed = 0
    for sentence in tally.failures:
        reason = why_unable(unable, sentence)
        print(f"ok {sentence} # SKIP {reason}" if reason else f"not ok {sentence}")
        failed += not reason
    if failed:
        print("\n".join("| " + line for line in run.test_output(test).splitlines()))


def main():
    run, unable = load_run(), read_unable(sys.argv[2])
    with open(sys.argv[1]) as log:
        for line in log:
            test = json.loads(line)
            suite, _, leaf = test["name"].split(":")[-1].rpartition(" / ")
            print_test(run, f"{suite}/{leaf}", test, unable)


main()
