# SPDX-License-Identifier: BSD-3-Clause
"""What the tests on the Slurm cluster share: starting and ending it, and following jobs. The rest is tests/e2e/harness.py."""
import functools
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "e2e"))
import harness  # noqa: E402
from harness import BIN, ROOT, Failure, Result, checkout, lasting_folder, run  # noqa: E402

for name in ("OMPI_MCA_pml", "GRADSYNC_CALIBRATION_SIZES"):  # jobs have what a user's have
    harness.ENVIRONMENT.pop(name)

CLUSTER = ROOT / "tests/slurm/cluster"
STATE = pathlib.Path("/run/gradsync-cluster")
# The second for the reason that src/sweep/launcher.cpp gives.
SLURM = {"SLURM_CONF": str(STATE / "slurm.conf"), "SLURM_PMIX_FENCE": "ring"}
TURN_S = 400
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED")


def cluster(*arguments, timeout: float = 120) -> Result:
    return run([CLUSTER, *arguments], timeout=timeout)


@functools.cache
def home() -> pathlib.Path:
    """The checkout whose jobs run: its site says nothing."""
    return checkout(pathlib.Path(lasting_folder()) / "checkout")


def slurm(*command, timeout: float = 120, environment: dict | None = None) -> Result:
    """A command of a user of the cluster."""
    return run(list(command), timeout=timeout, environment=SLURM | {"GRADSYNC_HOME": str(home())} | (environment or {}))


def srun(*arguments, **how) -> Result:
    return slurm("srun", "--mpi=pmix", "--kill-on-bad-exit=1", *arguments, **how)


def job_field(job: str, name: str) -> str:
    result = slurm("scontrol", "--oneliner", "show", "job", job)
    found = re.search(rf"\b{name}=(\S*)", result.out)
    return found.group(1) if found else ""


def wait_until(condition, what: str, timeout: float, instead=lambda: "") -> None:
    """`instead` tells what there is when the time is over."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"after {timeout} s still not: {what}; squeue: {slurm('squeue').out}{instead()}")
        time.sleep(0.3)


def wait_for_end(job: str, timeout: float = 600, instead=lambda: "") -> tuple[str, int]:
    """The state in which a job ended, and its exit code."""
    wait_until(lambda: job_field(job, "JobState") in ENDED, f"job {job} ended", timeout, instead)
    return job_field(job, "JobState"), int(job_field(job, "ExitCode").split(":")[0])


# --- templates ----------------------------------------------------------------------------------------


def job_file(folder: pathlib.Path, keys: dict) -> pathlib.Path:
    """A job file of small runs of LeNet with short tables; their results go to `folder`/results."""
    small = {"model": "lenet", "batch-per-rank": 16, "iterations": 8, "evaluate": "none", "threads": 1,
             "results": folder / "results", "report-options": "--table modes --plots no --verdict no"}  # fmt: skip
    path = folder / "job.cfg"
    path.write_text("".join(f"{key} = {value}\n" for key, value in (small | keys).items()))
    return path


class Job:
    """A job of a template; its log lies in the folder it was submitted with."""

    def __init__(self, number: str, folder: pathlib.Path):
        self.number, self.folder = number, folder

    @property
    def log(self) -> str:
        logs = list(self.folder.glob(f"slurm-*-{self.number}.log"))
        return logs[0].read_text() if logs else ""

    def wait_for_text(self, text: str, timeout: float = 120) -> None:
        wait_until(lambda: re.search(text, self.log), f"'{text}' in the log", timeout, lambda: self.log[-800:])

    def expect(self, code: int, *texts: str, timeout: float = 600) -> "Job":
        state, ended_with = wait_for_end(self.number, timeout, lambda: self.log[-800:])
        if ended_with != code:
            raise Failure(f"job {state} with {ended_with}, not {code}: {self.log[-1000:]}")
        for text in texts:
            if not re.search(text, self.log):
                raise Failure(f"'{text}' is not in: {self.log[-1500:]}")
        return self


def sbatch(folder: pathlib.Path, template: str, *words, sbatch: list | None = None, environment: dict | None = None) -> str:
    """Submits a template whose ranks compute on CPUs, with one core each, as from `folder`; returns the job's number."""
    command = ["sbatch", "--parsable", f"--chdir={folder}", f"--output={folder}/slurm-%x-%j.log", "-c1", *(sbatch or [])]
    surroundings = {"GRADSYNC_DEVICE": "cpu", "GRADSYNC_HOME": str(home())} | (environment or {})
    script = pathlib.Path(surroundings["GRADSYNC_HOME"]) / f"slurm/{template}.sbatch"
    return slurm(*command, script, *words, environment=surroundings).expect(0).out.strip()


def submit(folder: pathlib.Path, template: str, *words, **how) -> Job:
    return Job(sbatch(folder, template, *words, **how), folder)


# --- the cluster --------------------------------------------------------------------------------------


def why_not() -> str:
    return cluster("why-not").out.strip()


def reason_to_skip() -> str:
    """Two test runs on one machine take turns; a cluster that a person has started from here stays theirs."""
    deadline = time.monotonic() + TURN_S
    while (reason := why_not()).startswith("one is running already") and time.monotonic() < deadline:
        if reason.endswith(f", of {ROOT}"):
            return f"{reason}: make cluster-stop"
        time.sleep(1)
    return reason


def started() -> str:
    """Starts the cluster. Why it cannot run here, or nothing; what should have worked is a failure."""
    reason = reason_to_skip()
    if not reason:
        result = cluster("start")
        if result.code != 69:
            result.expect(0)
            return ""
        reason = result.err
    return " ".join(reason.split())


def run_on_cluster(names: dict, prepare=lambda folder: None) -> int:
    """harness.run_cases on a cluster of its own. Its folders are in the checkout: nodes need not share /tmp."""
    name = f"slurm {pathlib.Path(sys.argv[0]).stem}"
    try:
        if reason := started():
            print(f"SKIP {name}: no Slurm cluster on this machine: {reason}")
            return 0
    except Failure as failure:
        print(f"FAIL {name}: the test cluster does not start: {failure}")
        return 1
    scratch = ROOT / "build/tests/slurm"
    scratch.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(scratch)
    try:
        return harness.run_cases(names, prepare)
    finally:
        subprocess.run([CLUSTER, "stop"], check=False)
