#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs that end early: at their time limit they requeue and resume, bit for bit; canceled ones wait for a person.

usage: requeue.py [NAME...]    (run by tests/run slurm)
"""
import pathlib
import re
import sys

from slurm_harness import BIN, Job, cluster, home, job_field, job_file, run_on_cluster, slurm, submit, wait_for_end, wait_until
from harness import Skip, check, run, synthetic

DATA = ""
TWO_NODES = ["-N2", "--ntasks-per-node=1", "--gpus-per-node=1"]
RUN = "results/lenet-allreduce-r2.h5"


def prepare(folder: pathlib.Path) -> None:
    global DATA
    DATA = synthetic(folder, 640, 64)


def cells(folder, **keys) -> pathlib.Path:
    return job_file(folder, {"data": DATA, "sync": "allreduce", "ranks": 2, "epochs": 100000} | keys)


def iterations_recorded(folder) -> int:
    """Of all cells, by the grid's own table."""
    table = run([BIN / "gradsync-sweep", folder / "job.cfg", "--status"]).expect(0).out
    return sum(int(count) for count in re.findall(r" (\d+) of \d+ ", table))


def signal_batch(job: Job) -> None:
    """What Slurm sends ahead of the time limit, now."""
    slurm("scancel", "--batch", "--signal=USR1", job.number).expect(0)


def require_same_numbers(one: pathlib.Path, other: pathlib.Path) -> None:
    try:
        import h5py
    except ImportError:
        raise Skip("needs a Python with h5py (make deps)") from None
    with h5py.File(one) as first, h5py.File(other) as second:
        for name in ("iteration/number", "iteration/lr", "loss", "correct", "bucket/bytes", "epoch/train_loss", "epoch/order_digest"):
            a, b = first[name][()], second[name][()]
            check(a.shape == b.shape and a.tobytes() == b.tobytes(), f"{name} differs: {a.shape}, {b.shape}")


def parameters(folder) -> str:
    """The digest of the parameters that the run ended with."""
    return re.findall(r"^parameters: (.*)$", (folder / RUN).with_suffix(".log").read_text(), re.M)[-1]


# --- cases --------------------------------------------------------------------------------------------


def case_a_run_that_meets_its_limit_twice_ends_as_if_it_never_had(folder):
    """The real limit of a minute; Slurm signals 1 to 32 s ahead of it. An iteration exchanges 247 kB each way: at 30 Mbit/s
    3000 of them outlast two limits on any machine. After the second the link is let go."""
    cluster("rate", "30mbit").expect(0)
    try:
        job = submit(folder, "multi-node", cells(folder, iterations=3000), sbatch=[*TWO_NODES, "--time=1", "--signal=B:USR1@1"],
                     environment={"GRADSYNC_MAX_RESTARTS": "30"})  # fmt: skip
        wait_until(lambda: job_field(job.number, "Restarts") == "2" or "not queued again" in job.log, "it met two limits", 400)
    finally:
        cluster("rate", "none").expect(0)
    job.expect(0, "start 3", "requeued .restart 1", "requeued .restart 2", "1 cell: 1 complete",
               "Synchronization modes", timeout=600)  # fmt: skip
    straight = folder / "straight"
    straight.mkdir()
    submit(straight, "multi-node", cells(straight, iterations=3000), sbatch=TWO_NODES).expect(0)
    check("not queued again" not in job.log, f"it says that it stays, and did not: {job.log[-1500:]}")
    check(parameters(folder) == parameters(straight), "the parameters differ")
    check(not list((folder / "results").glob("*.journal")), "the journal of a complete run is still there")
    require_same_numbers(folder / RUN, straight / RUN)


def case_a_start_without_progress_is_the_last(folder):
    """The signal comes while the preflight still runs: nothing was done, so another start would do nothing, too. What the site
    puts before each program holds the preflight until the signal is sent, and trains nothing should that arrive late."""
    hold = folder / "hold"
    hold.write_text(f"#!/bin/sh\ncase $1 in\n*/gradsync-check) until [ -e {folder}/sent ]; do sleep 0.1; done ;;\n"
                    '*/gradsync-train) exec sleep 300 ;;\nesac\nexec "$@"\n')  # fmt: skip
    hold.chmod(0o755)
    job = submit(folder, "two-gpu", cells(folder), environment={"GRADSYNC_SLURM_SITE": f"container = {hold}\n"})
    job.wait_for_text("preflight")
    signal_batch(job)
    (folder / "sent").touch()
    job.expect(75, "did nothing that lasts", "to resume, submit it again: .*slurm/submit .*two-gpu")
    check(job_field(job.number, "Restarts") == "0", "it was restarted")


def case_the_printed_command_submits_the_same_job(folder):
    """As typed after slurm/submit; after sbatch by hand from what the job got. Without restarts a job prints it whatever it has
    done when the signal comes."""
    file, no_restart = cells(folder, iterations=100000), {"GRADSYNC_MAX_RESTARTS": "0"}
    typed = slurm("env", f"--chdir={folder}", home() / "slurm/submit", "--parsable", f"--output={folder}/slurm-%x-%j.log", "-c1", "--time=7",
                  "--comment=a b", "two-gpu", file, "--lr", 0.05, environment={"GRADSYNC_DEVICE": "cpu"} | no_restart).expect(0).out.strip()  # fmt: skip
    by_hand = submit(folder, "two-gpu", file, "--results", folder / "by-hand", sbatch=["--time=9", "--exclusive"],
                     environment=no_restart)  # fmt: skip
    for job, fields in ((Job(typed, folder), ("TimeLimit", "CPUs/Task", "TresPerNode", "Comment", "Command")),
                        (by_hand, ("TimeLimit", "CPUs/Task", "TresPerNode", "OverSubscribe", "Partition"))):  # fmt: skip
        job.wait_for_text("preflight")
        signal_batch(job)
        job.expect(75, "restarted 0 times, the most allowed")
        again = re.search("to resume, submit it again: (.*)", job.log)[1]
        check(again.startswith("GRADSYNC_DEVICE=cpu GRADSYNC_MAX_RESTARTS=0 "), again)
        second = slurm("bash", "-euc", f"cd {folder} && {again}").expect(0).out.split()[-1]
        try:
            for field in fields:
                values = job_field(job.number, field), job_field(second, field)
                check(values[0] == values[1] != "", f"{field}: {values}: {again}")
        finally:
            slurm("scancel", second)
            wait_for_end(second)


def case_restarts_are_counted(folder):
    job = submit(folder, "two-gpu", cells(folder, iterations=100000), environment={"GRADSYNC_MAX_RESTARTS": "1"})
    for restarts in ("0", "1"):
        wait_until(lambda: job_field(job.number, "Restarts") == restarts and job.log.count("[1/1]") > int(restarts), "it runs", 120)
        done = iterations_recorded(folder)
        wait_until(lambda: iterations_recorded(folder) > done, "it makes progress", 120)
        signal_batch(job)
    job.expect(75, "restarted 1 time, the most allowed")


def case_a_canceled_grid_goes_on_where_it_stopped(folder):
    """scancel is a person's word: nothing queues itself again. The same command does the rest, and only that."""
    grid = cells(folder, sync="gather-scatter, allreduce, ddp", iterations=400, interleave="no")
    first = submit(folder, "two-gpu", grid)
    first.wait_for_text(r"\[2/3\]")
    slurm("scancel", first.number).expect(0)
    wait_until(lambda: job_field(first.number, "JobState") == "CANCELLED", "it is canceled", 60)
    before = {path.name: path.read_bytes() for path in (folder / "results").glob("*.h5") if not pathlib.Path(f"{path}.journal").exists()}
    check(1 <= len(before) < 3, f"complete when canceled: {list(before)}")
    submit(folder, "two-gpu", grid).expect(0, f"{len(before)} of 3 cells are there already", "3 cells: 3 complete")
    check(all((folder / "results" / name).read_bytes() == content for name, content in before.items()), "a complete run was touched")


if __name__ == "__main__":
    sys.exit(run_on_cluster(globals(), prepare))
