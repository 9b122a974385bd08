#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the modes that send less cost in accuracy, and when they reach one: trained on the real CIFAR-10 over a link of 1 Gbit/s,
in turn in one job, each with the same images in the same order.
"""
import argparse
import pathlib
import statistics
import tempfile

from bench import BIN, ROOT, Part, Unavailable, main
from link import Link
from training import Epochs, file_of

EXACT = "allreduce"  # the one that the others are held against
OTHERS = "ddp:wire-dtype=bf16,powersgd,powersgd:powersgd-rank=1,top-k,local-sgd,local-sgd:outer=nesterov,zero1"
BATCH, RATE, MBIT_PER_S = 64, 0.02, 1000
LONGEST_SEED_S = 4 * 3600  # a large network takes two hours


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "data/cifar-10", help="folder of CIFAR-10 [data/cifar-10]")
    parser.add_argument("--model", default="lenet", help="[lenet]")
    parser.add_argument("--precision", default="fp32", help="of gradsync-train [fp32]")
    parser.add_argument("--epochs", type=int, default=12, help="[12]")
    parser.add_argument("--target", type=float, default=55, help="test accuracy to reach, %% [55]")
    parser.add_argument("--seeds", type=int, default=3, help="how many [3]")
    parser.add_argument("--others", default=OTHERS, help=f"contenders beside {EXACT} [{OTHERS}]")
    parser.add_argument("--runs", type=pathlib.Path, help="folder where the run files stay [none]")
    return parser.parse_args()


def body() -> None:
    chosen = options()
    if not (chosen.data / "data_batch_1.bin").exists():
        raise Unavailable(f"no CIFAR-10 in {chosen.data} (make data)")
    contenders = [EXACT, *chosen.others.split(",")]
    part = Part(f"less_accuracy_{chosen.model}", f"Test accuracy on CIFAR-10, {chosen.model} in {chosen.precision}, 2 ranks with {BATCH} images each over "
                f"{MBIT_PER_S // 1000} Gbit/s, sgd at {RATE}, {chosen.epochs} epochs; running time until it is {chosen.target:g} %", of="less_accuracy")  # fmt: skip
    trained: dict[str, list[Epochs]] = {contender: [] for contender in contenders}
    for seed in range(1, chosen.seeds + 1):
        with tempfile.TemporaryDirectory() as temporary, Link(MBIT_PER_S) as link:
            folder = (chosen.runs.absolute() if chosen.runs else pathlib.Path(temporary)) / f"{chosen.model}-seed{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            link.mpirun([BIN / "gradsync-train", "--device", "cpu", "--model", chosen.model, "--data", chosen.data.absolute(), "--compare", ",".join(contenders),
                         "--transport", "tcp-ring", "--precision", chosen.precision, "--epochs", chosen.epochs, "--batch-per-rank", BATCH, "--threads", 1,
                         "--lr", RATE, "--lr-schedule", "cosine", "--seed", seed, "--evaluate", "shard", "--block", 48, "--block-warmup", 0,
                         "--no-calibrate", "--advise", 0, "--output", f"{folder}/a.h5"], timeout=LONGEST_SEED_S)  # fmt: skip
            for contender in contenders:
                trained[contender].append(Epochs(file_of(str(folder), contender)))
    # A seed is one first network and one order of images: differences and ratios are within it.
    least_s = [min(one.until_s[-1] for one in of_seed) for of_seed in zip(*trained.values())]
    rows, by_epoch = [], []
    for contender, runs in trained.items():
        away = [mine.percent[-1] - exact.percent[-1] for mine, exact in zip(runs, trained[EXACT])]
        time_s = [run.time_to(chosen.target) for run in runs]
        part_of = [mine / exact.time_to(chosen.target) for mine, exact in zip(time_s, trained[EXACT])]
        rows.append([contender, *(run.percent[-1] for run in runs), statistics.fmean(away), min(away), max(away),
                     statistics.fmean(run.until_s[-1] for run in runs), statistics.fmean(run.at(end_s) for run, end_s in zip(runs, least_s)),
                     *time_s, statistics.median(part_of), min(part_of), max(part_of)])  # fmt: skip
        by_epoch += [[contender, seed, epoch + 1, until_s, percent] for seed, run in enumerate(runs, 1)
                     for epoch, (until_s, percent) in enumerate(zip(run.until_s.tolist(), run.percent.tolist()))]  # fmt: skip
    names = [str(seed) for seed in range(1, chosen.seeds + 1)]
    part.note("test %: after the last epoch, by seed; then: of the last epoch that had ended when the first contender had done all (nan: none had)")
    part.table(["contender", *(f"test % {name}" for name in names), f"to {EXACT}", "lowest", "highest", "all s", "then %",
                *(f"time s {name}" for name in names), f"over {EXACT}'s", "least", "most"], rows)  # fmt: skip
    part.table(["contender", "seed", "epoch", "until_s", "test_percent"], by_epoch, f"less_accuracy_{chosen.model}_epochs")
    part.finish()


if __name__ == "__main__":
    main(body)
