# SPDX-License-Identifier: BSD-3-Clause
# LibTorch: which one, its version and its ABI. For config/detect.
# shellcheck shell=bash
# shellcheck disable=SC2154  # config/detect defines what this uses

torch_is_in() { [[ -e $1/lib/libtorch_cpu.so && -d $1/include/torch/csrc/api/include ]]; }

# The old ABI spells std::string "Ss"; the constructor of c10::Error takes one, in every release.
torch_has_old_abi() {
  ! grep -qaE '_ZN3c105ErrorC[12]E[A-Za-z0-9_]*NSt7__cxx11' "$1/lib/libc10.so"
}

torch_version() {
  {
    sed -n "s/^__version__ = '\(.*\)'/\1/p" "$1/version.py" || cat "$1/build-version" ||
      grep -hA1 'define TORCH_VERSION ' "$1"/include/torch/{headeronly,csrc/api/include/torch}/version.h |
      grep -oE '[0-9]+[.][0-9.]+'
  } 2>/dev/null | head -1
}

# "13.0" from "2.11.0+cu130"; empty where neither file says.
torch_cuda() {
  sed -n "s/^cuda.*= '\([0-9.]*\)'.*/\1/p" "$1/version.py" 2>/dev/null | head -1 | grep . ||
    sed -n 's/.*+cu\([0-9][0-9]\)\([0-9]\).*/\1.\2/p' "$1/build-version" 2>/dev/null
}

active_python_torch() {
  local python=${PYTHON:-python3}
  have "$python" && ask_python "$python" 'import importlib.util as u
spec = u.find_spec("torch")
sys.exit(1) if spec is None else print(list(spec.submodule_search_locations)[0])' 2>/dev/null
}

older() { # VERSION VERSION
  [[ $1 != "$2" && $(printf '%s\n' "$1" "$2" | sort -V | head -1) == "$1" ]]
}

# Why a LibTorch cannot be used; nothing if it can.
torch_problem() { # FOLDER
  local version
  version=$(torch_version "$1")
  if torch_has_old_abi "$1"; then
    echo "was built with _GLIBCXX_USE_CXX11_ABI=0"
  elif [[ -n $version ]] && older "$version" "$torch_oldest"; then
    echo "is $version, and $torch_oldest or newer is needed"
  fi
}

# Sets torch (folder, or empty), torch_origin, and torch_fix where only a person can help.
choose_torch() {
  local active="" skipped="" problem
  torch_fix=""
  if [[ -n ${LIBTORCH:-} ]]; then
    torch=$LIBTORCH torch_origin="from LIBTORCH"
    if ! torch_is_in "$torch"; then
      torch_fix="LIBTORCH=$torch is no LibTorch (no lib/libtorch_cpu.so); set it to an unpacked \
libtorch or a site-packages/torch, or unset it"
      torch=""
      return
    fi
    problem=$(torch_problem "$torch")
    if [[ -n $problem ]]; then
      torch_fix="LIBTORCH=$torch $problem; set it to a newer one with the C++11 ABI (torch \
$torch_release from PyPI is one), or unset it"
      torch=""
    fi
    return
  fi
  if active=$(active_python_torch) && torch_is_in "$active"; then
    problem=$(torch_problem "$active")
    if [[ -z $problem ]]; then
      torch=$active torch_origin="from ${PYTHON:-python3}"
      return
    fi
    skipped="; $active $problem: passed over"
  fi
  torch=$(conda_prefix) torch_origin="from conda$skipped"
  if [[ -n $torch ]] && torch_is_in "$torch"; then return; fi
  torch=$(echo "$torch_venv"/lib/python3*/site-packages/torch) torch_origin="the suite's own$skipped"
  torch_is_in "$torch" || torch=""
}

# A Python that imports the very same torch, for the tests that compare with PyTorch's modules.
torch_python() {
  local prefix=${torch%/lib*/python3*/site-packages/torch}
  if [[ $prefix != "$torch" && -x $prefix/bin/python3 ]]; then
    echo "$prefix/bin/python3"
  elif [[ $(active_python_torch || true) == "$torch" ]]; then
    command -v "${PYTHON:-python3}"
  fi
}

missing_torch() { # NAME OTHERWISE
  missing_in_venv "$1" missing build 8 "$torch_venv" "$torch_packages" "$2"
}

with_cuda() { [[ ${USE_CUDA:-} != 0 && -e $torch/lib/libtorch_cuda.so ]]; }

find_torch() {
  choose_torch
  define LIBTORCH_FOUND "$torch"
  if [[ -n $torch_fix ]]; then
    row LibTorch missing build - "$torch_fix"
  elif [[ -z $torch ]]; then
    missing_torch LibTorch LIBTORCH=/path
  fi
  if [[ -z $torch ]]; then
    define WITH_CUDA 0
    return
  fi
  row LibTorch ok build "$(torch_version "$torch")" "$torch ($torch_origin)"
  define TORCH_PYTHON "$(torch_python)"
  define TORCH_CFLAGS "-isystem $torch/include -isystem $torch/include/torch/csrc/api/include"
  local libs="-L$torch/lib -Wl,-rpath,$torch/lib -Wl,--no-as-needed"
  # libtorch.so loads what is there, CUDA's libraries too.
  if with_cuda; then libs+=" -ltorch -ltorch_cpu -lc10 -ltorch_cuda -lc10_cuda"; else libs+=" -ltorch_cpu -lc10"; fi
  define TORCH_LIBS "$libs -Wl,--as-needed"
}
