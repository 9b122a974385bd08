#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The files that a run leaves: no credential is in them, and one job at a time writes them.

usage: output_files.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import errno
import pathlib
import signal
import subprocess
import sys
import time

import harness
from harness import BIN, ENVIRONMENT, ROOT, Failure, Skip, check, run, synthetic

DATA = ""
# What systems, clouds, CI services and package indexes really set.
CREDENTIALS = """SLURM_JWT AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AZURE_CLIENT_SECRET AZURE_STORAGE_CONNECTION_STRING
    GOOGLE_OAUTH_ACCESS_TOKEN OS_PASSWORD DIGITALOCEAN_ACCESS_TOKEN GITHUB_TOKEN GH_TOKEN ACTIONS_ID_TOKEN_REQUEST_TOKEN
    ACTIONS_RUNTIME_TOKEN CI_JOB_TOKEN CI_REGISTRY_PASSWORD GITLAB_TOKEN CIRCLE_OIDC_TOKEN BUILDKITE_AGENT_ACCESS_TOKEN
    SYSTEM_ACCESSTOKEN TWINE_PASSWORD UV_PUBLISH_TOKEN POETRY_PYPI_TOKEN_PYPI GIT_ASKPASS_PASSWORD GIT_CONFIG_PARAMETERS
    VAULT_TOKEN DOCKER_AUTH_CONFIG KRB5CCNAME SSH_AUTH_SOCK HF_TOKEN WANDB_API_KEY""".split()  # fmt: skip


def trainer(output, *arguments) -> list:
    return [BIN / "gradsync-train", "--model", "lenet", "--sync", "none", "--data", DATA, "--evaluate", "none",
            "--batch-per-rank", 16, "--threads", 1, "--output", output, *arguments]  # fmt: skip


def names_in(folder) -> set:
    return {path.name for path in pathlib.Path(folder).iterdir()}


def case_no_credential_is_in_any_file(folder):
    secrets = {name: f"credential-{number}-of-the-test" for number, name in enumerate(CREDENTIALS)}
    environment = secrets | {"SLURM_JOB_NAME": "name-of-the-job"}
    said = [run(trainer(folder / "whole.h5", "--iterations", 4), environment=environment).expect(0)]
    said.append(run(trainer(folder / "killed.h5", "--iterations", 9, "--inject-fault", "kill@0:5"), environment=environment))
    check((folder / "killed.h5.journal").exists(), "the killed run left no journal")
    said.append(run([BIN / "gradsync-calibrate", "--sizes", "1KiB:2KiB", "--output", folder / "calibration.h5"],
                    environment=environment))  # fmt: skip
    said.append(run([BIN / "gradsync-report", folder / "whole.h5", folder / "killed.h5.journal", "--force-merge", "--format", "all",
                     "--output", folder / "tables", "--html", folder / "page.html"], environment=environment).expect(0))  # fmt: skip
    content = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for name in ("whole.h5", "killed.h5.journal"):
        check(b"name-of-the-job" in content[folder / name], f"{name} does not hold the name of the job: nothing can be found in it")
    check(len(content) > 20, f"only {len(content)} files")
    texts = content | {number: (one.out + one.err).encode() for number, one in enumerate(said)}
    for place, text in texts.items():
        found = [name for name, value in secrets.items() if value.encode() in text]
        check(not found, f"{place} holds {found}")


def wait_for(condition, what: str, limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"no {what} within {limit_s} s")
        time.sleep(0.02)


def one_job_at_a_time(folder, environment) -> None:
    """The second job is refused while the first lives; what a killed one leaves is no hindrance."""
    output = folder / "run.h5"
    journal = folder / "run.h5.journal"
    command = [str(part) for part in trainer(output, "--epochs", 2, "--checkpoint-every", 5, "--resume", "auto")]
    first = subprocess.Popen(command + ["--inject-fault", "stop@0:30"], env=ENVIRONMENT | environment, cwd=ROOT,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        wait_for(lambda: pathlib.Path(f"/proc/{first.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "stopped process")
        before = journal.read_bytes()
        run(command, environment=environment).expect(73, "being written by another job", f"{journal}|another --output")
        check(journal.read_bytes() == before, "the second job wrote into the journal of the first")
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    run(command, environment=environment).expect(0, "run file")
    check(names_in(folder) == {"run.h5", "run.checkpoints"}, f"left: {names_in(folder)}")


def without_flock(number: int) -> dict:
    library = ROOT / "build/tests/libno_flock.so"
    if not library.exists():
        raise Skip(f"{library} is not built")
    return {"LD_PRELOAD": str(library), "FLOCK_ERRNO": str(number)}


def case_one_job_at_a_time_writes_a_run(folder):
    one_job_at_a_time(folder, {})


def case_so_it_does_where_there_are_no_locks(folder):
    one_job_at_a_time(folder, without_flock(errno.ENOLCK))


def case_so_it_does_where_locks_are_not_known(folder):
    one_job_at_a_time(folder, without_flock(errno.ENOSYS))


def case_a_job_of_another_host_is_named_with_what_to_remove(folder):
    output, lock = folder / "run.h5", folder / "run.h5.journal.lock"
    lock.write_text("host elsewhere, process 77, started 5, job 42, restart 0\n")
    environment = without_flock(errno.ENOLCK)
    run(trainer(output, "--iterations", 2), environment=environment).expect(73, "host elsewhere, process 77, Slurm job 42",
                                                                            f"remove '{lock}'")  # fmt: skip
    check(names_in(folder) == {lock.name}, f"left: {names_in(folder)}")
    lock.unlink()
    run(trainer(output, "--iterations", 2), environment=environment).expect(0)
    check(names_in(folder) == {"run.h5"}, f"left: {names_in(folder)}")


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 640, 64)


if __name__ == "__main__":
    sys.exit(harness.run_cases(globals(), prepare))
