# Shared by the scripts of this folder. Source it; it defines, and does nothing.
# shellcheck shell=bash
# shellcheck disable=SC2034  # the names are used by the scripts that source this file

readonly torch_release=2.11.0
readonly cache_dir=${XDG_CACHE_HOME:-$HOME/.cache}/gradsync
readonly torch_venv=$cache_dir/venv-torch-$torch_release
readonly test_venv=$cache_dir/venv-test
readonly test_packages="h5py pandas xarray h5netcdf netCDF4 numpy perfetto safetensors"
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

is_root() { [[ $(id -u) == 0 ]]; }

# The Python that makes the suite's own environments: PYTHON, else the first that LibTorch's wheel
# accepts (3.10 or newer) and that can make environments; the system's before one that a shim hides.
venv_python() {
  local candidate
  for candidate in ${PYTHON:-/usr/bin/python3 python3 python3.13 python3.12 python3.11}; do
    if have "$candidate" && "$candidate" -c \
      'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}
