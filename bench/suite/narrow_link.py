#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A ddp step that is bound by communication: VGG11 with a small batch on two hosts and a link of 2 Gbit/s, against
PyTorch's DistributedDataParallel over Gloo at the best cap.

usage: narrow_link.py [ROUNDS]    (make bench PARTS=narrow_link)
"""
import statistics
import sys

from bench import Part, best_of, interleave, main, ratio, torch_python
from link import Link
from overlap import CAPS_MIB, gloo_over, over
from training import Recorded

RATE_MBIT, BATCH = 2000, 3
STEP = ("--overlap", "step")
BF16 = ("--wire-dtype", "bf16")


def body() -> None:
    torch_python()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    part = Part("narrow_link", f"VGG11, {BATCH} images a rank, two hosts of one rank and one thread, {RATE_MBIT / 1000:g} Gbit/s")
    part.note(f"medians of {rounds} interleaved rounds [lowest, highest]; fp32 compute; exact: gradients travel as they are")
    with Link(RATE_MBIT) as link:
        gloo = {f"PyTorch DDP, Gloo, {cap} MiB": gloo_over(link, BATCH, cap) for cap in (25, *CAPS_MIB)}
        ours = {"no exchange": over(link, "none", BATCH), "ddp": over(link, "ddp", BATCH), "ddp, cap auto": over(link, "ddp", BATCH, "--bucket-cap", "auto", "--first-bucket", "auto"),
                "ddp, across iterations": over(link, "ddp", BATCH, *STEP), "ddp, bf16": over(link, "ddp", BATCH, "--bucket-cap", "4MiB", *BF16),
                "ddp, across iterations, bf16": over(link, "ddp", BATCH, *STEP, *BF16)}  # fmt: skip
        results = interleave(ours | gloo, rounds)
    times = {name: [one.step_s if isinstance(one, Recorded) else one for one in each] for name, each in results.items()}
    best = best_of(times, [name for name in gloo if name in times])
    rows = [[name, statistics.median(each) * 1e3, ratio(best, each)] for name, each in times.items()]
    part.table(["contender", "step_ms", "PyTorch DDP, best cap, over it"], rows)
    at = {row[0]: row[2].median for row in rows}
    part.goal("exact, across iterations: PyTorch DDP at the best cap over it", at["ddp, across iterations"], 1.15)
    part.goal("bf16, across iterations: PyTorch DDP at the best cap over it", at["ddp, across iterations, bf16"], 1.5)
    part.note(f"ddp without overlap across iterations: {at['ddp']:.3g} exact, {at['ddp, bf16']:.3g} in bf16")
    part.finish()


if __name__ == "__main__":
    main(body)
