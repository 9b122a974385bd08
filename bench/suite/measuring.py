#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What measuring costs: windows of the same steps with stamps and rows, and without, in turn within one run.

usage: measuring.py [ROUNDS]    (make bench PARTS=measuring)
"""
import pathlib
import statistics
import sys
import tempfile

import h5py

from bench import Part, main, mpirun, ratio, run
from training import train_command

STEPS = {"lenet": (64, 400), "vgg11": (32, 10)}  # batch of a rank, steps a window


def windows(model: str, rounds: int) -> tuple:
    """Times of a step of the slowest rank, window by window, with measuring and without; s."""
    batch, steps = STEPS[model]
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "run.h5"
        run([*mpirun(2), *train_command(output, model, "ddp", batch, 5, "--counterfactual", steps, "--counterfactual-rounds", rounds)], timeout=1200)
        with h5py.File(output) as file:
            kinds = file["counterfactual/kind"][:]
            times = file["counterfactual/iteration"][:].max(axis=1)
    named = [kind.decode() if isinstance(kind, bytes) else str(kind) for kind in kinds]
    of = lambda name: [time for kind, time in zip(named, times) if kind == name]  # noqa: E731
    return of("overlapped"), of("overlapped-unmeasured")


def body() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    part = Part("measuring", "What measuring costs: two ranks of one thread on one host, ddp")
    part.note(f"{rounds} windows each, in turn; medians [lowest, highest]")
    rows = []
    for model in STEPS:
        measured, plain = windows(model, rounds)
        cost = ratio(measured, plain)
        rows.append([model, *STEPS[model], statistics.median(plain) * 1e3, cost])
        part.goal(f"{model}: with measuring over without, % of a step", 100 * (cost.median - 1), 0.1, at_most=True)
    part.table(["model", "batch", "steps", "step_ms", "measured/unmeasured"], rows)
    part.finish()


if __name__ == "__main__":
    main(body)
