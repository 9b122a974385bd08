# How a template ends early: the signal ahead of the time limit, and the return to the queue. Sourced by lib.sh.
#
# Slurm signals only this shell (--signal=B:USR1@120), whatever runs at that moment: the shell passes
# it to gradsync-sweep, that to srun or mpirun, and those to the ranks. They write a checkpoint, and
# everything ends with exit code 75. A signal to the steps alone would be lost between two of them.
# shellcheck shell=bash

stop_signal=""

# Runs a command that gets the signals of this shell; returns its exit code.
run_interruptible() { # COMMAND...
  local child code=0
  [[ -z $stop_signal ]] || return 75
  "$@" &
  child=$!
  # shellcheck disable=SC2064  # this child
  trap "pass_on USR1 $child" USR1
  # shellcheck disable=SC2064
  trap "pass_on TERM $child" TERM
  # One that came before the traps were set has only been remembered.
  [[ -z $stop_signal ]] || pass_on "$stop_signal" "$child"
  # A signal ends `wait`, not the child.
  while kill -0 "$child" 2>/dev/null; do
    code=0
    wait "$child" || code=$?
  done
  note_signals
  return "$code"
}

pass_on() { # SIGNAL CHILD
  stop_signal=$1
  sleep 0.5 # a child that has yet to become the program would lose it
  kill "-$1" "$2" 2>/dev/null || true
}

# Between two commands a signal is only remembered: the first one.
note_signals() {
  trap 'stop_signal=${stop_signal:-USR1}' USR1
  trap 'stop_signal=${stop_signal:-TERM}' TERM
}
note_signals

# --- progress ------------------------------------------------------------------------------------

# What the results folder holds of this grid: complete cells, and the iterations that the newest
# checkpoints of the others have.
progress() { # RESULTS
  local run newest done_cells=0 iterations=0
  for run in "$1"/*.h5; do
    [[ ! -e $run || -e $run.journal ]] || done_cells=$((done_cells + 1))
  done
  for run in "$1"/*.h5.journal; do
    newest=$(find "${run%.h5.journal}.checkpoints" -name 'iteration-*.safetensors' 2>/dev/null | sort | tail -n 1)
    [[ ! $newest =~ iteration-0*([0-9]+) ]] || iterations=$((iterations + BASH_REMATCH[1]))
  done
  echo "$done_cells $iterations"
}

# Whether the second is more than the first.
is_progress() { # "CELLS ITERATIONS" "CELLS ITERATIONS"
  local -a before after
  read -ra before <<<"$1"
  read -ra after <<<"$2"
  ((after[0] > before[0] || (after[0] == before[0] && after[1] > before[1])))
}

# --- the end -------------------------------------------------------------------------------------

# Why a job that ended with 75 must not queue itself again, or nothing.
reason_to_stay() { # RESULTS PROGRESS-AT-START
  local restarts=${SLURM_RESTART_COUNT:-0}
  local most=${GRADSYNC_MAX_RESTARTS:-${site[max-restarts]}}
  if [[ $stop_signal != USR1 ]]; then
    echo "it was not the time limit that stopped it"
  elif ((restarts >= most)); then
    echo "it was restarted $restarts times, the most allowed (GRADSYNC_MAX_RESTARTS)"
  elif ! is_progress "$2" "$(progress "$1")"; then
    echo "it did nothing that lasts in this start: raise --time"
  fi
}

# Ends the job with `code`; after 75 it goes back into the queue, if it may.
finish() { # CODE RESULTS PROGRESS-AT-START COMMAND
  local reason code=0
  if (($1 != 75)); then
    say "ends with exit code $1"
    exit "$1"
  fi
  reason=$(reason_to_stay "$2" "$3")
  if [[ -z $reason ]]; then
    say "stopped before the time limit; requeued (restart $((${SLURM_RESTART_COUNT:-0} + 1)))"
    scontrol requeue "$SLURM_JOB_ID" || code=$?
    # Slurm ends this shell now, and may end its children first (128 + TERM or KILL): that is no failure.
    ((code != 0)) || sleep 60 || true
    ((code != 0 && code != 143 && code != 137)) || exit 75
    reason="scontrol requeue $SLURM_JOB_ID failed"
  fi
  say "stopped early, not queued again: $reason"
  say "to resume, submit it again: $4"
  exit 75
}
