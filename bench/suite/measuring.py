#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What measuring costs: blocks of the same steps with stamps of their phases and messages, and without, in turn within one job.

usage: measuring.py [ROUNDS]    (make bench PARTS=measuring)
"""
import pathlib
import statistics
import sys
import tempfile

import h5py

from bench import Part, main, mpirun, ratio, run
from training import train_command

STEPS = {"lenet": (64, 400), "vgg11": (32, 10)}  # batch of a rank, steps a block


def blocks(path: pathlib.Path, rounds: int) -> list:
    """Times of a step of the slowest rank, round by round without the first, which warms up; s."""
    with h5py.File(path) as file:
        times, numbers = file["time/iteration"][:].max(axis=1), file["iteration/round"][:]
    return [float(times[numbers == number].mean()) for number in range(1, rounds + 1)]


def measured_and_not(model: str, rounds: int) -> tuple:
    batch, steps = STEPS[model]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run([*mpirun(2), *train_command(folder / "run.h5", model, "ddp,ddp:stamps=off", batch, steps * (rounds + 1), "--block", steps,
                                        "--no-calibrate", "--advise", 0)], timeout=1200)  # fmt: skip
        return blocks(folder / "run-ddp.h5", rounds), blocks(folder / "run-ddp-stamps-off.h5", rounds)


def body() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    part = Part("measuring", "What measuring costs: two ranks of one thread on one host, ddp")
    part.note(f"{rounds} blocks each, in turn; medians [lowest, highest]")
    rows = []
    for model in STEPS:
        measured, plain = measured_and_not(model, rounds)
        cost = ratio(measured, plain)
        rows.append([model, *STEPS[model], statistics.median(plain) * 1e3, cost])
        part.goal(f"{model}: with measuring over without, % of a step", 100 * (cost.median - 1), 0.1, at_most=True)
    part.table(["model", "batch", "steps", "step_ms", "measured/unmeasured"], rows)
    part.finish()


if __name__ == "__main__":
    main(body)
