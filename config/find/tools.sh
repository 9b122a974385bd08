# SPDX-License-Identifier: BSD-3-Clause
# What only the demo, the tests, fetching and lint need. For config/detect.
# shellcheck shell=bash
# shellcheck disable=SC2154  # config/detect defines what this uses

find_tool() { # NAME SCOPE PACKAGES WITHOUT-IT
  local version
  if have "$1"; then
    version=$("$1" --version 2>/dev/null | grep -oE '[0-9]+\.[0-9.]+' | head -1) || version=-
    row "$1" ok "$2" "$version" "$(command -v "$1")"
  else
    missing "$1" optional "$2" "$3" "put it on the PATH; without it $4"
  fi
}

# The example runs and the inputs of the parser tests are packed with it.
find_xz() {
  if have xz; then
    row xz ok build "$(xz --version | grep -oE '[0-9]+[.][0-9.]+' | head -1)" "$(command -v xz)"
  else
    missing xz missing build xz-utils "put it on the PATH"
  fi
}

# The daemons of the test cluster (tests/slurm/cluster) lie in sbin, which a user's PATH may lack.
find_slurm() {
  local tool absent=""
  for tool in slurmctld slurmd munged ip tc; do
    PATH=$PATH:/usr/sbin:/sbin have "$tool" || absent+=" $tool"
  done
  if [[ -z $absent ]]; then
    row "Slurm's daemons" ok test "$(PATH=$PATH:/usr/sbin slurmd -V | awk '{ print $2 }')" \
      "$(PATH=$PATH:/usr/sbin command -v slurmctld)"
  else
    missing "Slurm's daemons" optional test "slurm-wlm munge iproute2" \
      "put$absent on the PATH; without there is no test cluster"
  fi
}

find_venv_python() {
  local python
  if python=$(venv_python); then
    row "Python with venv" ok venv "$("$python" -I -c 'import platform as p; print(p.python_version())')" \
      "$python"
  else
    # Only LibTorch cannot do without.
    missing "Python with venv" "$([[ -n $torch ]] && echo optional || echo missing)" venv \
      python3-venv "PYTHON=/path/to/python3 (3.10 or newer)"
  fi
}

# A Python environment that only tests use.
find_test_venv() { # NAME VARIABLE FOLDER PACKAGES
  if [[ -x $3/bin/python3 ]]; then
    row "$1" ok test - "$3"
    define "$2" "$3/bin/python3"
  else
    missing_in_venv "$1" optional test 1 "$3" "$4"
  fi
}

find_tools() {
  find_xz
  find_tool rsvg-convert demo librsvg2-bin "plots are SVG files only"
  find_tool gnuplot bench gnuplot-nox "make bench draws no pictures"
  find_tool patchelf install patchelf "make install needs a PREFIX that only you can read"
  find_tool curl data "curl ca-certificates" "make data cannot download"
  find_library_or_pypi DOCTEST DOCTEST_ROOT doctest doctest/doctest.h DOCTEST_VERSION_STR "" pgm_build_deps/doctest
  report_library_or_pypi doctest test doctest-dev DOCTEST_ROOT
  find_venv_python
  find_test_venv "h5py, pandas, xarray" TEST_PYTHON "$test_venv" "$test_packages"
  find_test_venv "torchvision, HTA" PEER_PYTHON "$peer_venv" "$peer_packages"
  find_slurm
  find_tool clang-format lint clang-format "make lint skips it"
  find_tool clang-tidy lint clang-tidy "make lint skips it"
  find_tool shellcheck lint shellcheck "make lint skips it"
}
