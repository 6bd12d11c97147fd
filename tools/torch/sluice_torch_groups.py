# SPDX-License-Identifier: Apache-2.0
"""Which gradients go through one operation together: a part of sluice_torch.

DDP hands gradients over in buckets, and arranges these anew after the first step: that is made with all parameters in one
bucket, or with others than later. So operations have groups of parameters of their own, and memory of their own. Groups
follow DDP's buckets, or are those of a saved state: then a job that is resumed encodes as it did before, from its first
step on, in whatever buckets its gradients arrive.

A parameter's number is its place in the first step's buckets, which is the same in every run of a job.
"""
import errno

import torch

from sluice_ctypes import SluiceError

NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}
_TYPES = {name: dtype for dtype, name in NAMES.items()}


def _refuse(sentence):
    raise SluiceError(-errno.EINVAL, sentence)


class Group:
    """Parameters one after the other, as (number, elements); the operation that averages them in its own memory."""

    def __init__(self, comm, name, parameters, pinned):
        self.name, self.parameters, self.places, self.count = name, parameters, {}, 0
        for number, count in parameters:
            self.places[number] = (self.count, count)
            self.count += count
        self.memory = torch.empty(self.count, dtype=_TYPES[name], pin_memory=pinned)
        self.operation = comm.allreduce(self.memory.data_ptr(), self.count, name, "avg")
        self.clear()

    def clear(self):
        """For the next step."""
        self.arrived, self.copied, self.waiting, self.error = 0, [], [], None

    def state(self):
        kept = self.operation.save()
        return {"dtype": self.name, "parameters": [list(one) for one in self.parameters],
                "kept": None if kept is None else torch.frombuffer(bytearray(kept), dtype=torch.uint8)}


class Move:
    """Elements of a bucket, from at on, that are those of a group, from into on."""

    def __init__(self, at, group, into, count):
        self.at, self.group, self.into, self.count = at, group, into, count

    def continues(self, group, into):
        return self.group is group and self.into + self.count == into

    def bring(self, flat):
        self.group.memory[self.into:self.into + self.count].copy_(flat[self.at:self.at + self.count], non_blocking=flat.is_cuda)

    def take_back(self, flat):
        flat[self.at:self.at + self.count].copy_(self.group.memory[self.into:self.into + self.count], non_blocking=flat.is_cuda)


class Layout:
    """The groups, and how buckets lie in them."""

    def __init__(self, comm):
        self._comm, self._numbers, self._moves = comm, {}, {}
        self._of = {}         # number → group
        self._saved = None    # groups that were loaded and are not made yet
        self._follows = True  # DDP's buckets; else the groups are those that were loaded

    def groups(self):
        return list(dict.fromkeys(self._of.values()))

    def moves(self, bucket, tensor):
        """Of a bucket: a list of Move. All ranks have the same buckets in the same order, and so the same groups."""
        parameters = bucket.parameters()
        if tensor.is_sparse or tensor.dtype not in NAMES:
            _refuse(f"a bucket of {'sparse ' if tensor.is_sparse else ''}{tensor.dtype} cannot be averaged: Sluice takes dense gradients of "
                    "float32, bfloat16, float16 and float64")
        numbers = tuple(self._number(parameter) for parameter in parameters)
        key = numbers, tensor.dtype
        if key not in self._moves:
            self._make_groups([(number, one.numel()) for number, one in zip(numbers, parameters)], tensor)
            self._moves[key] = self._find_moves(numbers, parameters, tensor)
        return self._moves[key]

    def state(self):
        return self._saved if self._saved is not None else [group.state() for group in self.groups()]

    def load(self, groups):
        self.clear()
        self._saved, self._follows = groups, False

    def clear(self):
        for group in self.groups():
            group.operation.free()
        self._of, self._moves = {}, {}

    def _number(self, parameter):
        """The parameter is kept, so that no other one has its id."""
        return self._numbers.setdefault(id(parameter), (len(self._numbers), parameter))[0]

    def _make_groups(self, parameters, tensor):
        if self._saved is not None:
            for saved in self._saved:
                group = self._add(saved["dtype"], [tuple(one) for one in saved["parameters"]], tensor.is_cuda)
                if saved["kept"] is not None:
                    group.operation.load(saved["kept"].numpy().tobytes())
            self._saved = None
        elif self._follows:
            for group in dict.fromkeys(self._of[number] for number, _ in parameters if number in self._of):
                self._drop(group)
            self._add(NAMES[tensor.dtype], parameters, tensor.is_cuda)

    def _drop(self, group):
        """DDP has arranged its buckets anew, without this one. What it kept is gone."""
        for number, _ in group.parameters:
            del self._of[number]
        self._moves = {key: moves for key, moves in self._moves.items() if all(move.group is not group for move in moves)}
        group.operation.free()

    def _add(self, name, parameters, pinned):
        group = Group(self._comm, name, parameters, pinned)
        self._of.update((number, group) for number, _ in parameters)
        return group

    def _find_moves(self, numbers, parameters, tensor):
        moves, at = [], 0
        for number, parameter in zip(numbers, parameters):
            group, count = self._of.get(number), parameter.numel()
            into, expected = group.places[number] if group is not None else (0, None)
            if count != expected or group.name != NAMES[tensor.dtype]:
                _refuse(f"parameter {number} has {count} elements of {NAMES[tensor.dtype]}, and other ones or none in the state that was loaded: that is of "
                        "another model, or DDP was made otherwise then")
            if moves and moves[-1].continues(group, into):
                moves[-1].count += count
            else:
                moves.append(Move(at, group, into, count))
            at += count
        if at != tensor.numel():
            _refuse(f"a bucket has {tensor.numel()} elements, and its parameters {at}")
        return moves
