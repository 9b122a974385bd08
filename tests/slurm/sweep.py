#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradsync-sweep --launcher slurm on a real Slurm: a job array a shape, over nodes, and the tables. Ranks compute on CPUs.

usage: sweep.py [NAME...]    (run by tests/run slurm)
"""
import json
import pathlib
import re
import sys

from slurm_harness import job_field, run_on_cluster, slurm, wait_for_end, wait_until
from harness import BIN, Skip, check, synthetic

DATA = ""


def prepare(folder: pathlib.Path) -> None:
    global DATA
    DATA = synthetic(folder, 640, 64)


def grid(folder: pathlib.Path, *lines: str) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    file = folder / "grid.cfg"
    file.write_text("\n".join(["model = lenet", "evaluate = none", "threads = 1", "batch-per-rank = 8", f"data = {DATA}",
                               f"results = {folder}/runs", "report-options = --table modes", *lines]) + "\n")  # fmt: skip
    return file


def sweep(file: pathlib.Path, *arguments):
    return slurm(BIN / "gradsync-sweep", file, "--launcher", "slurm", *arguments, environment={"GRADSYNC_DEVICE": "cpu"})


def submitted(file: pathlib.Path, *arguments) -> list[str]:
    """The numbers of the jobs."""
    return re.findall(r"^job (\d+):", sweep(file, *arguments).expect(0).out, re.MULTILINE)


def logs(folder: pathlib.Path, job: str = "*") -> list[str]:
    return [path.read_text() for path in (folder / "runs/slurm").glob(f"*-{job}_*.log")]


def case_arrays_of_each_shape_run_and_the_last_task_prints_the_tables(folder):
    # 3 ranks at 2 a node: a node that is not full.
    file = grid(folder, "ranks = 1, 2, 3", "ranks-per-node = 2", "gpus-per-rank = 1", "iterations = 6", "sbatch-options = -p main")
    jobs = submitted(file)
    check(len(jobs) == 3, f"{jobs}")
    check(wait_for_end(jobs[-1]) == ("COMPLETED", 0), f"{logs(folder)}")
    sweep(file, "--list").expect(0, "done +1 +lenet-ddp-r1\ndone +2 +lenet-ddp-r2\ndone +3 +lenet-ddp-r3")
    check(len(logs(folder)) == 3 and all("preflight" in log for log in logs(folder)), f"{logs(folder)}")
    check([job for job in jobs if "Synchronization modes" in "".join(logs(folder, job))] == jobs[-1:], f"{logs(folder)}")
    hosts = (folder / "runs/lenet-ddp-r3.log").read_text()
    check("n1" in hosts and "n2" in hosts, hosts[:600])
    sweep(file).expect(0, "all cells are there already")


def case_a_sweep_in_a_step_uses_the_cores_of_that_step(folder):
    """As from `srun --pty bash`: a step of its own would wait for them."""
    file = grid(folder, "ranks = 1, 2", "iterations = 4")
    result = slurm("srun", "--mpi=none", "-n1", "-c2", "--time=2", BIN / "gradsync-sweep", file)
    result.expect(0, "2 cells: 2 complete")


def case_contenders_are_one_task_which_resumes_after_its_limit(folder):
    """Over two nodes. Both cells and the control are one experiment, from the first round to the last."""
    try:
        import h5py
    except ImportError:
        raise Skip("needs a Python with h5py (make deps)") from None
    file = grid(folder, "ranks = 1, 2", "ranks-per-node = 1", "sync = none, ddp", "exclude = ranks=1 sync=ddp", "iterations = 1500",
                "epochs = 1000", "calibrate = false", "sbatch-options = -p main")  # fmt: skip
    result = sweep(file).expect(0, r"job \d+: 1 node × 1 rank, cell 1\n", r"job \d+: 2 nodes × 1 rank, cells 2-3\n")
    alone, together = re.findall(r"^job (\d+):", result.out, re.MULTILINE)
    journal = folder / "runs/lenet-ddp-r2.h5.journal"
    wait_until(lambda: journal.exists() and journal.stat().st_size > 40000, "it makes progress", 240)
    sweep(file, "--status").expect(0, "lenet-none-r2 +running", "lenet-ddp-r2 +running")
    slurm("scancel", "--batch", "--signal=USR1", f"{together}_2").expect(0)
    check((wait_for_end(alone), wait_for_end(together)) == (("COMPLETED", 0),) * 2, f"{logs(folder)}")
    (log,) = logs(folder, together)
    check("requeued (restart 1)" in log and "Synchronization modes" in log, log)
    check("resumes after iteration" in (folder / "runs/lenet-none-r2.log").read_text(), "it began again")
    names = set()
    for name in ("none-r2", "ddp-r2", "none-r2-control"):
        with h5py.File(folder / f"runs/lenet-{name}.h5") as run_file:
            names.add(run_file["experiment/id"][()])
            rounds = list(run_file["iteration/round"][()])
            check(len(rounds) == 1500 and len(set(rounds) - {-1}) >= 1499, f"rounds of {name}")
    check(len(names) == 1, f"{names}")


def case_words_reach_the_tasks_and_printed_commands_work(folder):
    """Whatever is in a name, and an array without GPUs."""
    odd = folder / "it's a \"100%\" $HOME"
    odd.mkdir()
    (odd / "data").symlink_to(pathlib.Path(DATA))
    file = grid(odd, "seed = 1, 2, 3", "exclude = seed=2")
    lines = sweep(file, "--set", "repeats=2", "--cell", "3", "--dry-run", "--", "--data", odd / "data", "--iterations", 5).expect(0).out
    check(not (odd / "runs").exists(), "--dry-run did something")
    job = slurm("bash", "-euc", lines, environment={"GRADSYNC_DEVICE": "cpu"}).expect(0, "Submitted batch job").out.split()[-1]
    check(wait_for_end(job) == ("COMPLETED", 0), f"{logs(odd)}")
    check("not complete: 3 of 4 cells" in logs(odd, job)[0], f"{logs(odd)}")
    check((odd / "runs/lenet-ddp-r1-seed3-x1.h5").exists(), f"{sorted((odd / 'runs').iterdir())}")
    sweep(file, "--status").expect(0, "seed3-x1 .* 5 of 5 ")
    check("/data" in json.loads((odd / "runs/grid.json").read_text())["cells"][0]["options"]["data"], "--data was lost")


def case_a_task_is_queued_again_ahead_of_its_limit(folder):
    file = grid(folder, "seed = 1, 2", "iterations = 15000", "epochs = 1000")
    (job,) = submitted(file, "--cell", "2")
    journal = folder / "runs/lenet-ddp-r1-seed2.h5.journal"
    wait_until(lambda: journal.exists() and journal.stat().st_size > 20000, "it makes progress", 120)
    slurm("scancel", "--batch", "--signal=USR1", f"{job}_2").expect(0)
    check(wait_for_end(job) == ("COMPLETED", 0), f"{logs(folder)}")
    (log,) = logs(folder, job)
    check("requeued (restart 1)" in log and "start 2" in log and "not complete: 1 of 2 cells" in log, log)


def case_a_job_file_that_changes_is_no_other_cell(folder):
    """Between submission and start: another order keeps the numbers."""
    file = grid(folder, "seed = 1, 2", "iterations = 4", "sbatch-options = --hold")
    first, second = submitted(file, "--cell", "1")[0], submitted(file, "--cell", "2")[0]
    grid(folder, "seed = 3, 2, 1", "order = random", "order-seed = 2", "iterations = 4")
    slurm("scontrol", "release", first).expect(0)
    check(wait_for_end(first) == ("COMPLETED", 0), f"{logs(folder)}")
    check([path.name for path in (folder / "runs").glob("*.h5")] == ["lenet-ddp-r1-seed1.h5"], f"{list((folder / 'runs').iterdir())}")
    grid(folder, "seed = 3, 1", "iterations = 4")
    slurm("scontrol", "release", second).expect(0)
    wait_for_end(second)
    check('"2" is not a cell of this grid' in logs(folder, second)[0], f"{logs(folder)}")


def case_what_sbatch_refuses_is_said(folder):
    file = grid(folder, "ranks = 1, 2", "ranks-per-node = 2", "sbatch-options = --hold")
    sweep(file, "--set", "sbatch-options=--partition nowhere").expect(69, "invalid partition specified: nowhere", "submitted before it: none")
    (job,) = submitted(file, "--cell", "1")
    check(re.fullmatch("grid-[0-9a-f]{6}", job_field(job, "JobName")), job_field(job, "JobName"))
    slurm("scancel", job)


def case_arrays_of_one_study_never_run_side_by_side(folder):
    """Submitted twice before the first has begun: the second names the first, waits for its end and finds nothing to do."""
    file = grid(folder, "ranks = 1, 2", "ranks-per-node = 2", "iterations = 40", "epochs = 10", "sbatch-options = --hold")
    first = submitted(file)
    result = sweep(file).expect(0, f"queued or runs already: jobs {first[0]}, {first[1]}; what is submitted now begins after that")
    second = re.findall(r"^job (\d+):", result.out, re.MULTILINE)
    jobs = first + second
    check(len(jobs) == 4, f"{jobs}")
    for job in jobs:
        slurm("scontrol", "release", job).expect(0)
    for job in jobs:
        check(wait_for_end(job) == ("COMPLETED", 0), f"{logs(folder)}")
    times = [(job_field(job, "StartTime"), job_field(job, "EndTime")) for job in jobs]
    check(all(ended <= begun for (_, ended), (begun, _) in zip(times, times[1:])), f"side by side: {times}")
    check(all("1 of 1 cells are there already" in log for job in second for log in logs(folder, job)), f"{logs(folder)}")


if __name__ == "__main__":
    sys.exit(run_on_cluster(globals(), prepare))
