# The body of grid.sbatch: a job array, one task a cell of the job file. Sourced by lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2154  # lib.sh's variables

# sbatch cannot know the number of cells. A job without an array therefore submits the array, with its
# own shape, and ends; slurm/submit counts first and needs no such job.
submit_array() { # NAME WORDS...
  local options variable words
  options=(--array="1-$cells%${site[array-tasks]}" --nodes="$nodes" --ntasks-per-node="$ranks_per_node"
    --cpus-per-task="$cores_per_rank" --partition="$SLURM_JOB_PARTITION"
    --time="$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%l)")
  [[ -z ${SLURM_GPUS_PER_NODE:-} ]] || options+=(--gpus-per-node="$SLURM_GPUS_PER_NODE")
  [[ ${SLURM_JOB_ACCOUNT:-} == @(|"(null)") ]] || options+=(--account="$SLURM_JOB_ACCOUNT")
  words=()
  for variable in "${!SLURM_@}"; do [[ $variable == SLURM_CONF ]] || words+=(-u "$variable"); done
  say "submits an array of $cells tasks, ${site[array-tasks]} at once"
  env "${words[@]}" sbatch "${options[@]}" "$slurm_folder/$1.sbatch" "${@:2}"
}

# The tables, by the task that finds all cells complete: a batch that does not fit is a result.
print_tables_of_complete_grid() {
  local states
  local -r complete='^(done|out of memory|not run) '
  states=$("${sweep[@]}" --list -- "${trainer_options[@]}")
  if grep -qvE "$complete" <<<"$states"; then
    say "not complete: $(grep -cvE "$complete" <<<"$states") of $cells cells"
    return
  fi
  "${sweep[@]}" -- "${trainer_options[@]}"
}

run_array() { # NAME RANKS-PER-NODE gpu|cpu JOB.cfg OPTIONS...
  local before code=0
  begin "$@"
  if [[ -z ${SLURM_ARRAY_TASK_ID:-} ]]; then
    submit_array "$1" "${@:4}"
    return
  fi
  ((SLURM_ARRAY_TASK_ID <= cells)) ||
    fail 64 "task $SLURM_ARRAY_TASK_ID: $job_file has $cells cells" "fix: sbatch --array=1-$cells …"
  preflight
  before=$(progress "$results")
  say "cell:     $SLURM_ARRAY_TASK_ID of $cells"
  run_interruptible "${sweep[@]}" --cell "$SLURM_ARRAY_TASK_ID" -- "${trainer_options[@]}" || code=$?
  ((code != 0)) || print_tables_of_complete_grid
  finish "$code" "$results" "$before" "$resubmit"
}
