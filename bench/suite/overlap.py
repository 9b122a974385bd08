#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A ddp step of VGG11 on two hosts and a link of 1, 2 and 5 Gbit/s, with compute about as long as communication: how
much of the exchange is hidden, against MPI's thread, PyTorch's Reducer (c10d) and DistributedDataParallel over Gloo.

usage: overlap.py [ROUNDS [MBIT...]]    (make bench PARTS=overlap)

ideal: with the moments at which each gradient is ready when nothing is exchanged between hosts (two ranks in shared
memory, a bucket a gradient), each crossing the link at line rate as soon as it is ready and the one before has crossed,
and communication costing compute nothing. An exchange that overlaps the next step can do better than that.
hidden: 1 - (step - step without exchange) / what the link takes; the ideal step has one, too.
"""
import pathlib
import statistics
import sys
import tempfile

from bench import Part, interleave, main, ratio, torch_python
from link import Link
from training import Recorded, ddp_over, train_command, trained

MODEL, ITERATIONS = "vgg11", 20
GRADIENTS = 9_231_114 * 4  # bytes
RATES = (1000, 2000, 5000)
SMALLEST, LARGEST = 2, 96  # batch of a rank
LINE_SHARE = 1448 / 1538  # payload of an Ethernet frame of 1500 bytes with TCP's timestamps
CAPS_MIB = (2, 8)  # beside the default, 25, for all


def over(link: Link, sync: str, batch: int, *options):
    def measure() -> Recorded:
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "run.h5"
            link.mpirun(train_command(output, MODEL, sync, batch, ITERATIONS, *options))
            return Recorded(output)

    return measure


def gloo_over(link: Link, batch: int, cap_mib: float):
    def measure() -> float:
        return ddp_over(link, MODEL, batch, ITERATIONS, cap_mib)["step_s"]

    return measure


def line_s(rate_mbit: int) -> float:
    """What the gradients of two ranks take at line rate."""
    return GRADIENTS / (rate_mbit * 1e6 / 8 * LINE_SHARE)


def compute_times() -> dict:
    """A step without exchange on this machine, by batch: s."""
    return {batch: trained(2, MODEL, "none", batch, ITERATIONS)().step_s for batch in (8, 24)}


def batch_for(seconds: float, times: dict) -> int:
    """The batch whose step without exchange takes about so long."""
    (small, fast), (large, slow) = times.items()
    per_image = (slow - fast) / (large - small)
    return min(LARGEST, max(SMALLEST, round(small + (seconds - fast) / per_image)))


def contenders(link: Link, batch: int) -> dict:
    own = {f"ddp, {cap} MiB": over(link, "ddp", batch, "--bucket-cap", f"{cap}MiB") for cap in CAPS_MIB}
    capped = {f"c10d, {cap} MiB": over(link, "c10d", batch, "--bucket-cap", f"{cap}MiB") for cap in CAPS_MIB}
    gloo = {f"PyTorch DDP, Gloo, {cap} MiB": gloo_over(link, batch, cap) for cap in (25, *CAPS_MIB)}
    each = ("--bucket-cap", "64KiB", "--first-bucket", "64KiB")
    return {"shared memory": trained(2, MODEL, "ddp", batch, ITERATIONS, *each), "no exchange": over(link, "none", batch),
            "ddp, 25 MiB": over(link, "ddp", batch), **own,
            "ddp, cap auto": over(link, "ddp", batch, "--bucket-cap", "auto", "--first-bucket", "auto"),
            "ddp, across iterations": over(link, "ddp", batch, "--overlap", "step"),
            "ddp over MPI": over(link, "ddp", batch, "--transport", "mpi", "--bucket-cap", "8MiB"),
            "c10d, 25 MiB": over(link, "c10d", batch), **capped, **gloo}  # fmt: skip


def ideal_s(alone: Recorded, bytes_per_s: float) -> float:
    """Of a step: what follows the backward pass begins when it has ended and the last bucket has crossed."""
    crossed = 0.0
    for ready, size in zip(alone.ready_s, alone.bytes):
        crossed = max(crossed, ready) + size / bytes_per_s
    return max(crossed, alone.backward_end_s) + alone.step_s - alone.exposed_s - alone.backward_end_s


def compare(part: Part, rate: int, batch: int, rounds: int) -> list[list]:
    with Link(rate) as link:
        results = interleave(contenders(link, batch), rounds)
    times = {name: [one.step_s if isinstance(one, Recorded) else one for one in each] for name, each in results.items()}
    best = [ideal_s(one, GRADIENTS / line_s(rate)) for one in results["shared memory"]]
    own = min((name for name in times if name.startswith("ddp,")), key=lambda name: statistics.median(times[name]))
    rows = []
    for name, each in times.items():
        rows.append([rate, batch, name, statistics.median(each) * 1e3, ratio(best, each), hidden(each, times, rate), ratio(each, times[own])])
    part.note(f"{rate / 1000:g} Gbit/s: compute {statistics.median(times['no exchange']) * 1e3:.0f} ms, the link {line_s(rate) * 1e3:.0f} ms, ideal "
              f"{statistics.median(best) * 1e3:.0f} ms, of which it hides {hidden(best, times, rate):.2f}")  # fmt: skip
    judge(part, rate, own, {row[2]: row for row in rows})
    return rows


def hidden(steps_s: list, times: dict, rate: int) -> float:
    """Share of the link's time that does not lengthen the step."""
    return statistics.median(1 - (step - alone) / line_s(rate) for step, alone in zip(steps_s, times["no exchange"]))


def judge(part: Part, rate: int, own: str, row: dict) -> None:
    named = f"{rate / 1000:g} Gbit/s, '{own}'"
    part.goal(f"{named}: ideal over measured", row[own][4].median, 0.92)
    part.goal(f"{named}: share of the exchange hidden", row[own][5], 0.8)
    part.goal(f"{named}: c10d at its default cap over it", row["c10d, 25 MiB"][6].median, 1.05)
    part.goal(f"{named}: c10d at the best cap over it", min(r[6].median for name, r in row.items() if name.startswith("c10d")), 1)
    part.goal(f"{named}: PyTorch DDP over Gloo at the best cap over it",
              min(r[6].median for name, r in row.items() if "Gloo" in name), 1)  # fmt: skip


def body() -> None:
    torch_python()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    part = Part("overlap", f"Overlap on a slow link: {MODEL}, two hosts of one rank and one thread (network namespaces, tbf)")
    part.note(f"medians of {rounds} interleaved rounds of {ITERATIONS} steps [lowest, highest]; fp32; the batch is such that compute takes as long as the link; "
              "ideal: see bench/suite/overlap.py")  # fmt: skip
    rows = []
    times = compute_times()
    for rate in [int(word) for word in sys.argv[2:]] or RATES:
        rows += compare(part, rate, batch_for(line_s(rate), times), rounds)
    part.table(["mbit_s", "batch", "contender", "step_ms", "ideal/measured", "hidden", "over gradsync's best"], rows)
    part.finish()


if __name__ == "__main__":
    main(body)
