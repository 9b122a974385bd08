# SPDX-License-Identifier: BSD-3-Clause
"""The runs whose files tests/soak/crash.py lets crash: each is recorded once by tests/libraries/file_log.cpp."""
import dataclasses
import pathlib
import time

import crash_disk
from harness import BIN, ROOT, Failure, mpirun, run

SHIM = ROOT / "build/tests/libfile_log.so"


@dataclasses.dataclass
class Run:
    """Commands one after the other, each with the exit code it ends with. The last one, started again in what a crash left,
    has to complete the run."""

    name: str
    commands: list  # of functions: folder → command line
    codes: list
    outputs: dict  # run file → rows it has in the end
    failing: dict = dataclasses.field(default_factory=dict)  # run file that is never made → rows its journal has in the end
    again_codes: tuple = (0,)  # of the last command on what a crash left
    complete_code: int = 73  # of the last command where everything is complete: a run file is never overwritten


def trainer(data: str, output: str, *arguments, ranks: int = 1):
    def command(folder: pathlib.Path) -> list:
        resolved = [str(part).replace("FOLDER", str(folder)) for part in arguments]
        launch = [] if ranks == 1 else mpirun(ranks)
        sync = [] if ranks > 1 else ["--sync", "none"]
        return launch + [BIN / "gradsync-train", "--model", "lenet", *sync, "--data", data, "--evaluate", "none", "--threads", 1,
                         "--device", "cpu", "--batch-per-rank", 16, "--output", folder / output, *resolved]  # fmt: skip

    return command


def one_rank(data: str) -> Run:
    return Run("one rank, checkpoints", [trainer(data, "run.h5", "--epochs", 2, "--checkpoint-every", 4, "--resume", "auto")],
               [0], {"run.h5": 20})  # fmt: skip


def killed(data: str) -> Run:
    common = ["--epochs", 2, "--checkpoint-every", 4, "--resume", "auto"]
    return Run("killed and resumed", [trainer(data, "run.h5", *common, "--inject-fault", "kill@0:10"), trainer(data, "run.h5", *common)],
               [137, 0], {"run.h5": 20})  # fmt: skip


def stopped(data: str) -> Run:
    common = ["--epochs", 2, "--resume", "auto"]
    return Run("stopped twice and resumed",
               [trainer(data, "run.h5", *common, "--inject-fault", "usr1@0:5"), trainer(data, "run.h5", *common, "--inject-fault", "term@0:12"),
                trainer(data, "run.h5", *common)], [75, 75, 0], {"run.h5": 20})  # fmt: skip


def back(data: str) -> Run:
    common = ["--epochs", 2, "--checkpoint-every", 4]
    older = "FOLDER/run.checkpoints/iteration-000000004.safetensors"
    return Run("resumed from an older checkpoint, killed, resumed",
               [trainer(data, "run.h5", *common, "--inject-fault", "kill@0:10"),
                trainer(data, "run.h5", *common, "--resume", older, "--inject-fault", "kill@0:6"),
                trainer(data, "run.h5", *common, "--resume", "auto")], [137, 137, 0], {"run.h5": 20})  # fmt: skip


def two_ranks(data: str) -> Run:
    return Run("two ranks, checkpoints",
               [trainer(data, "run.h5", "--epochs", 1, "--iterations", 8, "--checkpoint-every", 3, "--resume", "auto", ranks=2)],
               [0], {"run.h5": 5})  # fmt: skip


def of_mode(mode: str, *options):
    """Two ranks of a mode that keeps something from one iteration to the next."""

    def made(data: str) -> Run:
        return Run(f"two ranks of {mode}, checkpoints",
                   [trainer(data, "run.h5", "--sync", mode, *options, "--epochs", 2, "--checkpoint-every", 3, "--resume", "auto", ranks=2)],
                   [0], {"run.h5": 10})  # fmt: skip

    return made


def long(data: str) -> Run:
    """No checkpoint: only the interval of the journal makes rows durable, and one late iteration makes it pass."""
    return Run("rows for seconds", [trainer(data, "run.h5", "--epochs", 50, "--iterations", 300, "--resume", "auto",
                                            "--inject-fault", "delay@0:200")], [0], {"run.h5": 300})  # fmt: skip


def grid(data: str) -> Run:
    """Two cells that end and one that fails."""

    def command(folder: pathlib.Path) -> list:
        job = folder.parent / f"{folder.name}.cfg"
        job.write_text(f"name = grid\nmodel = lenet\nsync = none\nranks = 1\nevaluate = none\nthreads = 1\ndevice = cpu\n"
                       f"data = {data}\nbatch-per-rank = 16, 32\niterations = 4\ninject-fault = nan@0:9, nan@0:2\n"
                       "exclude = batch-per-rank=32 inject-fault=nan@0:2\nreport-options = --table modes --plots no\n")  # fmt: skip
        return [BIN / "gradsync-sweep", job, "--results", folder, "--launcher", "local"]

    cells = {f"lenet-none-r1-b{batch}-inject-fault-nan_0_9.h5": 4 for batch in (16, 32)}
    failing = {"lenet-none-r1-b16-inject-fault-nan_0_2.h5": 2}
    return Run("sweep with a cell that fails", [command], [1], cells, failing, again_codes=(1,), complete_code=1)


def record(run_: Run, folder: pathlib.Path) -> list[crash_disk.Record]:
    """Runs the commands in `folder`/files, which is made, and returns the calls, with a mark "exit CODE" after each command."""
    files, log = (folder / "files").resolve(), folder / "log"
    files.mkdir(parents=True)
    environment = {"LD_PRELOAD": str(SHIM), "FILE_LOG": str(log), "FILE_LOG_FOLDER": str(files)}
    for command, code in zip(run_.commands, run_.codes):
        result = run(command(files), timeout=600, environment=environment)
        if result.code != code:
            raise Failure(f"{run_.name}: exit code {result.code}, not {code}: {result.err[-800:]}")
        crash_disk.add_mark(log, f"exit {result.code}", time.monotonic())
    return crash_disk.read_log(log)
