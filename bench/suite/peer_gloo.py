#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed's all-reduce over Gloo, ranks of this host. Prints {bytes: median seconds of the slowest rank} as JSON.

usage: peer_gloo.py RANKS BYTES...
"""
import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def call_s(data: torch.Tensor) -> float:
    begin = time.perf_counter()
    torch.distributed.all_reduce(data)
    return time.perf_counter() - begin


def median_s(size: int) -> float:
    """Of calls back to back, as many as fit into a second, 10 to 200."""
    data = torch.ones(max(1, size // 4))
    warm = torch.tensor([min(call_s(data) for _ in range(5))])
    torch.distributed.all_reduce(warm, torch.distributed.ReduceOp.MAX)
    times = []
    for _ in range(min(200, max(10, int(1 / warm.item())))):
        times.append(call_s(data))
    data.fill_(1)
    slowest = torch.tensor(times)
    torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
    return statistics.median(slowest.tolist())


def work(rank: int, ranks: int, port: int, sizes: list[int]) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    if ranks <= len(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    times = {size: median_s(size) for size in sizes}
    if rank == 0:
        print(json.dumps(times))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1])
    torch.multiprocessing.spawn(work, (count, free_port(), [int(size) for size in sys.argv[2:]]), nprocs=count)
