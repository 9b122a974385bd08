# The body of grid.sbatch: a task of a job array, which runs one cell of the job file. `gradsync-sweep
# JOB.cfg --launcher slurm` submits such an array for each shape. Sourced by lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # lib.sh's variables

# The tables, by the task that finds all cells complete: a batch that does not fit is a result.
print_tables_of_complete_grid() {
  local states
  local -r complete='^(done|out of memory|not run) '
  states=$("${sweep[@]}" --list -- "${trainer_options[@]}") || return
  if grep -qvE "$complete" <<<"$states"; then
    say "not complete: $(grep -cvE "$complete" <<<"$states") of $(wc -l <<<"$states") cells"
    return
  fi
  "${sweep[@]}" -- "${trainer_options[@]}"
}

run_array() { # NAME RANKS-PER-NODE any JOB.cfg OPTIONS...
  [[ -n ${SLURM_ARRAY_TASK_ID:-} ]] ||
    fail 64 "$1: this is a template for job arrays" "$(array_command "${@:4}")"
  cell=(--cell "$SLURM_ARRAY_TASK_ID")
  begin "$@"
  resubmit="$programs/gradsync-sweep --launcher slurm$(printf ' %q' "${@:4}")"
  run_cells print_tables_of_complete_grid
}
