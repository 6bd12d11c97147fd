#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hooks of tools/torch with gradients on a real GPU: two ranks share it and train a small network. Parameters must be the same
on both after every step, the loss about that of no codec, and, without a codec, that of DDP itself.
usage: hw_torch_hooks.py SOURCE_ROOT libsluice.so
"""
import hashlib
import os
import socket
import subprocess
import sys
import tempfile

from hw_torch_gpu import find_torch

ROOT, LIBRARY = sys.argv[1], sys.argv[2]
STEPS = 30
CODECS = ["none", "", "bq8:min=0,when=always", "bq4:min=0,feedback=on,when=always"]  # within a host it does not pay


def train(codec):
    """The loss in the end."""
    import torch
    import torch.distributed as dist
    import sluice_torch

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 16)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])
    state = None
    if codec != "none":
        state = sluice_torch.State(codec, library=LIBRARY, timeout_s=30)
        model.register_comm_hook(state, sluice_torch.compress_hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(STEPS):
        x = torch.randn(64, 512, device="cuda")
        loss = torch.nn.functional.cross_entropy(model(x), x[:, :16].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        digest = hashlib.sha256(b"".join(one.detach().cpu().numpy().tobytes() for one in net.parameters())).digest()
        digests = [None, None]
        dist.all_gather_object(digests, digest)
        assert digests[0] == digests[1], "parameters differ between ranks"
    if state is not None:
        assert (state.report()["calls"] >= STEPS) == (codec != ""), state.report()
        state.close()
    return loss.item()


def rank_main():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    losses = {codec: train(codec) for codec in CODECS}
    dist.destroy_process_group()
    print("result " + " ".join(f"{loss:.6f}" for loss in losses.values()), flush=True)


def main():
    torch = find_torch()
    if torch is None:
        return 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", PYTHONPATH=f"{ROOT}/tools/torch",
                   PYTHONPYCACHEPREFIX=folder)
        ranks = [subprocess.Popen([sys.executable, __file__, ROOT, LIBRARY, "--rank"], env=dict(env, RANK=str(rank)), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) for rank in range(2)]
        said = []
        for rank in ranks:
            try:
                said.append(rank.communicate(timeout=150)[0])
            finally:
                rank.kill()
    results = [line.split()[1:] for line in said[0].splitlines() if line.startswith("result ")]
    good = bool(results) and [float(loss) for loss in results[0]]
    named = dict(zip(CODECS, good or []))
    case = "gradients_of_a_gpu_go_by_codecs_with_the_same_bits_on_all_ranks"
    near = good and abs(named[""] / named["none"] - 1) < 1e-3 and all(abs(named[codec] / named["none"] - 1) < 0.05 for codec in CODECS)
    print(f"# torch {torch.__version__}, {torch.cuda.get_device_name()}; losses {named}")
    print(f"{'ok' if near else 'not ok'} 1 - {case}")
    if not near:
        print("".join(f"# {line}\n" for line in "\n".join(said).splitlines()))
    print("1..1")
    return not near


if sys.argv[3:] == ["--rank"]:
    rank_main()
else:
    sys.exit(main())
