#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's DistributedDataParallel over Gloo: the networks, optimizer and batch of gradsync-train, channels last, one thread
a rank, gradients as views of the buckets, images made beforehand. Rank 0 prints {"step_s": median over the iterations of
the slowest rank} as JSON; with BLOCK {"alone_s": [], "ddp_s": []}: the same step without DistributedDataParallel and with it in
turn, BLOCK iterations each, and the time of an iteration in each block, of the slowest rank. CONTENDERS, "alone,ddp": those in turn;
powersgd, bf16: DistributedDataParallel with that hook of PyTorch; zero1: with ZeroRedundancyOptimizer; fsdp: fully_shard (FSDP2) of
each block or, where there are none, each layer with a matrix, and of the rest. PRECISION, fp32: bf16 is autocast. TOKENS: of a
sequence of gpt2-small.

usage: peer_ddp.py RANK|-1 RANKS ADDRESS INTERFACE MODEL BATCH ITERATIONS CAP_MIB [BLOCK [CONTENDERS [PRECISION [TOKENS]]]]
       (-1: starts all ranks on this host)
"""
import json
import os
import pathlib
import random
import statistics
import sys
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[2] / "tests/python"))
import networks  # noqa: E402

WARMUP = 3
PORT = 29_517
POWERSGD_RANK = 4
# Over Gloo its hook fails with several buckets: their callbacks begin collectives in an order of each rank's own.
ONE_BUCKET_MIB = 4096


class Replica:
    """A network with its optimizer, and the images it trains on."""

    def __init__(self, model: str, batch: int, cap_mib: float | None, contender: str = "ddp", precision: str = "fp32", tokens: int = 0):
        torch.manual_seed(1)
        self.is_bf16 = precision == "bf16"
        # fully_shard takes contiguous parameters only.
        self.network = networks.make(model).to(memory_format=torch.contiguous_format if contender == "fsdp" else torch.channels_last)
        if contender == "powersgd":
            cap_mib = ONE_BUCKET_MIB
        if contender == "fsdp":
            matrices = [part for part in self.network.modules() if isinstance(part, (torch.nn.Conv2d, torch.nn.Linear))]
            for part in getattr(self.network, "blocks", matrices):
                fully_shard(part)
            fully_shard(self.network)
        elif cap_mib is not None:
            self.network = torch.nn.parallel.DistributedDataParallel(self.network, bucket_cap_mb=cap_mib, gradient_as_bucket_view=True)
        if contender == "powersgd":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=2)
            self.network.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        if contender == "bf16":
            self.network.register_comm_hook(None, default_hooks.bf16_compress_hook)
        settings = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4, "foreach": True}
        sharded = contender == "zero1"
        self.optimizer = (ZeroRedundancyOptimizer(self.network.parameters(), torch.optim.SGD, **settings) if sharded
                          else torch.optim.SGD(self.network.parameters(), **settings))  # fmt: skip
        if tokens:
            self.samples, self.labels = torch.randint(0, 50257, (2, batch, tokens))
        else:
            self.samples = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
            self.labels = torch.randint(0, 10, (batch,))

    def step_s(self) -> float:
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_bf16):
            loss = torch.nn.functional.cross_entropy(self.network(self.samples).flatten(0, -2), self.labels.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        return time.perf_counter() - begin

    def times_s(self, iterations: int) -> list[float]:
        return [self.step_s() for _ in range(iterations)]


def of_slowest_rank(times_s: list[float]) -> list[float]:
    slowest = torch.tensor(times_s, dtype=torch.float64)
    torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
    return slowest.tolist()


def in_turn(model: str, batch: int, iterations: int, cap_mib: float, block: int, names: str, precision: str, tokens: int) -> dict:
    """As gradsync-train --compare has it: ranks begin a block together, and its first iteration does not count."""
    contenders = {f"{name}_s": Replica(model, batch, None if name == "alone" else cap_mib, name, precision, tokens) for name in names.split(",")}
    order = random.Random(1)  # the same on each rank
    times = {name: [] for name in contenders}
    for replica in contenders.values():
        replica.times_s(WARMUP)
    for _ in range(iterations // block):
        for name in order.sample(list(contenders), len(contenders)):
            torch.distributed.barrier()
            times[name].append(statistics.fmean(contenders[name].times_s(1 + block)[1:]))
    return {name: of_slowest_rank(each) for name, each in times.items()}


def work(rank: int, ranks: int, address: str, interface: str, model: str, batch: int, iterations: int, cap_mib: float, block: int = 0,
         names: str = "alone,ddp", precision: str = "fp32", tokens: int = 0) -> None:
    os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": interface}
    torch.set_num_threads(1)
    if ranks <= len(os.sched_getaffinity(0)):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    if block > 0:
        said = in_turn(model, batch, iterations, cap_mib, block, names, precision, tokens)
    else:
        said = {"step_s": statistics.median(of_slowest_rank(Replica(model, batch, cap_mib).times_s(WARMUP + iterations)[WARMUP:]))}
    if rank == 0:
        print(json.dumps(said), flush=True)
    torch.distributed.barrier()
    os._exit(0)  # Gloo's threads now and then abort when its groups are taken down


def main() -> None:
    rank, ranks = int(sys.argv[1]), int(sys.argv[2])
    kinds = (str, str, str, int, int, float, int, str, str, int)
    rest = (ranks, *(kind(word) for kind, word in zip(kinds, sys.argv[3:])))
    if rank < 0:
        torch.multiprocessing.spawn(work, rest, nprocs=ranks)
    else:
        work(rank, *rest)


if __name__ == "__main__":
    main()
