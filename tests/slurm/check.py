#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What gradsync-check, and the trainer's start, tell of several nodes of a real Slurm, and one machine alone cannot show.

usage: check.py [NAME...]    (run by tests/run slurm; needs root and the packages that `tests/slurm/cluster why-not` names)
"""
import json
import os
import pathlib
import re
import sys
import time

from slurm_harness import BIN, cluster, job_field, run_on_cluster, slurm, srun, wait_for_end, wait_until
from harness import check, run, synthetic

PROGRAM = BIN / "gradsync-check"
DATA = ""


def preflight(folder: pathlib.Path, *where, options: tuple = (), results: str = ""):
    """The findings by name, and the result."""
    page = folder / "check.json"
    result = srun("--overcommit", *where, PROGRAM, "--data", DATA, "--results", results or folder / "results", "--json", page,
                  "--verbose", *options)  # fmt: skip
    rows = {row["id"]: row for row in json.loads(page.read_text())["checks"]} if page.exists() else {}
    return rows, result


def batch(log: pathlib.Path, script: str, *where) -> str:
    """Submits a script of one line and returns the job's number."""
    return slurm("sbatch", "--parsable", "--overcommit", "-o", log, *where, "--wrap", script).expect(0).out.strip()


def case_three_nodes_pass(folder):
    rows, result = preflight(folder, "-N3", "-n6", "--ntasks-per-node=2", options=("--ranks", 6, "--ranks-per-node", 2))
    result.expect(0, "n1 .* 2 .* 0 1", "n3 .* 2 .* 4 5")
    for name in ("launch.ranks", "launch.pmix", "ranks.per-node", "libraries.equal", "results.shared", "data",
                 "clocks.time-of-day", "links.sum"):  # fmt: skip
        check(rows[name]["result"] == "pass", f"{rows[name]}")
    check("3 links, slowest n" in rows["links.hosts"]["seen"], f"{rows['links.hosts']}")


def case_a_link_at_half_its_nominal_rate(folder):
    """A link that cannot be faster than 1 Gbit/s, against a port that states ten times as much, and one that states hardly anything."""
    port = folder / "sys/class/net/fast0"
    (port / "device").mkdir(parents=True)
    (port / "operstate").write_text("up\n")
    cluster("rate", "1gbit").expect(0)
    try:
        for nominal_mbits, share, result, code in ((10_000, 0, "warn", 0), (10_000, 0.5, "fail", 69), (10, 0.5, "pass", 0)):
            (port / "speed").write_text(f"{nominal_mbits}\n")
            rows, ended = preflight(folder, "-N2", "-n2", options=("--sysfs", folder / "sys", "--least-link", share))
            ended.expect(code)
            check(rows["links.nominal"]["result"] == result, f"{nominal_mbits} Mbit/s: {rows['links.nominal']}")
    finally:
        cluster("rate", "none")


def case_a_link_that_is_slower_than_it_was(folder):
    """gradsync-report compare names the sizes that are slower, and ends with 1."""
    before, now = folder / "1gbit", folder / "20mbit"
    try:
        for start in range(3):
            for files in (before, now):
                files.mkdir(exist_ok=True)
                cluster("rate", files.name).expect(0)
                slurm("srun", "--mpi=pmix", "-N2", "-n2", BIN / "gradsync-calibrate", "-b", "1M", "-e", "2M", "-n", 5,
                      "--collective", "allreduce", "--cadence", "isolated", "--output", files / f"{start}.h5").expect(0)  # fmt: skip
    finally:
        cluster("rate", "none")
    slower = run([BIN / "gradsync-report", "compare", before, now])
    named = re.findall(r"allreduce\.\S+MiB .* slower \(beyond the threshold\)", slower.out)
    check(slower.code == 1 and len(named) == 2, f"exit code {slower.code}: {slower.out}")
    run([BIN / "gradsync-report", "compare", before, before]).expect(0, "no difference")


def case_fewer_ranks_a_node_than_meant(folder):
    rows, result = preflight(folder, "-N3", "-n3", options=("--ranks-per-node", 2))
    result.expect(69, "--ranks-per-node says 2: n1 has 1; n2 has 1; n3 has 1")
    check(rows["ranks.per-node"]["result"] == "fail", f"{rows['ranks.per-node']}")


def case_a_results_folder_of_one_node(folder):
    rows, _ = preflight(folder, "-N2", "-n2", results="/dev/shm/results")
    check(rows["results.shared"]["result"] == "warn", f"{rows['results.shared']}")
    check("'/dev/shm' of n1 is not seen on n2" in rows["results.shared"]["seen"], f"{rows['results.shared']}")
    left = cluster("on", "n1", "ls", "-A", "/dev/shm").out
    check("gradsync-check" not in left, f"left behind: {left}")


def case_leftovers_name_their_node(folder):
    left = "/dev/shm/vader_segment.n2.0.dead.0"
    cluster("on", "n2", "touch", "-d", "1 hour ago", left).expect(0)
    rows, _ = preflight(folder, "-N2", "-n2")
    cluster("on", "n2", "rm", left).expect(0)
    check(rows["shared-memory.leftovers"]["fix"] == f"on n2: rm {left}", f"{rows['shared-memory.leftovers']}")


def case_srun_without_pmix_is_told_at_once(folder):
    started = time.monotonic()
    result = srun("--mpi=none", "-N2", "-n2", PROGRAM)
    # srun gives the highest code, and ends a task that starts later than the one that told by SIGTERM.
    code = 143 if result.code == 143 else 69
    result.expect(code, "srun started 2 tasks .* without PMIx", "--mpi=pmix", "task [01]: Exited with exit code 69")
    check(time.monotonic() - started < 60, "at once")


def case_what_all_ranks_refuse_ends_in_order(folder):
    for arguments, code, text in ((["--data", folder / "nowhere"], 66, "nowhere"),
                                  (["--data", DATA, "--output", folder / "no/run.h5"], 73, "cannot write .*no/run.h5")):  # fmt: skip
        result = srun("-N2", "-n2", "--overcommit", BIN / "gradsync-train", "--model", "lenet", *arguments).expect(code, text, "fix: ")
        check(not re.search("abort|cancelled", result.err, re.I) and result.seconds < 30, f"{result.seconds:.0f} s: {result.err}")


def case_cores_are_missed_on_any_node(folder):
    """The two ranks of n2 share one core."""
    place = f'pin=; [ $(hostname) = n1 ] || pin="taskset -c {min(os.sched_getaffinity(0))}"; exec $pin "$@"'
    srun("-N2", "-n4", "--ntasks-per-node=2", "--overcommit", "bash", "-c", place, "bash", BIN / "gradsync-train", "--model", "lenet",
         "--data", DATA, "--threads", 1, "--batch-per-rank", 8, "--iterations", 2, "--evaluate", "none").expect(
             0, "warning: 2 ranks with 2 threads have 1 core on n2: times include waiting for a core")  # fmt: skip


def case_a_batch_script_without_a_launcher(folder):
    log = folder / "log"
    job = batch(log, f"{PROGRAM} --skip data,links --results {folder}", "-N2", "-n4")
    state, code = wait_for_end(job)
    check((state, code) == ("FAILED", 69), f"{state} {code}: {log.read_text()}")
    told = "this is rank 0 of 1, but SLURM_NTASKS says 4 ranks: it was started without srun or mpirun"
    check(told in log.read_text(), log.read_text())


def case_a_node_that_is_cut_off_ends_the_job(folder):
    """n2's cable is out when its rank meets the others: the job ends by itself, and says something."""
    log = folder / "log"
    wait = f"touch {folder}/$SLURM_PROCID; while [ ! -e {folder}/go ]; do sleep 0.2; done"
    late = f"{wait}; exec {PROGRAM} --data {DATA} --timeout 5s"
    job = batch(log, f"srun --mpi=pmix --kill-on-bad-exit=1 bash -c '{late}'", "-N2", "-n2")
    wait_until(lambda: (folder / "0").exists() and (folder / "1").exists(), "both ranks run", 60)
    try:
        cluster("link", "n2", "down").expect(0)
        (folder / "go").touch()
        wait_until(lambda: log.exists() and "MPI has not started in 5 s" in log.read_text(), "the guard speaks", 90)
    finally:
        cluster("link", "n2", "up").expect(0)
    wait_until(lambda: job_field(job, "JobState") not in ("RUNNING", "COMPLETING"), "the job has ended", 120)


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 200, 50)


if __name__ == "__main__":
    sys.exit(run_on_cluster(dict(globals()), prepare))
