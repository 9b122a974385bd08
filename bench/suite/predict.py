#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How well gradsync-report predicts steps that it has not seen: from runs at two batches and one bucket cap on a link of
2 Gbit/s, those at other batches and caps.

usage: predict.py [ROUNDS]    (make bench PARTS=predict)
"""
import csv
import io
import pathlib
import statistics
import sys
import tempfile

from bench import BIN, Part, main, run
from link import Link
from training import Recorded, train_command

RATE_MBIT, MODEL, ITERATIONS = 2000, "vgg11", 15
SEEN = [(16, 25), (48, 25)]  # batch of a rank, cap in MiB
# What a message costs; the contender none tells what it takes from compute beside it.
MEASURED_TOO = ["--advise", 0, "--calibrate", "--calibration-sizes", "64KiB:16MiB"]
UNSEEN = [(8, 25), (32, 25), (64, 25), (16, 2), (16, 8), (32, 2), (32, 8), (64, 4)]


def record(link: Link, folder: pathlib.Path, batch: int, cap: int, number: int) -> pathlib.Path:
    output = folder / f"b{batch}-c{cap}-{number}.h5"
    seen = (batch, cap) in SEEN
    link.mpirun(train_command(output, MODEL, "ddp,none" if seen else "ddp", batch, ITERATIONS, "--bucket-cap", f"{cap}MiB", *(MEASURED_TOO if seen else [])))
    return output.with_name(f"{output.stem}-ddp.h5") if seen else output


def predicted_s(files: list, batch: int, cap: int) -> float:
    """Replayed from the seen run whose batch is nearest."""
    base = min(SEEN, key=lambda cell: abs(cell[0] - batch))[0]
    change = f"batch={batch},bucket-cap={cap}MiB"
    alone = [path.with_name(path.name.replace("-ddp.h5", "-none.h5")) for path in files]
    out = run([BIN / "gradsync-report", *files, *alone, "--table", "what-if", "--what-if", change, "--format", "csv", "--verdict", "no"])
    lines = [line for line in out.splitlines() if line and not line.startswith("#")]
    rows = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row["case"] == change]
    of_base = [row for row in rows if f"b{base}-" in row["run"] and "-ddp" in row["run"]]
    return float(of_base[0]["step_ms"]) * 1e-3


def body() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    part = Part("predict", f"Prediction of unseen steps: {MODEL}, ddp, two hosts of one rank, {RATE_MBIT / 1000:g} Gbit/s")
    part.note(f"seen: batches {SEEN[0][0]} and {SEEN[1][0]} at a cap of {SEEN[0][1]} MiB; medians of {ITERATIONS} steps, {rounds} runs a cell, interleaved; "
              "other numbers of ranks would share this machine's two cores")  # fmt: skip
    with tempfile.TemporaryDirectory() as name, Link(RATE_MBIT) as link:
        folder = pathlib.Path(name)
        files = {cell: [] for cell in SEEN + UNSEEN}
        for number in range(rounds):
            for cell in files:
                print(f"  round {number + 1} of {rounds}: batch {cell[0]}, cap {cell[1]} MiB", flush=True)
                files[cell].append(record(link, folder, *cell, number))
        seen = [path for cell in SEEN for path in files[cell]]
        rows = []
        for cell in UNSEEN:
            measured = statistics.median(Recorded(path).step_s for path in files[cell])
            guess = predicted_s(seen, *cell)
            rows.append([*cell, measured * 1e3, guess * 1e3, 100 * (guess / measured - 1)])
    part.table(["batch", "cap_mib", "measured_ms", "predicted_ms", "error_percent"], rows)
    errors = [abs(row[4]) for row in rows]
    part.goal("median error, %", statistics.median(errors), 5, at_most=True)
    part.goal("largest error, %", max(errors), 12, at_most=True)
    part.finish()


if __name__ == "__main__":
    main(body)
