# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel with gradients that travel compressed.

    export PYTHONPATH=/usr/local/share/sluice
    torchrun --nproc_per_node=4 ddp.py --codec bq4:feedback=on,min=0

Learns to tell which of ten shapes is under the noise. With --checkpoint FOLDER each rank leaves there what it has, its
residuals too, and goes on from it the next time.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sluice_torch


def pictures(count, seed):
    """Noise over one of ten shapes each."""
    shapes = torch.rand(10, 64, generator=torch.Generator().manual_seed(1))
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=random)
    return shapes[labels] + 2 * torch.rand(count, 64, generator=random), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--codec", default="bq4:feedback=on,min=0", help="as in sluice/compress.h; '': none")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", metavar="FOLDER")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    # These two lines are what compression takes.
    state = sluice_torch.State(args.codec, every=50)
    model.register_comm_hook(state, sluice_torch.report_hook)

    file = args.checkpoint and os.path.join(args.checkpoint, f"rank{state.rank}.pt")
    first = 0
    if file and os.path.exists(file):
        saved = torch.load(file)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        state.load_state_dict(saved["sluice"])
        first = saved["step"]
    for step in range(first, first + args.steps):
        inputs, labels = pictures(32, seed=1000 + step * state.size + state.rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    if file:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "sluice": state.state_dict(), "step": step + 1}, file)

    with torch.no_grad():
        inputs, labels = pictures(2000, seed=7)
        right = (net(inputs).argmax(1) == labels).float().mean().item()
    if state.rank == 0:
        said = state.report()
        print(f"step {step + 1}: {100 * right:.1f} % right; {said['wire_bytes']} bytes in place of {said['raw_bytes']}", flush=True)
    state.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
