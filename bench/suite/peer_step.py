#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A training step in Python's PyTorch: the networks, optimizer and batch of gradsync-train, images made beforehand. Prints
{"step_s": median over the iterations} as JSON.

usage: peer_step.py MODEL BATCH ITERATIONS THREADS nchw|nhwc fp32|bf16 eager|compiled
"""
import contextlib
import json
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[2] / "tests/python"))
import networks  # noqa: E402

WARMUP = 3


def main() -> None:
    model, batch, iterations, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    layout, precision, how = sys.argv[5:8]
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    order = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    network = networks.make(model).to(memory_format=order)
    forward = torch.compile(network) if how == "compiled" else network
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True)
    images = torch.randn(batch, 3, 32, 32).contiguous(memory_format=order)
    labels = torch.randint(0, 10, (batch,))
    times = []
    for _ in range(WARMUP + iterations):
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
            logits = forward(images)
        torch.nn.functional.cross_entropy(logits.float(), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - begin)
    print(json.dumps({"step_s": statistics.median(times[WARMUP:])}))


if __name__ == "__main__":
    main()
