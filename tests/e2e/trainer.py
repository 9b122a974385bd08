#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradsync-train from outside: real mpirun, real ranks, real faults. Prints PASS, FAIL or SKIP a case.

usage: trainer.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import contextlib
import json
import mmap
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import harness
from harness import (BIN, ROOT, Failure, Result, Skip, check, launcher, mpirun, processes, run, synthetic, torchscript_modules,
                     with_shared_memory)  # fmt: skip

RECORD = 3073
DATA = ""


def trainer(*arguments) -> list:
    data = [] if "--data" in arguments else ["--data", DATA]
    return [BIN / "gradsync-train", "--model", "lenet", *data, "--evaluate", "none", *arguments]


def train(ranks: int, *arguments, **how) -> Result:
    return run(mpirun(ranks) + trainer(*arguments), **how)


def report(path, *arguments) -> Result:
    return run([BIN / "gradsync-report", path, "--plots", "no", *arguments])


def short_run(folder, *arguments) -> list:
    return ["--batch-per-rank", 16, "--iterations", 8, "--output", folder / "run.h5", *arguments]


def folder_for(folder, name) -> pathlib.Path:
    (folder / name).mkdir()
    return folder / name


def recorded(path, name: str) -> str:
    try:
        import h5py
    except ImportError:
        raise Skip("needs a Python with h5py (make deps)") from None
    with h5py.File(path) as file:
        return file[name].asstr()[()]


# --- cases: each gets an empty folder ---------------------------------------------------------------


def case_every_mode_trains_and_is_recorded(folder):
    for mode in ("none", "gather-scatter", "allreduce", "ddp", "data-parallel", "c10d", "powersgd", "top-k", "local-sgd", "zero1", "fsdp"):
        path = folder / f"{mode}.h5"
        result = train(2, "--sync", mode, "--batch-per-rank", 16, "--iterations", 8, "--output", path)
        result.expect(0, "ms an iteration", "run file")
        if not path.exists() or pathlib.Path(f"{path}.journal").exists():
            raise Failure(f"{mode}: no run file, or the journal is still there")
        report(path).expect(0, mode)


def of_network(folder, ranks: int, model: str, *arguments) -> Result:
    output = folder / (re.sub(r"\W", "_", pathlib.Path(model).name) + ".h5")
    options = ["--model", model, "--data", DATA, "--evaluate", "none", "--threads", 1, "--output", output]
    batch = [] if "--batch-per-rank" in arguments else ["--batch-per-rank", 2]
    return run(mpirun(ranks) + [BIN / "gradsync-train", *options, *batch, *arguments], timeout=300)


def case_networks_of_every_size_are_trained_and_compared(folder):
    small = [("mlp:32x2",), ("synthetic:parameters=20k,compute=5ms,tensors=7",)]
    for model, *options in small:
        of_network(folder, 2, model, "--iterations", 2, "--warmup", 0, *options).expect(0, "ms an iteration", "run file")
    for ranks, model, *options in ((2, "resnet50"), (2, "gpt2-small", "--sequence-length", 4), (1, "vit-b16")):
        of_network(folder, ranks, model, "--iterations", 1, "--warmup", 0, "--batch-per-rank", 1, *options).expect(0, "ms an iteration", "run file")
    result = report(folder, "--table", "networks", "--format", "csv").expect(0)
    for model in ("mlp:32x2,", "resnet50,", "gpt2-small,", "vit-b16,", "25557032,", "124439808,", "86567656,"):
        check(model in result.out, f"{model} in the table networks: {result.out}")


def case_small_networks_pass_every_check_and_resume(folder):
    for model in ("mlp:32x2", "synthetic:parameters=20k,compute=2ms,tensors=7"):
        of_network(folder, 2, model, "--iterations", 4, "--warmup", 1, "--verify-modes", "--calibrate", "--calibration-sizes", "4KiB:8KiB").expect(
            0, r"data-parallel +yes", "plateau")  # fmt: skip
        straight = of_network(folder_for(folder, f"a{len(model)}"), 2, model, "--iterations", 6).expect(0)
        halves = folder_for(folder, f"b{len(model)}")
        of_network(halves, 2, model, "--iterations", 6, "--checkpoint-every", 2, "--inject-fault", "kill@1:3")
        resumed = of_network(halves, 2, model, "--iterations", 6, "--checkpoint-every", 2, "--resume", "auto").expect(0)
        ends = {re.search(r"parameters: (.*)", result.out).group(1) for result in (straight, resumed)}
        check(len(ends) == 1, f"{model}: a resumed run ends with other parameters: {ends}")


def case_torchscript_modules_are_trained_or_refused_by_name(folder):
    python = os.environ.get("TORCH_PYTHON", "")
    if not python:
        raise Skip("no Python with torch (LIBTORCH= without one)")
    lines = [
        "import sys, torch", "from torch import nn",
        "class Net(nn.Module):", " def __init__(self, unused: bool):", "  super().__init__()",
        "  self.conv, self.norm, self.fc = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(36, 5)",
        "  self.again = self.fc", "  self.frozen = nn.Parameter(torch.ones(5), requires_grad=False)",
        "  if unused: self.spare = nn.Parameter(torch.ones(3))",
        " def forward(self, x):", "  x = torch.relu(self.norm(self.conv(x))).flatten(1)",
        "  return self.fc(x) * self.frozen + self.again(x)",
        "torch.manual_seed(1)", "torch.jit.script(Net(False)).save(sys.argv[1] + '/net.pt')",
        "torch.jit.script(Net(True)).save(sys.argv[1] + '/spare.pt')",
    ]  # fmt: skip
    (folder / "net.py").write_text("\n".join(lines))
    if run([python, folder / "net.py", folder]).code != 0:
        raise Skip(f"{python} cannot write TorchScript")
    shape = ["--input", "2x5x5", "--classes", 5, "--iterations", 3]
    for overlap in ("backward", "step"):
        into = folder_for(folder, overlap)
        of_network(into, 2, f"{folder}/net.pt", *shape, "--verify-modes", "--overlap", overlap).expect(0, r"c10d +yes", r"none +no", "run file")
    of_network(folder, 2, f"{folder}/spare.pt", *shape).expect(65, "parameter spare is unused", "fix: remove the parameter")
    of_network(folder, 2, f"{folder}/net.pt", "--input", "3x5x5", "--classes", 5).expect(65, "rejects 2 samples of 3 x 5 x 5", "fix: .*--input")
    of_network(folder, 2, f"{folder}/net.pt", "--input", "2x5x5", "--classes", 6).expect(65, "not 6 logits", "fix: .*--classes")
    of_network(folder, 2, f"{folder}/no.pt", *shape).expect(66, "no such file")


def case_torchscript_modules_get_one_answer(folder):
    written = torchscript_modules()
    shape = ["--input", "2x3x3", "--classes", 5, "--iterations", 3, "--batch-per-rank", 4]
    for number, (name, reason) in enumerate((
        ("counts", "assigns the attribute calls"), ("listed", "changes the list history"), ("parts", "row and fc.weight are parts of one tensor"),
        ("ofcomplex", "turn is ComplexFloat"), ("ofhalf", "scale is Half"), ("layerdrop", "parameter extra.(bias|weight) is used only in a branch"),
        ("experts", "parameter one.(bias|weight) is used only in a branch"),
    )):  # fmt: skip
        of_network(folder, 2, f"{written}/{name}.pt", *shape, "--sync", ("ddp", "allreduce")[number % 2]).expect(65, reason, "fix: ")
    for name in ("branches", "drop"):
        of_network(folder, 2, f"{written}/{name}.pt", *shape, "--verify-modes").expect(0, r"c10d +yes", "run file")


def case_a_torchscript_module_of_one_batch_size(folder):
    module = f"{torchscript_modules()}/four.pt"
    shape = ["--input", "2x3x3", "--classes", 5, "--verify-modes", "--layout", "auto", "--sync", "ddp"]
    of_network(folder, 2, module, *shape, "--batch-per-rank", 4, "--iterations", 3).expect(0, "run file")
    report(folder / "four_pt.h5", "--table", "layers", "--format", "csv").expect(0, "fc,matmul")
    (folder / "four_pt.h5").unlink()  # outputs are checked before networks
    of_network(folder, 2, module, *shape, "--batch-per-rank", 8).expect(65, "rejects 8 samples of 2 x 3 x 3", "fix: .*--batch-per-rank")
    # 50,000 samples on three ranks leave three for the last batch.
    of_network(folder, 3, module, *shape, "--batch-per-rank", 4).expect(65, "rejects 3 samples of 2 x 3 x 3", "fix: .*--last-batch drop")


def case_the_line_of_an_epoch_is_of_all_ranks(folder):
    output = folder / "run.h5"
    arguments = ["--model", "lenet", "--data", synthetic(folder, 640, 64), "--sync", "none", "--init", "per-rank", "--batch-per-rank", 16,
                 "--evaluate", "each-rank"]  # fmt: skip
    result = run(mpirun(3) + [BIN / "gradsync-train", *arguments, "--output", output]).expect(0)
    try:
        import h5py
    except ImportError:
        raise Skip("needs a Python with h5py (make deps)") from None
    with h5py.File(output) as run_file:
        of = {name: run_file[f"epoch/{name}"][0] for name in ("train_loss", "train_accuracy", "test_accuracy", "training_time", "running_time")}
    expected = (
        f"epoch 1: train loss {of['train_loss'].mean():.4f}, train accuracy {100 * of['train_accuracy'].mean():.2f} %, "
        f"test accuracy {100 * of['test_accuracy'].mean():.2f} %, {of['training_time'].max():.4f} s training, {of['running_time'].max():.4f} s running"
    )
    check(len(set(of["train_loss"])) == 3, f"equal losses: {of}")
    check(expected in result.out, f"'{expected}' is not in {result.out}")


def case_what_rank_0_writes_is_no_time_of_other_ranks(folder):
    """Its disk takes 1.5 s to sync, about once a second of training."""
    slow = {"LD_PRELOAD": harness.STRIKE, "STRIKE": "0:fdatasync:1+:sleep=1.5"}
    train(2, "--threads", 1, "--sync", "allreduce", "--transport", "mpi", "--batch-per-rank", 64, "--iterations", 200, "--epochs", 100,
          "--output", folder / "run.h5", environment=slow).expect(0, "strike: ")  # fmt: skip
    import h5py

    with h5py.File(folder / "run.h5") as file:
        longest_s = file["time/iteration"][1:].max(axis=0)
    check(max(longest_s) < 1.4, f"the longest iteration of each rank: {longest_s} s")


def case_sizes_of_buckets_are_found(folder):
    for mode in ("ddp", "c10d"):
        result = train(2, "--sync", mode, "--bucket-cap", "auto", "--first-bucket", "auto", *short_run(folder_for(folder, mode)))
        result.expect(0)
        said = re.search(r"bucket cap auto: (.*), the first .*; (.*), the first .* took ([\d.]+) \[[\d.]+, [\d.]+\] of the iteration of 25 MiB, the first 1 MiB in 8 rounds",
                         result.out)  # fmt: skip
        check(said is not None, f"what was tried: {result.out}")
        faster = said[2] if float(said[3]) < 1 else "25 MiB"
        check(said[1] == faster or float(said[3]) == 1, f"the faster one is taken: {said[0]}")
        taken = recorded(folder / mode / "run.h5", "config/bucket-cap")
        check(taken == said[1].replace(" ", ""), f"the cap that was taken: {taken}, {said[0]}")
    train(1, "--bucket-cap", "auto", *short_run(folder)).expect(0)
    check(recorded(folder / "run.h5", "config/bucket-cap") == "25MiB", "one rank has nothing to find out")
    train(2, "--sync", "fsdp", "--bucket-cap", "auto", *short_run(folder_for(folder, "fsdp"))).expect(0)
    check(recorded(folder / "fsdp/run.h5", "config/bucket-cap") == "25MiB", "fsdp has no buckets")


def case_an_exchange_that_goes_on_in_the_next_step(folder):
    losses = set()
    for overlap in ("backward", "step"):
        result = train(2, "--overlap", overlap, "--transport", "tcp-ring", "--batch-per-rank", 16, "--iterations", 40, "--log-every", 20, "--verify-modes",
                       "--output", folder / f"{overlap}.h5").expect(0)  # fmt: skip
        losses.add((re.search(r"iteration 40 loss ([\d.]+)", result.out).group(1), re.search(r"parameters: (.*)", result.out).group(1)))
        report(folder / f"{overlap}.h5").expect(0)
    check(len(losses) == 1, f"{losses}")
    train(2, "--overlap", "step", "--transport", "tcp-ring", *short_run(folder), "--inject-fault", "nan@1:5").expect(80, "rank 1 .* in iteration 5")


def case_modes_end_with_the_same_loss(folder):
    """Equal gradients give equal losses: to the digits printed, for every mode but none."""
    losses = {}
    for mode in ("gather-scatter", "allreduce", "ddp", "data-parallel", "c10d", "zero1", "fsdp"):
        result = train(2, "--sync", mode, "--batch-per-rank", 16, "--iterations", 20, "--log-every", 20).expect(0)
        losses[mode] = re.search(r"iteration 20 loss ([\d.]+)", result.out).group(1)
    if len(set(losses.values())) != 1:
        raise Failure(f"losses differ: {losses}")


def case_fsdp_takes_the_memory_that_its_formula_says(folder):
    import h5py

    # Huge pages are taken whole: up to 14 % more than what lies in them.
    usual_pages = {"THP_MEM_ALLOC_ENABLE": "0"}

    def peak(model: str, mode: str) -> float:
        output = folder / f"{len(model)}-{mode}.h5"
        run(mpirun(2) + [BIN / "gradsync-train", "--model", model, "--sync", mode, "--data", DATA, "--evaluate", "none", "--batch-per-rank", 2,
                         "--threads", 1, "--iterations", 4, "--optimizer", "adam", "--output", output],
            environment=usual_pages).expect(0)
        with h5py.File(output) as file:
            return float(file["epoch/peak_memory"][-1].max())

    width, depth = 2048, 16
    largest = 4 * 3072 * width
    parameters = largest + 4 * (depth - 1) * width * width
    without = peak("mlp:8x1", "fsdp")
    taken = peak(f"mlp:{width}x{depth}", "fsdp") - without
    wanted = (2 + 2) * parameters / 2 + 6 * largest
    check(abs(taken - wanted) <= 0.1 * wanted, f"{taken / 1e6:.0f} MB, not {wanted / 1e6:.0f} MB")
    whole = peak(f"mlp:{width}x{depth}", "allreduce") - without
    check(whole > 1.5 * taken, f"allreduce takes {whole / 1e6:.0f} MB, fsdp {taken / 1e6:.0f} MB")


def losses_of(ranks: int, mode: str) -> list:
    """Of six iterations of the same global batches; all but the first depend on what was exchanged."""
    result = train(ranks, "--sync", mode, "--batch-global", 64, "--iterations", 6, "--log-every", 1, "--lr", 0.1).expect(0)
    return [float(loss) for loss in re.findall(r"iteration \d+ loss ([\d.]+)", result.out)]


def case_the_same_global_batches_give_the_same_losses_on_1_2_and_4_ranks(folder):
    def differ(a: list, b: list) -> float:
        check(len(a) == len(b) == 6, f"six losses each: {a}, {b}")
        return max(abs(x - y) for x, y in zip(a, b))

    alone, apart = losses_of(1, "allreduce"), losses_of(2, "none")
    for ranks in (2, 4):
        summed = losses_of(ranks, "allreduce")
        check(differ(summed, alone) <= 2e-4, f"losses on {ranks} ranks {summed}, on one {alone}")
    check(differ(apart, alone) > 1e-3, f"ranks that exchange nothing must give other losses: {apart}, {alone}")


def case_verify_modes_passes_and_is_recorded(folder):
    train(4, "--verify-modes", *short_run(folder)).expect(0, r"ddp +yes", r"none +no")


def parameters_after(*arguments) -> str:
    result = train(2, "--iterations", 12, *arguments).expect(0)
    return re.search(r"parameters: (\w+)\n", result.out).group(1)


def case_resident_data_train_the_same_network_as_the_loader(folder):
    """fp32: bit for bit; on a second epoch too, and with the root's batches of data-parallel."""
    small = ["--batch-per-rank", 16]
    for more in ([*small, "--sync", "data-parallel"], [*small, "--accumulate", 2], ["--batch-per-rank", 1000]):
        loaded, resident = (parameters_after("--feed", feed, "--epochs", 2, *more) for feed in ("loader", "resident"))
        if loaded != resident:
            raise Failure(f"{more}: {loaded} with the loader, {resident} with resident data")
    train(2, "--feed", "resident", "--verify-modes", "--batch-per-rank", 16, "--iterations", 2).expect(0)


def case_fp16_scales_the_loss_and_says_what_it_left_out(folder):
    result = train(2, "--precision", "fp16", "--batch-per-rank", 16, "--iterations", 30, "--log-every", 10)
    result.expect(0, r"compute: fp16 ", r"fp16: \d+ steps skipped for an overflow, loss scale \d+")
    losses = [float(loss) for loss in re.findall(r"iteration \d+ loss ([\d.]+)", result.out)]
    if not losses or losses[-1] > 2.4:
        raise Failure(f"fp16 does not train: losses {losses}")
    verified = train(2, "--precision", "fp16", "--batch-per-rank", 16, "--iterations", 2, "--verify-modes").expect(0, r"zero1 .* ok", r"fsdp .* ok")
    if "powersgd" in verified.out:
        raise Failure("a mode is verified that is refused")
    path = folder / "run.h5"
    options = ["--precision", "fp16", "--batch-per-rank", 16, "--iterations", 12, "--output", path, "--resume", "auto"]
    whole = parameters_after("--precision", "fp16", "--batch-per-rank", 16)
    train(2, *options, "--inject-fault", "usr1@0:5").expect(75)
    result = train(2, *options).expect(0)
    if whole not in result.out:
        raise Failure(f"stopped and resumed, the network is another: {whole} expected in {result.out[-300:]}")


def case_accumulation_takes_every_image_of_an_epoch(folder):
    try:
        import h5py
    except ImportError:
        raise Skip("h5py is not installed: make deps") from None
    common = [BIN / "gradsync-train", "--model", "lenet", "--data", synthetic(folder, 640, 64), "--batch-per-rank", 48, "--accumulate", 4, "--epochs", 2, "--evaluate", "none"]
    # 320 images a rank: six batches of 48 and one of 32, in iterations of four and three.
    for last, samples in (("pad", [384, 256] * 2), ("drop", [384] * 2)):
        path = folder / f"{last}.h5"
        run(mpirun(2) + [*common, "--last-batch", last, "--output", path]).expect(0, "in 4 passes", "run file")
        with h5py.File(path) as file:
            found = [int(count) for count in file["iteration/samples"][:]]
            epoch = int(file["provenance/epoch_iterations"][()])
        if found != samples or epoch != len(samples) // 2:
            raise Failure(f"{last}: {found}, {epoch} iterations an epoch")


def case_an_epoch_without_an_iteration_is_refused(folder):
    common = [BIN / "gradsync-train", "--model", "lenet", "--data", synthetic(folder, 640, 64), "--evaluate", "none", "--output", folder / "run.h5"]
    run(mpirun(1) + [*common, "--sync", "none", "--batch-per-rank", 128, "--accumulate", 1000, "--iterations", 10]).expect(
        64, "--accumulate 1000", "an epoch has 5")
    run(mpirun(2) + [*common, "--batch-schedule", "0:64,1:2560", "--accumulate", 2, "--epochs", 2]).expect(
        64, "epoch 1 of --batch-schedule has 1")
    if (folder / "run.h5").exists():
        raise Failure("it was trained")


def case_learns_the_synthetic_set_above_60_percent_in_an_epoch(folder):
    run([BIN / "gradsync-dataset", "synthesize", "--to", folder / "set"], timeout=600).expect(0)
    result = run([BIN / "gradsync-train", "--model", "lenet", "--sync", "none", "--data", folder / "set",
                  "--batch-per-rank", 64, "--lr", 0.05, "--threads", 2], timeout=800).expect(0)  # fmt: skip
    accuracy = float(re.search(r"test accuracy ([\d.]+) %", result.out).group(1))
    if not 60 < accuracy < 99.9:
        raise Failure(f"test accuracy {accuracy} %")


def with_target(data, ranks: int, target, *arguments) -> Result:
    words = ["--model", "lenet", "--data", data, "--batch-per-rank", 16, "--evaluate", "shard", "--target-accuracy", target]
    return run([*mpirun(ranks), BIN / "gradsync-train", *words, *arguments], timeout=300)


def epoch_lines(result):
    return len(re.findall(r"^epoch \d+:", result.out, re.M))


def case_a_target_accuracy_ends_the_run(folder):
    small = synthetic(folder_for(folder, "data"), 640, 64)
    for seed in (1, 2):
        result = with_target(small, 2, 0.5, "--epochs", 3, "--seed", seed, "--output", folder / f"run{seed}.h5").expect(0)
        check(epoch_lines(result) == 1 and "target accuracy 0.5 % reached" in result.out, result)
    shown = report(folder, "--table", "time-to-accuracy", "--format", "csv").expect(0).out
    row = dict(zip(*(line.split(",") for line in shown.strip().splitlines()[-2:])))
    check(row["reached"] == "2" and row["epochs"] == "1" and float(row["time_s"]) > 0, shown)
    never = with_target(small, 1, 100, "--epochs", 2).expect(0)
    check("reached" not in never.out and epoch_lines(never) == 2, never)
    with_target(small, 1, 101).expect(64, "target-accuracy.*101")


def case_no_set_epoch_repeats_the_order_and_says_so(folder):
    small = synthetic(folder, 640, 64)
    common = ["--sync", "ddp", "--data", small, "--batch-per-rank", 16, "--epochs", 3, "--model", "lenet", "--evaluate", "none"]
    orders = {}
    for switch in ((), ("--no-set-epoch",)):
        result = run(mpirun(2) + [BIN / "gradsync-train", *common, *switch]).expect(0)
        orders[switch] = set(re.findall(r"order (\w+)", result.out))
    if len(orders[()]) != 3 or len(orders[("--no-set-epoch",)]) != 1:
        raise Failure(f"orders: {orders}")
    if "repeats the order" not in result.err:
        raise Failure("no warning")


def case_two_modes_in_one_job_disagree(folder):
    one = [str(part) for part in trainer("--sync", "ddp")]
    other = [str(part) for part in trainer("--sync", "allreduce")]
    result = run([*mpirun(2), *one, ":", "-n", 1, *other])
    result.expect(87, "rank 0 .* has sync = ddp, rank 2 .* has sync = allreduce")


def case_other_seed_model_or_batch_disagrees(folder):
    for name, values in (("seed", (1, 2)), ("model", ("lenet", "vgg11")), ("batch-per-rank", (16, 32))):
        parts = []
        for value in values:
            command = [BIN / "gradsync-train", "--data", DATA, f"--{name}", value]
            parts.append(["-n", "1", *command])
        result = run([*harness.launcher(), *parts[0], ":", *parts[1]])
        result.expect(87, f"has {name} = {values[0]}, .* has {name} = {values[1]}")


def case_nan_names_rank_iteration_and_tensor(folder):
    train(2, *short_run(folder, "--inject-fault", "nan@1:5")).expect(80, r"gradient of \S+ is not finite on rank 1 .* iteration 5")
    unrecorded = train(2, "--iterations", 8, "--compare", "none,ddp", "--block", "auto", "--inject-fault", "nan@1:2").expect(80, "is not finite on rank 1")
    check("in the journal" not in unrecorded.err, f"there is none: {unrecorded.err}")
    report(folder / "run.h5.journal").expect(0, "ddp")
    if (folder / "run.h5").exists():
        raise Failure("a run file of a failed run")


def case_killed_rank_ends_the_job_and_the_journal_reads(folder):
    out = train(4, "--batch-per-rank", 16, "--iterations", 400, "--epochs", 50, "--output", folder / "run.h5", "--inject-fault", "kill@2:40")
    if out.code != 137 or out.seconds > 60:
        raise Failure(f"exit code {out.code} after {out.seconds:.0f} s")
    report(folder / "run.h5.journal").expect(0, "lenet")


def case_killed_root_leaves_a_journal(folder):
    out = train(2, "--batch-per-rank", 16, "--iterations", 4000, "--epochs", 50, "--output", folder / "run.h5", "--inject-fault", "kill@0:40")
    if out.code != 137:
        raise Failure(f"exit code {out.code}")
    report(folder / "run.h5.journal").expect(0, "lenet")


@harness.alone
def case_killed_rank_leaves_nothing_behind_whatever_moves_gradients(folder):
    for how in (("shm",), ("tcp-ring",), ("tcp-ring", "--overlap", "step"), ("two-level",), ("mpi",)):
        with nothing_left_behind(how):
            out = train(2, "--transport", *how, "--batch-per-rank", 16, "--iterations", 4000, "--epochs", 50, "--inject-fault", "kill@1:60")
            check_killed(out, how)


@harness.alone
def case_killed_rank_inside_a_collective(folder):
    """VGG11's gradients do not fit into the sockets' buffers: the others are in the middle of a message."""
    for how in (("shm",), ("tcp-ring",), ("tcp-ring", "--overlap", "step")):
        with nothing_left_behind(how):
            vgg = [BIN / "gradsync-train", "--model", "vgg11", "--data", DATA, "--evaluate", "none", "--threads", 1, "--sync", "ddp"]
            job = subprocess.Popen([str(word) for word in mpirun(3) + [*vgg, "--transport", *how, "--batch-per-rank", 2, "--epochs", 50, "--log-every", 1]],
                                   env=harness.ENVIRONMENT, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
            for line in job.stdout:
                if "iteration 3 " in line:
                    break
            start = time.monotonic()
            os.kill(harness.rank_pids(job.pid)[1], signal.SIGKILL)
            out, err = job.communicate(timeout=60)
            check_killed(Result(job.returncode, out, err, time.monotonic() - start), how)


def case_large_tensors_lie_in_huge_pages(folder):
    granted = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not granted.exists() or "[never]" in granted.read_text():
        raise Skip("this kernel grants no transparent huge pages")
    with mmap.mmap(-1, 128 << 20) as probe:
        probe.madvise(mmap.MADV_HUGEPAGE)
        probe.write(bytes(128 << 20))
        if int(re.search(r"AnonHugePages: *(\d+)", pathlib.Path("/proc/self/smaps_rollup").read_text())[1]) < 100_000:
            raise Skip("no huge pages are free on this machine")
    command = [*mpirun(1), BIN / "gradsync-train", "--model", "vgg11", "--data", DATA, "--batch-per-rank", 1, "--iterations", 1000]
    job = subprocess.Popen(list(map(str, command)), env=harness.ENVIRONMENT, cwd=ROOT, text=True, stdout=subprocess.PIPE, start_new_session=True)
    try:
        for line in job.stdout:
            if "iteration 3 " in line:
                break
        rollup = pathlib.Path(f"/proc/{harness.rank_pids(job.pid)[0]}/smaps_rollup").read_text()
    finally:
        harness.end_session(job)
    # Of three times 36.9 MB: parameters, gradients, velocity.
    huge_kib = int(re.search(r"AnonHugePages: *([0-9]+) kB", rollup)[1])
    check(huge_kib > 50_000, f"{huge_kib} KiB are in huge pages:\n{rollup}")


def check_killed(out: Result, how) -> None:
    """The launcher (mpirun --quiet says it by its code alone) saw the process end, or first its neighbor that the connection is lost."""
    check(out.code in (86, 137) and out.seconds < 60, f"{how}: exit code {out.code} after {out.seconds:.0f} s: {out.err[-400:]}")
    check(out.code == 137 or "the connection to rank 1 " in out.err, f"{how}: what ended it is not said: {out.err[-600:]}")


@contextlib.contextmanager
def nothing_left_behind(what, but: tuple = ()):
    """No process of the trainer, and no new file in /dev/shm, a minute after the block at the latest. `but`: beginnings of names that
    may be left, and are removed."""
    shared = pathlib.Path("/dev/shm")
    files = lambda: set(shared.iterdir()) if shared.is_dir() else set()  # noqa: E731
    before = files()
    yield
    deadline = time.monotonic() + 60
    while True:
        running = [process.pid for process in processes() if re.search(f"gradsync-train.*{DATA}", process.command)]
        new = files() - before
        left = {path for path in new if not path.name.startswith(but) and path.exists()}
        if not running and not left:
            for path in new - left:
                path.unlink(missing_ok=True)
            return
        check(time.monotonic() < deadline, f"{what}: still running: {running}, left in /dev/shm: {left}")
        time.sleep(0.2)


@harness.alone
def case_killed_launcher_leaves_no_process_and_no_memory_of_ours(folder):
    """Open MPI's own segments are mpirun's to remove; gradsync-check names those that are left."""
    for transport in ("shm", "tcp-ring"):
        with nothing_left_behind(transport, but=("vader_segment.", "sm_segment.")):
            command = mpirun(3) + trainer("--transport", transport, "--sync", "ddp", "--batch-per-rank", 16, "--epochs", 5000, "--log-every", 1)
            job = subprocess.Popen([str(word) for word in command], env=harness.ENVIRONMENT, cwd=ROOT, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
            for line in job.stdout:
                if re.search("iteration [0-9]+ ", line):
                    break
            job.kill()
            job.wait()


def case_a_ring_that_cannot_be_joined_ends_all_ranks_with_one_message(folder):
    """Whichever rank it is that cannot listen, and whatever asks for the ring."""
    programs = {"train": ["--model", "lenet", "--data", DATA, "--iterations", 2], "calibrate": ["--collective", "allreduce"]}
    for program, options in programs.items():
        for transport, ranks, rank in (("tcp-ring", 2, 0), ("tcp-ring", 3, 1)):
            command = [*mpirun(ranks), "env", f"LD_PRELOAD={harness.STRIKE}", f"STRIKE={rank}:listen:1+:EADDRINUSE", BIN / f"gradsync-{program}", *options]
            result = run([*command, "--transport", transport], timeout=60)
            result.expect(69, "cannot listen on 127.0.0.1: Address already in use", "fix: .*--transport mpi", rf"rank {rank} \(")
            check(result.seconds < 58, f"{program} over {transport}: {result.seconds:.0f} s")


def case_an_mpi_without_threads_is_refused_once(folder):
    command = [*mpirun(2), "env", f"LD_PRELOAD={ROOT}/build/tests/libno_threads.so", *trainer(*short_run(folder))]
    run(command).expect(69, "calls from one thread only", "fix: .*built with thread support")


def case_an_option_that_is_not_utf8_is_refused_once(folder):
    name = folder / os.fsdecode(b"x\xff.h5")
    for program in ("train", "calibrate", "quantize"):
        run([*mpirun(2), BIN / f"gradsync-{program}", "--output", name]).expect(64, r"--output: .*x\\xff\.h5.* is not UTF-8", "fix: ")


def case_mismatched_collectives_are_caught(folder):
    for fault in ("skip", "short", "other-type"):
        result = train(4, "--verify", "all", "--inject-fault", f"{fault}@1:5", "--batch-per-rank", 16, "--iterations", 8)
        result.expect(87, "ranks disagree about a collective: rank 0 .*; rank 1 ")
    result = train(4, "--verify", "all", "--sync", "gather-scatter", "--inject-fault", "other-root@1:5",
                   "--batch-per-rank", 16, "--iterations", 8)  # fmt: skip
    result.expect(87, "root 0.*root 1")


def case_out_of_memory_on_one_rank(folder):
    for transport in ("shm", "tcp-ring"):  # posted, and moved by a thread that is not to be pulled away under
        (folder / transport).mkdir()
        train(2, *short_run(folder / transport, "--inject-fault", "out-of-memory@1:5", "--transport", transport, "--sync", "ddp")).expect(
            81, "rank 1 .*out of memory", "batch")  # fmt: skip


def case_a_slow_launcher_leaves_one_message(folder):
    """The rank that reports is gone a second and a half before the launcher ends the other, which has lost its connection by then."""
    for transport in ("shm", "tcp-ring"):
        command = mpirun(2) + trainer("--batch-per-rank", 16, "--epochs", 50, "--log-every", 1, "--sync", "ddp", "--transport", transport,
                                      "--inject-fault", "out-of-memory@1:200")  # fmt: skip
        job = subprocess.Popen(list(map(str, command)), env=harness.ENVIRONMENT, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)  # fmt: skip
        try:
            for line in job.stdout:
                if "iteration 3 " in line:
                    break
            os.kill(job.pid, signal.SIGSTOP)
            check(set(harness.rank_pids(job.pid)) == {0, 1}, "the fault came before the launcher was stopped")
            deadline = time.monotonic() + 60
            while 1 in harness.rank_pids(job.pid):
                check(time.monotonic() < deadline, "the rank that reports does not end")
                time.sleep(0.1)
            time.sleep(1.5)
        finally:
            os.kill(job.pid, signal.SIGCONT)
            out, err = job.communicate(timeout=60)
        Result(job.returncode, out, err, 0).expect(81, "rank 1 .*out of memory")


def case_slurm_tasks_without_a_launcher(folder):
    result = run(trainer("--sync", "none"), environment={"SLURM_NTASKS": "4"})
    result.expect(69, "rank 0 of 1", "srun --mpi=pmix -n 4")
    train(1, *short_run(folder), environment={"SLURM_NTASKS": "4"}).expect(0)  # a one-rank baseline is no mistake


def case_bad_options_are_refused_once(folder):
    for arguments, texts in (
        (["--snyc", "ddp"], ["snyc", "sync"]),
        (["--overlap", "step", "--sync", "allreduce"], ["overlap", "allreduce"]),
        (["--overlap", "step", "--sync", "ddp", "--clip-norm", "1"], ["overlap", "clip-norm"]),
    ):
        train(2, *arguments).expect(64, *texts)


def loud(ranks: int) -> list:
    """mpirun that prints its own texts, too."""
    return [word for word in mpirun(ranks) if word != "--quiet"]


def case_a_usage_error_ends_the_job_before_mpi_starts(folder):
    for program in ("train", "calibrate", "check", "quantize"):
        for ranks in (1, 2):
            result = run([*loud(ranks), BIN / f"gradsync-{program}", "--bogus"]).expect(64, "--bogus is not an option", "fix: ")
            check("MPI_ABORT" not in result.err and result.seconds < 80, f"{program}: {result.err}")
    one = ["-n", 1, *trainer("--iterations", 2)]
    for parts, who in (([*one, "--bogus", ":", *one], "train: "), ([*one, ":", *one, "--bogus"], "train: rank 1: ")):
        result = run([*launcher(), *parts]).expect(64, who + "--bogus is not an option")
        check(result.seconds < 80, f"only one rank is wrong: {result.seconds:.0f} s")
    # The tasks of srun have one command line: one of them reports, and gives the exit code.
    task = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "PMIX_NAMESPACE": "x"}
    second = run(trainer("--bogus"), environment=task | {"SLURM_PROCID": "2"}).expect(0)
    check(second.err == "", second)
    run(trainer("--bogus"), environment=task | {"SLURM_PROCID": "0"}).expect(64, "--bogus")
    for program in ("train", "calibrate", "check"):
        alone = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}
        run([BIN / f"gradsync-{program}"], environment=alone).expect(69, "srun started 4 tasks", "fix: srun --mpi=pmix")


def case_a_small_dev_shm_is_named_and_another_transport_taken(folder):
    small = with_shared_memory("64k")
    training = [*mpirun(2), *trainer(*short_run(folder))]
    run([*small, *training]).expect(0, r"transport: mpi \(all ranks on one node, but /dev/shm on \S+ has \d+ KiB free of 64 KiB\)", "run file")
    refused = [*mpirun(2), BIN / "gradsync-calibrate", "--transport", "shm", "-b", 8, "-e", 8, "-n", 1]
    run([*small, *refused]).expect(69, "--transport shm has no room: /dev/shm on .* free of 64 KiB", "fix: .*--shm-size")
    run([*with_shared_memory("8m"), *refused]).expect(0, "# transport shm")
    # Without a common status table the ranks report to each other by messages.
    hang = [*mpirun(2), *trainer("--iterations", 8, "--batch-per-rank", 16, "--timeout", "5s", "--inject-fault", "stop@1:5")]
    run([*small, *hang]).expect(86, "missing ranks: 1")


def case_iterations_beyond_the_epochs_are_announced(folder):
    small = ("--data", synthetic(folder, 640, 64), "--batch-per-rank", 16)
    text = "--iterations 25 is more than the 20 of 1 epoch"
    train(2, *small, "--iterations", 25).expect(0, "warning: " + text, "ms an iteration.*; " + text)
    enough = train(2, *small, "--iterations", 40, "--epochs", 2).expect(0)
    check("is more than the" not in enough.out + enough.err, enough.out + enough.err)
    turns = ("--compare", "none,allreduce", "--no-calibrate", "--advise", 0, "--output", folder / "turns.h5")
    train(2, *small, "--iterations", 25, *turns).expect(0, f"Contenders against none; {text}")


def case_progress_is_printed_after_the_warm_up(folder):
    result = train(2, "--batch-per-rank", 16, "--iterations", 8, "--warmup", 2).expect(0)
    check(re.findall(r"iteration (\d+) of 8 loss .* left", result.out) == ["3"], result)


def case_more_ranks_than_images(folder):
    eight = [*mpirun(8), BIN / "gradsync-train", "--model", "lenet", "--batch-per-rank", 2, "--data"]
    run([*eight, synthetic(folder_for(folder, "train"), 5, 5)]).expect(64, "8 ranks for 5 images")
    few_tests = synthetic(folder_for(folder, "test"), 64, 5)
    result = run([*eight, few_tests, "--sync", "allreduce", "--epochs", 1]).expect(64, "8 ranks for 5 test images")
    check("iteration" not in result.out, "it is refused before training")
    run([*eight, few_tests, "--sync", "allreduce", "--epochs", 1, "--evaluate", "none"]).expect(0)


def case_what_all_ranks_refuse_ends_without_an_abort(folder):
    disagree = [*loud(1), *trainer("--seed", 1), ":", "-n", 1, *trainer("--seed", 2)]
    for command, code, text in (([*loud(2), BIN / "gradsync-train", "--data", folder / "nowhere"], 66, "nowhere"),
                                ([*loud(2), *trainer("--batch-global", 7)], 64, "--batch-global 7"), (disagree, 87, "seed"),
                                ([*loud(2), *trainer("--transport", "nccl")], 69, "nccl")):  # fmt: skip
        result = run(command).expect(code, text, "fix: ")
        check("MPI_ABORT" not in result.err and result.seconds < 80, f"{result.seconds:.0f} s: {result.err}")


def case_bad_data_is_refused_once(folder):
    bad = [BIN / "gradsync-train", "--model", "lenet", "--data"]
    run(mpirun(2) + [*bad, folder / "nowhere"]).expect(66, "nowhere", "gradsync-dataset")
    data = pathlib.Path(synthetic(folder, 500, 100))
    victim = data / "data_batch_2.bin"
    good = victim.read_bytes()
    for content, code, text in (
        (good[:-1], 65, "data_batch_2.bin"),
        (good + b"x", 65, "data_batch_2.bin"),
        (good[: 3 * RECORD] + bytes([200]) + good[3 * RECORD + 1 :], 65, "200"),
        (good[:5000] + bytes([good[5000] ^ 1]) + good[5001:], 65, "data_batch_2.bin"),
        (None, 66, "data_batch_2.bin"),
    ):
        victim.unlink()
        if content is not None:
            victim.write_bytes(content)
        run(mpirun(2) + [*bad, data]).expect(code, text)


def case_output_that_exists_is_kept(folder):
    path = folder / "run.h5"
    path.write_text("precious")
    train(2, *short_run(folder)).expect(73, "gradsync-train: '.*run.h5' exists")  # of no rank: before MPI starts
    if path.read_text() != "precious":
        raise Failure("the file was touched")


def case_left_over_journal_is_kept(folder):
    path = folder / "run.h5.journal"
    path.write_text("precious")
    train(2, *short_run(folder)).expect(73, "journal")
    if path.read_text() != "precious":
        raise Failure("the journal was touched")


def case_output_folder_missing(folder):
    train(2, *short_run(folder / "missing")).expect(73, "gradsync-train: cannot write '.*missing")
    train(2, *short_run(folder / "missing"), "--resume", "auto").expect(73, "gradsync-train: cannot write '.*missing")


def case_full_disk_keeps_what_was_acknowledged(folder):
    if os.geteuid() != 0:
        raise Skip("needs root to mount a small tmpfs")
    mount = folder / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mount], capture_output=True).returncode:
        raise Skip("mount is not allowed here")
    try:
        result = train(2, "--batch-per-rank", 16, "--iterations", 3000, "--epochs", 50, "--output", mount / "run.h5")
        result.expect(74, "run.h5", "[Nn]o space")
        if (mount / "run.h5").exists():
            raise Failure("a half-written run file")
        report(mount / "run.h5.journal").expect(0, "lenet")
    finally:
        subprocess.run(["umount", mount], check=False)


PROGRAMS = ["train", "calibrate", "check", "quantize", "dataset", "sweep", "report", "audit"]


def case_help_and_version(folder):
    for program in PROGRAMS:
        name = f"gradsync-{program}"
        help = run([BIN / name, "--help"]).expect(0, rf"(?m)^Usage: .*{name}", "--help-all")
        check(run([BIN / name, "-h"]).expect(0).out == help.out, f"{name} -h is not {name} --help")
        run([BIN / name, "--help-all"]).expect(0, "(?m)^Exit codes", "--version")
        run([BIN / name, "--version"]).expect(0, rf"{name} \S+ \(revision \S+\)")


def case_manual_pages_are_valid(folder):
    if not shutil.which("man") or not shutil.which("groff"):
        raise Skip("needs man and groff (Debian: man-db, groff)")
    for program in PROGRAMS:
        name = f"gradsync-{program}"
        page = folder / f"{name}.1"
        page.write_text(run([BIN / name, "--help-man"]).expect(0).out)
        text = run(["man", "--warnings", page]).expect(0, "OPTIONS", "EXIT STATUS", name)
        check("warning" not in text.err, text)


def case_bash_completes_options_and_values(folder):
    def completed(program: str, *words: str) -> set[str]:
        script = run([BIN / f"gradsync-{program}", "--help-bash"]).expect(0).out
        function = re.search(r"-F (\w+)", script).group(1)
        line = "".join(f" '{word}'" for word in [f"gradsync-{program}", *words])
        script += f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; {function}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        return set(run(["bash", "-euc", script]).expect(0).out.split())

    check(completed("train", "--lr-s") == {"--lr-scaling", "--lr-schedule", "--lr-step-epochs"}, "options of gradsync-train")
    check(completed("train", "--sync", "d") == {"ddp", "data-parallel"}, "values after a space")
    check(completed("train", "--sync", "=", "d") == {"ddp", "data-parallel"}, "values after =")
    check(completed("report", "--table", "sp") == {"split", "speedup"}, "tables of gradsync-report")
    check("--threshold" in completed("report", "compare", "--t"), "options of gradsync-report compare")
    check("compare" in completed("report", "com"), "commands of gradsync-report")
    check(completed("dataset", "synthesize", "--se") == {"--seed"}, "options of gradsync-dataset synthesize")


def case_quiet_prints_nothing_and_json_holds_the_tables(folder):
    base = ["--batch-per-rank", 16, "--iterations", 5]
    check(train(2, *base, "--quiet").expect(0).out == "", "--quiet prints")
    result = train(2, *base, "--json", "-", "--output", folder / "run.h5").expect(0)
    document = json.loads(result.out)
    check(document["program"] == "gradsync-train", str(document)[:200])
    check(len(document["tables"][0]["rows"]) == 2, str(document["tables"])[:200])
    train(2, "--nonsense", "--quiet").expect(64, "nonsense")
    report = [BIN / "gradsync-report", folder / "run.h5"]
    check(run([*report, "--quiet"]).expect(0).out == "", "gradsync-report --quiet prints")
    run([*report, "--json", folder / "report.json"]).expect(0, "iteration")
    names = [table["name"] for table in json.loads((folder / "report.json").read_text())["tables"]]
    check(names == ["verdict", "summary"], str(names))
    dataset = json.loads(run([BIN / "gradsync-dataset", "info", DATA, "--json", "-"]).expect(0).out)
    check(len(dataset["tables"]) == 2, str(dataset)[:200])


def case_run_files_open_in_h5py_pandas_and_xarray(folder):
    python = os.environ.get("TEST_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import h5py, pandas, xarray, h5netcdf"], capture_output=True).returncode:
        raise Skip("needs a Python with h5py, pandas, xarray and h5netcdf (make deps)")
    for mode in ("ddp", "data-parallel", "c10d"):
        path = folder / f"{mode}.h5"
        train(2, "--sync", mode, "--batch-per-rank", 16, "--iterations", 8, "--output", path).expect(0)
        result = run([python, ROOT / "tests/tools/open_run.py", path])
        if result.code != 0:
            raise Failure(f"{mode}: {result.out[-800:]}{result.err[-400:]}")


def case_report_links_neither_mpi_nor_libtorch(folder):
    for program in ("report", "dataset", "sweep"):
        libraries = run(["ldd", BIN / f"gradsync-{program}"]).expect(0).out
        if re.search(r"libmpi|libtorch|libc10|libnccl|libcuda", libraries):
            raise Failure(f"gradsync-{program}: {libraries}")


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 8000, 500)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare, at_once=3))
