#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A training step of two ranks on one host, a thread each: what the exchange adds to it, and what the peers' add.

usage: step.py [ROUNDS]    (make bench PARTS=step)
"""
import statistics
import sys

from bench import Part, interleave, main, ratio
from training import ddp_on_this_host, trained

RANKS, ITERATIONS = 2, 20
NETWORKS = {"vgg11": 64, "resnet18": 32}  # batch of a rank


def contenders(model: str, batch: int) -> dict:
    def ours(sync, *options):
        measure = trained(RANKS, model, sync, batch, ITERATIONS, *options)
        return lambda: measure().step_s

    return {"no exchange": ours("none"), "ddp": ours("ddp"), "allreduce": ours("allreduce"), "ddp over MPI": ours("ddp", "--transport", "mpi"),
            "c10d": ours("c10d"), "c10d over MPI": ours("c10d", "--transport", "mpi"),
            "PyTorch DDP, Gloo": ddp_on_this_host(RANKS, model, batch, ITERATIONS)}  # fmt: skip


def body() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    part = Part("step", "A training step of two ranks on one host, one thread each")
    part.note(f"medians of {rounds} interleaved rounds of {ITERATIONS} steps [lowest, highest]; fp32, channels last; the synthetic images")
    rows = []
    for model, batch in NETWORKS.items():
        results = interleave(contenders(model, batch), rounds)
        for name, times in results.items():
            rows.append([model, batch, name, statistics.median(times) * 1e3, ratio(times, results["no exchange"]), ratio(times, results["ddp"])])
        over = {name: ratio(times, results["ddp"]).median for name, times in results.items()}
        part.goal(f"{model}: ddp over the step without exchange", 1 / over["no exchange"], 1.03, at_most=True)
        for peer in ("c10d", "PyTorch DDP, Gloo"):
            if peer in over:
                part.goal(f"{model}: {peer} over ddp", over[peer], 1)
    part.table(["model", "batch", "contender", "step_ms", "over no exchange", "over ddp"], rows)
    part.finish()


if __name__ == "__main__":
    main(body)
