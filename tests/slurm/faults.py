#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Lost nodes and killed ranks under Slurm: the job ends soon, says why, and leaves nothing on the nodes.

usage: faults.py [NAME...]    (run by tests/run slurm)
"""
import json
import pathlib
import sys
import time

from slurm_harness import cluster, job_field, job_file, run_on_cluster, slurm, submit, wait_for_end, wait_until
from harness import check, kill, synthetic
from hosts_harness import processes_in

DATA = ""
# By name: after a lost node another one may be idle first.
TWO_NODES = ["--nodelist=n1,n2", "--ntasks-per-node=1", "--gpus-per-node=1"]
# The cluster gives a node up after 20 s, the trainer waits 15; the rest is for a busy machine.
ENDS_WITHIN_S = 150


def prepare(folder: pathlib.Path) -> None:
    global DATA
    DATA = synthetic(folder, 640, 64)


def endless(folder, **keys) -> pathlib.Path:
    return job_file(folder, {"data": DATA, "sync": "allreduce", "ranks": 2, "iterations": 0, "epochs": 100000, "timeout": "15s"} | keys)


def wait_until_training(job, ranks: int = 2) -> None:
    journal = job.folder / f"results/lenet-allreduce-r{ranks}.h5.journal"
    wait_until(lambda: journal.exists() and journal.stat().st_size > 16384, "it trains", 120, lambda: job.log[-500:])


def ranks_on(node: str) -> list:
    """Process ids of the trainer's ranks on a node."""
    return processes_in(f"gradsync-{node}", "gradsync-train")


def check_node_is_clean(node: str, within_s: float = 120) -> None:
    """Slurm's step daemon removes the segments of dead ranks, and does so a moment after their end."""
    wait_until(lambda: not ranks_on(node), f"no rank is left on {node}", within_s)
    wait_until(lambda: not cluster("on", node, "ls", "/dev/shm").expect(0).out.split(), f"nothing is left in /dev/shm of {node}", 60)


def wait_until_all_are_back() -> None:
    """Not "idle*", which is said of a node that does not respond yet: the next job would be given others."""
    states = lambda: slurm("sinfo", "-h", "-N", "-o", "%N %T %E").out
    wait_until(lambda: all(line.split()[1] == "idle" for line in states().splitlines()), "all nodes are idle", 180, states)


def case_a_lost_node_ends_the_job_in_time(folder):
    job = submit(folder, "multi-node", endless(folder), sbatch=[*TWO_NODES, "--no-requeue"])
    wait_until_training(job)
    start = time.monotonic()
    cluster("link", "n2", "down").expect(0)
    try:
        state, _ = wait_for_end(job.number)
        took = time.monotonic() - start
        log = (folder / "results/lenet-allreduce-r2.log").read_text()
    finally:
        cluster("link", "n2", "up").expect(0)
    check(state in ("NODE_FAIL", "FAILED"), f"ended as {state}")
    check(took < ENDS_WITHIN_S, f"took {took:.0f} s to end")
    named = ("Node failure on n2", "its node does not answer", "the connection to rank 1 (n2) is lost")
    check(any(text in log for text in named), f"nothing names what was lost: {log[-600:]}")
    check_node_is_clean("n1")
    wait_until_all_are_back()
    check_node_is_clean("n2")


def case_the_loss_of_the_first_node_ends_the_ranks_of_the_other(folder):
    """With n1 go rank 0, rank 1, srun and the batch script: nobody but the watchdogs on n2 can end the ranks there."""
    job = submit(folder, "multi-node", endless(folder, ranks=4), sbatch=["-N2", "--ntasks-per-node=2", "--gpus-per-node=2", "--no-requeue"])
    wait_until_training(job, 4)
    check(len(ranks_on("n1")) == len(ranks_on("n2")) == 2, "two ranks on each node")
    cluster("link", "n1", "down").expect(0)
    try:
        check_node_is_clean("n2", ENDS_WITHIN_S)
        state, _ = wait_for_end(job.number)
    finally:
        cluster("link", "n1", "up").expect(0)
    check(state in ("NODE_FAIL", "FAILED"), f"ended as {state}")
    wait_until_all_are_back()
    check_node_is_clean("n1")


def case_a_killed_rank_fails_its_cell_and_the_grid_goes_on(folder):
    job = submit(folder, "multi-node", endless(folder, sync="allreduce, ddp", interleave="no"), sbatch=TWO_NODES)
    wait_until_training(job)
    kill(ranks_on("n2"))
    job.wait_for_text(r"\[1/2\] lenet-allreduce-r2 … failed after ")
    job.wait_for_text(r"\[2/2\] lenet-ddp-r2")
    failure = json.loads((folder / "results/lenet-allreduce-r2.failed.json").read_text())
    # Whoever is first says it: Slurm, or the rank that the other one was connected to.
    named = ("n2: task 1: Killed", "the connection to rank 1 (n2) is lost")
    check(any(text in failure["message"] for text in named), f"nothing names the rank: {failure}")
    slurm("scancel", job.number)
    wait_until(lambda: job_field(job.number, "JobState") == "CANCELLED", "it is canceled", 180)  # Slurm waits UnkillableStepTimeout
    for node in ("n1", "n2"):
        check_node_is_clean(node)


if __name__ == "__main__":
    sys.exit(run_on_cluster(globals(), prepare))
