#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What is meant to keep accuracy at a large batch, on real ranks: learning rates, growing batches, optimizers, clipping,
batch norm over the ranks. Runs are compared with what one rank does on the same global batch.

usage: recipes.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import sys

from harness import BIN, Failure, Result, Skip, check, mpirun, run, run_cases, synthetic

DATA = ""
IMAGES = 320


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, IMAGES, 32)


def train(output, *arguments, ranks: int = 1) -> Result:
    options = {"--model": "lenet", "--data": DATA, "--threads": 1, "--evaluate": "none", "--sync": "allreduce"}
    given = [f"{part}" for part in arguments]
    kept = [part for option, value in options.items() if option not in given for part in (option, value)]
    command = [BIN / "gradsync-train", *kept, *(["--output", output] if output else []), *given]
    return run(mpirun(ranks) + command, timeout=300)


def rows(output, name: str):
    try:
        import h5py
    except ImportError:
        raise Skip("needs a Python with h5py (make deps)") from None
    with h5py.File(output) as file:
        return file[name][:]


def losses(folder, title: str, *arguments, ranks: int):
    """The mean loss over the ranks, by iteration."""
    output = folder / f"{title}-{ranks}.h5"
    train(output, *arguments, ranks=ranks).expect(0)
    return rows(output, "loss").mean(axis=1)


def require_close(one, other, tolerance: float, what: str) -> None:
    check(len(one) == len(other), f"{what}: {len(one)} and {len(other)} iterations")
    largest = max(abs(a - b) for a, b in zip(one, other, strict=True))
    check(largest <= tolerance, f"{what}: losses differ by {largest:.2e}")


def case_a_batch_schedule_grows_the_batch(folder) -> None:
    output = folder / "run.h5"
    train(output, "--epochs", 3, "--batch-schedule", "0:32,2:160", "--lr", 0.01, "--lr-scaling", "linear", "--base-batch", 16, ranks=2).expect(0)
    samples = list(rows(output, "iteration/samples"))
    check(samples == [32] * 20 + [160] * 2, f"samples {samples}")
    check(list(rows(output, "epoch/iterations")) == [10, 10, 2], f"{rows(output, 'epoch/iterations')}")
    require_close(rows(output, "iteration/lr"), [0.02] * 22, 1e-12, "rates in proportion to the batch of the start")


def case_batch_norm_over_the_ranks_is_one_rank_with_the_whole_batch(folder) -> None:
    common = ("--model", "vgg11", "--batch-global", 32, "--iterations", 3, "--lr", 0.001, "--no-augment")
    one = losses(folder, "none", *common, "--sync", "none", ranks=1)
    for mode in ("allreduce", "ddp", "c10d", "data-parallel", "gather-scatter"):
        two = losses(folder, mode, *common, "--sync", mode, "--batch-norm", "sync", ranks=2)
        require_close(one, two, 5e-4, f"{mode} with sync")
    local = losses(folder, "local", *common, "--batch-norm", "local", ranks=2)
    check(max(abs(one - local)) > 5e-3, "a batch norm of each rank's own must differ, or the test shows nothing")


def case_waiting_for_statistics_is_no_compute(folder) -> None:
    output = folder / "run.h5"
    train(output, "--model", "vgg11", "--batch-global", 8, "--iterations", 4, "--batch-norm", "sync", ranks=4).expect(0)
    compute, exposed, iteration = (rows(output, f"time/{name}") for name in ("compute", "exposed", "iteration"))
    wait, other, hidden = rows(output, "time/wait"), rows(output, "time/other"), rows(output, "time/hidden")
    check(abs(compute + exposed + wait + other - iteration).max() < 1e-9, "the parts are not the whole")
    check(hidden.max() < 1e-9, f"blocking collectives hid {hidden.max()} s behind compute")
    check((rows(output, "traffic/buffers") > 0).all(), "statistics are not counted as buffers")


def case_a_late_rank_is_waited_for_and_no_communication(folder) -> None:
    for mode, transport in (("ddp", "shm"), ("allreduce", "mpi"), ("ddp", "tcp-ring")):
        output = folder / f"{mode}-{transport}.h5"
        train(output, "--sync", mode, "--transport", transport, "--batch-per-rank", 16, "--iterations", 8,
              "--inject-fault", "delay@1:5", ranks=2).expect(0)  # fmt: skip
        parts = {name: rows(output, f"time/{name}") for name in ("compute", "exposed", "hidden", "wait", "other", "iteration")}
        whole = parts["compute"] + parts["exposed"] + parts["wait"] + parts["other"]
        check(abs(whole - parts["iteration"]).max() < 1e-9, f"{mode}, {transport}: the parts are not the whole")
        check(parts["wait"][5, 0] > 1, f"{mode}, {transport}: rank 0 waited {parts['wait'][5, 0]} s for a rank 3 s late")
        for name in ("hidden", "exposed"):
            check(parts[name][5].max() < 2, f"{mode}, {transport}: {parts[name][5]} s {name}, though rank 1 was late")


def case_broadcast_hands_out_the_buffers_of_rank_0(folder) -> None:
    output = folder / "run.h5"
    train(output, "--model", "vgg11", "--batch-global", 8, "--iterations", 2, "--batch-norm", "broadcast", ranks=2).expect(0)
    # Running mean and variance of 2,752 channels, float32.
    check((rows(output, "traffic/buffers") == 2 * 2752 * 4).all(), f"{rows(output, 'traffic/buffers')}")


def case_clipping_and_every_optimizer_agree_with_one_rank(folder) -> None:
    for name, options in (("clip", ("--clip-norm", 0.1)), ("lars", ("--optimizer", "lars", "--lr", 1)),
                          ("lamb", ("--optimizer", "lamb", "--lr", 0.01)), ("adam", ("--optimizer", "adam", "--lr", 0.001)),
                          ("nesterov", ("--nesterov",)), ("smoothing", ("--label-smoothing", 0.1))):  # fmt: skip
        common = ("--batch-global", 32, "--epochs", 1, "--lr", 0.02) if "--lr" not in options else ("--batch-global", 32)
        one = losses(folder, name, *common, *options, ranks=1)
        two = losses(folder, name, *common, *options, "--sync", "ddp", ranks=2)
        require_close(one, two, 2e-3, name)
    plain = losses(folder, "plain", "--batch-global", 32, "--lr", 0.02, ranks=1)
    clipped = losses(folder, "clipped", "--batch-global", 32, "--lr", 0.02, "--clip-norm", 0.1, ranks=1)
    check(max(abs(plain - clipped)) > 1e-3, "clipping changes nothing, or the test shows nothing")


def case_a_resumed_run_keeps_its_optimizer_and_schedule(folder) -> None:
    common = ("--epochs", 3, "--optimizer", "lamb", "--lr", 0.01, "--lr-schedule", "polynomial",
              "--batch-schedule", "0:32,1:160")  # fmt: skip
    whole = train(folder / "whole.h5", *common, ranks=2).expect(0)
    part = folder / "part.h5"
    train(part, *common, "--inject-fault", "usr1@1:11", ranks=2).expect(75)
    resumed = train(part, *common, "--resume", "auto", ranks=2).expect(0)
    parameters = [next(line for line in one.out.splitlines() if line.startswith("parameters:")) for one in (whole, resumed)]
    check(parameters[0] == parameters[1], f"{parameters}")
    check((rows(part, "loss") == rows(folder / "whole.h5", "loss")).all(), "losses differ")


def case_bad_values_are_refused_with_key_and_range(folder) -> None:
    """What only the options together, or the ranks, show to be wrong; single values: train_options_test.cpp."""
    refused = (
        (("--optimizer", "lars", "--momentum", "1"), "momentum"), (("--nesterov", "--momentum", "0"), "momentum"),
        (("--lr-schedule", "multistep", "--lr-milestones", "5,9", "--epochs", "8"), "1 to 7"),
        (("--lr-schedule", "step", "--lr-step-epochs", "9", "--epochs", "9"), "1 to 8"),
        (("--lr-min", "1", "--lr", "0.1", "--lr-schedule", "cosine"), "lr-min"),
        (("--warmup-epochs", "3", "--epochs", "3"), "warmup-epochs"),
        (("--batch-schedule", "0:32,2:64", "--epochs", "2"), "beyond"),
        (("--batch-schedule", "0:32", "--batch-global", "64"), "batch-global"),
        (("--batch-norm", "sync", "--sync", "none"), "none"),
    )  # fmt: skip
    for options, text in refused:
        train(folder / "run.h5", *options).expect(64, text)
        if any(folder.iterdir()):
            raise Failure(f"{options} left {list(folder.iterdir())}")
    train(folder / "run.h5", "--batch-schedule", "0:33", "--epochs", "2", ranks=2).expect(64, "does not divide")


if __name__ == "__main__":
    sys.exit(run_cases(globals(), prepare, at_once=2))
