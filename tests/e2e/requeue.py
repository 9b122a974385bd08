#!/usr/bin/env python3
"""How a Slurm template meets signals and queues its job again, without Slurm: scripts stand in for srun and scontrol.
Prints PASS, FAIL or SKIP a case.

usage: requeue.py [NAME...]    (run by tests/run)
"""
import os
import pathlib
import sys

import harness
from harness import ROOT, check, run

# What Slurm says of a job on one node with a core and a GPU.
JOB = {"ENVIRONMENT": "BATCH", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS_PER_NODE": "1", "SLURM_CPUS_PER_TASK": "1",
       "SLURM_CPUS_ON_NODE": "1", "SLURM_JOB_CPUS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": "1", "SLURM_JOB_NODELIST": "n1", "SLURMD_NODENAME": "n1",
       "GRADSYNC_DEVICE": "cpu"}  # fmt: skip
# A run that is asked to stop once its checkpoint is there.
STOPPED = 'trap : USR1 TERM; touch "$run.h5.journal"; mkdir -p "$run.checkpoints"; touch "$run.checkpoints/iteration-$((10 + ${SLURM_RESTART_COUNT:-0})).safetensors"; '
STOPPED += "kill -USR1 $PPID; sleep 0.3; exit 75"


def job(folder: pathlib.Path, check_does: str = "true", train_does: str = STOPPED, requeue_does: str = "kill -TERM $PPID", **how) -> harness.Result:
    """slurm/one-gpu.sbatch in a job whose preflight, training and scontrol do this."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    # srun's own process is the child of gradsync-sweep. The trainer's run file is its last word.
    scripts = {"srun": f'case "$*" in\n*gradsync-check*) {check_does} ;;\n*) last=${{@: -1}} run=${{last#--output=}} run=${{run%.h5}}; {train_does} ;;\nesac',
               "scontrol": f'case $1 in show) echo n1 ;; *) {requeue_does} ;; esac'}  # fmt: skip
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)
    file = folder / "job.cfg"
    file.write_text(f"model = lenet\nranks = 1\nthreads = 1\nresults = {folder}/results\n")
    environment = JOB | {"PATH": f"{programs}:{os.environ['PATH']}"} | how
    return run(["bash", ROOT / "slurm/one-gpu.sbatch", file], environment=environment, timeout=50)


def case_a_job_that_meets_its_limit_goes_back_into_the_queue(folder):
    job(folder).expect(75, "== shape:    1 node × 1 rank, 1 core a rank, cpu", "preflight", "requeued .restart 1")
    # Its next start has a later checkpoint.
    job(folder, SLURM_RESTART_COUNT="1").expect(75, "start 2", "requeued .restart 2")
    result = job(folder, SLURM_RESTART_COUNT="5").expect(75, "restarted 5 times, the most allowed")
    check("to resume, submit it again: sbatch slurm/one-gpu.sbatch" in result.out, result.out)
    job(folder, SLURM_RESTART_COUNT="3", GRADSYNC_MAX_RESTARTS="3").expect(75, "restarted 3 times, the most allowed")


def case_a_start_without_progress_is_the_last(folder):
    """The signal comes during the preflight: training does not begin."""
    result = job(folder, check_does="kill -USR1 $PPID", train_does=f"touch {folder}/trained").expect(75, "did nothing that lasts in this start: raise --time")
    check("requeued" not in result.out and not (folder / "trained").exists(), result.out)


def case_a_job_that_a_person_stops_stays(folder):
    for does in (STOPPED.replace("USR1", "TERM"), STOPPED.replace("kill -USR1 $PPID; ", ""), STOPPED.replace("exit", "kill -TERM $PPID; sleep 0.3; exit")):
        job(folder, train_does=does).expect(75, "not queued again: it was not the time limit that stopped it")


def case_a_requeue_that_ends_its_own_scontrol_is_no_failure(folder):
    """Slurm ends the children of a job that it queues again, in any order."""
    number = 0
    for end, stays in (("kill -TERM $PPID", False), ("kill -TERM $PPID; kill -TERM $$", False), ("kill -TERM $PPID; kill -KILL $$", False), ("exit 1", True)):
        number += 1
        result = job(folder, requeue_does=end, SLURM_RESTART_COUNT=str(number), GRADSYNC_MAX_RESTARTS="9").expect(75)
        check(("not queued again: scontrol requeue 7 failed" in result.out) == stays, f"{end}: {result.out}{result.err}")


def case_a_failed_preflight_ends_the_job(folder):
    result = job(folder, check_does="exit 69", train_does=f"touch {folder}/trained").expect(69, "the preflight failed: the lines above are the fixes")
    check(not (folder / "trained").exists(), result.out)
    job(folder, train_does="exit 80").expect(1, "1 of 1 cells failed", "ends with exit code 1")


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), lambda folder: None))
