# SPDX-License-Identifier: Apache-2.0
"""Every collective of torch.distributed on CPU tensors, many at once, in groups and subgroups, against what
must come out. Run by torchrun; exits with an error when something is wrong."""
import sys

import torch
import torch.distributed as dist


kept = []  # PyTorch 1.13 may hang when its threads have the last hold on a tensor at the end


def expect(name, got, want):
    kept.append(got)
    if not torch.equal(got, want):
        sys.exit(f"rank {dist.get_rank()}: {name}: {got} instead of {want}")


def each_call(rank, size, group, ranks):
    """ranks: those of the group, of whom this process is one."""
    me, total = ranks.index(rank), sum(ranks)
    count = len(ranks)
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.float16):
        x = torch.full((300,), rank + 1).to(dtype)
        dist.all_reduce(x, group=group)
        expect("all_reduce", x, torch.full((300,), total + count).to(dtype))
        x = torch.full((300,), rank + 1).to(dtype)
        dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group)
        expect("all_reduce max", x, torch.full((300,), max(ranks) + 1).to(dtype))
    x = torch.full((5,), 1 << rank)
    dist.all_reduce(x, op=dist.ReduceOp.BOR, group=group)
    expect("all_reduce bor", x, torch.full((5,), sum(1 << r for r in ranks)))
    for root in ranks:
        x = torch.full((70000,), float(rank))
        dist.broadcast(x, root, group=group)
        expect("broadcast", x, torch.full((70000,), float(root)))
        x = torch.full((9,), float(rank))
        dist.reduce(x, root, group=group)
        if rank == root:
            expect("reduce", x, torch.full((9,), float(total)))
        out = [torch.zeros(4) for _ in ranks] if rank == root else None
        dist.gather(torch.full((4,), float(rank)), out, root, group=group)
        if rank == root:
            expect("gather", torch.stack(out), torch.tensor([[float(r)] * 4 for r in ranks]))
        parts = [torch.full((6,), float(root * 10 + i)) for i in range(count)] if rank == root else None
        x = torch.zeros(6)
        dist.scatter(x, parts, root, group=group)
        expect("scatter", x, torch.full((6,), float(root * 10 + me)))
    out = [torch.zeros(1000) for _ in ranks]
    dist.all_gather(out, torch.full((1000,), float(rank)), group=group)
    expect("all_gather", torch.stack(out), torch.tensor([[float(r)] * 1000 for r in ranks]))
    x, y = torch.arange(count * 2.0) + 100 * me, torch.zeros(count * 2)
    dist.all_to_all_single(y, x, group=group)
    expect("all_to_all_single", y.view(count, 2),
           torch.tensor([[100.0 * i + 2 * me, 100.0 * i + 2 * me + 1] for i in range(count)]))
    give = [i + 1 for i in range(count)]
    y = torch.zeros(count * (me + 1))
    dist.all_to_all_single(y, torch.full((sum(give),), float(me)), [me + 1] * count, give, group=group)
    expect("all_to_all_single by sizes", y, torch.arange(float(count)).repeat_interleave(me + 1))
    objects = [None] * count
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (rank * 100)}, group=group)
    if [o["rank"] for o in objects] != ranks:
        sys.exit("all_gather_object is wrong")
    dist.barrier(group=group)


def many_at_once(rank, size, groups):
    """The process groups' threads take these side by side, on each rank in an order of its own."""
    works = []
    for i in range(200):
        x = torch.full((1 + (i * 37) % 5000,), float(rank + i))
        group = groups[i % len(groups)]
        if i % 3 == 2:
            works.append((dist.broadcast(x, i % size, group=group, async_op=True), x, float(i % size + i)))
        else:
            works.append((dist.all_reduce(x, group=group, async_op=True), x,
                          float(size * (size - 1) / 2 + size * i)))
    for work, x, want in reversed(works):
        work.wait()
        expect("many at once", x, torch.full_like(x, want))


def main():
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    everyone = list(range(size))
    each_call(rank, size, None, everyone)
    halves = [dist.new_group(everyone[0::2]), dist.new_group(everyone[1::2])]
    each_call(rank, size, halves[rank % 2], everyone[rank % 2::2])
    many_at_once(rank, size, [None, dist.new_group(everyone)])
    if rank == 0:
        x = torch.arange(5.0)
        dist.send(x, 1)
    elif rank == 1:
        x = torch.zeros(5)
        dist.recv(x, 0)
        expect("recv", x, torch.arange(5.0))
    dist.barrier()
    if rank == 0:
        print("all as expected", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
