#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/run makes of what programs print, and which tests it selects. Prints TAP.

usage: run_judges.py tests/run"""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("run", sys.argv[1])
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
loader.exec_module(run)


def judged(stdout, status=0, result="OK"):
    """Passed, failed and skipped cases, and the text of each failure and skip."""
    tally = run.Tally()
    test = {"stdout": stdout, "returncode": status, "result": result}
    counts = (run.judge_tap if run.is_tap(test) else run.judge_status)(test, tally, "unit/it", "unit/it")
    return counts, tally.failures + tally.skips


def is_told(counts, words, *output):
    got, texts = judged(*output)
    assert got == counts, f"{got}, not {counts}: {texts}"
    assert any(words in text for text in texts), f"'{words}' is not in {texts}"


def a_whole_stream_passes():
    assert judged("1..2\nok 1 - a\nok 2 - b\n") == ((2, 0, 0), [])
    assert judged("ok 1 - a\nok 2 - b\n1..2\n") == ((2, 0, 0), [])


def two_plans_of_two_groups_add_up():
    assert judged("1..1\nok 1 - a\n1..2\nok 1 - b\nok 2 - c\n") == ((3, 0, 0), [])
    is_told((2, 1, 0), "after 2 of 3 cases", "1..1\nok 1 - a\n1..2\nok 1 - b\n")


def a_stream_without_a_plan_fails():
    is_told((2, 1, 0), "without a plan", "ok 1 - a\nok 2 - b\n")


def a_stream_with_more_cases_than_planned_fails():
    is_told((2, 1, 0), "after 2 of 1 cases", "1..1\nok 1 - a\nok 2 - b\n")


def a_stream_that_ends_early_fails():
    is_told((1, 1, 0), "after 1 of 2 cases", "1..2\nok 1 - a\n")
    is_told((0, 1, 0), "after 0 of 2 cases", "1..2\n", 1)


def a_failed_case_is_named():
    is_told((1, 1, 0), "unit/it: b", "1..2\nok 1 - a\nnot ok 2 - b\n", 1)


def a_bad_status_after_good_cases_fails():
    is_told((1, 1, 0), "every case passed but", "1..1\nok 1 - a\n", 1)


def a_time_limit_is_told():
    is_told((1, 1, 0), "its time limit after 1 of 2", "1..2\nok 1 - a\n", None, "TIMEOUT")


def a_bail_out_fails():
    is_told((1, 1, 0), "Bail out! no disk", "1..2\nok 1 - a\nBail out! no disk\n")


def a_skip_has_its_reason():
    is_told((1, 0, 1), "b: no device", "1..2\nok 1 - a\nok 2 - b # SKIP no device\n")
    is_told((0, 0, 1), "unit/it: not as root", "1..0 # SKIP not as root\n")
    # cmocka writes the case behind SKIP, and its reason before.
    is_told((0, 0, 1), "a_case: no device here", "1..1\nno device here\nok 1 # SKIP a_case\n")


def a_skip_without_a_reason_fails():
    is_told((1, 1, 1), "skipped without a reason", "1..2\nok 1 - a\nok 2 - b # SKIP\n")
    is_told((0, 1, 1), "skipped without a reason", "1..0 # SKIP\n")
    is_told((0, 1, 1), "skipped without a reason", "", 77, "SKIP")


def programs_without_tap_are_one_case():
    assert judged("hello\n") == ((1, 0, 0), [])
    is_told((0, 1, 0), "status 3", "hello\n", 3, "FAIL")
    is_told((0, 0, 1), "no GPU", "no GPU\n", 77, "SKIP")


def a_case_in_three_builds_is_one_case():
    tally = run.Tally()
    for name in "unit/it", "address unit/it", "thread unit/it":
        run.judge_tap({"stdout": "1..2\nok 1 - a\nnot ok 2 - b\n", "returncode": 1, "result": "FAIL"},
                      tally, name, "unit/it")
    run.judge_status({"returncode": 0, "result": "OK"}, tally, "unit/other", "unit/other")
    run.judge_status({"returncode": 77, "result": "SKIP"}, tally, "unit/skips", "unit/skips")
    assert len(tally.cases) == 3 and tally.passed == 4, f"{tally.cases}, {tally.passed}"


TESTS = [{"name": name, "suite": ["sluice:" + s for s in suites], "depends": [name + "@exe"]}
         for name, suites in (("quick", ["unit"]), ("other", ["sim"]), ("slow", ["long", "rdma"]),
                              ("slow_too", ["rdma", "long"]), ("train_rdma", ["long", "torch"]))]


def long_tests_run_only_when_asked_for():
    assert run.select(TESTS, [], "") == (["quick", "other"], {"quick@exe", "other@exe"})
    assert run.select(TESTS, ["unit", "rdma"], "")[0] == ["quick"]
    assert run.select(TESTS, [], "", True)[0] == ["slow", "slow_too", "train_rdma"]
    assert run.select(TESTS, [], "slow")[0] == []
    assert run.select(TESTS, [], "qui", True)[0] == []


def what_another_step_runs_is_spared():
    assert run.select(TESTS, [], "", spared={"unit"})[0] == ["other"]
    for step, spared in run.SPARED.items():
        others = [suites for name, (_, _, suites, _) in run.STEPS.items() if name in run.DEFAULT_STEPS and name != step]
        assert spared and all(any(suite in suites for suites in others) for suite in spared - {"sanitized"})


def the_name_of_a_slice_selects_that_slice_alone():
    assert run.select(TESTS, [], "rdma", True)[0] == ["slow", "slow_too"]
    assert run.select(TESTS, [], "torch/tra", True)[0] == ["train_rdma"]
    assert run.select(TESTS, [], "w_too", True)[0] == ["slow_too"]


def commits_pick_each_slice_in_turn():
    slices = {"b": [], "a": [], "c": []}
    assert [run.picked(slices, f"{n:08x}ffff") for n in range(4)] == ["a", "b", "c", "a"]
    assert run.picked(slices, "e13054712") == run.picked(slices, "e1305471aaaaaaa")
    try:
        run.picked(slices, "HEAD")
        raise AssertionError("a name was taken for a hash")
    except SystemExit as end:
        assert "git rev-parse HEAD" in str(end)


def printed_by(function, *arguments):
    with io.StringIO() as text, contextlib.redirect_stdout(text):
        function(*arguments)
        return text.getvalue()


def without_meson_a_sentence_says_so():
    with tempfile.TemporaryDirectory() as empty:
        said = subprocess.run([sys.executable, sys.argv[1], "--slice-of", "0123abcd"], env={"PATH": empty},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert said.returncode == 1 and said.stdout.startswith("tests/run: meson is not here"), said.stdout


class Overheard(io.StringIO):
    """What is printed; once it holds a word so many times, lets go whoever waits for it."""

    def __init__(self, word, times, then):
        super().__init__()
        self.word, self.times, self.then = word, times, then

    def write(self, text):
        written = super().write(text)
        if self.then and self.getvalue().count(self.word) >= self.times:
            self.then()
            self.then = None
        return written


def off_a_terminal_a_long_command_says_what_it_is_at():
    assert run.SILENT_S <= 25, f"silent for {run.SILENT_S} s"
    run.SILENT_S, before = 0.01, run.SILENT_S
    with tempfile.TemporaryDirectory() as place:
        # The command ends when it has been said three times what it is at, or after 20 s.
        gate = os.path.join(place, "gate")
        os.mkfifo(gate)
        held = os.open(gate, os.O_RDWR)
        try:
            with Overheard(" s: at work\n", 3, lambda: os.write(held, b"\n")) as text, contextlib.redirect_stdout(text):
                run.call(["timeout", "20", "sh", "-c", 'echo at work; read line <"$0"', gate], os.devnull)
                said = text.getvalue()
        finally:
            os.close(held)
            run.SILENT_S = before
    assert said.count(" s: at work\n") >= 3, f"said: {said}"


CASES = [case for name, case in list(globals().items())
         if callable(case) and getattr(case, "__module__", "") == "__main__" and name not in ("judged", "is_told", "printed_by", "Overheard", "main")]


def main():
    failed = 0
    print(f"1..{len(CASES)}")
    for number, case in enumerate(CASES, 1):
        try:
            case()
            print(f"ok {number} - {case.__name__}")
        except Exception:
            failed = 1
            print(f"not ok {number} - {case.__name__}")
            print("\n".join("# " + line for line in traceback.format_exc().splitlines()))
    return failed


if __name__ == "__main__":
    sys.exit(main())
