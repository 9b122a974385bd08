#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The templates of slurm/ through sbatch: they run and print tables, and refuse what cannot run. Ranks compute on CPUs.

usage: templates.py [NAME...]    (run by tests/run slurm)
"""
import csv
import pathlib
import re
import shutil
import sys

from slurm_harness import CLUSTER, Job, home, job_file, run_on_cluster, sbatch, slurm, submit, wait_for_end
from harness import BIN, ROOT, Skip, check, checkout, run, synthetic

TEMPLATES = sorted(path.stem for path in (ROOT / "slurm").glob("*.sbatch"))
DATA = ""


def prepare(folder: pathlib.Path) -> None:
    global DATA
    DATA = synthetic(folder, 640, 64)


def tiny(folder, **keys) -> pathlib.Path:
    return job_file(folder, {"data": DATA, "sync": "allreduce", "ranks": 2} | keys)


def copy_of_slurm(folder, site: str) -> dict:
    """A checkout whose slurm/site says `site`; the environment that makes it the one to use."""
    return {"GRADSYNC_HOME": str(checkout(folder, site))}


def refused(folder, code: int, text: str, *words, **how) -> None:
    job = submit(folder, *words, **how)
    job.expect(code, text)
    messages = [line for line in job.log.splitlines() if re.match(r"gradsync-\w+: ", line)]
    check(len(messages) == 1, f"{len(messages)} messages instead of one: {messages}")


# --- every template -----------------------------------------------------------------------------------


def case_all_templates_are_accepted(folder):
    check(len(TEMPLATES) >= 7, f"only {TEMPLATES}")
    for name in TEMPLATES:
        run(["bash", "-n", ROOT / f"slurm/{name}.sbatch"]).expect(0)
        slurm("sbatch", "--test-only", f"slurm/{name}.sbatch", "jobs/demo.cfg").expect(0, "to start at")


def case_shellcheck_finds_nothing(folder):
    if not shutil.which("shellcheck"):
        raise Skip("shellcheck is not installed")
    scripts = [path for path in (ROOT / "slurm").iterdir() if path.suffix in (".sh", ".sbatch")]
    result = run(["shellcheck", "-x", *scripts, ROOT / "slurm/submit", ROOT / "tests/slurm/cluster"])
    check(result.code == 0, result)


def case_two_gpu_trains_and_prints_tables(folder):
    """Options behind the job file reach every cell, and slurm/submit hands on what sbatch is to know."""
    both = {"sync": "allreduce, ddp", "report-options": "--table modes --format text,csv --plots no --verdict no"}
    job = submit(folder, "two-gpu", tiny(folder, **both), "--iterations", 3)
    job.expect(0, r"hosts: +n\d", "1 node × 2 ranks", "2 cells: 2 complete", "Synchronization modes", "ends with exit code 0")
    with open(folder / "results/tables/modes.csv") as table:
        iterations = [row["iterations"] for row in csv.DictReader(table)]
    check(len(iterations) > 1 and set(iterations) == {"3"}, f"--iterations 3 did not reach the trainer: {iterations}")


def case_multi_node_spans_three_nodes(folder):
    job = submit(folder, "multi-node", tiny(folder, ranks=3), sbatch=["-N3", "--ntasks-per-node=1", "--gpus-per-node=1"])
    job.expect(0, "hosts: +n1 n2 n3", "1 cell: 1 complete")
    hosts = (folder / "results/lenet-allreduce-r3.log").read_text()
    check(all(f"host n{node}" in hosts for node in (1, 2, 3)), f"not on three hosts: {hosts}")


def case_cpu_runs_by_mpirun_where_the_site_says_so(folder):
    environment = copy_of_slurm(folder, "launcher = mpirun\n")
    job = submit(folder, "cpu", tiny(folder), sbatch=["-N2", "--ntasks-per-node=1"], environment=environment)
    job.expect(0, "launcher: mpirun", "1 cell: 1 complete")
    hosts = (folder / "results/lenet-allreduce-r2.log").read_text()
    check("host n1" in hosts and "host n2" in hosts, f"not on two hosts: {hosts}")


def case_a_network_that_draws_its_samples_needs_no_data(folder):
    cell = job_file(folder, {"sync": "allreduce", "ranks": 2, "transport": "mpi"})
    job = submit(folder, "cpu", cell, "--model", "synthetic:parameters=100k,compute=1ms,tensors=2", sbatch=["-N2", "--ntasks-per-node=1"],
                 environment={"GRADSYNC_DATA": "/nowhere"})  # fmt: skip
    job.expect(0, "1 cell: 1 complete")


def case_calibrate_measures_the_ranks_of_the_job(folder):
    job = submit(folder, "calibrate", "-b", "64KiB", "-e", "64KiB", "-n", 3, "--collective", "allreduce",
                 sbatch=["-N2", "--ntasks-per-node=1"])  # fmt: skip
    job.expect(0, "host n1", "host n2", "65536 ", "results: +results/calibrate/")
    check(len(list((folder / "results/calibrate").glob("*.h5"))) == 1, "no run file")
    submit(folder, "calibrate", "-b", "64KiB", "-e", "64KiB", "-n", 3, "--collective", "allreduce", "--output", folder / "mine.h5").expect(0)
    check((folder / "mine.h5").exists() and len(list((folder / "results/calibrate").glob("*.h5"))) == 1, "--output was not followed")


def case_quantize_goes_from_training_to_tables_of_integers(folder):
    cell = tiny(folder, sync="none", ranks=1, **{"checkpoint-every": "end"})
    job = submit(folder, "quantize", cell, "--epochs", 1, environment={"GRADSYNC_QUANTIZE_CALIBRATION_IMAGES": "100"})
    job.expect(0, "1 node × 2 ranks", "1 cell: 1 complete", "int8: +.*lenet-none-r1-int8.h5", "all, with bias", "ends with exit code 0")
    results = folder / "results"
    for name in ("lenet-none-r1-int8.h5", "lenet-none-r1-int8.safetensors", "tables/quantize.csv", "tables/ranges.csv", "tables/weights.png"):
        check((results / name).exists(), f"no {name}: {sorted(path.name for path in results.rglob('*'))}")


def case_submit_gives_sbatch_the_site_values(folder):
    environment = copy_of_slurm(folder, "account = physics\nqos=\tnormal # free\nexclusive = yes\n")
    submit_command = folder / "slurm/submit"
    lines = slurm(submit_command, "--environment", environment=environment).expect(0).out.split()
    check({"SBATCH_ACCOUNT=physics", "SBATCH_QOS=normal", "SBATCH_EXCLUSIVE=exclusive"} <= set(lines), f"{lines}")
    job = slurm(submit_command, "--parsable", "--hold", "one-gpu", tiny(folder, ranks=1), environment=environment).expect(0).out.strip()
    shown = slurm("scontrol", "show", "job", job).out
    slurm("scancel", job)
    for text in ("Account=physics", "OverSubscribe=NO"):
        check(text in shown, f"{text} is not in {shown}")


def case_a_site_that_knows_only_gres_gets_its_gpus(folder):
    """Template, options of sbatch and steps of srun have --gres in place of --gpus-per-node."""
    site = "gpu-request = gres\ncores-per-rank = 1\ntime = 0:20:00\nmemory = 1000M\nsbatch-options = --comment=of-the-site\n"
    environment = copy_of_slurm(folder, site) | {"GRADSYNC_DEVICE": "cpu"}
    places = [f"--chdir={folder}", f"--output={folder}/slurm-%x-%j.log"]
    for options, template, gpus in (([], "two-gpu", 2), (["-N2", "--ntasks-per-node=1", "--gpus-per-node=1"], "multi-node", 1)):
        # tiny's folder holds one grid.
        shutil.rmtree(folder / "results", ignore_errors=True)
        number = slurm(folder / "slurm/submit", "--parsable", *places, *options, template, tiny(folder), environment=environment).expect(0).out.strip()
        shown = slurm("scontrol", "show", "job", number).out
        for text in (f"TresPerNode=gres:gpu:{gpus}", "CPUs/Task=1", "TimeLimit=00:20:00", "MinMemoryNode=1000M", "Comment=of-the-site"):
            check(text in shown, f"{text} is not in {shown}")
        job = Job(number, folder).expect(0, "1 cell: 1 complete", "--gpu-request gres")
        check("gpus-per-node" not in job.log, job.log[-1500:])
    (folder / "slurm/site").write_text("gpu-request = none\ncores-per-rank = 1\n")
    number = slurm(folder / "slurm/submit", "--parsable", *places, "two-gpu", tiny(folder, results=folder / "none"), environment=environment).expect(0).out.strip()
    check("gpu" not in re.sub("Command=.*|JobName=.*|Comment=.*|StdOut=.*|StdErr=.*|WorkDir=.*", "", slurm("scontrol", "show", "job", number).out), "GPUs were requested")
    Job(number, folder).expect(0, "1 cell: 1 complete")
    planned = tiny(folder, results=folder / "planned")
    plan = run([BIN / "gradsync-sweep", planned, "--launcher", "srun", "--gpu-request", "gres", "--dry-run"],
               environment={"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "2", "SLURM_JOB_CPUS_PER_NODE": "2", "SLURM_GPUS_ON_NODE": "2"})  # fmt: skip
    plan.expect(0, "--gres=gpu:2 ")


def case_an_array_has_the_site_values(folder):
    """Two tasks at once: both may find the grid complete. What the site gives its tasks is no other grid than the one submitted."""
    site = f"account = physics\narray-tasks = 2\ndata = {DATA}\ncontainer = env -u NOTHING\n"
    environment = copy_of_slurm(folder, site) | {"GRADSYNC_DEVICE": "cpu"}
    cells = job_file(folder, {"sync": "ddp, allreduce", "ranks": 2, "ranks-per-node": 2, "srun-options": "--label",
                              "interleave": "no"})  # fmt: skip
    job = slurm("build/bin/gradsync-sweep", cells, "--launcher=slurm", environment=environment).expect(0).out.split()[1].rstrip(":")
    shown = slurm("scontrol", "show", "job", job).out
    check("Account=physics" in shown and "ArrayTaskThrottle=2" in shown, shown)
    for task in (1, 2):
        check(wait_for_end(f"{job}_{task}") == ("COMPLETED", 0), f"{[path.read_text() for path in folder.glob('results/slurm/*')]}")
    logs = [path.read_text() for path in folder.glob("results/slurm/*.log")]
    check(len(logs) == 2 and any("Synchronization modes" in log for log in logs), f"{logs}")
    head = (folder / "results/lenet-ddp-r2.log").read_text()
    check(re.search("^0: ", head, re.M), f"srun-options of the job file were lost: {head[:500]}")


def case_an_installed_template_runs_the_installed_programs(folder):
    prefix = folder / "prefix"
    run([ROOT / "config/install", prefix, *sorted((ROOT / "build/bin").glob("gradsync-*"))]).expect(0, "installed in")
    job = submit(folder, "cpu", tiny(folder, ranks=2), environment={"GRADSYNC_HOME": str(prefix / "share/gradsync")})
    job.expect(0, "version: +gradsync-sweep ", "== .*prefix/bin/gradsync-sweep .*job.cfg --launcher srun", "Synchronization modes")


def case_the_commands_that_make_cluster_prints_work(folder):
    """In a checkout without data and results."""
    environment = copy_of_slurm(folder, "")
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    (folder / "tests/slurm").mkdir(parents=True)
    shown = run([shutil.copy(CLUSTER, folder / "tests/slurm"), "enter"]).expect(0).out
    lines = [line.strip() for line in shown.splitlines() if line.startswith("  ") and "slurm/cluster" not in line]
    check(any("synthesize" in line for line in lines) and any("sbatch" in line for line in lines), shown)
    # As printed, but for the number of images and of iterations.
    script = "\n".join([f"cd {folder}", *lines]).replace("--train 20000 --test 4000", "--train 640 --test 64") + " --iterations 3"
    result = slurm("bash", "-euc", script, environment=environment).expect(0, "Submitted batch job")
    job = Job(result.out.split()[-1], folder).expect(0, r"\[7-12/12\] vgg11-none-r2 and 5 contenders in turn", "12 cells: 12 complete", timeout=400)
    check("What synchronization costs" in job.log, job.log[-500:])


# --- what cannot run ----------------------------------------------------------------------------------


def case_bash_instead_of_sbatch_is_refused(folder):
    for name in (name for name in TEMPLATES if name != "grid"):
        slurm("bash", f"slurm/{name}.sbatch", "jobs/demo.cfg").expect(69, "a job for sbatch", f"sbatch slurm/{name}.sbatch jobs/demo.cfg")


def case_a_site_file_must_be_right(folder):
    for site, text in (("account =\n", "slurm/site:1: 'account' has no value"), ("# x\npartitoin = gpu\n", "site:2: unknown key 'partitoin'"),
                       ("just words\n", '"just words" has no ='), ("launcher = ssh\n", "launcher is srun or mpirun"),
                       ("max-restarts = many\n", "max-restarts is a count"),
                       ("gpu-request = gpus\n", "gpu-request is gpus-per-node, gpus-per-task, gres, gres:TYPE or none"), ("time = soon\n", "time is as for sbatch"),
                       ("memory = 2 GB\n", "memory is a size"), ("cores-per-rank = 0\n", "cores-per-rank is a count")):  # fmt: skip
        place = folder / str(len(list(folder.iterdir())))
        place.mkdir()
        environment = copy_of_slurm(place, site)
        run([place / "slurm/submit", "--environment"], environment=environment).expect(64, text)
        refused(place, 64, text, "one-gpu", tiny(place, ranks=1), environment=environment)


def case_a_site_file_may_come_from_an_editor_of_windows(folder):
    copy_of_slurm(folder, "")
    for site in (b"\xef\xbb\xbf# a site\r\naccount = physics\r\n", b"\xef\xbb\xbfaccount = physics\r\n"):
        (folder / "slurm/site").write_bytes(site)
        result = run([folder / "slurm/submit", "--environment"]).expect(0)
        check(result.out == "export SBATCH_ACCOUNT=physics\nexport GRADSYNC_SLURM_SITE='# the site of the submission\naccount = physics\n'\n",
              f"not the value alone: {result.out!r}")  # fmt: skip


def case_the_template_of_arrays_wants_an_array(folder):
    refused(folder, 64, "gradsync-sweep .*job.cfg --launcher slurm", "grid", tiny(folder, ranks=1))
    slurm("bash", "slurm/grid.sbatch", "x.cfg").expect(64, "gradsync-sweep x.cfg --launcher slurm")
    slurm(home() / "slurm/submit", "grid", "x.cfg").expect(64, "gradsync-sweep x.cfg --launcher slurm")


def case_modules_that_cannot_be_loaded_are_refused(folder):
    reason = r"asks for modules|module load gcc/13 failed"  # with and without a module command on this machine
    refused(folder, 69, reason, "one-gpu", tiny(folder, ranks=1), environment=copy_of_slurm(folder, "modules = gcc/13\n"))


def case_an_allocation_that_does_not_fit_is_refused(folder):
    cells = tiny(folder)
    refused(folder, 69, "4 ranks do not fit the allocation", "two-gpu", tiny(folder, ranks="2, 4"))
    refused(folder, 69, "has 1 rank a node, the template is for 2", "two-gpu", cells, sbatch=["--ntasks-per-node=1"])
    refused(folder, 69, "2 ranks a node, and 1 GPU", "multi-node", cells, sbatch=["-N2", "--ntasks-per-node=2", "--gpus-per-node=1"])
    refused(folder, 69, "cells with 9 threads a rank", "two-gpu", tiny(folder, threads=9), sbatch=["-c8"])


def case_a_wrong_job_file_is_refused(folder):
    refused(folder, 64, "give a job file", "two-gpu")
    refused(folder, 66, "nowhere.cfg", "two-gpu", folder / "nowhere.cfg")
    refused(folder, 64, "learning-rat is not a key", "two-gpu", tiny(folder, **{"learning-rat": 1}))
    refused(folder, 64, "--nonsense", "two-gpu", tiny(folder), "--nonsense")


def case_a_folder_with_another_grid_is_refused(folder):
    submit(folder, "one-gpu", tiny(folder, ranks=1)).expect(0)
    before = (folder / "results/lenet-allreduce-r1.h5").read_bytes()
    refused(folder, 64, "another grid", "one-gpu", tiny(folder, ranks=1, lr=0.5))
    check((folder / "results/lenet-allreduce-r1.h5").read_bytes() == before, "the run was touched")


def case_two_jobs_and_one_folder_the_second_is_refused(folder):
    cells = tiny(folder, iterations=100000, epochs=100000)
    first = sbatch(folder, "two-gpu", cells)
    try:
        Job(first, folder).wait_for_text(r"\[1/1\]")
        refused(folder, 75, "another sweep, or a run that it started", "two-gpu", cells)
    finally:
        slurm("scancel", first)
        wait_for_end(first)


if __name__ == "__main__":
    sys.exit(run_on_cluster(globals(), prepare))
