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
  trap "stop_signal=USR1; kill -USR1 $child 2>/dev/null || true" USR1
  # shellcheck disable=SC2064
  trap "stop_signal=TERM; kill -TERM $child 2>/dev/null || true" TERM
  # A signal ends `wait`, not the child.
  while kill -0 "$child" 2>/dev/null; do
    code=0
    wait "$child" || code=$?
  done
  trap note_signal USR1 TERM
  return "$code"
}

note_signal() { stop_signal=${stop_signal:-USR1}; }
trap note_signal USR1 TERM

# --- progress ------------------------------------------------------------------------------------

# What the results folder holds of this grid: complete cells, and bytes of the journals of others.
progress() { # RESULTS
  local run done_cells=0 journal_bytes=0
  for run in "$1"/*.h5; do
    [[ ! -e $run || -e $run.journal ]] || done_cells=$((done_cells + 1))
  done
  journal_bytes=$(find "$1" -maxdepth 1 -name '*.h5.journal' -printf '%s\n' 2>/dev/null | awk '{ n += $1 } END { print n + 0 }')
  echo "$done_cells $journal_bytes"
}

# The progress with which this job started before, "" at its first start; remembers that of now.
exchange_progress() { # RESULTS
  local file=$1/requeue-$SLURM_JOB_ID
  if ((${SLURM_RESTART_COUNT:-0} > 0)) && [[ -e $file ]]; then cat "$file"; fi
  mkdir -p "$1"
  progress "$1" >"$file"
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
  elif [[ $(progress "$1") == "$2" ]]; then
    echo "nothing was done since it started: an iteration and a checkpoint need more time than the limit leaves"
  fi
}

# Ends the job with `code`; after 75 it goes back into the queue, if it may.
finish() { # CODE RESULTS PROGRESS-AT-START COMMAND
  local reason
  if (($1 != 75)); then
    rm -f "$2/requeue-$SLURM_JOB_ID"
    say "ends with exit code $1"
    exit "$1"
  fi
  reason=$(reason_to_stay "$2" "$3")
  if [[ -z $reason ]]; then
    say "stopped ahead of the time limit; back into the queue (restart $((${SLURM_RESTART_COUNT:-0} + 1)))"
    scontrol requeue "$SLURM_JOB_ID" && sleep 60
    reason="scontrol requeue $SLURM_JOB_ID failed"
  fi
  say "stopped early, not queued again: $reason"
  say "go on with: $4"
  exit 75
}
