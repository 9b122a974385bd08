#!/usr/bin/env python3
"""gradsync-sweep --launcher slurm on a real Slurm: a job array a shape, over nodes, and the tables. Ranks compute on CPUs.

usage: sweep.py [NAME...]    (run by tests/run slurm)
"""
import pathlib
import re
import sys

from slurm_harness import run_on_cluster, slurm, wait_for_end
from harness import BIN, check, synthetic

DATA = ""


def prepare(folder: pathlib.Path) -> None:
    global DATA
    DATA = synthetic(folder, 640, 64)


def grid(folder: pathlib.Path, *lines: str) -> pathlib.Path:
    file = folder / "grid.cfg"
    file.write_text("\n".join(["model = lenet", "evaluate = none", "threads = 1", "batch-per-rank = 8", f"data = {DATA}",
                               f"results = {folder}/runs", "report-options = --table modes", *lines]) + "\n")  # fmt: skip
    return file


def case_arrays_of_each_shape_run_and_a_last_job_writes_the_tables(folder):
    # 3 ranks at 2 a node: a node that is not full.
    file = grid(folder, "ranks = 1, 2, 3", "ranks-per-node = 2", "gpus-per-rank = 1", "iterations = 6")
    out = slurm(BIN / "gradsync-sweep", file, "--launcher", "slurm").expect(0, "1 node × 2 ranks", "2 nodes × 2 ranks").out
    jobs = re.findall(r"^job (\d+):", out, re.MULTILINE)
    check(len(jobs) == 4, out)
    check(wait_for_end(jobs[-1]) == ("COMPLETED", 0), "the tables' job failed")
    logs = {path.name: path.read_text() for path in (folder / "runs/sbatch").glob("*.log")}
    slurm(BIN / "gradsync-sweep", file, "--status").expect(0, "3 of 3 cells done")
    report = next((text for name, text in logs.items() if "report" in name), "")
    check("Synchronization modes" in report, f"{logs}")
    hosts = (folder / "runs/lenet-ddp-r3.log").read_text()
    check("n1" in hosts and "n2" in hosts, hosts[:600])


if __name__ == "__main__":
    sys.exit(run_on_cluster(globals(), prepare))
