# Reads slurm/site. Source it; it defines, and does nothing.
# shellcheck shell=bash

fail() { # EXIT-CODE LINE...
  local code=$1
  printf 'gradsync-slurm: %s\n' "$2" >&2
  (($# < 3)) || printf '  %s\n' "${@:3}" >&2
  exit "$code"
}

# How a grid becomes job arrays, for whoever gives the template no array.
array_command() { # JOB.cfg OPTIONS...
  printf 'fix: build/bin/gradsync-sweep %s --launcher slurm' "${1:-JOB.cfg}"
}

# Keys for sbatch and the variable by which it takes each; keys for slurm/submit and the job, and their defaults.
declare -rA sbatch_variables=(
  [account]=SBATCH_ACCOUNT [partition]=SBATCH_PARTITION [qos]=SBATCH_QOS [constraint]=SBATCH_CONSTRAINT
  [reservation]=SBATCH_RESERVATION [exclusive]=SBATCH_EXCLUSIVE [time]=SBATCH_TIMELIMIT [memory]=SBATCH_MEM_PER_NODE
  [network]=SBATCH_NETWORK [switches]=SBATCH_REQ_SWITCH)
declare -rA job_defaults=(
  [gpu-request]=gpus-per-node [cores-per-rank]="" [sbatch-options]="" [modules]="" [container]="" [launcher]=srun [mpi]=pmix [data]="" [max-restarts]=5 [array-tasks]=1)
declare -A site=()

# The folder's own, else that of the user: an installed folder belongs to all users.
site_file() { # FOLDER OF THE TEMPLATES
  local own=$1/site
  [[ -e $own ]] || own=${XDG_CONFIG_HOME:-${HOME:-/nonexistent}/.config}/gradsync/slurm-site
  printf '%s\n' "$own"
}

# Sets `site` from the file, and to the defaults what it leaves out. No file is fine.
read_site() { # FILE
  local key line number=0
  for key in "${!job_defaults[@]}"; do site[$key]=${job_defaults[$key]}; done
  [[ -e $1 ]] || return 0
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    line=${line#$'\xEF\xBB\xBF'} # a byte order mark
    read_site_line "$1:$number" "${line%%#*}"
  done <"$1"
}

read_site_line() { # WHERE LINE
  local key value
  [[ -n ${2//[[:space:]]/} ]] || return 0
  [[ $2 =~ ^[[:space:]]*([^=[:space:]]+)[[:space:]]*=[[:space:]]*(.*)$ ]] ||
    fail 64 "$1: this is no \`key = value\`: $2"
  key=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]}
  value=${value%"${value##*[![:space:]]}"}
  [[ -n ${sbatch_variables[$key]:-} || -v job_defaults[$key] ]] ||
    fail 64 "$1: unknown key '$key'" "the keys: ${!sbatch_variables[*]} ${!job_defaults[*]}"
  [[ -n $value ]] || fail 64 "$1: '$key' has no value" "fix: give it one, or remove the line"
  check_site_value "$1" "$key" "$value"
  site[$key]=$value
}

check_site_value() { # WHERE KEY VALUE
  case $2 in
    launcher) [[ $3 == @(srun|mpirun) ]] || fail 64 "$1: launcher is srun or mpirun, not '$3'" ;;
    exclusive) [[ $3 == @(yes|user|mcs) ]] || fail 64 "$1: exclusive is yes, user or mcs, not '$3'" ;;
    gpu-request)
      [[ $3 =~ ^(gpus-per-node|gres|gres:[[:alnum:]_.-]+|none)$ ]] ||
        fail 64 "$1: gpu-request is gpus-per-node, gres, gres:TYPE or none, not '$3'"
      ;;
    time) [[ $3 =~ ^([0-9]+-)?[0-9]+(:[0-9]+){0,2}$ ]] || fail 64 "$1: time is as for sbatch, 4:00:00, not '$3'" ;;
    memory) [[ $3 =~ ^[0-9]+[KMGT]?$ ]] || fail 64 "$1: memory is a size a node, 64G, or 0 for all of it, not '$3'" ;;
    cores-per-rank) [[ $3 =~ ^[1-9][0-9]{0,3}$ ]] || fail 64 "$1: cores-per-rank is a count, not '$3'" ;;
    max-restarts) [[ $3 =~ ^[0-9]{1,4}$ ]] || fail 64 "$1: max-restarts is a count, not '$3'" ;;
    array-tasks) [[ $3 =~ ^[1-9][0-9]{0,3}$ ]] || fail 64 "$1: array-tasks is a count, not '$3'" ;;
  esac
}

# The option by which this site gives a node N GPUs, or nothing.
gpu_option() { # N
  case ${site[gpu-request]} in
    gpus-per-node) printf '%s\n' "--gpus-per-node=$1" ;;
    gres*) printf '%s\n' "--gres=gpu${site[gpu-request]#gres}:$1" ;;
  esac
}

# The values for sbatch as NAME=VALUE, a line each. A variable that is set already stays.
sbatch_environment() {
  local key name value
  for key in "${!sbatch_variables[@]}"; do
    name=${sbatch_variables[$key]} value=${site[$key]:-}
    # sbatch takes `exclusive` without a value; its variable is empty then.
    [[ $key != exclusive || $value != yes ]] || value=exclusive
    [[ -z $value || -n ${!name+set} ]] || printf '%s=%s\n' "$name" "$value"
  done
}
