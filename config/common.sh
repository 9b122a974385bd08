# SPDX-License-Identifier: BSD-3-Clause
# Shared by the scripts of this folder. Source it; it defines, and does nothing.
# shellcheck shell=bash
# shellcheck disable=SC2034  # the names are used by the scripts that source this file

# The driver of the GPUs that the programs will run on: NVIDIA_DRIVER, else this machine's; empty
# without one.
nvidia_driver() {
  if [[ -n ${NVIDIA_DRIVER:-} ]]; then
    echo "$NVIDIA_DRIVER"
  elif [[ -e /proc/driver/nvidia/version ]]; then
    grep -oE '[0-9]{3,}[.][0-9.]+' /proc/driver/nvidia/version | head -1 || true
  elif command -v nvidia-smi >/dev/null; then
    # It fails, and says why on standard output, where no driver is loaded.
    nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | grep -xE '[0-9]{3,}([.][0-9]+)+' | head -1 || true
  fi
}

# The cores that this process may use; nproc alone prints OMP_NUM_THREADS.
cores() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# Runs Python code that imports what the user's Python has. Nothing comes from the current folder, which -c would search
# first: anybody may have written a pathlib.py or torch/ there. Where nothing of the user's is needed, python3 -I does the same.
# config/bundle copies this function into the bundle.
ask_python() { # PYTHON CODE
  "$1" -c "import os, sys; sys.path[:] = [p for p in sys.path if p and os.path.realpath(p) != os.getcwd()]
$2"
}

# The newest major version of CUDA that a driver runs.
cuda_of_driver() { # VERSION
  local major=${1%%.*}
  if ((major >= 580)); then echo 13; elif ((major >= 525)); then echo 12; else echo 11; fi
}

# LibTorch from PyPI: 2.11 is for CUDA 13, 2.10 for CUDA 12.8.
default_torch_release() {
  local driver
  driver=$(nvidia_driver)
  if [[ -n $driver ]] && (($(cuda_of_driver "$driver") < 13)); then echo 2.10.0; else echo 2.11.0; fi
}

# The oldest release that the sources compile with; 2.6 from PyPI has the old C++ ABI as well.
readonly torch_oldest=2.7
torch_release=${TORCH_RELEASE:-$(default_torch_release)}
readonly torch_release
readonly cache_dir=${XDG_CACHE_HOME:-$HOME/.cache}/gradsync
readonly torch_venv=$cache_dir/venv-torch-$torch_release
readonly test_venv=$cache_dir/venv-test
# Of each set of packages config/locks holds the versions and hashes (config/deps --lock).
readonly torch_packages="torch==$torch_release numpy"
readonly test_packages="h5py pandas xarray h5netcdf netCDF4 numpy perfetto safetensors"
# What the tests compare gradsync with. Without dependencies, named here instead: those of torchvision would bring
# a second PyTorch. torchvision 0.26 belongs to PyTorch 2.11, 0.25 to 2.10, and so on.
torchvision_minor=${torch_release#*.}
readonly peer_venv=$cache_dir/venv-peers-$torch_release
readonly torchvision="torchvision~=0.$((${torchvision_minor%%.*} + 15)).0"
readonly other_peers="pillow HolisticTraceAnalysis==0.5.0 numpy pandas python-dateutil six networkx plotly narwhals packaging psutil pyyaml"
readonly peer_packages="--no-deps $torchvision $other_peers"
# Boost, and nlohmann-json and doctest as headers, for users who cannot install packages.
readonly library_packages="cmeel-boost==1.90.0 pgm-build-deps==2026.10.26.92"
# CUDA 13's wheels, which LibTorch brings, lack nvcc and the folders crt/ and nv/ of CUDA's headers; these packages have
# them. Each is named with its version, for nvcc itself asks for the newest of the others.
cuda_packages() { # CUDA-VERSION
  printf "nvidia-%s==$1.* " cuda-nvcc cuda-crt cuda-cccl cuda-runtime nvvm
}
readonly library_venv=$cache_dir/venv-libraries
readonly status_file=build/config.status
readonly apt_install="apt-get install -y --no-install-recommends"

# build/config.status holds one line a dependency, with these fields between "|":
#   1 name
#   2 ok | missing | optional (missing too, but not required)
#   3 scope: who needs it (build, demo, test, data, lint; venv: whoever makes an environment; info)
#   4 version
#   5 where it was found, or the line that fixes it
#   6 Debian packages that bring it
#   7 the Python environment that brings it: gigabytes, folder, pip's words

fail() { # EXIT-CODE LINE...
  local code=$1
  shift
  printf '%s\n' "$@" >&2
  exit "$code"
}

have() { command -v "$1" >/dev/null 2>&1; }

# The value of a variable that config/detect found.
detected() { sed -n "s/^$1 := *//p" build/config.mk; }

# The files of the libraries that programs or libraries need, directly or not.
libraries_of() { # FILES...
  ldd "$@" 2>/dev/null | awk '/=> \// { print $3 }' | sort -u
}

# Whether nobody but root, the user and the owners named can change what a path leads to: the path and all folders above it are
# theirs, and no one else may write there. A group of root's or of the user's name is no one else. In a folder with the sticky bit
# (/tmp) others cannot replace what is there already.
is_trusted() { # PATH [USER-ID...]
  local path mode owner group last=yes
  path=$(realpath -m "$1")
  while [[ ! -e $path ]]; do path=$(dirname "$path"); done
  while :; do
    read -r mode owner group < <(stat -c '%A %u %G' "$path")
    [[ " 0 $(id -u) ${*:2} " == *" $owner "* ]] || return 1
    if [[ $mode == ????????w* || ($mode == ?????w* && $group != root && $group != "$(id -un)") ]]; then
      [[ $last == no && $mode == *[tT] ]] || return 1
    fi
    [[ $path != / ]] || return 0
    path=$(dirname "$path") last=no
  done
}

# Root in a container is not root of the host; Open MPI asks before it starts ranks of root.
in_container() { [[ -e /run/.containerenv || -e /.dockerenv || $(awk '{ print $1, $2, $3; exit }' /proc/self/uid_map) != "0 0 4294967295" ]]; }

is_root() { [[ $(id -u) == 0 ]]; }

# Answers Open MPI's question whether it may start ranks of root, for a target that root typed: make demo, make quantize.
# For gradsync-sweep: ranks by the MPI that the programs were built with, as root too.
use_mpirun_of_build() {
  local mpirun
  mpirun=$(detected MPIRUN)
  [[ -z $mpirun ]] || export GRADSYNC_SWEEP_MPIRUN=${GRADSYNC_SWEEP_MPIRUN:-$mpirun}
  allow_ranks_of_root
}

allow_ranks_of_root() { ! is_root || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; }

# The Python that makes the suite's own environments: PYTHON, else the first that LibTorch's wheel
# accepts (3.10 or newer) and that can make environments; the system's before one that a shim hides.
venv_python() {
  local candidate
  for candidate in ${PYTHON:-/usr/bin/python3 python3 python3.13 python3.12 python3.11 python3.10}; do
    if have "$candidate" && "$candidate" -I -c \
      'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}
