#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's DistributedDataParallel over Gloo: the networks, optimizer and batch of gradsync-train, channels last, one thread
a rank, gradients as views of the buckets, images made beforehand. Rank 0 prints {"step_s": median over the iterations of
the slowest rank} as JSON.

usage: peer_ddp.py RANK|-1 RANKS ADDRESS INTERFACE MODEL BATCH ITERATIONS CAP_MIB    (-1: starts all ranks on this host)
"""
import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[2] / "tests/python"))
import networks  # noqa: E402

WARMUP = 3
PORT = 29_517


def replica(model: str, cap_mib: float) -> torch.nn.Module:
    torch.manual_seed(1)
    network = networks.make(model).to(memory_format=torch.channels_last)
    return torch.nn.parallel.DistributedDataParallel(network, bucket_cap_mb=cap_mib, gradient_as_bucket_view=True)


def step_times_s(network, batch: int, iterations: int) -> list[float]:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, foreach=True)
    images = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch,))
    times = []
    for _ in range(WARMUP + iterations):
        begin = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        times.append(time.perf_counter() - begin)
    return times[WARMUP:]


def work(rank: int, ranks: int, address: str, interface: str, model: str, batch: int, iterations: int, cap_mib: float) -> None:
    os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": interface}
    torch.set_num_threads(1)
    if ranks <= len(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    slowest = torch.tensor(step_times_s(replica(model, cap_mib), batch, iterations))
    torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"step_s": statistics.median(slowest.tolist())}), flush=True)
    torch.distributed.barrier()
    os._exit(0)  # Gloo's threads now and then abort when its groups are taken down


def main() -> None:
    rank, ranks = int(sys.argv[1]), int(sys.argv[2])
    rest = (ranks, *sys.argv[3:6], int(sys.argv[6]), int(sys.argv[7]), float(sys.argv[8]))
    if rank < 0:
        torch.multiprocessing.spawn(work, rest, nprocs=ranks)
    else:
        work(rank, *rest)


if __name__ == "__main__":
    main()
