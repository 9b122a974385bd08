#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How well large all-reduces use a link between two hosts, and what two levels gain where each host has two ranks.

usage: wire.py [ROUNDS [MBIT]]    (make bench PARTS=wire)

Two hosts of two ranks, by the bytes that each link carries (docs/exchange.md): two levels S, a ring in the order of the
hosts 3/2 S, a ring whose neighbors are on different hosts 3 S.
"""
import json
import pathlib
import statistics
import sys
import tempfile

from bench import BIN, Part, interleave, main, ratio
from link import Link
from overlap import LINE_SHARE

MIB = 1 << 20
SIZES = [4 * MIB, 16 * MIB, 64 * MIB]


def calibrated(link: Link, transport: str, ranks_per_host: int = 1, dealt: bool = False):
    """Median time by size, s."""

    def measure() -> dict[int, float]:
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder) / "times.json"
            link.mpirun([BIN / "gradsync-calibrate", "--device", "cpu", "--transport", transport, "--collective", "allreduce", "--cadence", "back-to-back",
                         "-b", SIZES[0], "-e", SIZES[-1], "-f", 4, "-n", 7, "-w", 2, "-J", result],
                        ranks_per_host=ranks_per_host, dealt=dealt)  # fmt: skip
            curve = json.loads(result.read_text())["curves"][0]
            return {row["size"]: row["in_place"]["time"] * 1e-6 for row in curve["results"]}

    return measure


def one_rank_a_host(part: Part, link: Link, rounds: int) -> None:
    results = interleave({"ring": calibrated(link, "tcp-ring"), "MPI_Allreduce": calibrated(link, "mpi")}, rounds)
    line = link.rate_mbit * 1e6 / 8 * LINE_SHARE
    rows, used, against = [], [], []
    for size in SIZES:
        at = {name: [times[size] for times in each] for name, each in results.items()}
        use = size / statistics.median(at["ring"]) / line  # busbw: two ranks, each sends S/2 twice
        faster = ratio(at["MPI_Allreduce"], at["ring"])
        used.append(use)
        against.append(faster.median)
        rows.append([size, statistics.median(at["ring"]) * 1e3, use, faster])
    part.table(["bytes", "ring_ms", "busbw over line rate", "MPI_Allreduce/ring"], rows, "wire-link")
    part.goal("two hosts: busbw over the link's rate, largest message", used[-1], 0.95)
    part.goal("two hosts: MPI_Allreduce over ring, least of the sizes", min(against), 0.98)


def two_ranks_a_host(part: Part, link: Link, rounds: int) -> None:
    contenders = {"two-level": calibrated(link, "two-level", 2), "ring": calibrated(link, "tcp-ring", 2), "ring, dealt": calibrated(link, "tcp-ring", 2, True),
                  "MPI_Allreduce": calibrated(link, "mpi", 2), "MPI_Allreduce, dealt": calibrated(link, "mpi", 2, True)}  # fmt: skip
    predicted = {"ring": 1.5, "ring, dealt": 3.0}
    results = interleave(contenders, rounds)
    rows = []
    for size in SIZES:
        at = {name: [times[size] for times in each] for name, each in results.items()}
        for name, times in at.items():
            gain = ratio(times, at["two-level"])
            rows.append([size, name, statistics.median(times) * 1e3, gain, predicted.get(name, "-")])
            if name in predicted and size == SIZES[-1]:
                part.goal(f"2 x 2 ranks: gain of two levels over '{name}', measured over predicted", gain.median / predicted[name], 0.9)
    part.table(["bytes", "contender", "ms", "over two-level", "model"], rows, "wire-two-levels")


def body() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rate = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    part = Part("wire", f"All-reduce of float32 between two hosts, a link of {rate / 1000:g} Gbit/s each way (network namespaces, tbf)")
    part.note(f"medians of {rounds} interleaved rounds [lowest, highest]; a round: the median of 7 calls; line rate: TCP's payload of 1500-byte frames")
    with Link(rate) as link:
        one_rank_a_host(part, link, rounds)
        two_ranks_a_host(part, link, rounds)
    part.finish()


if __name__ == "__main__":
    main(body)
