#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel over the NCCL plugin with one real GPU: two ranks, each a host of its own to NCCL, train a
small network. Parameters must be the same on both ranks, and the same, bit for bit, as over NCCL's Socket transport.
usage: hw_torch.py PLUGIN.so"""
import hashlib
import os
import socket
import subprocess
import sys
import tempfile

from hw_torch_gpu import find_torch

STEPS = 30


def rank_main():
    import torch
    import torch.distributed as dist

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 2048), torch.nn.GELU(),
                              torch.nn.Linear(2048, 16)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(64, 512, device="cuda")
        loss = torch.nn.functional.cross_entropy(model(x), x[:, :16].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    digest = hashlib.sha256()
    for parameter in net.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    assert losses[-1] < losses[0], losses
    print(f"result {digest.hexdigest()} {losses[0]:.4f} {losses[-1]:.4f}", flush=True)
    dist.destroy_process_group()


def train(net, plugin, **more):
    """What each rank says at its end, and whether NCCL says that it went over that network."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(2):
            env = dict(os.environ, RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                       NCCL_HOSTID=f"h{rank}", NCCL_NET=net, NCCL_NET_PLUGIN=plugin, NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1",
                       NCCL_MAX_CTAS="2", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=f"{folder}/{rank}",
                       CUBLAS_WORKSPACE_CONFIG=":4096:8", **more)
            ranks.append(subprocess.Popen([sys.executable, __file__, "--rank"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                          text=True))
        said = []
        for rank in ranks:
            try:
                said.append(rank.communicate(timeout=200)[0])
            finally:
                rank.kill()
        logs = ""
        for rank in range(2):
            with open(f"{folder}/{rank}", encoding="utf8") as log:
                logs += log.read()
    results = [[line for line in text.splitlines() if line.startswith("result ")] for text in said]
    assert all(len(result) == 1 for result in results), "\n".join(said) + logs[-3000:]
    assert f"via NET/{net}" in logs, logs[-3000:]
    return [result[0].split() for result in results]


def main(plugin):
    torch = find_torch()
    if torch is None:
        return 0
    print(f"# torch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, {torch.cuda.get_device_name()}")
    failed, first = 0, train("Socket", "none")
    runs = [("shm", {"SLUICE_TRANSPORT": "shm"}), ("tcp", {"SLUICE_TRANSPORT": "tcp"})]
    for number, (name, env) in enumerate(runs, 1):
        try:
            results = train("Sluice", plugin, **env)
            assert {digest for _, digest, *_ in results + first} == {first[0][1]}, (results, first)
            print(f"ok {number} - training_over_{name}_ends_with_the_same_bits")
            print(f"# loss of rank 0: {results[0][2]} to {results[0][3]} in {STEPS} steps", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"not ok {number} - training_over_{name}_ends_with_the_same_bits")
            print("".join(f"# {line}\n" for line in str(error).splitlines()), flush=True)
    print(f"1..{len(runs)}")
    return failed != 0


if sys.argv[1:] == ["--rank"]:
    rank_main()
else:
    sys.exit(main(sys.argv[1]))
