#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How a Slurm template meets signals and queues its job again, without Slurm: scripts stand in for srun and scontrol.
Prints PASS, FAIL or SKIP a case.

usage: requeue.py [NAME...]    (run by tests/run)
"""
import os
import pathlib
import re
import sys

import harness
from harness import check, checkout, run

# What Slurm says of a job on one node with a core and a GPU.
JOB = {"ENVIRONMENT": "BATCH", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS_PER_NODE": "1", "SLURM_CPUS_PER_TASK": "1",
       "SLURM_CPUS_ON_NODE": "1", "SLURM_JOB_CPUS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": "1", "SLURM_JOB_NODELIST": "n1", "SLURMD_NODENAME": "n1",
       "GRADSYNC_DEVICE": "cpu"}  # fmt: skip
# A run that is asked to stop once its checkpoint is there.
STOPPED = 'trap : USR1 TERM; touch "$run.h5.journal"; mkdir -p "$run.checkpoints"; touch "$run.checkpoints/iteration-00000001${SLURM_RESTART_COUNT:-0}.safetensors"; '
STOPPED += "kill -USR1 $PPID; sleep 0.3; exit 75"
# The checkout of the job.
HOME = pathlib.Path()


def prepare(folder: pathlib.Path) -> None:
    global HOME
    HOME = checkout(folder / "checkout")


def job(folder: pathlib.Path, check_does: str = "true", train_does: str = STOPPED, requeue_does: str = "kill -TERM $PPID", **how) -> harness.Result:
    """slurm/one-gpu.sbatch in a job whose preflight, training and scontrol do this."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    # srun's own process is the child of gradsync-sweep. The trainer's run file is its last word.
    scripts = {"srun": f'case "$*" in\n*" mkdir -p -m "*|*" rm -rf "*) while [[ $1 != mkdir && $1 != rm ]]; do shift; done; echo "$1" >>{folder}/steps; "$@" ;;\n*gradsync-check*) {check_does} ;;\n*) last=${{@: -1}} run=${{last#--output=}} run=${{run%.h5}}; {train_does} ;;\nesac',
               "scontrol": f'case $1 in show) [[ $2 == job ]] && echo "   TimeLimit=02:00:00 TresPerNode=gres:gpu:h100:1 Account=(null)   Partition=main OverSubscribe=OK" || echo n1 ;; *) {requeue_does} ;; esac'}  # fmt: skip
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)
    file = folder / "job.cfg"
    file.write_text(f"model = lenet\nranks = 1\nthreads = 1\nresults = {folder}/results\n")
    environment = JOB | {"GRADSYNC_HOME": str(HOME), "PATH": f"{programs}:{os.environ['PATH']}"} | how
    return run(["bash", HOME / "slurm/one-gpu.sbatch", file], environment=environment, timeout=50)


def case_a_job_that_meets_its_limit_goes_back_into_the_queue(folder):
    first = job(folder).expect(75, "== shape:    1 node × 1 rank, 1 core a rank, cpu", "preflight", "requeued .restart 1")
    check("fix:" not in first.err and "tables in" not in first.out, f"nothing is to be done: {first.err}")
    # Its next start has a later checkpoint.
    job(folder, SLURM_RESTART_COUNT="1").expect(75, "start 2", "requeued .restart 2")
    result = job(folder, SLURM_RESTART_COUNT="5").expect(75, "restarted 5 times, the most allowed")
    again = re.search("fix: to resume, submit it again: (.*)", result.err)[1]
    check(re.match(r"(GRADSYNC_\w+=\S+ )*GRADSYNC_DEVICE=cpu ", again) and f" {HOME}/slurm/submit --nodes=1 --ntasks-per-node=1 --cpus-per-task=1 " in again, again)
    # As printed, in a shell of its own, it submits the same job.
    (folder / "programs/sbatch").write_text(f'#!/bin/bash\necho "$GRADSYNC_DEVICE $*" >{folder}/submitted\n')
    (folder / "programs/sbatch").chmod(0o755)
    run(["bash", "-euc", again], environment={"PATH": f"{folder}/programs:{os.environ['PATH']}"}).expect(0)
    check((folder / "submitted").read_text().split() == ["cpu", "--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=1", "--gpus-per-node=1", "--time=02:00:00",
          "--partition=main", str(HOME / "slurm/one-gpu.sbatch"), f"{folder}/job.cfg"], (folder / "submitted").read_text())
    job(folder, SLURM_RESTART_COUNT="3", GRADSYNC_MAX_RESTARTS="3").expect(75, "restarted 3 times, the most allowed")


def case_a_start_without_progress_is_the_last(folder):
    """The signal comes during the preflight: training does not begin."""
    result = job(folder, check_does="kill -USR1 $PPID", train_does=f"touch {folder}/trained").expect(75, "did nothing that lasts in this start: raise --time")
    check("requeued" not in result.out and not (folder / "trained").exists(), result)


def case_a_job_that_a_person_stops_stays(folder):
    for does in (STOPPED.replace("USR1", "TERM"), STOPPED.replace("kill -USR1 $PPID; ", ""), STOPPED.replace("exit", "kill -TERM $PPID; sleep 0.3; exit")):
        job(folder, train_does=does).expect(75, "not queued again: it was not the time limit that stopped it")


def case_a_requeue_that_ends_its_own_scontrol_is_no_failure(folder):
    """Slurm ends the children of a job that it queues again, in any order."""
    number = 0
    for end, stays in (("kill -TERM $PPID", False), ("kill -TERM $PPID; kill -TERM $$", False), ("kill -TERM $PPID; kill -KILL $$", False), ("exit 1", True)):
        number += 1
        result = job(folder, requeue_does=end, SLURM_RESTART_COUNT=str(number), GRADSYNC_MAX_RESTARTS="9").expect(75)
        check(("not queued again: scontrol requeue 7 failed" in result.err) == stays, f"{end}: {result.out}{result.err}")


def case_a_task_of_an_array_is_queued_again_alone(folder):
    """The id of one of an array's tasks is that of the array, which scontrol would queue again whole."""
    array = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    job(folder, requeue_does=f'echo "$*" >{folder}/requeued; kill -TERM $PPID', **array).expect(75, "requeued .restart 1")
    check((folder / "requeued").read_text() == "requeue 7_1\n", (folder / "requeued").read_text())


def case_temporary_files_are_in_a_folder_of_the_job(folder):
    """On each node, where /tmp is everybody's; one that is private already stays."""
    everybodys = folder / "tmp"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    shows = 'stat -c "%n %a" "$TMPDIR"'
    for end in ("exit 80", STOPPED):
        result = job(folder, check_does=shows, train_does=end, TMPDIR=str(everybodys))
        check(re.search(rf"^{everybodys}/gradsync-7-\w+ 700$", result.out, re.M), result)
        check((folder / "steps").read_text() == "mkdir\nrm\n" and not list(everybodys.iterdir()), "it is not removed")
        (folder / "steps").unlink()
    everybodys.chmod(0o755)
    result = job(folder, check_does=shows, TMPDIR=str(everybodys))
    check(f"{everybodys} 755" in result.out and not (folder / "steps").exists(), result)


def case_a_failed_preflight_ends_the_job(folder):
    result = job(folder, check_does="exit 69", train_does=f"touch {folder}/trained").expect(69, "the preflight failed: the lines above are the fixes")
    check(not (folder / "trained").exists(), result)
    job(folder, train_does="exit 80").expect(1, "1 of 1 cells failed", "ends with exit code 1")


def case_a_template_runs_nothing_that_others_could_have_put_there(folder):
    """Where sbatch was called in a shared folder, any member may have made slurm/run.sh."""
    planted = folder / "slurm/run.sh"
    planted.parent.mkdir()
    planted.write_text(f"touch {folder}/ran; exit 0\n")

    def template(code: int) -> None:
        (folder / "ran").unlink(missing_ok=True)
        result = run(["bash", HOME / "slurm/cpu.sbatch", "x.cfg"], environment={"SLURM_SUBMIT_DIR": str(folder)})
        check(result.code == code and (folder / "ran").exists() == (code == 0), f"{code}: {result.code}: {result.err}")
        check(code == 0 or "slurm/submit, or export GRADSYNC_HOME" in result.err, result)

    template(0)  # our own
    for path in (planted, planted.parent):
        path.chmod(path.stat().st_mode | 0o002)
        template(69)
        path.chmod(path.stat().st_mode & ~0o022)
    template(0)
    if os.geteuid() == 0:
        for path in (planted, planted.parent):
            os.chown(path, 65534, 65534)
            template(69)
            os.chown(path, 0, 0)
    planted.unlink()
    template(69)
    # A link leads to the checkout that it points to, not to what lies beside the link.
    planted.symlink_to(HOME / "slurm/run.sh")
    run(["bash", HOME / "slurm/cpu.sbatch", "x.cfg"], environment={"SLURM_SUBMIT_DIR": str(folder)}).expect(69, "this is a job for sbatch")


def case_numbers_of_the_environment_are_no_code(folder):
    for version in ("44", "51"):
        result = job(folder, GRADSYNC_MAX_RESTARTS=f"UID[$(touch {folder}/ran)]", BASH_COMPAT=version).expect(64, "GRADSYNC_MAX_RESTARTS: .* is not a whole number")
        check(not (folder / "ran").exists(), result)


def case_a_job_keeps_the_site_of_its_submission(folder):
    site = "# the site\nmpi = pmi2\nhint = nomultithread\ncpu-freq = high\ngpu-bind = closest\nmodules = gcc/99\n"
    result = job(folder, GRADSYNC_SLURM_SITE=site, **{"BASH_FUNC_module%%": '() { echo "module $*"; }'})
    check("module load gcc/99" in result.out, result)
    check("'--launcher-options=--mpi=pmi2 --hint=nomultithread --gpu-bind=closest --cpu-freq=high'" in result.out, result)
    job(folder, GRADSYNC_SLURM_SITE="mpo = x\n").expect(64, "GRADSYNC_SLURM_SITE:1: unknown key 'mpo'")


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
