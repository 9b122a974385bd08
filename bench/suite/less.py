#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Modes that send less, or keep less, in turn in one job over one link, and PyTorch's own in one script over the same link, at
the same settings, in the precision that is fastest on this machine.

usage: less.py [NETWORK [RATE...]]    (make bench PARTS=less; every network at each rate: host, or the link's Mbit/s)
"""
import math
import sys
import tempfile

import h5py
import numpy

from bench import Part, main, mpirun, run, torch_python
from link import Link
from training import ddp_over, file_of
from truth import ratio, ratio_of_blocks, words

STEPS = 8
BLOCK = 2  # iterations of a peer in a round, after one that does not count
# Samples of a rank, rounds, iterations of a block without local steps, and options. A sample of gpt2-small is a sequence, and its
# exchange of half a gigabyte takes seconds. Warm-up costs one of the rounds, and an interval needs six.
NETWORKS = {"vgg11": (16, 12, 5, ()), "resnet18": (16, 10, 5, ()), "gpt2-small": (1, 8, 3, ("--sequence-length", 64))}
RATES = ("host", "1000", "2000", "5000")
LOCAL = f"local-sgd:local-steps={STEPS}"
# Jobs of so many that the replicas of the largest network, and the control's, fit into 24 GiB; each begins with what the others are
# held against.
JOBS = (("none", "ddp", "ddp:wire-dtype=bf16"), ("none", "powersgd", "top-k"), ("none", LOCAL),
        ("none", f"{LOCAL}:wire-dtype=bf16"), ("none", "zero1", "fsdp"))
# PyTorch's contenders of the same modes, in scripts of so many for the same reason.
PEERS = ({"ddp": "ddp", "ddp:wire-dtype=bf16": "bf16", "powersgd": "powersgd"}, {"zero1": "zero1", "fsdp": "fsdp"})
# Times the speed of ddp that powersgd is to have, and of PyTorch's; time over no exchange; speed over PyTorch's; time over ddp's on one host.
TO_DDP, TO_PEER, LOCAL_TO_NONE, FSDP_TO_PEER, ZERO1_TO_DDP = 2.5, 1.3, 1.15, 1.1, 1.05


def encode_ms(path: str) -> float:
    """What turning gradients takes, median over the iterations of the slowest rank."""
    with h5py.File(path) as file:
        times_s = file["time/convert"][2:].max(axis=1)
    return float(1e3 * numpy.nanmedian(times_s)) if numpy.isfinite(times_s).any() else math.nan


def on_line(path: str, none: str, rate: str) -> float:
    """What the bytes of an iteration take at the rate of the link, over the time of an iteration without an exchange: the least
    that the contender adds where nothing overlaps."""
    if rate == "host":
        return math.nan
    with h5py.File(path) as file, h5py.File(none) as alone:
        sent = sum(bytes_sent[:].max(axis=1) for bytes_sent in file["traffic"].values())
        mean = sent[len(sent) % STEPS :].mean()  # whole periods of local-sgd
        return float(8e-6 * mean / int(rate) / numpy.median(alone["time/iteration"][2:].max(axis=1)))


def precision_of(path: str) -> str:
    with h5py.File(path) as file:
        return file["provenance/precision"].asstr()[()].split()[0]


def ours(start, network: str, rate: str) -> tuple[dict, str]:
    """By contender: time over none's with its interval, what its bytes take on the line, and encoding; the precision."""
    batch, rounds, plain_block, options = NETWORKS[network]
    measured, precision = {}, "auto"
    for job in JOBS:
        block = 1 + STEPS if any(LOCAL in contender for contender in job) else plain_block  # an averaging of local-sgd in each
        with tempfile.TemporaryDirectory() as folder:
            start(words(network, ",".join(job), f"{folder}/a.h5", "--block", block, "--block-warmup", 1, "--precision", precision, *options,
                        iterations=rounds * block, batch=batch))  # fmt: skip
            files = [file_of(folder, contender) for contender in job]
            measured |= {contender: (*ratio(files[0], file), on_line(file, files[0], rate), encode_ms(file)) for contender, file in zip(job[1:], files[1:])}
            precision = precision_of(files[0])
    return measured, precision


def theirs(link: Link, network: str, precision: str) -> dict:
    """By contender of ours: time of PyTorch's over that of its step alone."""
    batch, rounds, _, options = NETWORKS[network]
    measured = {}
    for peers in PEERS:
        said = ddp_over(link, network, batch, rounds * BLOCK, 25, BLOCK, ",".join(("alone", *peers.values())), precision, *options[1:])
        measured |= {contender: ratio_of_blocks(said["alone_s"], said[f"{peer}_s"]) for contender, peer in peers.items()}
    return measured


def measure(network: str, rate: str) -> tuple[dict, dict, str]:
    if rate == "host":
        own, precision = ours(lambda command: run([*mpirun(2), *command]), network, rate)
        return own, {}, precision
    with Link(int(rate)) as link:
        own, precision = ours(lambda command: link.mpirun([*command, "--transport", "tcp-ring"]), network, rate)
        return own, theirs(link, network, precision), precision


def judge(part: Part, rate: str, own: dict, peers: dict) -> None:
    if rate == "host":
        part.goal("time of zero1 over that of ddp on one host", own["zero1"][0] / own["ddp"][0], ZERO1_TO_DDP, at_most=True)
    if rate != "1000":
        return
    part.goal("speed of powersgd over that of ddp at 1 Gbit/s", own["ddp"][0] / own["powersgd"][0], TO_DDP)
    for mode, goal in (("powersgd", TO_PEER), ("fsdp", FSDP_TO_PEER)):
        part.goal(f"speed of {mode} over that of PyTorch's at 1 Gbit/s, each against no exchange", peers[mode][0] / own[mode][0], goal)
    part.goal(f"time of local-sgd in bf16 with {STEPS} local steps over that without an exchange, at 1 Gbit/s",
              own[f"{LOCAL}:wire-dtype=bf16"][0], LOCAL_TO_NONE, at_most=True)  # fmt: skip


def body() -> None:
    torch_python()
    for network in sys.argv[1:2] or NETWORKS:
        batch, rounds, _, options = NETWORKS[network]
        part = Part(f"less_{network}", f"Modes that send or keep less, {network}, two ranks of one thread on one host and on a link", of="less")
        part.note(f"{batch} samples a rank{' of ' + str(options[1]) + ' tokens' if options else ''}, {rounds} rounds; time over that of none in the same job, "
                  "PyTorch's over that of its step alone [95 % interval]")  # fmt: skip
        rows = []
        for rate in sys.argv[2:] or RATES:
            own, peers, precision = measure(network, rate)
            for contender, measured in own.items():
                rows.append([rate, precision, contender, *measured, *peers.get(contender, [math.nan] * 3)])
                print(*rows[-1], flush=True)
            judge(part, rate, own, peers)
        part.table(["mbit_per_s", "precision", "contender", "time/none", "low", "high", "line/none", "encode_ms", "PyTorch's/alone", "low of it", "high of it"], rows)
        part.finish()


if __name__ == "__main__":
    main(body)
