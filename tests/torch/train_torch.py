#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel with the hooks of tools/torch, on CPUs: three processes train a small network by several
codecs. Parameters are compared between ranks after every step, bit for bit, and losses with those of no codec.
usage: train_torch.py SOURCE_ROOT libsluice.so
"""
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

ROOT, LIBRARY = sys.argv[1], sys.argv[2]
sys.path.insert(0, f"{ROOT}/tools/torch")
sys.dont_write_bytecode = True
RANKS, STEPS = 3, 20

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel
except ImportError as error:
    # That of torchrun's first line may be another Python.
    torchrun = shutil.which(os.environ.get("TORCHRUN", "torchrun"))
    if torchrun and len(sys.argv) == 3:
        with open(torchrun, encoding="utf8") as script:
            python = script.readline().lstrip("#!").split()
        os.execvp(python[0], python + sys.argv + ["--torchrun"])
    print(f"1..0 # SKIP there is no PyTorch (package python3-torch, or by pip): {error}")
    sys.exit(0)
if not dist.is_available() or not dist.is_gloo_available():
    print("1..0 # SKIP this PyTorch has no gloo")
    sys.exit(0)

import sluice_torch  # noqa: E402 pylint: disable=wrong-import-position


class Net(nn.Module):
    """Two buckets: DDP closes the first one at 1 MiB. turned: layers are declared in another order than they are used in,
    so that DDP arranges its buckets anew."""

    def __init__(self, turned=False):
        super().__init__()
        torch.manual_seed(1)
        layers = [("one", nn.Linear(64, 512)), ("two", nn.Linear(512, 512)), ("three", nn.Linear(512, 10))]
        for name, layer in reversed(layers) if turned else layers:
            self.add_module(name, layer)

    def forward(self, x):
        return self.three(torch.relu(self.two(torch.relu(self.one(x)))))


def examples(count, seed):
    """Points around ten places."""
    places = torch.randn(10, 64, generator=torch.Generator().manual_seed(5))
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=random)
    return places[labels] + 2 * torch.randn(count, 64, generator=random), labels


def digest(net):
    text = hashlib.blake2b()
    for parameter in net.parameters():
        text.update(parameter.detach().numpy().tobytes())
    return text.digest()


def same_on_all(mine, group=None):
    mine = torch.tensor(list(mine))
    all_of_them = [torch.zeros_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(all_of_them, mine, group=group)
    return all(torch.equal(one, mine) for one in all_of_them)


class Run:
    """A network in training. codec None: DDP as it is. calm: small steps by the same examples, so that gradients hardly change."""

    def __init__(self, codec, turned=False, calm=False, wrap=lambda hook: hook, hook=sluice_torch.compress_hook, group=None, **more):
        self.group, self.step, self.calm = group, 0, calm
        self.net = Net(turned)
        self.model = DistributedDataParallel(self.net, bucket_cap_mb=0.1, process_group=group)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3 if calm else 0.02, momentum=0 if calm else 0.9)
        self.state = None
        if codec is not None:
            self.state = sluice_torch.State(codec, library=LIBRARY, timeout_s=20, process_group=group, **more)
            self.model.register_comm_hook(self.state, wrap(hook))

    def steps(self, count):
        for _ in range(count):
            inputs, labels = examples(8, seed=100 + (0 if self.calm else self.step * RANKS) + dist.get_rank(self.group))
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(inputs), labels).backward()
            self.optimizer.step()
            self.step += 1
            assert same_on_all(digest(self.net), self.group), f"parameters differ between ranks after step {self.step}"
        return self

    def loss(self):
        with torch.no_grad():
            inputs, labels = examples(200, seed=3)
            return nn.functional.cross_entropy(self.net(inputs), labels).item()

    def close(self):
        if self.state is not None:
            self.state.close()


def trained(codec):
    """The loss of a network that was."""
    run = Run(codec).steps(STEPS)
    loss = run.loss()
    run.close()
    return loss


def fails(call, *parts):
    try:
        call()
    except RuntimeError as error:
        assert all(part in str(error) for part in parts), error
        return
    raise AssertionError(f"nothing failed where {parts} should be said")


# ---- cases: all ranks run each ----

def codecs_train_like_none(known):
    known["none"] = plain = trained(None)
    assert plain < 1, f"fp32 learns nothing: loss {plain}"
    for codec, most in (("", 1.0001), ("bq8:when=always,min=0", 1.01), ("bq4:when=always,min=0,feedback=on", 1.05)):
        loss = known[codec] = trained(codec)
        assert plain / most < loss < plain * most, f"'{codec}' ends with loss {loss}, no codec with {plain}"


def what_two_bits_lose_comes_later_with_feedback(known):
    """Of one gradient again and again: with feedback what is not there yet stays as small, without it grows with the steps."""
    ends = []
    for codec in (None, "bq2:when=always,min=0,feedback=on", "bq2:when=always,min=0"):
        run = Run(codec, calm=True).steps(16)
        ends.append(torch.cat([parameter.detach().view(-1) for parameter in run.net.parameters()]))
        run.close()
    kept, lost = (torch.linalg.norm(end - ends[0]).item() for end in ends[1:])
    assert lost > 4 * kept > 0, f"bq2 ends {kept} from where no codec does with feedback, {lost} without"


def halves_of_floats_travel_too(known):
    for name, wrap in (("f16", default_hooks.fp16_compress_wrapper), ("bf16", default_hooks.bf16_compress_wrapper)):
        # By another name: that of bf16 asks for CUDA.
        run = Run("bq8:when=always,min=0", wrap=lambda hook, wrap=wrap: lambda state, bucket: wrap(hook)(state, bucket)).steps(4)
        names = [group["dtype"] for group in run.state.state_dict()["groups"]]
        run.close()
        assert names == [name] * 2, names


def a_job_that_was_saved_and_loaded_ends_with_the_same_bits(known):
    run = Run("bq4:when=always,min=0,feedback=on,stochastic=on").steps(5)
    with tempfile.TemporaryFile() as file:
        torch.save({"net": run.net.state_dict(), "optimizer": run.optimizer.state_dict(), "sluice": run.state.state_dict()}, file)
        file.seek(0)
        saved = torch.load(file)
    expected = digest(run.steps(5).net)
    run.close()
    for residuals in (True, False):
        run = Run("bq4:when=always,min=0,feedback=on,stochastic=on")
        run.net.load_state_dict(saved["net"])
        run.optimizer.load_state_dict(saved["optimizer"])
        run.step = 5
        if residuals:
            run.state.load_state_dict(saved["sluice"])
        assert (digest(run.steps(5).net) == expected) == residuals, f"with residuals loaded: {residuals}"
        run.close()
    other = Run("bq8:when=always,min=0")
    try:
        other.state.load_state_dict(saved["sluice"])
        raise AssertionError("residuals of bq4 were taken for those of bq8")
    except ValueError as error:
        assert "bq4" in str(error) and "bq8" in str(error), error
    other.close()
    other = Run("bq4:when=always,min=0,feedback=on,stochastic=on", turned=True)
    other.state.load_state_dict(saved["sluice"])
    fails(lambda: other.steps(1), "that is of another model")
    other.close()


def buckets_that_are_arranged_anew_have_groups_of_their_own(known):
    run, seen = Run("bq4:when=always,min=0,feedback=on", turned=True), []
    for _ in range(3):
        run.steps(1)
        seen.append([group["parameters"] for group in run.state.state_dict()["groups"]])
    run.close()
    assert len(seen[0]) == 1 and len(seen[1]) == 2 and seen[1] == seen[2], seen


def a_part_of_the_ranks_may_have_a_group(known):
    group = dist.new_group([0, 2])
    if dist.get_rank() != 1:
        run = Run("bq4:when=always,min=0", group=group).steps(2)
        assert run.state.size == 2 and run.state.rank == dist.get_rank() // 2
        run.close()


def the_report_tells_bytes_and_error(known):
    lines = []
    run = Run("bq4:when=always,min=0,measure=on", hook=sluice_torch.report_hook, every=2, say=lines.append).steps(5)
    said = run.state.report()
    run.close()
    assert said["calls"] == 9 and 7 < said["ratio"] < 8 and 0.001 < said["error"] < 0.05, said
    assert len(lines) == (2 if dist.get_rank() == 0 else 0), lines
    assert all("times fewer, by 'bq4:when=always,min=0,measure=on', error 0.0" in line for line in lines), lines


def what_is_wrong_is_an_exception_with_the_librarys_sentence(known):
    fails(lambda: sluice_torch.State("zip", library=LIBRARY), 'there is no codec "zip"')
    run = Run("bq8:when=always,min=0" if dist.get_rank() == 0 else "bq4:when=always,min=0")
    fails(lambda: run.steps(1), "bq8", "bq4")
    assert run.state.error is not None and "bq8" in str(run.state.error) and run.state.error.code < 0
    run.close()


# Its last step is over, and a thread of the hook still in PyTorch's code.
NO_CLOSE = """
import sys, time
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as dist, sluice_torch

end = sluice_torch.State._end

def end_and_go_on(state, group):
    end(state, group)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        torch.zeros(1)

sluice_torch.State._end = end_and_go_on
dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
model.register_comm_hook(sluice_torch.State("", library=sys.argv[2]), sluice_torch.compress_hook)
model(torch.ones(1, 4)).sum().backward()
"""


def a_script_may_end_without_close(known):
    if dist.get_rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run([sys.executable, "-c", NO_CLOSE, f"{ROOT}/tools/torch", LIBRARY, f"{folder}/meet"], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"ended with {ended.returncode}: {ended.stderr}"


def a_rank_that_is_gone_is_named(known):
    """The last case: the last rank ends with it. DDP's own messages are through after two steps."""
    run = Run("bq8:when=always,min=0").steps(2)
    if dist.get_rank() < RANKS - 1:
        fails(lambda: run.steps(1), f"rank {RANKS - 1} is lost")
        assert run.state.error.culprit == RANKS - 1, run.state.error
        run.close()


CASES = [codecs_train_like_none, what_two_bits_lose_comes_later_with_feedback, halves_of_floats_travel_too, a_job_that_was_saved_and_loaded_ends_with_the_same_bits,
         buckets_that_are_arranged_anew_have_groups_of_their_own, a_part_of_the_ranks_may_have_a_group, the_report_tells_bytes_and_error,
         what_is_wrong_is_an_exception_with_the_librarys_sentence, a_script_may_end_without_close, a_rank_that_is_gone_is_named]


# ---- ranks ----

def rank_main(rank, folder):
    """Writes what is wrong with a case into a file of its name."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    known = {}
    for case in CASES:
        began = time.monotonic()
        try:
            case(known)
            wrong = ""
        except BaseException:  # pylint: disable=broad-except
            wrong = traceback.format_exc()
        with open(f"{folder}/{case.__name__}.{rank}", "w", encoding="utf8") as file:
            file.write(wrong)
        if rank == 0:
            print(f"# {time.monotonic() - began:.1f} s: {case.__name__}", flush=True)
        if wrong:
            os._exit(1)  # others wait for this rank, in vain
    if rank == 0:
        print("".join(f"# loss {loss:.4f}: {name or 'hook without a codec'}\n" for name, loss in known.items()), end="", flush=True)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


def verdict(folder, case):
    """Nothing, or what was wrong with a case."""
    wrong = []
    for rank in range(RANKS):
        try:
            with open(f"{folder}/{case.__name__}.{rank}", encoding="utf8") as file:
                said = file.read()
        except FileNotFoundError:
            said = "did not get there"
        wrong += [f"rank {rank}: {said}"] if said else []
    return "\n".join(wrong)


def main():
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    os.environ.pop("SLUICE_PROGRESS", None)
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(RANKS):
            pid = os.fork()
            if pid == 0:
                rank_main(rank, folder)
            pids.append(pid)
        signal.signal(signal.SIGALRM, lambda *_: [os.kill(pid, signal.SIGKILL) for pid in pids])
        signal.alarm(150)
        for pid in pids:
            os.waitpid(pid, 0)
        signal.alarm(0)
        failed = 0
        for number, case in enumerate(CASES, 1):
            wrong = verdict(folder, case)
            failed += bool(wrong)
            print(f"{'not ok' if wrong else 'ok'} {number} - {case.__name__}")
            print("".join(f"# {line}\n" for line in wrong.splitlines()), end="")
    print(f"# torch {torch.__version__}\n1..{len(CASES)}", flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
