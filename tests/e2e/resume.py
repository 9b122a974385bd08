#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stopping and resuming gradsync-train: a resumed run ends like one that was never stopped, bit for bit.

usage: resume.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import harness
from harness import BIN, ENVIRONMENT, ROOT, STRIKE, Failure, Result, Skip, check, end_session, mpirun, processes, run, synthetic, torchscript_modules

DATA = ""
PER_EPOCH = 10
ITERATIONS = 2 * PER_EPOCH
# What must be equal; the rest is times, and the path of --output.
ROWS = ("iteration/number iteration/epoch iteration/step iteration/samples iteration/lr iteration/warmup loss correct "
        "bucket/bytes bucket/kind epoch/number epoch/iterations epoch/order_digest epoch/train_loss epoch/train_accuracy "
        "epoch/test_loss epoch/test_accuracy layer/name layer/forward layer/backward").split()  # fmt: skip


def trainer(output, *arguments) -> list:
    """Options that are given replace those of every run here."""
    options = {"--model": "lenet", "--data": DATA, "--batch-per-rank": 16, "--epochs": 2, "--threads": 1}
    given = [f"{part}" for part in arguments]
    kept = [part for option, value in options.items() if option not in given for part in (option, value)]
    return [BIN / "gradsync-train", *kept, *(["--output", output] if output else []), *given]


def options_in(arguments) -> dict:
    """Each option with its value, or with none."""
    options, parts = {}, [f"{part}" for part in arguments]
    for part in parts:
        if part.startswith("--"):
            options[part] = []
        else:
            options[list(options)[-1]].append(part)
    return options


def train(output, *arguments, ranks: int = 2, **how) -> Result:
    return run(mpirun(ranks) + trainer(output, *arguments), timeout=300, **how)


def folder_of(output) -> pathlib.Path:
    return pathlib.Path(str(output).removesuffix(".h5") + ".checkpoints")


def journal_of(output) -> pathlib.Path:
    return pathlib.Path(f"{output}.journal")


def checkpoints(output) -> list:
    """Newest first."""
    return sorted(folder_of(output).glob("iteration-*.safetensors"), reverse=True)


def number_of(path) -> int:
    return int(re.search(r"iteration-(\d+)", path.name).group(1))


def tensors(path) -> dict:
    """The tensors of a checkpoint, times left out, read as the layout is documented."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__")
    data = content[8 + length :]
    kept = lambda name: "summary" not in name and "clock" not in name  # noqa: E731
    return {name: data[slice(*about["data_offsets"])] for name, about in header.items() if kept(name)}


def parameters(result: Result) -> str:
    return re.search(r"^parameters: (.*)$", result.out, re.M).group(1)


def require_same_rows(one, other) -> None:
    try:
        import h5py
    except ImportError:
        raise Skip("needs a Python with h5py (make deps)") from None
    with h5py.File(one) as a, h5py.File(other) as b:
        names = ROWS + [f"traffic/{name}" for name in a["traffic"]]
        for name in names:
            check(a[name][:].tobytes() == b[name][:].tobytes(), f"{name}: {a[name][:]} is not {b[name][:]}")
        check(a.attrs["status"] == b"complete" and b.attrs["status"] == b"complete", "a run is not complete")


@harness.once
class Whole:
    """A run that was never stopped. Cases with the same options compare with the same run."""

    def __init__(self, folder, *arguments, ranks: int = 2, iterations: int = ITERATIONS):
        self.output = folder / "whole.h5"
        self.arguments, self.ranks, self.iterations = arguments, ranks, iterations
        self.result = train(self.output, "--checkpoint-every", iterations, *arguments, ranks=ranks).expect(0)

    def part(self, output, *arguments, **how) -> Result:
        """The same run, with these options in place of its own."""
        options = {"--checkpoint-every": [self.iterations]} | options_in(self.arguments) | options_in(arguments)
        return train(output, *(part for name, values in options.items() for part in (name, *values)), ranks=self.ranks, **how)

    def require_equal(self, output, result: Result) -> None:
        """The parameters, all that the last checkpoint holds, and every row."""
        check(parameters(result) == parameters(self.result), f"{parameters(result)} is not {parameters(self.result)}")
        mine, theirs = (tensors(checkpoints(path)[0]) for path in (output, self.output))
        check(mine.keys() == theirs.keys(), f"tensors {mine.keys() ^ theirs.keys()}")
        different = [name for name in mine if mine[name] != theirs[name]]
        check(not different, f"tensors differ: {different}")
        require_same_rows(output, self.output)
        check(not journal_of(output).exists(), "the journal is still there")


def stop_and_resume(folder, stops: tuple, *arguments, iterations: int = ITERATIONS) -> None:
    """Stops after each of these iterations (from 0), by a signal at the last rank, and resumes."""
    whole = Whole(*arguments, iterations=iterations)
    output = folder / "run.h5"
    for i, iteration in enumerate(stops):
        fault = ["--inject-fault", f"{'term' if i % 2 else 'usr1'}@1:{iteration}"]
        result = whole.part(output, "--resume", "auto", *fault)
        result.expect(75, rf"stopped after iteration {iteration + 1} \(signal {'TERM' if i % 2 else 'USR1'} at rank 1\)", "--resume auto")
        check(journal_of(output).exists() and output.exists(), "no journal or no partial file")
        check(number_of(checkpoints(output)[0]) == iteration + 1, f"checkpoints: {checkpoints(output)}")
        check(len(checkpoints(output)) == min(i + 1, 2), f"checkpoints: {checkpoints(output)}")
    report = run([BIN / "gradsync-report", output, "--plots", "no"]).expect(0)
    check("partial" in report.out + report.err, "the report does not say that the run is partial")
    result = whole.part(output, "--resume", "auto").expect(0, f"resumes after iteration {stops[-1] + 1}")
    whole.require_equal(output, result)


# In the middle of an epoch and at its end; of ddp, which has most to keep, also where buckets are rebuilt, and at the end of all.
STOPS = (4, PER_EPOCH - 1)
STOPS_OF_DDP = (0, 1, *STOPS, PER_EPOCH + 3, ITERATIONS - 1)


def case_none_is_bit_identical(folder):
    stop_and_resume(folder, STOPS, "--sync", "none")


def case_gather_scatter_is_bit_identical(folder):
    stop_and_resume(folder, STOPS, "--sync", "gather-scatter")


def case_allreduce_is_bit_identical(folder):
    stop_and_resume(folder, STOPS, "--sync", "allreduce", "--granularity", "tensor")


def case_ddp_is_bit_identical(folder):
    stop_and_resume(folder, STOPS_OF_DDP, "--sync", "ddp", "--first-bucket", "8KiB", "--bucket-cap", "64KiB")


def case_powersgd_is_bit_identical(folder):
    stop_and_resume(folder, (2, PER_EPOCH - 1), "--sync", "powersgd", "--powersgd-rank", 2, "--powersgd-start", 4, "--bucket-cap", "64KiB")


def case_top_k_is_bit_identical(folder):
    stop_and_resume(folder, STOPS, "--sync", "top-k", "--top-k", 5, "--bucket-cap", "64KiB")


def case_local_sgd_is_bit_identical(folder):
    """In its start, within a period; with what is kept of an average in 16 bits, and with the outer optimizer."""
    options = ["--sync", "local-sgd", "--local-steps", 5, "--local-start", 4]
    for name, more in (("bf16", ["--wire-dtype", "bf16"]), ("outer", ["--outer", "nesterov"])):
        stop_and_resume(folder_for(folder, name), (2, PER_EPOCH + 1), *options, *more)


def case_sharded_modes_are_bit_identical(folder):
    for mode, *more in (["zero1", "--clip-norm", 0.5], ["fsdp", "--fsdp-unit", "layer"]):
        stop_and_resume(folder_for(folder, mode), STOPS, "--sync", mode, "--optimizer", "adam", "--lr", 0.001, *more)


def case_an_exchange_over_two_steps_is_bit_identical(folder):
    arguments = ["--sync", "ddp", "--overlap", "step", "--transport", "tcp-ring"]
    stop_and_resume(folder, (0, 1, PER_EPOCH - 1, 15), *arguments)
    # Who stops in between stops with the next iteration that is waited for.
    train(folder / "between.h5", *arguments, "--inject-fault", "usr1@1:4").expect(75, f"stopped after iteration {PER_EPOCH} ")


def case_sizes_of_buckets_that_were_found_are_kept(folder):
    arguments = ["--sync", "ddp", "--bucket-cap", "auto", "--first-bucket", "auto"]
    output = folder / "run.h5"
    train(output, *arguments, "--inject-fault", "usr1@1:4").expect(75, "bucket cap auto")
    result = train(output, *arguments, "--resume", "auto").expect(0)
    check("bucket cap auto" not in result.out, "they were found a second time")


def case_data_parallel_is_bit_identical(folder):
    stop_and_resume(folder, STOPS, "--sync", "data-parallel")


def case_c10d_is_bit_identical(folder):
    stop_and_resume(folder, STOPS, "--sync", "c10d", "--first-bucket", "8KiB", "--bucket-cap", "64KiB")


def case_accumulation_and_one_order_for_all_epochs(folder):
    stop_and_resume(folder, (2, PER_EPOCH // 2 + 1), "--sync", "ddp", "--accumulate", 2, "--no-set-epoch", iterations=PER_EPOCH)


def case_an_epoch_that_the_accumulation_does_not_divide(folder):
    # Four iterations an epoch, the last of one pass: a checkpoint at its end, and one behind it.
    stop_and_resume(folder, (3, 4), "--sync", "ddp", "--accumulate", 3, iterations=8)
    dropped = folder_for(folder, "dropped")
    stop_and_resume(dropped, (2, 3), "--sync", "ddp", "--accumulate", 3, "--last-batch", "drop", iterations=6)


# --- TorchScript modules: all that a forward pass reads -----------------------------------------------


def module_resumes(folder, name: str) -> None:
    written = torchscript_modules()
    shape = ["--input", "2x3x3", "--classes", 5, "--evaluate", "none", "--batch-per-rank", 4, "--epochs", 1, "--iterations", 8]
    arguments = ["--model", written / f"{name}.pt", *shape]
    stop_and_resume(folder, (1, 4), "--sync", "ddp", *arguments, iterations=8)
    train(folder / "n.h5", "--sync", "allreduce", *arguments, "--batch-norm", "broadcast").expect(0, "run file")
    ends = {parameters(train(None, "--sync", "allreduce", *arguments, "--init", how).expect(0)) for how in ("equal", "broadcast")}
    check(len(ends) == 1, f"ranks begin with other networks: {ends}")


def case_dropout_draws_the_same_again(folder):
    module_resumes(folder, "drop")


def case_buffers_of_every_type(folder):
    module_resumes(folder, "kinds")


def case_buffers_of_every_layout(folder):
    module_resumes(folder, "layouts")


def case_attributes_that_are_no_buffers(folder):
    module_resumes(folder, "assigned")


def case_batch_norm_statistics_of_each_rank(folder):
    small = synthetic(folder, 16, 8)
    stop_and_resume(folder, (1,), "--model", "vgg11", "--data", small, "--batch-per-rank", 2, "--epochs", 1, "--sync", "allreduce", iterations=4)
    kept = tensors(checkpoints(folder / "run.h5")[0])
    of_rank_0 = [name for name in kept if re.fullmatch(r"buffers/.*\.running_mean", name)]
    check(len(of_rank_0) == 8, f"batch norms of VGG11: {of_rank_0}")
    alike = [name for name in of_rank_0 if kept[name] == kept[f"rank1/{name}"]]
    check(not alike, f"rank 1 has the statistics of rank 0: {alike}")


def folder_for(folder, name) -> pathlib.Path:
    (folder / name).mkdir()
    return folder / name


def case_four_ranks_with_ddp(folder):
    whole = Whole("--sync", "ddp", "--bucket-cap", "32KiB", "--first-bucket", "8KiB", "--batch-per-rank", 8, ranks=4)
    output = folder / "run.h5"
    whole.part(output, "--inject-fault", "usr1@3:6").expect(75, "at rank 3")
    whole.require_equal(output, whole.part(output, "--resume", "auto").expect(0))


# --- real signals, and the clock --------------------------------------------------------------------


class Job:
    """A run in the background, in a process group of its own, slower from the 60th iteration on: it is met while it trains."""

    def __init__(self, output, *arguments, pause_s):
        slower = ["env", f"LD_PRELOAD={STRIKE}", f"STRIKE=0:forward:60+:sleep={pause_s}"]
        self.start(mpirun(2) + slower + trainer(output, *arguments))

    @classmethod
    def of(cls, command: list) -> "Job":
        job = cls.__new__(cls)
        job.start(command)
        return job

    def start(self, command: list) -> None:
        self.process = subprocess.Popen([str(part) for part in command], env=ENVIRONMENT, cwd=ROOT, text=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip

    def ranks(self) -> list:
        """Not those that are still a shell."""
        return [process.pid for process in processes(parent=self.process.pid) if process.name.startswith("gradsync-")]

    def wait_until(self, ready) -> None:
        limit = time.monotonic() + 120
        while not ready():
            if self.process.poll() is not None or time.monotonic() > limit:
                self.process.kill()
                raise Failure(f"it never came so far: {self.end().err[-500:]}")
            time.sleep(0.1)

    def end(self) -> Result:
        try:
            out, err = self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
        end_session(self.process)
        return Result(self.process.returncode, out, err, 0)


def mapped(process: int, library: str) -> bool:
    try:
        return library in pathlib.Path(f"/proc/{process}/maps").read_text()
    except OSError:  # it has ended
        return False


def grown(path, size: int):
    return lambda: path.exists() and path.stat().st_size > size


LONG_EPOCHS = 20
LONG = ["--sync", "ddp", "--evaluate", "none", "--epochs", LONG_EPOCHS]


def long_whole():
    """Takes long enough to be met while it trains."""
    return Whole(*LONG, iterations=LONG_EPOCHS * PER_EPOCH)


def case_a_signal_at_one_rank_or_at_mpirun_stops_all(folder):
    whole = long_whole()
    signals = (("rank-0", signal.SIGUSR1), ("rank-1", signal.SIGTERM), ("mpirun", signal.SIGUSR1), ("rank-0", signal.SIGINT), ("rank-1", signal.SIGHUP))
    for name, number in signals:
        output = folder / f"{name}-{number}.h5"
        job = Job(output, *LONG, "--checkpoint-every", whole.iterations, pause_s=0.1)
        job.wait_until(grown(journal_of(output), 20000))
        ranks = job.ranks()
        check(len(ranks) == 2, f"ranks: {ranks}")
        os.kill({"rank-0": ranks[0], "rank-1": ranks[1], "mpirun": job.process.pid}[name], number)
        job.end().expect(75, f"signal {signal.Signals(number).name[3:]} at rank", "--resume auto")
        check(len(checkpoints(output)) == 1 and output.exists(), "no checkpoint or no partial file")
        stopped_after = number_of(checkpoints(output)[0])
        check(stopped_after < whole.iterations, "the run was over before the signal came")
        whole.require_equal(output, whole.part(output, "--resume", "auto").expect(0, f"resumes after iteration {stopped_after}\\b"))


def case_a_closed_pipe_stops_the_run_with_a_checkpoint(folder):
    """Its first line reaches `head`, which ends. No mpirun stands between the two."""
    output = folder / "run.h5"
    arguments = ["--sync", "none", "--evaluate", "none", "--epochs", 40]
    script = f"{shlex.join(map(str, trainer(output, *arguments)))} | head -n 1; exit ${{PIPESTATUS[0]}}"
    run(["bash", "-c", script]).expect(75, r"stopped after iteration \d+ \(signal PIPE at rank 0\)")
    check(output.exists() and len(checkpoints(output)) == 1, "no partial file or no checkpoint")
    run(trainer(output, *arguments, "--resume", "auto")).expect(0, "resumes after iteration")


def case_a_signal_ends_a_start_that_waits_for_a_rank(folder):
    """Rank 1 comes late: rank 0 waits in MPI_Init."""
    start = f"[ ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} = 1 ] && sleep 60; exec {shlex.join(map(str, trainer(folder / 'run.h5')))}"
    for number in (signal.SIGTERM, signal.SIGINT):
        job = Job.of([*mpirun(2), "bash", "-c", start])
        job.wait_until(lambda job=job: job.ranks() and mapped(job.ranks()[0], "libmpi"))
        time.sleep(0.5)
        begin = time.monotonic()
        os.kill(job.ranks()[0], number)
        result = job.end()
        check(result.code != 0 and time.monotonic() - begin < 20, f"{number}: {result.code} after {time.monotonic() - begin:.0f} s")


def require_recorded_once(output) -> None:
    """What is measured after the training."""
    import h5py

    with h5py.File(output) as run:
        check(run["replica/parameter_hash"].shape == (2,), f"replicas: {run['replica/parameter_hash'].shape}")
        when = [text.decode() for text in run["traffic_total/when"][:]]
        check(when == ["start", "trained"], f"totals of traffic: {when}")
        when = [text.decode() for text in run["clock/when"][:]]
        check(when.count("end") == 1, f"readings of the clocks: {when}")


def killed_when_all_is_measured(output, *arguments) -> None:
    """Rank 0 is killed when it begins to write, behind all other records, that the run is complete: the last of its writings,
    which a run to the end beside it counts."""
    with tempfile.TemporaryDirectory(dir=output.parent.parent) as other:
        copy = shutil.copytree(output.parent, pathlib.Path(other) / "copy") / output.name
        counted = train(copy, *arguments, environment={"LD_PRELOAD": STRIKE, "STRIKE": "0:journal:1+:sleep=0"}).expect(0)
    last = counted.err.count("strike: rank 0, journal")
    result = train(output, *arguments, environment={"LD_PRELOAD": STRIKE, "STRIKE": f"0:journal:{last}:KILL"})
    check(result.code != 0 and "strike: rank 0, journal: KILL" in result.err, f"{result.code}: {result.err[-1000:]}")
    check("Calibration on these ranks" in result.out, result.out)


def case_killed_after_the_checkpoint_at_the_end(folder):
    options = ["--sync", "ddp", "--first-bucket", 1, "--bucket-cap", 1]
    arguments = [*options, "--checkpoint-every", "end", "--calibrate"]
    whole = Whole(*options)
    output = folder / "job" / "run.h5"
    output.parent.mkdir()
    killed_when_all_is_measured(output, *arguments)
    check([number_of(path) for path in checkpoints(output)] == [ITERATIONS], f"checkpoints: {checkpoints(output)}")
    # Once more between the two: what is recorded behind the checkpoint is dropped each time.
    killed_when_all_is_measured(output, *arguments, "--resume", "auto")
    whole.require_equal(output, train(output, *arguments, "--resume", "auto").expect(0, f"resumes after iteration {ITERATIONS} "))
    require_recorded_once(output)


def case_a_stop_during_calibration_ends_after_the_first_iteration(folder):
    whole = Whole("--sync", "ddp")
    output = folder / "run.h5"
    stopped = whole.part(output, "--calibrate", environment={"LD_PRELOAD": STRIKE, "STRIKE": "1:calibration:1:TERM"})
    stopped.expect(75, "stopped after iteration 1 ")
    whole.require_equal(output, whole.part(output, "--calibrate", "--resume", "auto").expect(0, "resumes after iteration 1 "))


def case_a_time_limit_stops_in_time(folder):
    output = folder / "run.h5"
    limit = 10  # seconds
    start = train(folder / "one.h5", "--iterations", 1, "--evaluate", "none").expect(0).seconds
    for resume, text in (("no", "--time-limit at rank"), ("auto", "resumes after iteration")):
        result = train(output, "--epochs", 100000, "--evaluate", "none", "--time-limit", f"{limit}s", "--resume", resume)
        result.expect(75, text)
        check(result.seconds < limit + 20 + 2 * start, f"it took {result.seconds:.1f} s, one iteration {start:.1f} s")
        check(checkpoints(output), "no checkpoint")


def case_a_time_limit_knows_when_deferred_updates_can_stop(folder):
    """With --overlap step after iterations 1, 2, 3 and 16: before the fourth one the limit is nearer than the sixteenth."""
    result = train(folder / "run.h5", "--sync", "ddp", "--overlap", "step", "--model", "synthetic:parameters=100k,compute=500ms,tensors=4",
                   "--batch-per-rank", 1, "--evaluate", "none", "--iterations", 40, "--time-limit", "6s")  # fmt: skip
    result.expect(75, "--time-limit at rank")
    stopped_after = int(re.search(r"stopped after iteration (\d+)", result.err).group(1))
    check(stopped_after <= 3, f"stopped after iteration {stopped_after}")


def case_a_time_limit_knows_the_evaluation(folder):
    data = synthetic(folder, 320, 40000)  # longer to evaluate, one by one, than the limit
    result = train(folder / "run.h5", "--data", data, "--batch-per-rank", 1, "--evaluate", "each-rank", "--time-limit", "12s")
    result.expect(75, "--time-limit at rank")
    stopped_after = int(re.search(r"stopped after iteration (\d+)", result.err).group(1))
    check(stopped_after <= 160 and "epoch 1:" not in result.out, f"it evaluated the network, and stopped after iteration {stopped_after}")


def case_without_output_nothing_is_kept(folder):
    train(None, "--inject-fault", "usr1@0:3").expect(75, "stopped after iteration 4 .*nothing is kept", "--output")


# --- kills, damage and what does not fit --------------------------------------------------------------


def case_killed_after_a_checkpoint_goes_on(folder):
    whole = Whole("--sync", "ddp")
    output = folder / "run.h5"
    killed = whole.part(output, "--checkpoint-every", 4, "--inject-fault", "kill@1:14")
    check(killed.code == 137, f"exit code {killed.code}")
    check([number_of(path) for path in checkpoints(output)] == [12, 8], f"checkpoints: {checkpoints(output)}")
    result = whole.part(output, "--checkpoint-every", 4, "--resume", "auto").expect(0, "resumes after iteration 12")
    whole.require_equal(output, result)


def case_killed_before_any_checkpoint_begins_anew_in_its_journal(folder):
    whole = Whole("--sync", "allreduce")
    output = folder / "run.h5"
    whole.part(output, "--inject-fault", "kill@0:7")
    whole.part(output).expect(73, "journal' exists", "--resume auto")
    whole.require_equal(output, whole.part(output, "--resume", "auto").expect(0, "resumes after iteration 0"))


def killed_with_two_checkpoints(whole, output) -> list:
    whole.part(output, "--checkpoint-every", 4, "--inject-fault", "kill@0:10").expect(137)
    found = checkpoints(output)
    check([number_of(path) for path in found] == [8, 4], f"checkpoints: {found}")
    return found


def case_back_to_an_older_checkpoint_and_interrupted(folder):
    whole = Whole("--sync", "ddp")
    for fault, at in (("kill@0:6", 4), ("usr1@0:5", 6)):
        output = folder / f"{at}.h5"
        newer, older = killed_with_two_checkpoints(whole, output)
        abandoned = newer.read_bytes()
        result = whole.part(output, "--checkpoint-every", 4, "--resume", older, "--inject-fault", fault)
        result.expect(137 if "kill" in fault else 75, "resumes after iteration 4", "warning: .* held 1 checkpoint .* abandoned branch")
        aside = pathlib.Path(f"{folder_of(output)}.earlier-1") / newer.name
        check(aside.read_bytes() == abandoned and not newer.exists(), "the checkpoint of the abandoned branch is lost, or still there")
        whole.part(output, "--resume", aside).expect(65, "abandoned")
        # Even beside the others it is not resumed.
        newer.write_bytes(abandoned)
        result = whole.part(output, "--checkpoint-every", 4, "--resume", "auto")
        result.expect(0, rf"{newer.name}' is refused: .*abandoned", f"resumes after iteration {at} ")
        whole.require_equal(output, result)
        check([number_of(path) for path in checkpoints(output)] == [20, 16], f"checkpoints: {checkpoints(output)}")


def case_checkpoints_of_an_earlier_run_are_moved_aside(folder):
    whole = Whole("--sync", "ddp")
    output = folder / "run.h5"
    whole.part(output, "--checkpoint-every", 4).expect(0)
    output.unlink()
    old = {path.name: path.read_bytes() for path in checkpoints(output)}
    aside = pathlib.Path(f"{folder_of(output)}.earlier-1")
    result = whole.part(output, "--checkpoint-every", 4, "--inject-fault", "kill@0:10")
    result.expect(137, f"warning: .* held 2 checkpoints of another run .*moved to '{re.escape(str(aside))}'")
    check([number_of(path) for path in checkpoints(output)] == [8, 4], f"checkpoints: {checkpoints(output)}")
    check({path.name: path.read_bytes() for path in aside.iterdir()} == old, "checkpoints of the earlier run are lost")
    result = whole.part(output, "--checkpoint-every", 4, "--resume", "auto").expect(0, "resumes after iteration 8 ")
    check("of another run" not in result.err, result)
    whole.require_equal(output, result)


def case_a_complete_journal_is_published_without_training(folder):
    whole = long_whole()
    output = folder / "run.h5"
    job = Job(output, *LONG, "--checkpoint-every", whole.iterations, pause_s=0.02)
    job.wait_until(journal_of(output).exists)
    output.write_text("in the way")
    job.end().expect(73, "run.h5", "journal")
    output.unlink()
    journal = journal_of(output).read_bytes()
    for _ in ("the journal alone", "the journal beside its run file"):
        journal_of(output).write_bytes(journal)
        result = whole.part(output, "--resume", "auto").expect(0, "run file: ")
        check("resumes" not in result.out and "parameters" not in result.out, f"it was trained again: {result.out}")
        check(not journal_of(output).exists(), "the journal is still there")
        require_same_rows(output, whole.output)
    whole.part(output, "--resume", "auto").expect(73, "exists")


def case_a_journal_that_is_damaged_meanwhile_is_not_published(folder):
    whole = long_whole()
    output = folder / "run.h5"
    job = Job(output, *LONG, "--checkpoint-every", whole.iterations, pause_s=0.025)
    job.wait_until(grown(journal_of(output), 20000))
    with open(journal_of(output), "r+b") as journal:
        journal.seek(12000)
        byte = journal.read(1)[0]
        journal.seek(12000)
        journal.write(bytes([byte ^ 16]))
    job.end().expect(74, rf"journal .* is damaged at byte \d+: \d+ of {whole.iterations} iterations", "the journal is kept")
    check(not output.exists() and journal_of(output).exists(), "a run file, or no journal")
    result = whole.part(output, "--resume", "auto").expect(0, "warning: .*journal.*left out", "resumes after iteration 0")
    whole.require_equal(output, result)


def case_the_first_collectives_after_a_resume_are_compared(folder):
    output = folder / "run.h5"
    train(output, "--sync", "allreduce", "--inject-fault", "usr1@0:5").expect(75)
    result = train(output, "--sync", "allreduce", "--resume", "auto", "--inject-fault", "short@1:7", "--timeout", "20s")
    result.expect(87, "ranks disagree about a collective")


def stopped_with_two_checkpoints(whole, output) -> list:
    whole.part(output, "--checkpoint-every", 4, "--inject-fault", "usr1@0:9").expect(75)
    found = checkpoints(output)
    check([number_of(path) for path in found] == [10, 8], f"checkpoints: {found}")
    return found


def case_a_damaged_newest_is_named_and_the_older_taken(folder):
    whole = Whole("--sync", "ddp")
    output = folder / "run.h5"
    newest, older = stopped_with_two_checkpoints(whole, output)
    good = newest.read_bytes()
    for bad, why in ((good[:-1], "tensor|bytes"), (good[:40], "claims"), (good[:9000] + bytes([good[9000] ^ 4]) + good[9001:], "SHA-256")):
        newest.write_bytes(bad)
        whole.part(output, "--resume", newest).expect(65, f"{newest.name}' is refused: .*({why})", f"--resume {older}")
    result = whole.part(output, "--resume", "auto").expect(0, f"warning: .*{newest.name}.*next older", "resumes after iteration 8")
    whole.require_equal(output, result)


def case_a_checkpoint_named_by_its_file(folder):
    whole = Whole("--sync", "ddp")
    output = folder / "run.h5"
    _, older = stopped_with_two_checkpoints(whole, output)
    whole.require_equal(output, whole.part(output, "--resume", older).expect(0, "resumes after iteration 8"))


def case_what_does_not_fit_is_refused(folder):
    whole = Whole("--sync", "ddp")
    output = folder / "run.h5"
    newest, _ = stopped_with_two_checkpoints(whole, output)
    before = {path: path.read_bytes() for path in (output, journal_of(output), *checkpoints(output))}
    other_data = synthetic(folder, 322, 64)
    for number, (arguments, text) in enumerate((
        (["--sync", "allreduce"], "sync is ddp there, allreduce here"),
        (["--batch-per-rank", 8], "batch-global is 32 there, 16 here"),
        (["--lr", 0.2], "lr is 0.1 there, 0.2 here"),
        (["--precision", "bf16"], "precision is fp32 there, bf16 here"),
        (["--data", other_data], "SHA-256 of the data set"),
        (["--model", "mlp:8x1"], "model is lenet there, mlp:8x1 here"),
    )):  # fmt: skip
        whole.part(output, *arguments, "--resume", newest if number % 2 else "auto").expect(65, "cannot resume from", text)
    train(output, *whole.arguments, "--resume", "auto", ranks=1).expect(65, "number of ranks is 2 there, 1 here")
    whole.part(folder / "elsewhere.h5", "--resume", newest).expect(66, "elsewhere.h5.journal")
    whole.part(output, "--resume", folder / "nothing").expect(66, "nothing")
    foreign = folder / "foreign.safetensors"
    foreign.write_bytes(struct.pack("<Q", 2) + b"{}")
    whole.part(output, "--resume", foreign).expect(65, "no __metadata__")
    other = folder / "other.h5"
    whole.part(other, "--inject-fault", "usr1@0:9").expect(75)
    whole.part(output, "--resume", checkpoints(other)[0]).expect(65, "it is of run")
    check(before == {path: path.read_bytes() for path in before}, "something was changed")
    train(None, "--resume", "auto").expect(64, "--output")
    train(None, "--checkpoint-every", 3).expect(64, "--output")


def case_contenders_on_a_device_resume_after_a_stop(folder):
    """On the stand-in for GPU and NCCL."""
    for ranks in (1, 3):
        where = folder / f"{ranks}"
        where.mkdir()
        test = [*mpirun(ranks), ROOT / "build/tests/mpi", "--no-colors", "--no-skip"]
        run([*test, "--test-case=stop on a device: asked for*"], environment={"TEST_FOLDER": f"{where}"}).expect(75, f"USR1 at rank {ranks - 1}")
        run([*test, "--test-case=stop on a device: each*"], environment={"TEST_FOLDER": f"{where}"}).expect(0, "1 passed")


def case_a_finished_run_is_not_touched(folder):
    output = folder / "run.h5"
    train(output).expect(0)
    before = output.read_bytes()
    train(output, "--resume", "auto").expect(73, "exists")
    check(output.read_bytes() == before, "the file was touched")


def case_a_full_disk_ends_with_74_and_leaves_the_earlier_checkpoint(folder):
    whole = Whole("--sync", "allreduce")
    disk = folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", disk], capture_output=True, check=False).returncode:
        raise Skip("needs the right to mount a small file system")
    try:
        output = disk / "run.h5"
        whole.part(output, "--checkpoint-every", 4).expect(74, "cannot write .*iteration-000000008", "free space")
        check([path.name for path in folder_of(output).iterdir()] == ["iteration-000000004.safetensors"], "leftovers")
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        result = whole.part(output, "--checkpoint-every", 4, "--resume", "auto").expect(0, "resumes after iteration 4")
        whole.require_equal(output, result)
    finally:
        subprocess.run(["umount", disk], check=False)


def case_a_disk_that_is_full_when_a_checkpoint_gets_its_name_ends_with_74(folder):
    environment = {"LD_PRELOAD": STRIKE, "STRIKE": "0:rename:1:ENOSPC", "STRIKE_PATH": ".safetensors"}
    output = folder / "run.h5"
    train(output, "--checkpoint-every", 4, environment=environment).expect(74, "rename a finished file to .*iteration-000000004.*No space left")
    check(not list(folder_of(output).iterdir()), "leftovers")


def case_python_opens_a_checkpoint(folder):
    try:
        import numpy
        from safetensors import safe_open
    except ImportError:
        raise Skip("needs a Python with safetensors (make deps)") from None
    output = folder / "run.h5"
    train(output, "--inject-fault", "usr1@0:3").expect(75)
    with safe_open(checkpoints(output)[0], framework="numpy") as file:
        check(file.metadata()["option.model"] == "lenet" and file.metadata()["iteration"] == "4", f"{file.metadata()}")
        weights = [file.get_tensor(name) for name in file.keys() if name.startswith("parameters/")]
    check(sum(one.size for one in weights) == 61780, "not the parameters of LeNet")
    check(all(numpy.isfinite(one).all() and one.dtype == numpy.float32 for one in weights), "no weights")


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 320, 64)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare, at_once=3))
