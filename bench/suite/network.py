#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The modes on three nodes of a real Slurm whose links are slowed, before (all of it by MPI) and with what moves gradients
now, in one picture.

usage: network.py [ROUNDS [RATE]]    (make bench PARTS=network; RATE as tc has it: 1gbit)
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import h5py
import numpy

from bench import ROOT, Part, Unavailable, interleave, main, ratio, run
from training import WARMUP, train_command

CLUSTER = ROOT / "tests/slurm/cluster"
SLURM = {"SLURM_CONF": "/run/gradsync-cluster/slurm.conf", "SLURM_PMIX_FENCE": "ring"}
NODES, MODEL, BATCH, ITERATIONS = 3, "vgg11", 16, 16
PHASES = ("compute", "exposed", "wait", "other")
BEFORE = {"gather-scatter": ("gather-scatter", "--transport", "mpi"), "allreduce, MPI": ("allreduce", "--transport", "mpi"),
          "ddp, MPI": ("ddp", "--transport", "mpi")}  # fmt: skip
NOW = {"allreduce": ("allreduce",), "ddp": ("ddp",), "ddp, cap auto": ("ddp", "--bucket-cap", "auto", "--first-bucket", "auto"),
       "ddp, across iterations": ("ddp", "--overlap", "step"), "ddp, across iterations, bf16": ("ddp", "--overlap", "step", "--wire-dtype", "bf16")}  # fmt: skip


class Cluster:
    """Started on entry, stopped on exit."""

    def __init__(self, rate: str):
        self.rate = rate

    def __enter__(self) -> "Cluster":
        why = subprocess.run([CLUSTER, "why-not"], capture_output=True, text=True, check=False).stdout.strip()
        if why:
            raise Unavailable(f"no cluster here: {why}")
        run([CLUSTER, "start", "--nodes", NODES, "--rate", self.rate])
        return self

    def __exit__(self, *_) -> None:
        subprocess.run([CLUSTER, "stop"], check=False, capture_output=True)


def phases_s(output: pathlib.Path) -> dict:
    """step: of the slowest rank, median over the steady iterations; the phases: their shares of all that time, of a step."""
    with h5py.File(output) as file:
        iterations = file["time/iteration"][WARMUP:]
        step_s = numpy.median(iterations.max(axis=1))
        return {phase: step_s * file[f"time/{phase}"][WARMUP:].sum() / iterations.sum() for phase in PHASES} | {"step": step_s}


def on_nodes(command: list) -> None:
    """A rank on each node."""
    run(["srun", "--mpi=pmix", "--kill-on-bad-exit=1", f"-N{NODES}", f"-n{NODES}", *command], SLURM)


def on_cluster(sync: str, *options):
    def measure() -> dict:
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:  # a folder that all nodes see
            output = pathlib.Path(folder) / "run.h5"
            on_nodes(train_command(output, MODEL, sync, BATCH, ITERATIONS, *options))
            return phases_s(output)

    return measure


PICTURE = """set style data histograms; set style histogram rowstacked; set style fill solid 0.8; set boxwidth 0.7; set yrange [0:*]
set ylabel 'ms a step'; set key top right; set bmargin 5; set xtics ({labels})
set arrow from {between},graph 0 to {between},graph 1 nohead dashtype 2
set label 'before' at {between},graph 0.95 right offset -1,0; set label 'now' at {between},graph 0.95 left offset 1,0
plot 'network.csv' every ::1 using 3 title 'compute', '' every ::1 using 4 title 'exposed communication', '' every ::1 using 5 title 'straggler wait', '' every ::1 using 6 title 'other'
"""


def picture(names) -> str:
    labels = ", ".join('"{}" {}'.format(name.replace(", ", "\\n"), number) for number, name in enumerate(names))
    return PICTURE.format(between=len(BEFORE) - 0.5, labels=labels)


def body() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    rate = sys.argv[2] if len(sys.argv) > 2 else "1gbit"
    part = Part("network", f"{MODEL}, {BATCH} images a rank, {NODES} nodes of one rank and one thread, links of {rate} (a Slurm on this machine)")
    part.note(f"medians of {rounds} interleaved rounds of {ITERATIONS} steps [lowest, highest]; the nodes share {len(os.sched_getaffinity(0))} cores; "
              "step: of the slowest rank; its parts: their shares of all ranks' time")  # fmt: skip
    with Cluster(rate):
        results = interleave({name: on_cluster(*how) for name, how in (BEFORE | NOW).items()}, rounds)
    steps = {name: [one["step"] for one in each] for name, each in results.items()}
    rows = []
    for name, each in results.items():
        parts = [statistics.median(one[phase] for one in each) * 1e3 for phase in PHASES]
        rows.append([name, statistics.median(steps[name]) * 1e3, *parts, ratio(steps["ddp, MPI"], steps[name])])
    part.table(["contender", "step_ms", *(f"{phase}_ms" for phase in PHASES), "'ddp, MPI' over it"], rows)
    part.plot(picture(results))
    part.finish()


if __name__ == "__main__":
    main(body)
