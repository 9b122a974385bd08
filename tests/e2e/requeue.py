#!/usr/bin/env python3
"""How a Slurm template passes signals on (slurm/requeue.sh), without Slurm. Prints PASS, FAIL or SKIP a case.

usage: requeue.py [NAME...]    (run by tests/run)
"""
import sys

import harness
from harness import ROOT, check, run

# What every template does with a program: the child says what it got. `trap` is bash's own, but the first time it is
# called for this child a signal comes just before it.
SHELL = f"""
set -euo pipefail
source {ROOT}/slurm/requeue.sh
trap() {{
  if [[ ${{1-}} == pass_on* && -z $stop_signal ]]; then kill -$SIGNAL $$; fi
  builtin trap "$@"
}}
code=0
run_interruptible bash -c 'for s in USR1 TERM; do trap "echo got $s; exit 75" $s; done; for i in $(seq 100); do sleep 0.1; done' || code=$?
echo "code $code"
"""


def case_a_signal_before_the_traps_are_set_reaches_the_program(folder):
    for signal in ("USR1", "TERM"):
        result = run(["bash", "-c", SHELL], environment={"SIGNAL": signal}, timeout=60).expect(0)
        check(result.seconds < 9, f"{signal}: the program ran to its own end: {result.out}")


# The end of a job that the time limit stopped, with a scontrol that ends as $SCONTROL does.
END = f"""
set -euo pipefail
source {ROOT}/slurm/requeue.sh
say() {{ echo "$*"; }}
progress() {{ echo "1 0"; }}
scontrol() {{ bash -c "$SCONTROL"; }}
sleep() {{ :; }}
declare -A site=([max-restarts]=5)
stop_signal=USR1 SLURM_JOB_ID=7
finish 75 results "0 0" "sbatch again"
"""


def case_a_requeue_that_ends_its_own_scontrol_is_no_failure(folder):
    """Slurm ends the children of a job that it queues again, in any order."""
    for end, stays in (("true", False), ("kill -TERM $$", False), ("kill -KILL $$", False), ("exit 1", True)):
        result = run(["bash", "-c", END], environment={"SCONTROL": end})
        check(result.code == 75 and ("not queued again" in result.out) == stays, f"{end}: {result.code}: {result.out}{result.err}")


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), lambda folder: None))
