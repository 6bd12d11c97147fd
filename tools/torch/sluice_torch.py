# SPDX-License-Identifier: Apache-2.0
"""Hooks for PyTorch's DistributedDataParallel that send gradients compressed, through libsluice.

    import sluice_torch

    model = DistributedDataParallel(net)
    state = sluice_torch.State("bq4:feedback=on")
    model.register_comm_hook(state, sluice_torch.compress_hook)

Each bucket of gradients goes through an operation of its own, which averages over the ranks of a process group, in place
of that group's allreduce; the group serves to meet, once. The text names a codec and its parameters as
sluice/compress.h has them. Buckets go as they are where that should be faster, as within one host (when=always: whatever
it costs), and below min= (4 KiB, with when=always 64 KiB): min=0 for small models. All ranks end with the same bits. "" compresses nothing.

- Gradients may be f32, bf16, f16 (compressed) or f64 (as they are), on CPUs, or on GPUs, from where they go through pinned
  memory of the host; the codecs then run on the processor.
- With feedback=on, what the codec lost of each gradient is added to the next one. It belongs into a checkpoint:
  state_dict() and load_state_dict(), by each rank for itself.
- A job that was resumed from its checkpoint goes on bit for bit: gradients are put together as they were when it was saved
  (sluice_torch_groups). It needs the same model and the same arguments of DDP.
- An error of the library is the RuntimeError that backward() raises, with the library's sentence; state.error keeps it
  as a sluice_ctypes.SluiceError. The communicator is then broken, and the job is to be restarted.
- There is no hook for PowerSGD: compress/train/ is no part of the library's interface. PyTorch has one of its own.

State.report() and report_hook() tell bytes and error. Tried with Debian's PyTorch 1.13 and 2.6 on CPUs.
"""
import atexit
import errno
import os
import queue
import threading
import time

import torch
import torch.distributed as dist

import sluice_ctypes
from sluice_ctypes import SluiceError
from sluice_torch_groups import Layout

__all__ = ["State", "SluiceError", "compress_hook", "report_hook"]

_SAVED = 1  # version of state_dict()
_AWAY_S = 1800  # how long PyTorch's own collectives wait
_LEAVE_S = 5  # how long the end of Python waits for a step's


def compress_hook(state, bucket):
    """The hook: register_comm_hook(State(...), compress_hook)."""
    return state.reduce(bucket)


def report_hook(state, bucket):
    """compress_hook(), and on rank 0 a line about it after each state.every steps."""
    if bucket.index() == 0:
        state.count_step()
    return state.reduce(bucket)


class State:
    """What the hooks of one model need: a communicator, operations on it, and threads that start and end them.

    Made by all ranks of process_group (None: all there are) at the same time. timeout_s: how long a rank may be away, as for
    a checkpoint, before the others give up; None: SLUICE_TIMEOUT_MS, or else PyTorch's own 30 minutes; a rank that is dead is
    noticed at once. library: path of libsluice, where it is not found. every, say: of report_hook().
    """

    def __init__(self, codec, process_group=None, timeout_s=None, library=None, every=100, say=print):
        sluice_ctypes.use_any_thread()
        self.codec, self.every, self.steps, self.error = codec, every, 0, None
        self._say = say
        self._library = sluice_ctypes.load(library)
        self._comm = _meet(self._library, process_group, _milliseconds(timeout_s))
        try:
            self._comm.set_compression(codec)
        except SluiceError:
            self._comm.close()
            raise
        self._layout = Layout(self._comm)
        self._ends = _Line("sluice ends", self._end)
        self._starts = _Line("sluice starts", self._start)
        atexit.register(self._leave)

    @property
    def rank(self):
        return self._comm.rank

    @property
    def size(self):
        return self._comm.size

    def report(self):
        """What compression came to on this rank: calls, raw_bytes, wire_bytes, ratio, and, with measure=on in the codec's
        text, error. Without a codec all are 0."""
        return self._comm.report()

    def count_step(self):
        """One more step begins to send; says what there was so far."""
        if self.steps > 0 and self.steps % self.every == 0 and self.rank == 0:
            self._say(_sentence(self.codec, self.steps, self.report()))
        self.steps += 1

    def reduce(self, bucket):
        """A future of the mean of this bucket over all ranks."""
        tensor = bucket.buffer()
        job = _Job(tensor, self._layout.moves(bucket, tensor))
        for group in job.bring():
            self._starts.put(group)
        return job.answer

    def state_dict(self):
        """What this rank's operations keep, and of which parameters, for a checkpoint; between steps."""
        return {"version": _SAVED, "codec": self.codec, "groups": self._layout.state()}

    def load_state_dict(self, saved):
        """Goes on from what state_dict() gave on this rank, with the next step. ValueError: of another codec or version."""
        if saved["version"] != _SAVED or saved["codec"] != self.codec:
            raise ValueError(f"the saved state is version {saved['version']} of '{saved['codec']}', and this is version {_SAVED} of '{self.codec}': "
                             "make the State with the codec that was saved, or start without the saved state")
        self._layout.load(saved["groups"])

    def close(self):
        """Ends the threads, the operations and the communicator: after the last step, and by all ranks. A script may also end
        without it."""
        atexit.unregister(self._leave)
        self._starts.close()
        self._ends.close()
        self._layout.clear()
        self._comm.close()

    def _leave(self):
        """Python ends. It ends threads then where they ask for its lock, and in PyTorch's C++ that ends the process by a
        signal: they are to be out of it. One that waits in the library for a lost rank does no harm."""
        self._starts.close(_LEAVE_S)
        self._ends.close(_LEAVE_S)

    def _start(self, group):
        """In a thread of its own, as the elements of a GPU have to arrive, and as encoding takes time."""
        try:
            for copied in group.copied:
                copied.synchronize()
            while not group.operation.start():
                time.sleep(0.001)  # as many as may be are under way
        except Exception as error:  # pylint: disable=broad-except
            group.error = error
        self._ends.put(group)

    def _end(self, group):
        try:
            if group.error is None:
                group.operation.wait()
        except Exception as error:  # pylint: disable=broad-except
            group.error = error
        self.error = self.error or group.error
        waiting, error = group.waiting, group.error
        group.clear()  # before the last answer, after which the next step may begin
        for job in waiting:
            job.take_back(group, error)


class _Job:
    """A bucket of one step. Made in DDP's thread, which must not wait."""

    def __init__(self, tensor, moves):
        self._tensor, self._flat, self._moves, self._error = tensor, tensor.view(-1), moves, None
        self._left = len({id(move.group) for move in moves})
        self._promise = torch.futures.Future(devices=[tensor.device] if tensor.is_cuda else None)
        # An exception goes to DDP by a callback that raises it: as a result it would be taken for a tensor.
        self.answer = self._promise.then(self._result)

    def bring(self):
        """Copies the bucket to its groups. Returns those that have all of their elements now."""
        groups = list(dict.fromkeys(move.group for move in self._moves))
        for move in self._moves:
            move.bring(self._flat)
            move.group.arrived += move.count
        copied = torch.cuda.current_stream(self._tensor.device).record_event() if self._tensor.is_cuda else None
        for group in groups:
            group.waiting.append(self)
            if copied is not None:
                group.copied.append(copied)
        return [group for group in groups if group.arrived == group.count]

    def take_back(self, group, error):
        """The mean of this group is there, or never will be. With the last one, the answer is."""
        self._error = self._error or error
        with _Side(self._tensor):
            for move in self._moves:
                if move.group is group and error is None:
                    move.take_back(self._flat)
            self._left -= 1
            if self._left == 0:
                self._promise.set_result(self._tensor)

    def _result(self, promise):
        if self._error is not None:
            raise self._error
        return promise.value()


class _Side:
    """On a GPU, a stream beside PyTorch's own, for what this thread copies; a future knows by it when that is there."""

    streams = {}

    def __init__(self, tensor):
        self._stream = None
        if tensor.is_cuda:
            if tensor.device not in self.streams:
                self.streams[tensor.device] = torch.cuda.Stream(tensor.device)
            self._stream = torch.cuda.stream(self.streams[tensor.device])

    def __enter__(self):
        if self._stream is not None:
            self._stream.__enter__()

    def __exit__(self, *error):
        if self._stream is not None:
            self._stream.__exit__(*error)


class _Line(threading.Thread):
    """A thread that does one job after the other."""

    def __init__(self, name, work):
        super().__init__(name=name, daemon=True)
        self._jobs, self._work = queue.SimpleQueue(), work
        self.start()

    def put(self, job):
        self._jobs.put(job)

    def run(self):
        for job in iter(self._jobs.get, None):
            self._work(job)

    def close(self, timeout_s=None):
        self._jobs.put(None)
        self.join(timeout_s)


def _meet(library, group, timeout_ms):
    """A communicator of the ranks of a process group. Rank 0's id goes around as a sum to which the others add zeros; its
    last byte says that there is one."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise SluiceError(-errno.EINVAL, "this process is not in the process group that the State is to be made of")
    unique_id, failed = bytes(256), None
    if rank == 0:
        try:
            unique_id = library.unique_id()
        except SluiceError as error:
            failed = error
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else torch.device("cpu")
    shared = torch.tensor(list(unique_id) + [rank == 0 and failed is None], dtype=torch.uint8, device=device)
    dist.all_reduce(shared, group=group)
    if failed is not None:
        raise failed
    *unique_id, there = shared.tolist()
    if not there:
        raise SluiceError(-errno.ECONNREFUSED, "rank 0 could not open a place to meet; its own error says why")
    return library.communicator(bytes(unique_id), rank, size, timeout_ms)


def _milliseconds(timeout_s):
    if timeout_s is None and "SLUICE_TIMEOUT_MS" in os.environ:
        return -1
    return int(1000 * (timeout_s if timeout_s is not None else _AWAY_S))


def _sentence(codec, steps, report):
    if not report["calls"]:
        return f"{steps} steps; nothing was compressed" + (", which is faster here" if report["raw_calls"] else "")
    error = f", error {report['error']:.3g}" if report["error"] is not None else ""
    return f"{steps} steps; {report['calls']} operations sent {report['wire_bytes']} bytes, {report['ratio']:.1f} times fewer, by '{codec}'{error}"
