# LibTorch: which one, its version and its ABI. For config/detect.
# shellcheck shell=bash
# shellcheck disable=SC2154  # config/detect defines what this uses

torch_is_in() { [[ -e $1/lib/libtorch_cpu.so && -d $1/include/torch/csrc/api/include ]]; }

# The old ABI spells std::string "Ss"; the constructor of c10::Error takes one, in every release.
torch_has_old_abi() {
  ! grep -qaE '_ZN3c105ErrorC[12]E[A-Za-z0-9_]*NSt7__cxx11' "$1/lib/libc10.so"
}

torch_version() {
  { sed -n "s/^__version__ = '\(.*\)'/\1/p" "$1/version.py" 2>/dev/null || cat "$1/build-version"; } \
    2>/dev/null | head -1
}

# "13.0" from "2.11.0+cu130"; empty where neither file says.
torch_cuda() {
  sed -n "s/^cuda.*= '\([0-9.]*\)'.*/\1/p" "$1/version.py" 2>/dev/null | head -1 | grep . ||
    sed -n 's/.*+cu\([0-9][0-9]\)\([0-9]\).*/\1.\2/p' "$1/build-version" 2>/dev/null
}

active_python_torch() {
  local python=${PYTHON:-python3}
  have "$python" && "$python" -c 'import importlib.util as u, sys
spec = u.find_spec("torch")
sys.exit(1) if spec is None else print(list(spec.submodule_search_locations)[0])' 2>/dev/null
}

# Sets torch (folder, or empty), torch_origin, and torch_fix where only a person can help.
choose_torch() {
  local active="" skipped=""
  torch_fix=""
  if [[ -n ${LIBTORCH:-} ]]; then
    torch=$LIBTORCH torch_origin="from LIBTORCH"
    if ! torch_is_in "$torch"; then
      torch_fix="LIBTORCH=$torch is no LibTorch (no lib/libtorch_cpu.so); set it to an unpacked \
libtorch or a site-packages/torch, or unset it"
      torch=""
    elif torch_has_old_abi "$torch"; then
      torch_fix="LIBTORCH=$torch was built with _GLIBCXX_USE_CXX11_ABI=0; take a cxx11-abi build \
(torch $torch_release from PyPI is one), or unset it"
      torch=""
    fi
    return
  fi
  if active=$(active_python_torch) && torch_is_in "$active"; then
    if ! torch_has_old_abi "$active"; then
      torch=$active torch_origin="from ${PYTHON:-python3}"
      return
    fi
    skipped="; $active has the old C++ ABI and was passed over"
  fi
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

find_torch() {
  choose_torch
  define LIBTORCH_FOUND "$torch"
  if [[ -n $torch_fix ]]; then
    row LibTorch missing build - "$torch_fix"
  elif [[ -z $torch ]]; then
    missing_in_venv LibTorch missing build 8 "$torch_venv" "torch==$torch_release numpy" LIBTORCH=/path
  fi
  if [[ -z $torch ]]; then
    define WITH_CUDA 0
    return
  fi
  row LibTorch ok build "$(torch_version "$torch")" "$torch ($torch_origin)"
  define TORCH_PYTHON "$(torch_python)"
  define TORCH_CFLAGS "-isystem $torch/include -isystem $torch/include/torch/csrc/api/include"
  local libs="-L$torch/lib -Wl,-rpath,$torch/lib -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10"
  [[ ! -e $torch/lib/libtorch_cuda.so ]] || libs+=" -ltorch_cuda -lc10_cuda"
  define TORCH_LIBS "$libs -Wl,--as-needed"
}
