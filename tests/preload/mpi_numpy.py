# SPDX-License-Identifier: Apache-2.0
"""A program in Python, unmodified: arrays and pickled objects through mpi4py."""
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
right = True
for count in (1, 1000, 100001):
    mine = numpy.arange(count, dtype="d") + rank
    total = numpy.empty_like(mine)
    comm.Allreduce(mine, total, op=MPI.SUM)
    right = right and (total == numpy.arange(count) * size + size * (size - 1) // 2).all()
rows = numpy.empty((size, 4), dtype="i")
comm.Allgather(numpy.full(4, rank, dtype="i"), rows)
right = right and (rows == numpy.arange(size)[:, None]).all()
right = right and comm.bcast({"from": 0, "text": "x" * 1000} if rank == 0 else None)["from"] == 0
right = right and comm.allgather((rank, str(rank)))[size - 1] == (size - 1, str(size - 1))
half = comm.Split(rank % 2, rank)
for _ in range(5):
    right = right and half.allreduce(1) == half.size
verdicts = comm.gather(bool(right), root=0)
if rank == 0:
    print("ok python" if all(verdicts) else f"not ok python: {verdicts}")
