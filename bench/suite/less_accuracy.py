#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the modes that send less cost in accuracy: trained on the real CIFAR-10, each with the same images in the same order.

usage: less_accuracy.py [FOLDER [MODEL [EPOCHS]]]    (make bench PARTS=less_accuracy; data/cifar-10, lenet, 12)
"""
import pathlib
import re
import statistics
import sys

from bench import BIN, ROOT, Part, Unavailable, main, mpirun, run

CONTENDERS = ("allreduce", "powersgd", "powersgd:powersgd-rank=1", "top-k", "local-sgd", "local-sgd:outer=nesterov", "zero1")
SEEDS = (1, 2, 3)
RANKS, BATCH, RATE = 2, 64, 0.02


def body() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "data/cifar-10")
    model, epochs = sys.argv[2] if len(sys.argv) > 2 else "lenet", int(sys.argv[3]) if len(sys.argv) > 3 else 12
    if not (folder / "data_batch_1.bin").exists():
        raise Unavailable(f"no CIFAR-10 in {folder} (make data)")
    part = Part("less_accuracy", f"Test accuracy on CIFAR-10 in %, {model}, {RANKS} ranks with {BATCH} images each, sgd at {RATE}")
    accuracy: dict[str, dict[int, list]] = {contender: {} for contender in CONTENDERS}
    for seed in SEEDS:
        said = run([*mpirun(RANKS), BIN / "gradsync-train", "--device", "cpu", "--model", model, "--data", folder, "--compare", ",".join(CONTENDERS), "--epochs", epochs,
                    "--batch-per-rank", BATCH, "--threads", 1, "--lr", RATE, "--lr-schedule", "cosine", "--seed", seed, "--evaluate", "shard",
                    "--block", 50, "--block-warmup", 0, "--no-calibrate", "--advise", 0], timeout=36_000)  # fmt: skip
        for contender in CONTENDERS:
            found = re.findall(rf"^{re.escape(contender)}: epoch \d+: .*test accuracy ([\d.]+) %", said, re.M)
            accuracy[contender][seed] = [float(text) for text in found]
        print(seed, {contender: values[seed][-1] for contender, values in accuracy.items()}, flush=True)
    rows = []
    for contender, values in accuracy.items():
        last = [values[seed][-1] for seed in SEEDS]
        # A seed is one first network and one order of images: differences are within it.
        away = [values[seed][-1] - accuracy["allreduce"][seed][-1] for seed in SEEDS]
        rows.append([contender, epochs, *last, statistics.fmean(last), statistics.fmean(away), min(away), max(away)])
    part.table(["contender", "epochs", *(f"seed {seed}" for seed in SEEDS), "mean", "to allreduce", "lowest", "highest"], rows)
    part.finish()


if __name__ == "__main__":
    main(body)
