#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the modes that send less cost in accuracy, and when they reach one: trained on the real CIFAR-10 over a link of 1 Gbit/s,
in turn in one job, each with the same images in the same order.

usage: less_accuracy.py [FOLDER [MODEL [EPOCHS [TARGET [SEEDS]]]]]    (make bench PARTS=less_accuracy; data/cifar-10, lenet, 12, 55 %, 3)
"""
import csv
import math
import pathlib
import re
import statistics
import sys
import tempfile

from bench import BIN, ROOT, Part, Unavailable, main, run
from link import Link
from training import file_of

EXACT = "allreduce"  # the one that the others are held against
CONTENDERS = (EXACT, "ddp:wire-dtype=bf16", "powersgd", "powersgd:powersgd-rank=1", "top-k", "local-sgd", "local-sgd:outer=nesterov", "zero1")
BATCH, RATE, MBIT_PER_S = 64, 0.02, 1000


def time_to(percent: float, path: str) -> float:
    """Running time until the first epoch whose test accuracy is so high, s; infinite where none is."""
    with tempfile.TemporaryDirectory() as folder:
        run([BIN / "gradsync-report", path, "--table", "time-to-accuracy", "--target-accuracy", percent, "--format", "csv", "--output", folder])
        (row,) = csv.DictReader((pathlib.Path(folder) / "time-to-accuracy.csv").open())
    return float(row["time_s"]) if row["reached"] == "1" else math.inf


def body() -> None:
    images = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "data/cifar-10")
    model, epochs, target, last_seed = sys.argv[2] if len(sys.argv) > 2 else "lenet", *(
        int(sys.argv[place]) if len(sys.argv) > place else usual for place, usual in ((3, 12), (4, 55), (5, 3)))  # fmt: skip
    seeds = range(1, last_seed + 1)
    if not (images / "data_batch_1.bin").exists():
        raise Unavailable(f"no CIFAR-10 in {images} (make data)")
    part = Part(f"less_accuracy_{model}", f"Test accuracy on CIFAR-10, {model}, 2 ranks with {BATCH} images each over {MBIT_PER_S // 1000} Gbit/s, sgd at {RATE}, "
                f"{epochs} epochs; running time until it is {target} %", of="less_accuracy")  # fmt: skip
    accuracy, time_s = ({contender: [] for contender in CONTENDERS} for _ in range(2))
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder, Link(MBIT_PER_S) as link:
            said = link.mpirun([BIN / "gradsync-train", "--device", "cpu", "--model", model, "--data", images.absolute(), "--compare", ",".join(CONTENDERS),
                                "--transport", "tcp-ring", "--epochs", epochs, "--batch-per-rank", BATCH, "--threads", 1, "--lr", RATE, "--lr-schedule", "cosine",
                                "--seed", seed, "--evaluate", "shard", "--block", 48, "--block-warmup", 0, "--no-calibrate", "--advise", 0,
                                "--output", f"{folder}/a.h5"])  # fmt: skip
            for contender in CONTENDERS:
                accuracy[contender].append(float(re.findall(rf"^{re.escape(contender)}: epoch \d+: .*test accuracy ([\d.]+) %", said, re.M)[-1]))
                time_s[contender].append(time_to(target, file_of(folder, contender)))
                print(seed, contender, accuracy[contender][-1], time_s[contender][-1], flush=True)
    rows = []
    for contender in CONTENDERS:
        # A seed is one first network and one order of images: differences and ratios are within it.
        away = [mine - exact for mine, exact in zip(accuracy[contender], accuracy[EXACT])]
        part_of = [mine / exact for mine, exact in zip(time_s[contender], time_s[EXACT])]
        rows.append([contender, *accuracy[contender], statistics.fmean(away), min(away), max(away),
                     *time_s[contender], statistics.median(part_of), min(part_of), max(part_of)])  # fmt: skip
    part.table(["contender", *(f"test % {seed}" for seed in seeds), f"to {EXACT}", "lowest", "highest",
                *(f"time s {seed}" for seed in seeds), f"over {EXACT}'s", "least", "most"], rows)  # fmt: skip
    part.finish()


if __name__ == "__main__":
    main(body)
