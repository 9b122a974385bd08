"""What the tests on the Slurm cluster share: starting and ending it, and following jobs. The rest is tests/e2e/harness.py."""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
from harness import BIN, ROOT, Failure, Result, run  # noqa: E402

CLUSTER = ROOT / "tests/slurm/cluster"
STATE = pathlib.Path("/run/gradsync-cluster")
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED")


def cluster(*arguments, timeout: float = 120) -> Result:
    return run([CLUSTER, *arguments], timeout=timeout)


def slurm(*command, timeout: float = 120, environment: dict | None = None) -> Result:
    """A command of a user of the cluster."""
    return run(list(command), timeout=timeout, environment={"SLURM_CONF": str(STATE / "slurm.conf")} | (environment or {}))


def srun(*arguments, **how) -> Result:
    return slurm("srun", "--mpi=pmix", "--kill-on-bad-exit=1", *arguments, **how)


def sbatch(*arguments, environment: dict | None = None) -> str:
    """Submits and returns the job's number."""
    return slurm("sbatch", "--parsable", *arguments, environment=environment).expect(0).out.strip().split(";")[0]


def job_field(job: str, name: str) -> str:
    result = slurm("scontrol", "--oneliner", "show", "job", job)
    found = re.search(rf"\b{name}=(\S*)", result.out)
    return found.group(1) if found else ""


def wait_until(condition, what: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"after {timeout} s still not: {what}; squeue: {slurm('squeue').out}")
        time.sleep(0.3)


def wait_for_end(job: str, timeout: float = 240) -> tuple[str, int]:
    """The state in which a job ended, and its exit code."""
    wait_until(lambda: job_field(job, "JobState") in ENDED, f"job {job} ended", timeout)
    return job_field(job, "JobState"), int(job_field(job, "ExitCode").split(":")[0])


def why_not() -> str:
    return cluster("why-not").out.strip()


def run_on_cluster(names: dict, prepare=lambda folder: None) -> int:
    """harness.run_cases on a cluster of its own. Its folders are in the checkout: nodes need not share /tmp."""
    reason = why_not() or ("one is running already: make cluster-stop" if STATE.exists() else "")
    if reason:
        print(f"SKIP slurm {pathlib.Path(sys.argv[0]).stem}: no Slurm cluster on this machine: {reason}")
        return 0
    scratch = ROOT / "build/tests/slurm"
    scratch.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(scratch)
    try:
        cluster("start").expect(0)
        return harness.run_cases(names, prepare)
    finally:
        subprocess.run([CLUSTER, "stop"], check=False)
