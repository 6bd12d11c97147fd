# SPDX-License-Identifier: Apache-2.0
"""An ordinary training script: a small network on scikit-learn's digits, by DistributedDataParallel on
CPUs. Nothing in it knows of Sluice. Started by torchrun; prints the losses to the last bit."""
import argparse
import hashlib
import os
import statistics
import struct
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def digits():
    """The pictures of handwritten digits that scikit-learn ships."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("train.py: no scikit-learn here, whose pictures it trains on (package python3-sklearn, or scikit-learn by "
                 "pip); --made-up trains on shapes drawn at random")
    data = load_digits()
    return data.images.astype("float32") / 16, data.target


def made_up():
    """Ten shapes drawn at random, under noise: as many pictures, and as large."""
    random = numpy.random.default_rng(7)
    shapes = random.random((10, 8, 8), dtype="float32")
    target = random.integers(0, 10, 1797)
    noise = random.random((1797, 8, 8), dtype="float32")
    return (shapes[target] + noise) / 2, target


def network(width):
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, width), nn.ReLU(),
                         nn.Linear(width, 10))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--width", type=int, default=128, help="of the hidden layer")
    parser.add_argument("--workers", type=int, default=0, help="processes that load data")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--made-up", action="store_true", help="train on shapes drawn at random, not on digits")
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group(args.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    images, target = made_up() if args.made_up else digits()
    data = TensorDataset(torch.from_numpy(images).unsqueeze(1),
                         torch.from_numpy(numpy.asarray(target)).long())
    sampler = DistributedSampler(data, num_replicas=size, rank=rank, seed=3)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=args.workers)
    model = DistributedDataParallel(network(args.width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    seconds = []

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for images, target in loader:
            begin = time.perf_counter()
            optimizer.zero_grad()
            loss = criterion(model(images), target)
            loss.backward()
            optimizer.step()
            seconds.append(time.perf_counter() - begin)
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            bits = struct.pack("<f", total.item()).hex()
            print(f"epoch {epoch}: loss {total.item() / len(loader) / size:.9f} ({bits})", flush=True)

    digest = hashlib.sha256()
    for parameter in model.module.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    mine = torch.tensor(list(digest.digest()[:8]))
    # Not all_gather_object(): PyTorch 1.13 may hang when its thread has the last hold on a tensor at the end.
    digests = [torch.zeros_like(mine) for _ in range(size)]
    dist.all_gather(digests, mine)
    if rank == 0:
        same = all(torch.equal(one, mine) for one in digests)
        print(f"parameters {digest.hexdigest()[:16]}, {'the same' if same else 'NOT the same'} on all "
              f"{size} ranks", flush=True)
        print(f"# step: median {statistics.median(seconds or [0]) * 1e3:.2f} ms, of {len(seconds)}; "
              f"torch {torch.__version__}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
