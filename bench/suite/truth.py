#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether intervals of gradsync-train --compare hold the truth: contenders that are equal, one that is made slower by a known
part, modes on one rank where nothing is exchanged; on an idle machine and beside a load that comes and goes, on one host and
on three nodes of a Slurm.

usage: truth.py [JOBS [SHARE...]]    (make bench PARTS=truth; 40 jobs a setting; shares: equal_lenet equal_vgg11 equal_cluster
       one_rank torch advice slower)
"""
import contextlib
import csv
import functools
import itertools
import json
import multiprocessing
import pathlib
import random
import sys
import tempfile
import time

import h5py
import numpy

from bench import BIN, ROOT, Part, Unavailable, main, mpirun, run
from link import Link
from network import NODES, Cluster, on_nodes
from training import ddp_over, images

# Batch of a rank, iterations of each contender.
MODELS = {"lenet": (64, 66), "vgg11": (4, 34)}
SECONDS = (1, 4)  # that the load lasts, and is away
CONFIDENCE = 0.95
ROUNDS, BLOCK = 24, 2  # beside PyTorch: rounds, and iterations of each contender in one, after one that does not count


def busy(seed: int) -> None:
    draws = random.Random(seed)
    while True:
        until = time.monotonic() + draws.uniform(*SECONDS)
        while time.monotonic() < until:
            pass
        time.sleep(draws.uniform(*SECONDS))


@contextlib.contextmanager
def load(present: bool):
    processes = [multiprocessing.Process(target=busy, args=(seed,), daemon=True) for seed in (1, 2) if present]
    for one in processes:
        one.start()
    try:
        yield
    finally:
        for one in processes:
            one.kill()
            one.join()


def words(model: str, compare: str, output, *options, iterations: int = 0, batch: int = 0) -> list:
    usual_batch, usual = MODELS.get(model, (batch, iterations))
    return [BIN / "gradsync-train", "--device", "cpu", "--model", model, "--data", images(), "--compare", compare, "--batch-per-rank", batch or usual_batch,
            "--threads", 1, "--iterations", iterations or usual, "--warmup", 2, "--evaluate", "none", "--lr", 0.001, "--epochs", 1000,
            "--no-calibrate", "--advise", 0, "--output", output, *options]  # fmt: skip


def ratio(below, above) -> tuple:
    """(estimate, low, high) of the times of two contenders of one job, as gradsync-report compare gives them."""
    with tempfile.TemporaryDirectory() as folder:
        run([BIN / "gradsync-report", "compare", below, above, "--format", "csv", "--output", folder, "--threshold", "1000%"])
        rows = list(csv.DictReader((pathlib.Path(folder) / "compare.csv").open()))
    return tuple(float(rows[0][name]) for name in ("ratio", "ratio_low", "ratio_high"))


def times_s(path) -> numpy.ndarray:
    with h5py.File(path) as file:
        steady = file["iteration/warmup"][:] == 0
        return file["time/iteration"][:][steady].max(axis=1)


def stretch(folder: pathlib.Path) -> float:
    """Of an experiment: from its first iteration to the end of its last, over the sum of its iterations; the control's count."""
    begins, ends, total_s = [], [], 0.0
    for path in folder.glob("*.h5"):
        with h5py.File(path) as file:
            begin_s, iteration_s = file["time/begin"][:].min(axis=1), file["time/iteration"][:].max(axis=1)
        begins.append(begin_s.min())
        ends.append((begin_s + iteration_s).max())
        total_s += iteration_s.sum()
    return float((max(ends) - min(begins)) / total_s)


def two_starts(one, other) -> tuple:
    """What comparisons of separate runs do: the percentile bootstrap of the ratio of medians over the iterations of each."""
    draws = numpy.random.default_rng(1)
    medians = [numpy.median(draws.choice(times, (2000, len(times))), axis=1) for times in (times_s(one), times_s(other))]
    low, high = numpy.quantile(medians[1] / medians[0], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return (float(numpy.median(times_s(other)) / numpy.median(times_s(one))), float(low), float(high))


def misses(intervals: list, truth: float = 1) -> int:
    return sum(not low <= truth <= high for _, low, high in intervals)


def half_width(intervals: list) -> float:
    return float(numpy.median([(high - low) / 2 / middle for middle, low, high in intervals]))


def on_one_host(command: list) -> None:
    run([*mpirun(2), *command])


def equal_contenders(model: str, part: Part, jobs: int, start=on_one_host) -> None:
    rows, all_of = [], {"one job": [0, 0], "two starts": [0, 0]}
    worst, longest = 0.0, 0.0
    for count, loaded in itertools.product((2, 4), (False, True)):
        together, firsts = [], []
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder, load(loaded):  # all nodes see it
            for job in range(jobs if count == 2 else max(1, jobs // 4)):
                place = pathlib.Path(folder) / str(job)
                place.mkdir()
                start(words(model, ",".join(["ddp"] * count), place / "a.h5"))
                files = [place / "a-ddp.h5", *(place / f"a-ddp-{n}.h5" for n in range(2, count + 1))]
                together += [ratio(one, other) for one, other in itertools.combinations(files, 2)]
                firsts.append(files[0])
                longest = max(longest, stretch(place))
            apart = [two_starts(one, other) for one, other in zip(firsts, firsts[1:])]
        for name, intervals in (("one job", together), ("two starts", apart)):
            if count != 2 and name == "two starts":
                continue
            all_of[name][0] += misses(intervals)
            all_of[name][1] += len(intervals)
            share = misses(intervals) / max(1, len(intervals))
            if name == "one job":
                worst = max(worst, share)
            rows.append([model, count, "comes and goes" if loaded else "none", name, len(intervals), 100 * share, 100 * half_width(intervals) if intervals else float("nan")])
            print(*rows[-1], flush=True)
    part.table(["model", "contenders", "load", "way", "intervals", "miss_percent", "half_width_percent"], rows)
    missed, intervals = all_of["one job"]
    part.goal(f"equal contenders of one job: misses of {intervals} intervals, %", 100 * missed / intervals, 7.5, at_most=True)
    part.goal("equal contenders of one job: misses of a group, %", 100 * worst, 10, at_most=True)
    part.goal("from an experiment's first iteration to its last, over the sum of them, longest", longest, 1.25, at_most=True)
    missed, intervals = all_of["two starts"]
    part.note(f"         two starts, each with the next: {100 * missed / max(1, intervals):.0f} % of {intervals} intervals miss")


def equal_on_cluster(part: Part, jobs: int) -> None:
    part.note(f"{NODES} nodes of one rank, links of 1 Gbit/s; the nodes share the cores of this machine")
    with Cluster("1gbit"):
        equal_contenders("lenet", part, jobs, on_nodes)


def slower_contender(part: Part, jobs: int) -> None:
    """One contender's forward passes take longer on both ranks; the effect is that of the mean over all jobs. On one rank its
    effect would differ by the job: it is less where the other rank is slower by itself."""
    rows = []
    for percent in (1, 3, 10):
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for job in range(jobs):
                place = pathlib.Path(folder) / str(job)
                place.mkdir()
                # A forward pass is about a fifth of an iteration.
                run([*mpirun(2), *words("vgg11", f"ddp,ddp:inject-fault=slow@all:{1 + 5 * percent / 100}", place / "a.h5")])
                (slow,) = place.glob("a-ddp-inject*[0-9].h5")
                found.append(ratio(place / "a-ddp.h5", slow))
        effect = float(numpy.exp(numpy.mean(numpy.log([middle for middle, _, _ in found]))))
        seen = sum(low > 1 for _, low, _ in found) / len(found)
        rows.append([percent, 100 * (effect - 1), len(found), 100 * (1 - misses(found, effect) / len(found)), 100 * seen])
        print(*rows[-1], flush=True)
    part.table(["wanted_percent", "effect_percent", "jobs", "hold_percent", "found_percent"], rows)
    part.goal("a slower contender: intervals that hold its effect, %", min(row[3] for row in rows), 92)
    part.goal(f"a contender that is {rows[1][1]:.1f} % slower is found, % of the jobs", rows[1][4], 85)


def one_rank(part: Part, _: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        run([*mpirun(1), *words("vgg11", "all", pathlib.Path(folder) / "a.h5")])
        wall_s = time.monotonic() - begin
        files = [pathlib.Path(folder) / f"a-{mode}.h5" for mode in ("none", "gather-scatter", "allreduce", "ddp", "data-parallel", "c10d")]
        rows = [[path.stem[2:], *ratio(files[0], path)] for path in files[1:]]
        iterating_s = sum(float(times.sum()) for times in map(times_s, pathlib.Path(folder).glob("*.h5")))
    part.table(["mode_on_one_rank", "ratio", "low", "high"], rows)
    part.goal("modes on one rank that differ from none, by the interval and by 1 %",
              sum(not low <= 1 <= high and abs(middle - 1) > 0.01 for _, middle, low, high in rows), 0, at_most=True)  # fmt: skip
    part.note(f"         that job took {wall_s:.0f} s, {iterating_s:.0f} s of it in iterations")


def ratio_of_blocks(below, above) -> tuple:
    """(estimate, low, high) of the ratio of times in the same blocks: the mean of its logarithms, by the bootstrap over the blocks."""
    logs = numpy.log(numpy.divide(above, below))
    means = numpy.random.default_rng(1).choice(logs, (10_000, len(logs))).mean(axis=1)
    ends = numpy.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return tuple(numpy.exp([logs.mean(), *ends]).tolist())


def torch_cost(part: Part, _: int) -> None:
    """What DistributedDataParallel costs by a script of PyTorch, and by --compare none,c10d, which is its Reducer, over one link."""
    rows = []
    for rate in (1000, 2000, 5000):
        with tempfile.TemporaryDirectory() as folder, Link(rate) as link:
            blocks = ("--transport", "tcp-ring", "--block", 1 + BLOCK, "--block-warmup", 1)
            link.mpirun(words("vgg11", "none,c10d", f"{folder}/a.h5", *blocks, iterations=ROUNDS * (1 + BLOCK)))
            own = ratio(f"{folder}/a-none.h5", f"{folder}/a-c10d.h5")
            said = ddp_over(link, "vgg11", MODELS["vgg11"][0], ROUNDS * BLOCK, 25, BLOCK)
        peer = ratio_of_blocks(said["alone_s"], said["ddp_s"])
        rows.append([rate, *own, *peer, "yes" if max(own[1], peer[1]) <= min(own[2], peer[2]) else "no"])
        print(*rows[-1], flush=True)
    part.table(["mbit_per_s", "c10d/none", "low", "high", "DDP/alone", "low of DDP", "high of DDP", "overlap"], rows)
    part.goal("links on which the two intervals overlap", sum(row[-1] == "yes" for row in rows), len(rows))


def advice(part: Part, _: int) -> None:
    """Settings that join are measured against what was predicted of them, on links of three rates."""
    rows = []
    for model, rate in itertools.product(("vgg11", "resnet18"), (1000, 2000, 5000)):
        with tempfile.TemporaryDirectory() as folder, Link(rate) as link:
            output, said = pathlib.Path(folder) / "a.h5", pathlib.Path(folder) / "said.json"
            link.mpirun([BIN / "gradsync-train", "--device", "cpu", "--model", model, "--data", images(), "--compare", "none,ddp", "--batch-per-rank", 16,
                         "--threads", 1, "--iterations", 30, "--warmup", 2, "--evaluate", "none", "--lr", 0.001, "--epochs", 1000, "--output", output,
                         "--json", said])  # fmt: skip
            tables = {table["name"]: table for table in json.loads(said.read_text())["tables"]} if said.exists() else {}
            for row in tables.get("advice", {}).get("rows", []):
                named = row if isinstance(row, dict) else dict(zip((column["name"] for column in tables["advice"]["columns"]), row))
                predicted, low, high, measured = (float(named[name]) for name in ("predicted", "predicted_low", "predicted_high", "measured"))
                rows.append([model, rate, named["contender"], predicted, low, high, measured, 100 * abs(predicted / measured - 1)])
                print(*rows[-1], flush=True)
    part.table(["model", "mbit_per_s", "advice", "predicted", "low", "high", "measured", "error_percent"], rows)
    errors = [row[-1] for row in rows]
    if errors:
        held = sum(low <= measured <= high for *_, low, high, measured, _ in rows)
        part.goal("advice that was tried: measured within the predicted range, %", 100 * held / len(rows), 90)
        part.goal("advice that was tried: median error of the prediction, %", float(numpy.median(errors)), 5, at_most=True)
        part.goal("advice that was tried: largest error of the prediction, %", max(errors), 12, at_most=True)
    first = [row for row in rows if row[:2] == ["vgg11", 1000]]
    if first:
        part.goal("VGG11 over 1 Gbit/s: measured gain of the first advice, %", 100 * (1 - first[0][6]), 30)


EQUAL = {f"equal_{model}": functools.partial(equal_contenders, model) for model in MODELS}
SHARES = EQUAL | {"equal_cluster": equal_on_cluster, "one_rank": one_rank, "torch": torch_cost, "advice": advice, "slower": slower_contender}


def body() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    shares = sys.argv[2:] or list(SHARES)
    for share in shares:
        part = Part(f"truth_{share}", f"Whether intervals of --compare hold the truth, {share.replace('_', ' ')}: ranks of one thread", of="truth")
        part.note(f"{jobs} jobs a setting; of each contender " + ", ".join(f"{n} iterations of {model} with {batch} images a rank" for model, (batch, n) in MODELS.items()))
        try:
            SHARES[share](part, jobs)
        except Unavailable as reason:
            print(f"SKIP {share}: {reason}", flush=True)
            continue
        part.finish()


if __name__ == "__main__":
    main(body)
