# SPDX-License-Identifier: BSD-3-Clause
# The body of every template: finds the programs, loads the site's modules, and becomes gradsync-sweep, which does the
# rest: it looks at the allocation, runs the grid and queues the job again (src/sweep/slurm_job.cpp).
#
# A template's last line sources this with   NAME RANKS-PER-NODE gpu|cpu|any grid|array|quantize|calibrate "$@"
# where RANKS-PER-NODE is a number, or "any" for what the allocation has.
# shellcheck shell=bash
set -euo pipefail

fail() { # EXIT-CODE LINE...
  printf 'gradsync-slurm: %s\n' "$2" >&2
  (($# < 3)) || printf '  %s\n' "${@:3}" >&2
  exit "$1"
}
# Slurm signals this process alone, and gradsync-sweep handles that once it runs.
trap 'fail 75 "stopped early, not queued again: it did nothing that lasts in this start: raise --time"' USR1

# Where this file lies, whatever links led to it.
GRADSYNC_HOME=$(cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/.." && pwd -P)
export GRADSYNC_HOME
# A checkout has its programs in build/bin, `make install` puts them beside share/gradsync.
programs=$GRADSYNC_HOME/build/bin
[[ -d $programs ]] || programs=$(cd "$GRADSYNC_HOME/../../bin" && pwd)

require_build() {
  local program
  for program in sweep train check report calibrate quantize; do
    [[ -x $programs/gradsync-$program ]] ||
      fail 69 "no gradsync-$program in $programs" "build them before submitting, on a node of the same kind: make"
  done
}

# The site's text: that of the submission, else of its file. One that others may write is passed over.
site_text() {
  local user=${XDG_CONFIG_HOME:-${HOME:-/nonexistent}/.config}/gradsync file owner
  [[ -z ${GRADSYNC_SLURM_SITE:-} ]] || { printf '%s' "$GRADSYNC_SLURM_SITE" && return; }
  owner=$(stat -Lc %u "$programs/gradsync-sweep")
  for file in "$GRADSYNC_HOME/slurm/site" "$user/slurm-site" "${GRADSYNC_SITE:-$user/site.cfg}"; do
    [[ -r $file ]] || continue
    find -L "$file" '(' -uid "$UID" -o -uid 0 -o -uid "$owner" ')' ! -perm /2 '(' ! -perm /20 -o -gid "${GROUPS[0]}" ')' -exec cat {} +
    return
  done
}

# Its key `modules`. This one is read here: no program may run before its libraries are loaded. gradsync-sweep reads the
# same text (src/base/cli/slurm_site.h) and refuses what is wrong in it.
site_modules() {
  site_text | sed -nE 's/^\xEF\xBB\xBF//; s/^[[:space:]]*modules[[:space:]]*=([^#]*).*/\1/p' | tr '\r"' '  '
}

load_modules() { # NAMES...
  local file
  (($#)) || return 0
  for file in /etc/profile.d/{lmod,modules,z00_lmod}.sh; do
    # shellcheck source=/dev/null
    declare -F module >/dev/null || [[ ! -r $file ]] || { set +u && . "$file" && set -u; }
  done
  declare -F module >/dev/null ||
    fail 69 "slurm/site asks for modules ($*), and there is no command 'module' on ${SLURMD_NODENAME:-this host}"
  set +u # what a module runs is not written for it
  module load "$@" || fail 69 "module load $* failed" "fix: slurm/site, key modules"
  set -u
}

require_build
# shellcheck disable=SC2046  # names of modules
load_modules $(site_modules)
# Cray MPICH ends a program in MPI_Init where modules set this and it is not linked with the GPU library of Cray's
# compilers. The programs move tensors of GPUs by NCCL, or through the host's memory.
export MPICH_GPU_SUPPORT_ENABLED=0
# Where sbatch passed no environment on (--export=NONE), steps would not have what was loaded here either.
export SLURM_EXPORT_ENV=ALL
exec "$programs/gradsync-sweep" job "$@"
