#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Modes that send less, in one job over one link, and PyTorch's own in one script over the same link, at the same settings.

usage: less.py [MODEL [MBIT_PER_S...]]    (make bench PARTS=less; vgg11 at 1000, 2000 and 5000)
"""
import json
import sys
import tempfile

import h5py
import numpy

from bench import TUNED_MEMORY, Part, main
from link import INTERFACE, Link, address
from training import ddp_command
from truth import ratio, ratio_of_blocks, words

BATCH, ROUNDS, BLOCK, STEPS = 16, 12, 2, 8
OURS = ("none", "ddp", "ddp:wire-dtype=bf16", "powersgd", "top-k", f"local-sgd:local-steps={STEPS}", f"local-sgd:local-steps={STEPS}:wire-dtype=bf16", "zero1", "fsdp")
PEERS = ("alone", "ddp", "bf16", "powersgd", "zero1", "fsdp")
# Times the speed of ddp that each is to have at least, at 1 Gbit/s; of PyTorch's same mode; time over no exchange at most.
TO_DDP, TO_PEER, LOCAL_TO_NONE, FSDP_TO_PEER = 2.5, 1.3, 1.15, 1.1


def file_of(folder: str, contender: str) -> str:
    return f"{folder}/a-{contender.replace(':', '-').replace('=', '-')}.h5"


def ours(folder: str, link: Link, model: str) -> None:
    # Blocks of local-sgd have an averaging each.
    block = 1 + STEPS
    link.mpirun(words(model, ",".join(OURS), f"{folder}/a.h5", "--transport", "tcp-ring", "--block", block, "--block-warmup", 1,
                      iterations=ROUNDS * block))  # fmt: skip


def theirs(link: Link, model: str) -> dict:
    kept = [f"{name}={value}" for name, value in TUNED_MEMORY.items()]
    commands = [["env", *kept, "taskset", "-c", rank, *ddp_command(rank, 2, address(0), INTERFACE, model, BATCH, ROUNDS * BLOCK, 25, BLOCK, ",".join(PEERS))]
                for rank in (0, 1)]  # fmt: skip
    return json.loads(link.pair(commands)[0].splitlines()[-1])


def encode_ms(path: str) -> float:
    """What turning gradients takes, median over the iterations of the slowest rank."""
    with h5py.File(path) as file:
        times_s = file["time/convert"][2:].max(axis=1)
    return float(1e3 * numpy.nanmedian(times_s)) if numpy.isfinite(times_s).any() else float("nan")


def body() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else "vgg11"
    rates = [int(rate) for rate in sys.argv[2:]] or [1000, 2000, 5000]
    part, rows, shorter = Part("less", f"Modes that send less, {model}, 16 images a rank, on two ranks of one thread on a link"), [], {}
    for rate in rates:
        with tempfile.TemporaryDirectory() as folder, Link(rate) as link:
            ours(folder, link, model)
            said = theirs(link, model)
            peers = {"ddp": "ddp", "ddp:wire-dtype=bf16": "bf16", "powersgd": "powersgd", "zero1": "zero1", "fsdp": "fsdp"}
            for contender in OURS[1:]:
                own = ratio(file_of(folder, "none"), file_of(folder, contender))
                peer = ratio_of_blocks(said["alone_s"], said[f"{peers[contender]}_s"]) if contender in peers else (float("nan"),) * 3
                rows.append([rate, contender, *own, encode_ms(file_of(folder, contender)), *peer])
                shorter[rate, contender] = own[0], peer[0]
                print(*rows[-1], flush=True)
    part.table(["mbit_per_s", "contender", "time/none", "low", "high", "encode_ms", "PyTorch's/alone", "low of it", "high of it"], rows)
    slowest = min(rates)
    ddp, powersgd, local = (shorter[slowest, name] for name in ("ddp", "powersgd", OURS[6]))
    part.goal(f"speed of powersgd over that of ddp at {slowest} Mbit/s", ddp[0] / powersgd[0], TO_DDP)
    part.goal("speed of powersgd over that of PyTorch's, each against no exchange", powersgd[1] / powersgd[0], TO_PEER)
    part.goal(f"time of local-sgd in bf16 with {STEPS} local steps over that without an exchange", local[0], LOCAL_TO_NONE, at_most=True)
    fsdp = shorter[slowest, "fsdp"]
    part.goal("speed of fsdp over that of PyTorch's, each against no exchange", fsdp[1] / fsdp[0], FSDP_TO_PEER)
    part.finish()


if __name__ == "__main__":
    main(body)
