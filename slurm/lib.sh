# The body of every template: checks the allocation, prints and runs the grid, requeues itself.
#
# A template's last line is   run_template NAME RANKS-PER-NODE gpu|cpu "$@"   (run_array, run_calibration)
# where RANKS-PER-NODE is a number, or "any" for what the allocation has.
# shellcheck shell=bash
set -euo pipefail

slurm_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly slurm_folder home=${slurm_folder%/*}
# A checkout has its programs in build/bin, `make install` puts them beside share/gradsync.
programs=$home/build/bin
[[ -d $programs ]] || programs=$(cd "$home/../../bin" && pwd)
readonly programs
# shellcheck source=slurm/site.sh
. "$slurm_folder/site.sh"
# shellcheck source=slurm/requeue.sh
. "$slurm_folder/requeue.sh"
# shellcheck source=slurm/mpirun.sh
. "$slurm_folder/mpirun.sh"

# What this job is: set once, by `prepare` and `prepare_grid`.
nodes="" ranks_per_node="" cores_per_rank="" device=""
job_file="" resubmit="" results="" cells="" data="" threads=""
sweep=() sweep_options=() cell=() trainer_options=()

say() { printf '== %s\n' "$*"; }

# --- what a job stands on ------------------------------------------------------------------------

require_batch() { # NAME ARGUMENTS...
  [[ -n ${SLURM_JOB_ID:-} && ${ENVIRONMENT:-} == BATCH && -z ${SLURM_STEP_ID:-} ]] ||
    fail 69 "this is a job for sbatch" "start it with: sbatch slurm/$1.sbatch${2:+ ${*:2}}"
}

require_build() {
  local program
  for program in sweep train check report calibrate quantize; do
    [[ -x $programs/gradsync-$program ]] || break
  done
  [[ -x $programs/gradsync-$program ]] ||
    fail 69 "no gradsync-$program in $programs" "build them before submitting, on a node of the same kind: make"
}

load_modules() {
  local file
  [[ -n ${site[modules]} ]] || return 0
  for file in /etc/profile.d/{lmod,modules,z00_lmod}.sh; do
    # shellcheck source=/dev/null
    declare -F module >/dev/null || [[ ! -r $file ]] || { set +u && . "$file" && set -u; }
  done
  declare -F module >/dev/null ||
    fail 69 "slurm/site asks for modules (${site[modules]}), and there is no command 'module' on $SLURMD_NODENAME"
  # shellcheck disable=SC2086  # names of modules
  module load ${site[modules]} || fail 69 "module load ${site[modules]} failed" "fix: slurm/site, key modules"
}

# The ranks compute on what the template is for, unless GRADSYNC_DEVICE says otherwise; every program reads it.
# "any" is what the job got, and no setting of its cells: whoever submitted them did not make it one.
choose_device() { # gpu|cpu|any
  device=${GRADSYNC_DEVICE:-$1}
  [[ $device != gpu ]] || device=cuda
  if [[ $device == any ]]; then
    device=auto
    ((${SLURM_GPUS_ON_NODE:-0} == 0)) || device=cuda
    return
  fi
  [[ $device == @(cuda|cpu) ]] || fail 64 "GRADSYNC_DEVICE is gpu or cpu, not '$device'"
  export GRADSYNC_DEVICE=$device
}

# --- shape ---------------------------------------------------------------------------------------

# Sets nodes, ranks_per_node, cores_per_rank from the allocation, and stops where it does not fit.
check_shape() { # NAME RANKS-PER-NODE gpu|cpu|any
  nodes=$SLURM_JOB_NUM_NODES
  ranks_per_node=${SLURM_NTASKS_PER_NODE:-$((${SLURM_NTASKS:-1} / nodes))}
  cores_per_rank=${SLURM_CPUS_PER_TASK:-1}
  ((ranks_per_node > 0)) ||
    fail 69 "$1: $SLURM_NTASKS ranks on $nodes nodes" "fix: sbatch --nodes=$nodes --ntasks-per-node=1 …"
  [[ $2 == any ]] || ((ranks_per_node == $2)) ||
    fail 69 "$1: the allocation has $ranks_per_node ranks a node, the template is for $2" \
      "fix: leave out --ntasks and --ntasks-per-node, or take slurm/multi-node.sbatch"
  ((${SLURM_NTASKS:-$((nodes * ranks_per_node))} == nodes * ranks_per_node)) ||
    fail 69 "$1: $SLURM_NTASKS ranks do not fill $nodes nodes with $ranks_per_node each" \
      "fix: give --nodes and --ntasks-per-node, and no --ntasks"
  [[ $3 != gpu ]] || check_gpus "$1"
  check_cores "$1"
}

# One GPU a rank, and none for two.
check_gpus() { # NAME
  local gpus=${SLURM_GPUS_ON_NODE:-0} fix
  fix="fix: sbatch $(gpu_option "$ranks_per_node") …"
  if [[ ${site[gpu-request]} == none ]]; then
    # Slurm counts only what was requested.
    [[ $device == cuda ]] || return 0
    gpus=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l)
    fix="fix: name a partition or constraint of nodes with GPUs in slurm/site"
  fi
  ((gpus >= ranks_per_node)) ||
    fail 69 "$1: $ranks_per_node ranks a node, and $gpus GPUs on $SLURMD_NODENAME: a rank needs one of its own" \
      "$fix"
}

check_cores() { # NAME
  local cores=${SLURM_CPUS_ON_NODE:-0}
  ((cores >= ranks_per_node * cores_per_rank)) ||
    fail 69 "$1: $ranks_per_node ranks a node with $cores_per_rank cores each, and $cores cores on $SLURMD_NODENAME" \
      "fix: sbatch --cpus-per-task=$((cores / ranks_per_node > 0 ? cores / ranks_per_node : 1)) …"
}

# --- the grid ------------------------------------------------------------------------------------

# Sorts the words behind the job file: options of gradsync-sweep, and the trainer's. All behind -- are the trainer's.
sort_options() { # WORDS...
  sweep_options=() trainer_options=()
  while (($#)); do
    case $1 in
      --results | --set | --ranks-per-node)
        (($# > 1)) || fail 64 "$1 needs a value"
        sweep_options+=("$1" "$2")
        shift
        ;;
      --results=* | --set=* | --ranks-per-node=*) sweep_options+=("$1") ;;
      --)
        trainer_options+=("${@:2}")
        return
        ;;
      *) trainer_options+=("$1") ;;
    esac
    shift
  done
}

# The commands of all cells or of the one, a word a line. A job file that is wrong ends the job here.
planned_words() {
  "${sweep[@]}" "${cell[@]}" --dry-run -- "${trainer_options[@]}" | xargs -n 1
}

# Sets results, cells, threads and data; stops where the cells do not fit the allocation.
check_grid() { # NAME
  local plan
  plan=$(planned_words) || exit "$?"
  results=$(sed -n 's/^--output=//p' <<<"$plan" | head -n 1)
  results=${results%/*}
  cells=$(grep -c '^--output=' <<<"$plan")
  data=$(sed -n 's/^--data=//p' <<<"$plan" | tail -n 1)
  threads=$(sed -n 's/^--threads=//p' <<<"$plan" | sort -n | tail -n 1)
  ((${threads:-1} <= cores_per_rank)) ||
    fail 69 "$1: $job_file has cells with $threads threads a rank, the allocation has $cores_per_rank cores for one" \
      "fix: sbatch --cpus-per-task=$threads …, or --threads $cores_per_rank behind the job file"
}

# gradsync-sweep and its words for this site; sets `sweep`.
prepare_sweep() {
  local prefix="${site[container]}"
  sweep=("$programs/gradsync-sweep" "$job_file" "${sweep_options[@]}")
  if [[ ${site[launcher]} == mpirun ]]; then
    sweep+=(--launcher local)
  else
    [[ ${site[mpi]} == pmix ]] || prefix="--mpi=${site[mpi]} $prefix"
    sweep+=(--launcher srun --gpu-request "${site[gpu-request]}")
  fi
  [[ -z $prefix ]] || sweep+=(--launcher-options "$prefix")
}

# Looks at what the ranks need before anything is measured; docs/slurm.md has a log.
preflight() {
  local container options
  options=(--results "$results" --ranks-per-node "$ranks_per_node")
  [[ -z $data ]] || options+=(--data "$data")
  [[ -z $threads ]] || options+=(--threads "$threads")
  options+=(--device "$device")
  read -ra container <<<"${site[container]}"
  say "preflight: gradsync-check"
  on_all_ranks "${container[@]}" "$programs/gradsync-check" "${options[@]}" ||
    fail 69 "the preflight failed: the lines above are the fixes"
}

on_all_ranks() { # COMMAND...
  local family words
  if [[ ${site[launcher]} == mpirun ]]; then
    family=$(mpirun_family mpirun)
    mapfile -t words < <(options_of_family "$family" && ranks_per_node_option "$family" "$ranks_per_node")
    mpirun -n "$((nodes * ranks_per_node))" "${words[@]}" "$@"
  else
    srun --mpi="${site[mpi]}" --kill-on-bad-exit=1 --wait=60 --cpu-bind=cores "$@"
  fi
}

# --- all of it -----------------------------------------------------------------------------------

counted() { # COUNT SINGULAR
  if (($1 == 1)); then echo "1 $2"; else echo "$1 $2s"; fi
}

describe() { # NAME
  say "gradsync $1: job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)), $(date -u +%FT%TZ)"
  say "hosts:    $(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd' ')"
  say "shape:    $(counted "$nodes" node) × $(counted "$ranks_per_node" rank), $(counted "$cores_per_rank" core) a rank, $device"
  say "version:  $("$programs/gradsync-sweep" --version)"
  say "launcher: ${site[launcher]}${site[container]:+ ${site[container]}}"
}

prepare() { # NAME RANKS-PER-NODE gpu|cpu|any
  require_build
  read_site "$(site_file "$slurm_folder")"
  load_modules
  choose_device "$3"
  check_shape "$1" "$2" "$3"
  [[ -z ${site[data]} ]] || export GRADSYNC_DATA=${GRADSYNC_DATA:-${site[data]}}
  # Newer srun does not take it from the allocation.
  export SRUN_CPUS_PER_TASK=$cores_per_rank
  # The tree lets a rank leave MPI_Init before all are ready, and its first message crashes those: docs/slurm.md.
  export SLURM_PMIX_FENCE=${SLURM_PMIX_FENCE:-ring}
  describe "$1"
}

prepare_grid() { # NAME JOB.cfg OPTIONS...
  [[ $# -gt 1 && $2 != -* ]] ||
    fail 64 "$1: give a job file" "for example: sbatch slurm/$1.sbatch jobs/demo.cfg"
  job_file=$2
  resubmit="sbatch slurm/$1.sbatch$(printf ' %q' "${@:2}")"
  sort_options "${@:3}"
  prepare_sweep
  check_grid "$1"
  say "grid:     $job_file, ${cell[*]:-$(counted "$cells" cell)}"
  say "results:  $results"
}

# All that comes before a grid runs.
begin() { # NAME RANKS-PER-NODE gpu|cpu|any JOB.cfg OPTIONS...
  require_batch "$1" "${@:4}"
  prepare "$1" "$2" "$3"
  prepare_grid "$1" "${@:4}"
}

# Runs the cells, then `THEN` if all went well, and ends the job.
run_cells() { # THEN...
  local before code=0
  preflight
  before=$(progress "$results")
  say "${sweep[*]}${cell[*]:+ ${cell[*]}}${trainer_options[*]:+ -- ${trainer_options[*]}}"
  run_interruptible "${sweep[@]}" "${cell[@]}" -- "${trainer_options[@]}" || code=$?
  ((code != 0)) || "$@" || code=$?
  ((code == 75)) || say "results:  $results, tables in $results/tables"
  finish "$code" "$results" "$before" "$resubmit"
}

run_template() { # NAME RANKS-PER-NODE gpu|cpu JOB.cfg OPTIONS...
  begin "$@"
  run_cells true
}

# A task of a job array, which runs one cell of the job file: `gradsync-sweep JOB.cfg --launcher slurm` submits an array
# for each shape.
run_array() { # NAME RANKS-PER-NODE any JOB.cfg OPTIONS...
  [[ -n ${SLURM_ARRAY_TASK_ID:-} ]] ||
    fail 64 "$1: this is a template for job arrays" "$(array_command "${@:4}")"
  cell=(--cell "$SLURM_ARRAY_TASK_ID")
  begin "$@"
  resubmit="$programs/gradsync-sweep --launcher slurm$(printf ' %q' "${@:4}")"
  run_cells print_tables_of_complete_grid
}

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

# Every network of the results that has a checkpoint and no int8 form yet, on all ranks; then the tables.
quantize_results() {
  local checkpoints run container options=(--threads "$cores_per_rank")
  [[ -z $data ]] || options+=(--data "$data")
  read -ra container <<<"${site[container]}"
  for checkpoints in "$results"/*.checkpoints; do
    run=${checkpoints%.checkpoints}
    [[ ! -e $run-int8.h5 ]] || continue
    rm -f "$run-int8.safetensors"
    say "int8:     $run-int8.h5"
    on_all_ranks "${container[@]}" "$programs/gradsync-quantize" --checkpoint "$checkpoints" \
      --output "$run-int8.h5" --save "$run-int8.safetensors" "${options[@]}" || return
  done
  "$programs/gradsync-report" "$results" --table quantize,ranges,quantize-layers \
    --format all --output "$results/tables" --verdict no
}

run_quantization() { # NAME RANKS-PER-NODE gpu|cpu JOB.cfg OPTIONS...
  begin "$@"
  run_cells quantize_results
}

run_calibration() { # NAME RANKS-PER-NODE gpu|cpu OPTIONS OF gradsync-calibrate...
  local container output code=0
  require_batch "$1" "${@:4}"
  prepare "$1" "$2" "$3"
  read -ra container <<<"${site[container]}"
  output=results/calibrate/$SLURM_JOB_ID-${nodes}x$ranks_per_node.h5
  mkdir -p "${output%/*}"
  on_all_ranks "${container[@]}" "$programs/gradsync-calibrate" --output "$output" "${@:4}" || code=$?
  say "results:  $output"
  say "ends with exit code $code"
  exit "$code"
}
