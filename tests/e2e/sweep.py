#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradsync-sweep from outside: real grids with mpirun, stopped, killed and gone on with. Prints PASS, FAIL or SKIP a case.

usage: sweep.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import h5py
import harness
from harness import BIN, ENVIRONMENT, ROOT, Failure, Skip, check, end_session, run

DATA = ""


def job_file(folder: pathlib.Path, *lines: str) -> pathlib.Path:
    file = folder / "grid.cfg"
    file.write_text("\n".join(["model = lenet", "evaluate = none", "threads = 1", f"data = {DATA}", *lines]) + "\n")
    return file


def command(folder: pathlib.Path, *arguments) -> list:
    return [BIN / "gradsync-sweep", folder / "grid.cfg", "--results", folder / "runs", "--launcher", "local", *arguments]


def sweep(folder: pathlib.Path, *arguments, **how) -> harness.Result:
    return run(command(folder, *arguments), **({"timeout": 300} | how))


# Slows the second rank down, which no job of one rank has: such a job is met while it trains.
SLOW_SECOND_RANK = {"LD_PRELOAD": harness.STRIKE, "STRIKE": "1:forward:2+:sleep=0.05"}


def start(folder: pathlib.Path, *arguments, environment: dict | None = None) -> subprocess.Popen:
    with open(folder / "out", "w") as out:
        return subprocess.Popen([str(part) for part in command(folder, *arguments)], env=ENVIRONMENT | (environment or {}), cwd=ROOT,
                                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)  # fmt: skip


def wait_until(condition, what: str, timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"after {timeout} s still not: {what}")
        time.sleep(0.3)


def is_training(folder: pathlib.Path, cell: str) -> bool:
    """Its first steps are on the disk: the ranks are past their start."""
    return bool(re.search(rf"{cell} +running +[1-9]", sweep(folder, "--status").out))


def states(folder: pathlib.Path) -> list:
    lines = sweep(folder, "--list").expect(0).out.splitlines()
    return [line[:15].strip() for line in lines]


def end(process: subprocess.Popen) -> None:
    end_session(process)
    process.wait()


def long_grid(folder: pathlib.Path) -> None:
    """Three cells; the second takes minutes unless it is stopped or cut short."""
    job_file(folder, "ranks = 1, 2", "batch-per-rank = 8", "sync = none, ddp", "exclude = sync=none ranks=2",
             "epochs = 100000", "log-every = 1")  # fmt: skip


# --- cases: each gets an empty folder ---------------------------------------------------------------


def case_a_grid_runs_once_and_prints_its_tables(folder):
    job_file(folder, "ranks = 1, 2", "batch-per-rank = 8", "iterations = 4")
    sweep(folder).expect(0, "2 cells: 2 complete, 0 failed", "Synchronization cost, lenet")
    sweep(folder).expect(0, "2 of 2 cells are there already")
    check(states(folder) == ["done", "done"], f"{states(folder)}")
    check(all((folder / f"runs/tables/{name}.txt").exists() for name in ("summary", "modes", "split")), "no tables")


def case_a_signal_stops_the_grid_with_75_and_the_same_command_goes_on(folder):
    long_grid(folder)
    process = start(folder, "--cell", "lenet-ddp-r2")
    try:
        wait_until(lambda: is_training(folder, "lenet-ddp-r2"), "training")
        status = sweep(folder, "--status").expect(0, "1 running", "by host ")
        check("lenet-ddp-r2" in status.out, status)
        sweep(folder, "--cell", "lenet-ddp-r2").expect(75, "another process runs this cell: host ")
        process.send_signal(signal.SIGUSR1)
        code = process.wait(timeout=120)
    finally:
        end(process)
    text = (folder / "out").read_text()
    check(code == 75, f"exit code {code}: {text}")
    check("stopped with 0 of 1 cells complete" in text and "continue with: " in text, text)
    check(states(folder)[2] == "partial", f"{states(folder)}")
    check(not list((folder / "runs").glob("*.running")), "a lock is left")
    if "--resume" in run([BIN / "gradsync-train", "--help"]).out:
        sweep(folder, "--status").expect(0, "resumes from its checkpoint")
    else:
        sweep(folder, "--status").expect(0, "starts again")


def case_a_killed_sweep_goes_on_where_it_was(folder):
    job_file(folder, "ranks = 1, 2", "batch-per-rank = 8", "epochs = 100", "log-every = 1")
    process = start(folder, environment=SLOW_SECOND_RANK)
    try:
        wait_until(lambda: is_training(folder, "lenet-ddp-r2"), "the second cell")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        # Its mpirun lives and holds the folder.
        sweep(folder).expect(75, "another sweep, or a run that it started")
    finally:
        end(process)
    wait_until(lambda: states(folder) == ["done", "partial"], "partial", 30)
    sweep(folder).expect(0, "1 of 2 cells are there already", "2 cells: 2 complete")
    check(states(folder) == ["done", "done"], f"{states(folder)}")


def case_out_of_memory_ends_the_ladder_as_a_result(folder):
    # 320 images: batch 32 ends before the fault's step, 4 meets it, and 16 is above that.
    job_file(folder, "ranks = 1", "batch-per-rank = 32, 4, 16", "inject-fault = out-of-memory@0:30",
             "report-options = --table batch-size")  # fmt: skip
    sweep(folder).expect(0, "3 cells: 1 complete, 0 failed, 2 too large for the memory",
                         r"OUT OF MEMORY \(exit code 81\)", "not run: batch 4 per rank ran out of memory")  # fmt: skip
    check(states(folder) == ["done", "out of memory", "not run"], f"{states(folder)}")
    sweep(folder).expect(0, "2 of 3 cells are there already")


def case_a_failed_cell_is_recorded_and_the_grid_goes_on(folder):
    job_file(folder, "ranks = 1", "batch-per-rank = 8", "iterations = 4", "inject-fault = nan@0:2, nan@0:50",
             "report-options = --table modes")  # fmt: skip
    result = sweep(folder)
    check(result.code == 1 and "1 of 2 cells failed" in result.err, f"{result.code}: {result.err[-600:]}")
    failure = json.loads(next((folder / "runs").glob("*.failed.json")).read_text())
    check(failure["exit_code"] == 80 and failure["kind"] == "failed" and failure["message"], f"{failure}")
    check(sorted(states(folder)) == ["done", "failed"], f"{states(folder)}")


def experiments(folder: pathlib.Path) -> dict:
    """Contenders and the number of rounds that all have, by the experiment's id."""
    found = {}
    for path in sorted((folder / "runs").glob("*.h5")):
        with h5py.File(path) as file:
            facts = {key: file["experiment"][key][()].decode() for key in file.get("experiment", ())}
            rounds = set(file["iteration/round"][()]) - {-1}
        if facts:
            found.setdefault(facts["id"], {})[facts["contender"]] = rounds
    return {identity: (sorted(of), len(set.intersection(*of.values()))) for identity, of in found.items()}


def case_modes_of_a_grid_are_one_job_in_turn(folder):
    job_file(folder, "ranks = 1, 2", "batch-global = 16", "sync = none, allreduce, ddp", "exclude = sync=none ranks=1",
             "epochs = 10", "checkpoint-every = 5")  # fmt: skip
    shown = sweep(folder, "--dry-run").expect(0).out.splitlines()
    check(len(shown) == 2 and "--compare=allreduce,ddp " in shown[0] and "--compare=none,allreduce,ddp " in shown[1], f"{shown}")
    one_by_one = sweep(folder, "--dry-run", "--set", "interleave=no").expect(0).out
    check(one_by_one.count("--sync=") == 5 and "--compare" not in one_by_one, one_by_one)
    process = start(folder, environment=SLOW_SECOND_RANK)
    try:
        contenders = ("none", "allreduce", "ddp", "none-r2-control")
        parts = [folder / f"runs/lenet-{name}{'' if name.endswith('control') else '-r2'}.checkpoints" for name in contenders]
        wait_until(lambda: all(list(part.glob("*.safetensors")) for part in parts), "each contender of the second job has a checkpoint")
        check(states(folder) == ["done"] * 2 + ["running"] * 3, f"{states(folder)}")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        end(process)
    wait_until(lambda: "running" not in states(folder), "all ranks have ended", 30)
    complete = {path.name: path.stat().st_mtime_ns for path in (folder / "runs").glob("*-r1*.h5")}
    check(len(complete) == 3 and "resumes from its checkpoint" in sweep(folder, "--status").out, f"{complete}")
    sweep(folder).expect(0, "2 of 5 cells are there already", r"\[3-5/5\] lenet-none-r2 and 2 contenders in turn",
                         "5 cells: 5 complete", "What synchronization costs")  # fmt: skip
    check("resumes after iteration" in (folder / "runs/lenet-none-r2.log").read_text(), "the experiment began again")
    check(complete == {name: (folder / "runs" / name).stat().st_mtime_ns for name in complete}, "a complete run was repeated")
    found = experiments(folder)
    check(sorted(of for of, _ in found.values()) == [["allreduce", "allreduce (control)", "ddp"], ["allreduce", "ddp", "none", "none (control)"]]
          and all(rounds >= 190 for _, rounds in found.values()), f"{found}")  # fmt: skip
    check(not list((folder / "runs").glob("*.interrupted*")), "something was set aside")
    # A mode that is added later is alone: what is complete is not run again.
    wider = ["--set", "sync=none, allreduce, ddp, c10d", "--set", "exclude=ranks=1 sync=c10d"]
    shown = sweep(folder, *wider, "--dry-run").expect(0).out
    check("--sync=c10d" in shown and "--compare" not in shown and len(shown.splitlines()) == 1, shown)
    check(sweep(folder, "--dry-run").expect(0).out == "", "complete cells are shown as jobs to run")


def case_contenders_that_do_not_fit_the_memory_are_run_one_by_one(folder):
    # The fault is met by whoever has the iteration.
    job_file(folder, "ranks = 1", "batch-per-rank = 32", "sync = none, ddp", "iterations = 4", "inject-fault = out-of-memory@0:2")
    sweep(folder).expect(0, "out of memory in one job after .*; each in a job of its own", "2 too large for the memory")
    check(not experiments(folder), "an experiment is complete")


def case_options_behind_the_dashes_reach_every_cell(folder):
    job_file(folder, "ranks = 1, 2", "batch-global = 16", "iterations = 400", "report-options = --table modes")
    sweep(folder, "--", "--iterations", 3, "--batch-per-rank", 4, "--no-augment").expect(0)
    for cell in ("lenet-ddp-r1", "lenet-ddp-r2"):
        log = run([BIN / "gradsync-report", folder / f"runs/{cell}.h5", "--table", "modes", "--plots", "no"]).expect(0).out
        check(" 3 " in log, log)
    # Without them it would be another grid.
    sweep(folder).expect(64, "holds another grid", "iterations: 3 there, 400 here")
    # To look costs nothing: from a shell with other settings, too.
    status = sweep(folder, "--status").expect(0, "iterations: 3 there, 400 here")
    check("2 of 2 cells done" in status.out and " 3 of 3 " in status.out, status)


def case_variants_are_an_axis_of_bundled_options(folder):
    lines = ("ranks = 2", "batch-global = 16", "iterations = 4", "seed = 1, 2", "lr = 0.01", "report-options = --table large-batch",
             "variant = plain:", "variant = lars+warmup: optimizer=lars lr=1 warmup-epochs=0.5")  # fmt: skip
    job_file(folder, *lines)
    shown = sweep(folder, "--dry-run").expect(0).out
    check(shown.count("--optimizer=lars") == 2 and shown.count("--lr=0.01") == 2 and shown.count("--lr=1 ") == 2, shown)
    sweep(folder, "--cell", "lenet-ddp-r2-lars+warmup-seed2").expect(0)
    check(states(folder) == ["missing", "missing", "missing", "done"], f"{states(folder)}")
    sweep(folder, "--status").expect(0, "1 of 4 cells done")
    # Seeds are repeats of one cell: a row a variant.
    table = sweep(folder).expect(0, "4 cells: 4 complete", "1 of 4 cells are there already").out
    check(len(re.findall(r"^ddp ", table, re.M)) == 2 and "optimizer lars" in table, table)
    sweep(folder, "--", "--lr", 0.5).expect(64, "holds another grid", "lr: 0.01, 1 there, 0.5 here")
    job_file(folder, *lines, "variant = wrong: optimizer=lars warmup-epohcs=1")
    sweep(folder).expect(64, "grid.cfg:13: variant: warmup-epohcs is not an option of a run; did you mean warmup-epochs")


def case_bad_input_is_refused_before_anything_runs(folder):
    for line, code, text in (("rnaks = 1", 64, "grid.cfg:5: rnaks is not a key of a job file; did you mean ranks"),
                             ("ranks =", 64, "grid.cfg:5: ranks: there is no value"),
                             ("ranks = 3\nbatch-global = 4", 64, "does not divide by 3")):  # fmt: skip
        job_file(folder, line)
        sweep(folder).expect(code, text)
    job_file(folder, "ranks = 1, 4")
    inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "2", "SLURM_JOB_CPUS_PER_NODE": "2"}
    plain = [BIN / "gradsync-sweep", folder / "grid.cfg", "--results", folder / "runs"]
    run(plain, environment=inside).expect(69, "4 ranks do not fit the allocation", "--nodes=2 --ntasks-per-node=2")
    # In a step of srun another one would wait for its cores; the shell of salloc is one that has none.
    shell = str(2**32 - 6)
    run([*plain, "--cell", 1, "--dry-run"], environment=inside | {"SLURM_STEP_ID": shell}).expect(0, "srun --mpi=pmix")
    in_step = run([*plain, "--cell", 1, "--dry-run"], environment=inside | {"SLURM_STEP_ID": "0"}).expect(0, "mpirun")
    check("srun" not in in_step.out, in_step.out)
    run([*plain, "--launcher", "srun"]).expect(69, "SLURM_JOB_ID is not set")
    sweep(folder, "--cell", "9").expect(64, '"9" is not a cell of this grid of 2')
    sweep(folder, "--", "--bathc-per-rank", 4).expect(64, "did you mean --batch-per-rank")
    check(not (folder / "runs/grid.json").exists(), "something was written")


def stand_in(folder: pathlib.Path, name: str, script: str) -> dict:
    """A program of this name first in PATH. The real Slurm is tests/slurm's."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / name).write_text(f"#!/bin/bash\n{script}\n")
    (programs / name).chmod(0o755)
    return {"PATH": f"{programs}:{os.environ['PATH']}"}


def case_srun_gets_the_shape_and_its_75_stops_the_grid(folder):
    job_file(folder, "ranks = 1, 4", "iterations = 3")
    environment = stand_in(folder, "srun", f'printf "%s\\n" "$@" >>{folder}/words; exit 75') | {
        "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
        "SLURM_GPUS_ON_NODE": "2"}  # fmt: skip
    run([BIN / "gradsync-sweep", folder / "grid.cfg", "--results", folder / "runs", "--cell", 2], environment=environment).expect(75)
    words = (folder / "words").read_text().split("\n")
    for word in ("--mpi=pmix", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--cpus-per-task=2", "--gpus-per-node=2"):
        check(word in words, f"{word} is not in {words}")


# --- launchers of every family that is installed: programs are of one MPI, so scripts stand in for the trainer ---


def launcher_of(family: str) -> str:
    """The first mpirun of the family: of this build, in MPIRUNS (paths, with colons), in I_MPI_ROOT, on the PATH (mpirun.mpich too)."""
    folders = [os.environ.get("I_MPI_ROOT", "/nonexistent") + "/bin", *os.environ["PATH"].split(":")]
    paths = [str(path) for place in folders for path in sorted(pathlib.Path(place).glob("mpirun*"))]
    given = [harness.MPIRUN, *filter(None, os.environ.get("MPIRUNS", "").split(":"))]
    for path in [*given, *paths]:
        environment = {"PATH": f"{pathlib.Path(path).parent}:{os.environ['PATH']}"}
        if run([BIN / "gradsync-sweep", "mpirun", path], environment=environment).expect(0).out.split()[0] == family:
            return path
    raise Skip(f"no mpirun of the family {family} on the PATH, in I_MPI_ROOT or in MPIRUNS")


# One in twelve starts of Hydra 4.0 loses the exit code to an error of its own and ends with 255.
KILLED = "killed from outside|process manager error waiting for completion"


def start_with_stand_in(folder: pathlib.Path, launcher: str, script: str) -> subprocess.Popen:
    """`script` may use $rank, and $output, the run file."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("sweep", "report"):
        shutil.copy(BIN / f"gradsync-{name}", programs)
    trainer = programs / "gradsync-train"
    trainer.write_text(f"#!/bin/bash\nrank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} last=${{@: -1}}\noutput=${{last#--output=}}\n{script}\n")
    trainer.chmod(0o755)
    words = [programs / "gradsync-sweep", job_file(folder, "ranks = 3", "batch-per-rank = 8", "iterations = 4"), "--results", folder / "runs",
             "--launcher", "local", "--mpirun", launcher]  # fmt: skip
    # Intel's mpirun starts the first mpiexec.hydra of the PATH.
    environment = ENVIRONMENT | {"PATH": f"{pathlib.Path(launcher).parent}:{os.environ['PATH']}"}
    with open(folder / "out", "w") as out:
        return subprocess.Popen([str(word) for word in words], env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                start_new_session=True)  # fmt: skip


def grid_with(family: str, folder: pathlib.Path) -> None:
    """Its launcher accepts its options, starts every rank, and passes exit codes and signals on."""
    launcher, run_file = launcher_of(family), folder / "run.h5"
    run([*harness.mpirun(1), BIN / "gradsync-train", "--model", "lenet", "--data", DATA, "--evaluate", "none", "--sync", "none", "--threads", 1,
         "--iterations", 4, "--output", run_file]).expect(0)  # fmt: skip
    write_run = f'touch "{folder}/rank-$rank"; [[ $rank != 0 ]] || cp {run_file} "$output"'
    wait_for_usr1 = f'trap "exit 75" USR1; touch "{folder}/waits-$rank"; for i in {{1..600}}; do sleep 0.1; done'
    for name, script, code, text in (("complete", write_run, 0, "1 cell: 1 complete"), ("failed", "exit 80", 1, "1 of 1 cells failed"),
                                     ("killed", "[[ $rank = 1 ]] && kill -9 $$; exec sleep 15", 1, KILLED),
                                     ("stopped", wait_for_usr1, 75, "stopped with 0 of 1 cells complete")):  # fmt: skip
        process = start_with_stand_in(folder / name, launcher, script)
        try:
            if name == "stopped":
                wait_until(lambda: len(list(folder.glob("waits-*"))) == 3, "three ranks")
                process.send_signal(signal.SIGUSR1)
            ended = process.wait(timeout=90)
        finally:
            end(process)
        log = (folder / name / "out").read_text()
        check(ended == code and re.search(text, log), f"{launcher}, {name}: exit code {ended}: {log[-800:]}")
    check(len(list(folder.glob("rank-*"))) == 3, f"{launcher}: not three ranks")


def case_a_grid_runs_with_open_mpi_4(folder):
    grid_with("open-mpi-4", folder)


def case_a_grid_runs_with_open_mpi_5(folder):
    grid_with("open-mpi-5", folder)


def case_a_grid_runs_with_mpich(folder):
    grid_with("hydra", folder)


def case_a_grid_runs_with_intel_mpi(folder):
    grid_with("intel", folder)


def case_sbatch_gets_an_array_a_shape(folder):
    job_file(folder, "ranks = 1, 2, 4", "iterations = 3", "ranks-per-node = 2", "sync = none, ddp")
    home = harness.checkout(folder / "checkout")
    environment = {"GRADSYNC_HOME": str(home)} | stand_in(folder, "sbatch", f'echo "$@" >>{folder}/calls; wc -l <{folder}/calls')
    plain = [BIN / "gradsync-sweep", folder / "grid.cfg", "--results", folder / "runs", "--launcher", "slurm"]
    run([*plain, "--dry-run"], environment=environment).expect(0, "submit --dependency=singleton .* --nodes=2 ")
    check(not (folder / "runs").exists() and not (folder / "calls").exists(), "--dry-run did something")
    run(plain, environment=environment).expect(0, "job 1: 1 node × 1 rank, cells 1-2", "job 3: 2 nodes × 2 ranks, cells 5-6")
    calls = (folder / "calls").read_text().splitlines()
    # A task is a job, by its first cell.
    check([re.search("--array=([^ ]+)", call)[1] for call in calls] == ["1%1", "3%1", "5%1"], f"{calls}")
    run(plain, environment={"GRADSYNC_HOME": str(folder)}).expect(69, "cannot run .*/slurm/submit", "GRADSYNC_HOME")
    printed = run([home / "slurm/submit", "grid", folder / "grid.cfg", "--results", folder / "typed"]).expect(64)
    # The fix works as printed.
    run(["bash", "-euc", printed.err.split("fix: ")[1]], environment=environment).expect(0, "job 6: 2 nodes × 2 ranks, cells 5-6")


def prepare(folder) -> None:
    global DATA
    DATA = harness.synthetic(folder, 320, 64)


if __name__ == "__main__":
    sys.exit(harness.run_cases(globals(), prepare, at_once=2))
