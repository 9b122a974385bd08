#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every command of README.md, docs/tutorial.md and docs/slurm.md, as it stands and in order, in a copy of this checkout as `make demo`
leaves it. Those for Slurm meet the test cluster. It has no GPUs and few cores, so ranks compute on CPUs with one core each, and the
studies are cut down to small ones. A command that cannot run here is a SKIP of its own.

usage: documents.py [NAME...]    (run by tests/run slurm)
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from slurm_harness import SLURM, cluster, run_on_cluster, slurm, wait_until
from harness import ENVIRONMENT, MPIRUN, ROOT, Failure, check, run, synthetic

COMMAND = re.compile(r"(\$ )?(make|export|[A-Z_]+=\S+|mpirun|srun|sbatch|squeue|tail|cp|build/bin/|config/data|slurm/|tests/slurm/)")
# What is not typed again: whole builds, and what starts or ends the cluster that this file runs on.
ELSEWHERE = {"make": "the programs are built", "make deps": "likewise", "make demo": "what this file starts from", "make test": "what runs this file",
             "make cluster": "started by this file", "make cluster-stop": "stopped by this file"}  # fmt: skip
# Small studies under the names of the large ones.
SMALL = {"model": "lenet", "batch-per-rank": "16, 32", "iterations": "8", "epochs": None, "warmup": "1", "threads": "1"}
SMALL_ARRAY = SMALL | {"sync": "none, ddp", "batch-per-rank": "16"}  # a job a cell
SMALL_DEMO = {"iterations": "8", "batch-global": "8"}
# Edits that the page asks for.
AFTER = {"cp slurm/site.example slurm/site": ": >slurm/site", "export GRADSYNC_DEVICE=cuda": "export GRADSYNC_DEVICE=cpu"}
# For these a person waits for the jobs submitted before; the links are slowed and pulled when no job needs them.
NEEDS_JOBS_DONE = ("build/bin/gradsync-report", "slurm/submit", "srun", "tests/slurm/cluster")
CLONE = pathlib.Path()


def commands(document: str) -> list[str]:
    """The lines of the code blocks that are commands; a block that begins otherwise is output."""
    found = []
    for block in re.findall(r"^```\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S):
        lines = [line for line in block.splitlines() if line.strip()]
        if lines[0].startswith("$ "):
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        elif not COMMAND.match(lines[0]):
            continue
        unknown = [line for line in lines if not COMMAND.match(line)]
        check(not unknown, f"{document}: no command that this test knows: {unknown}")
        found += [re.sub(r" +#.*", "", line) for line in lines]
    return found


def cut_down(job: pathlib.Path, keys: dict) -> None:
    """Changes keys of a job file in place; its grid of modes and ranks stays."""
    lines = [line for line in job.read_text().splitlines() if line.split(" =")[0] not in keys]
    lines = [re.sub(r"^ranks = .*", "ranks = 1, 2, 4", re.sub(r"^exclude = .*", "exclude = sync=none ranks=2,4", line)) for line in lines]
    job.write_text("\n".join(lines + [f"{key} = {value}" for key, value in keys.items() if value]) + "\n")


def idle() -> bool:
    return not slurm("squeue", "--noheader").out.strip()


class Shell:
    """One bash for all commands of a document, as one terminal."""

    def __init__(self, environment: dict):
        self.process = subprocess.Popen(["bash"], cwd=CLONE, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip

    def type(self, command: str) -> tuple[int, str]:
        self.process.stdin.write(f"{command} </dev/null\necho \"\n@@ $?\"\n")
        self.process.stdin.flush()
        printed = []
        for line in self.process.stdout:
            if line.startswith("@@ "):
                return int(line[3:]), "".join(printed)
            printed.append(line)
        raise Failure(f"the shell ended after {command}: {''.join(printed)[-500:]}")


def run_all(document: str, count: int) -> None:
    listed = commands(document)
    check(len(listed) >= count, f"{document} has {len(listed)} commands, and {count} are known")
    slurm("scancel", "--me")
    wait_until(idle, "the jobs of a page that failed ended", 60)
    for leftover in [*CLONE.glob("slurm-*.log"), *CLONE.glob("results/s[cp]*")]:
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    typed = {key: value for key, value in ENVIRONMENT.items() if not key.startswith("OMPI_ALLOW_RUN_AS_ROOT")}
    shell = Shell(typed | SLURM | {"PATH": f"{pathlib.Path(shutil.which(MPIRUN)).parent}:{os.environ['PATH']}", "GRADSYNC_DEVICE": "cpu"})
    for command in listed:
        if command in ELSEWHERE:
            continue
        if "config/data" in command and not data_can_be_fetched():
            print(f"SKIP {command}: the address of CIFAR-10 does not answer", flush=True)
            shutil.copytree(CLONE / "data/synthetic", CLONE / "data/cifar-10", dirs_exist_ok=True)
            continue
        if command.startswith(NEEDS_JOBS_DONE):
            wait_until(idle, f"the jobs before {command} ended", 300)
        endless = command.startswith("tail -f")
        if endless:
            wait_until(lambda: any(CLONE.glob(command.split()[-1])), "the job has begun", 60)
        code, printed = shell.type(f"timeout 3 {command}" if endless else command)
        check(code == (124 if endless else 0), f"{document}: {command}: {code}: {printed[-1200:]}")
        shell.type(AFTER.get(command, ":"))
    wait_until(idle, f"the jobs of {document} ended", 300)
    shell.process.stdin.close()
    check(shell.process.wait(30) == 0, "the shell failed")
    for log in CLONE.glob("slurm-*.log"):
        check(re.search(r"\d+ complete, 0 failed", log.read_text()), f"{document}: {log.read_text()[-1500:]}")


def data_can_be_fetched() -> bool:
    address = re.search(r"https?://[^}]+", (ROOT / "config/data").read_text())[0]
    return run(["curl", "--silent", "--head", "--max-time", "10", address]).code == 0


def case_the_readme(folder):
    run_all("README.md", 10)


def case_the_tutorial(folder):
    run_all("docs/tutorial.md", 17)


def case_the_page_on_slurm(folder):
    try:
        run_all("docs/slurm.md", 11)
    finally:
        cluster("link", "n2", "up")
        cluster("rate", "none")


def prepare(folder: pathlib.Path) -> None:
    global CLONE
    CLONE = folder / "clone"
    CLONE.mkdir()
    for part in ("Makefile", "config", "jobs", "slurm", "src", "analysis", "tests", "bench", "results/example/runs.tar.xz"):
        (CLONE / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / part, CLONE / part) if (ROOT / part).is_dir() else shutil.copy2(ROOT / part, CLONE / part)
    (CLONE / "slurm/site").unlink(missing_ok=True)
    # A program knows the checkout, and so its slurm/site, by its own place.
    shutil.copytree(ROOT / "build/bin", CLONE / "build/bin")
    shutil.copy(ROOT / "build/config.mk", CLONE / "build")
    run(["make", "-C", CLONE, "build/example-runs"]).expect(0)
    for job, keys in (("speedup", SMALL), ("scaling", SMALL_ARRAY), ("demo", SMALL_DEMO)):
        cut_down(CLONE / f"jobs/{job}.cfg", keys)
    for template in CLONE.glob("slurm/*.sbatch"):
        template.write_text(template.read_text().replace("--cpus-per-task=8", "--cpus-per-task=1"))
    shutil.move(synthetic(folder, 640, 64), CLONE / "data/synthetic")
    run([CLONE / "config/demo"], environment={"DEMO_RANKS": "1,2", "GRADSYNC_DATA": "data/synthetic"}, timeout=300).expect(0)


if __name__ == "__main__":
    sys.exit(run_on_cluster(globals(), prepare))
