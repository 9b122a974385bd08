# SPDX-License-Identifier: BSD-3-Clause
# CUDA and NCCL: headers from the site, the libraries those that LibTorch itself loads. For
# config/detect, after LibTorch.
# shellcheck shell=bash
# shellcheck disable=SC2154  # config/detect defines what this uses

first_file() { # PATTERNS...; the first that exists
  local file
  for file in "$@"; do
    if [[ -e $file ]]; then
      echo "$file"
      return
    fi
  done
  return 1
}

includes_of() { # FOLDERS...; -isystem for those that exist
  local folder
  for folder in "$@"; do
    [[ ! -d $folder ]] || printf -- '-isystem %s ' "$folder"
  done
}

# Tries one place for CUDA's headers; a toolkit of another major version than LibTorch's is no use.
try_cuda() { # TITLE FOLDERS...
  local flags major
  flags=$(includes_of "${@:2}")
  # shellcheck disable=SC2086
  probe cuda_fp16.h 0 $flags >/dev/null && probe nvtx3/nvToolsExt.h 0 $flags >/dev/null &&
    found=$(probe cuda_runtime_api.h CUDART_VERSION $flags) ||
    return 1
  major=$((${found%%|*} / 1000))
  if [[ -n $cuda_major && $major != "$cuda_major" ]]; then
    cuda_note+="; $1 is $major, LibTorch needs $cuda_major: passed over"
    return 1
  fi
  cuda_flags=$flags
  found="$major.$((${found%%|*} / 10 % 100))|${found#*|}"
}

cuda_library() {
  first_file "$nvidia"/cu[0-9]*/lib/libcudart.so.* "$nvidia"/cuda_runtime/lib/libcudart.so.* \
    "$torch"/lib/libcudart*.so.* "${found#*|}"/../lib64/libcudart.so "${found#*|}"/../lib/libcudart.so
}

# They go into an environment of their own, so that nobody's LibTorch is touched.
missing_cuda_packages() { # NAME OTHERWISE
  missing_in_venv "$1" missing build 1 "$cuda_venv" "$(cuda_packages "$cuda_version")" "$2"
}

find_cuda() {
  local library nvcc hint
  cuda_note="" cuda_flags="" cuda_found=""
  nvcc=$(command -v nvcc || echo /none/bin/nvcc)
  nvcc=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  if { [[ -n ${CUDA_HOME:-} ]] && try_cuda "CUDA_HOME" "$CUDA_HOME/include"; } ||
    { [[ -d $nvcc ]] && try_cuda "nvcc's toolkit" "$nvcc/include"; } ||
    try_cuda "the wheel" "$nvidia"/cu[0-9]*/include "$nvidia"/cuda_runtime/include \
      "$nvidia"/{cublas,cusparse,cusolver,cudnn,nvtx}/include \
      "$cuda_venv"/lib/python3*/site-packages/nvidia/cu[0-9]*/include; then
    cuda_found=yes
    library=$(cuda_library) || library=-lcudart
    define CUDA_CFLAGS "$cuda_flags"
    define CUDA_LIBS "$(library_flags "$library")"
    row CUDA ok build "${found%%|*}" "${found#*|}$cuda_note"
    row "  at run time" ok info - "$library$(same_as_torch "$library")"
  else
    hint="CUDA_HOME=/path/to/cuda${cuda_version:+-$cuda_version}, or USE_CUDA=0 to build for CPUs only$cuda_note"
    if [[ -d $nvidia/cu13 ]]; then
      missing_cuda_packages CUDA "$hint"
    else
      row CUDA missing build - "$hint"
    fi
  fi
}

# Links a library by its file, so that no stub or other version on the search path can take its place.
library_flags() {
  case $1 in
    -l*) printf '%s' "$1" ;;
    *) printf '%s -Wl,-rpath,%s' "$1" "$(dirname "$1")" ;;
  esac
}

same_as_torch() {
  case $1 in
    "$nvidia"/* | "$torch"/*) echo " (LibTorch's own)" ;;
    *) echo " (not LibTorch's own copy)" ;;
  esac
}

# Whether nvcc and the compiler get on; an nvcc of another major version than LibTorch's is no use.
try_nvcc() { # NVCC
  local release
  have "$1" || return 1
  release=$("$1" --version 2>/dev/null | sed -n 's/.*V\([0-9][0-9.]*\)$/\1/p')
  if [[ -n $cuda_major && ${release%%.*} != "$cuda_major" ]]; then
    nvcc_note+="; $1 is ${release:-unknown}, LibTorch needs $cuda_major: passed over"
    return 1
  fi
  printf '__global__ void nothing() {}\n' >"$scratch/nvcc.cu"
  if ! "$1" -std=c++20 -ccbin "${cxx[-1]}" -c "$scratch/nvcc.cu" -o "$scratch/nvcc.o" >/dev/null 2>&1; then
    nvcc_note+="; $1 does not compile with ${cxx[-1]}: passed over"
    return 1
  fi
  found="$release|$(command -v "$1")"
}

# The ones of A100, H100, B200 and RTX 50 whose code an nvcc makes; CUDA 12 below 12.8 knows no Blackwell.
archs_of() { # NVCC
  local arch known
  known=" $("$1" --list-gpu-code 2>/dev/null | tr '\n' ' ') "
  for arch in 80 90 100 120; do
    [[ $known != *" sm_$arch "* ]] || printf '%s ' "$arch"
  done
}

find_nvcc() {
  local candidate hint="NVCC=/path/to/nvcc, or USE_CUDA=0 to build for CPUs only" nvcc_note=""
  local -a candidates=("${CUDA_HOME:-/none}/bin/nvcc" nvcc
    "$cuda_venv"/lib/python3*/site-packages/nvidia/cu[0-9]*/bin/nvcc)
  [[ -z ${NVCC:-} ]] || candidates=("$NVCC")
  for candidate in "${candidates[@]}"; do
    if try_nvcc "$candidate"; then
      define NVCC_FOUND "${found#*|}"
      define NVCC_ARCHS "$(archs_of "${found#*|}")"
      row nvcc ok build "${found%%|*}" "${found#*|}$nvcc_note"
      return
    fi
  done
  if [[ -z ${NVCC:-} && -d $nvidia/cu13 && ! -d $cuda_venv ]]; then
    missing_cuda_packages nvcc "$hint$nvcc_note"
  else
    row nvcc missing build - "${NVCC:+correct }$hint$nvcc_note"
  fi
}

find_nccl() {
  local flags="" library version="NCCL_MAJOR.NCCL_MINOR.NCCL_PATCH"
  local hint="NCCL_HOME=/its/prefix"
  if [[ -n ${NCCL_HOME:-} ]]; then
    flags="-isystem $NCCL_HOME/include"
    library=$(first_file "$NCCL_HOME"/lib{,64}/libnccl.so{.2,}) || library=""
    hint="correct NCCL_HOME=$NCCL_HOME, where it was not found"
  elif [[ -e $nvidia/nccl/include/nccl.h ]]; then
    flags="-isystem $nvidia/nccl/include"
    library=$nvidia/nccl/lib/libnccl.so.2
  else
    library=$(first_file "$torch/lib/libnccl.so.2") || library=-lnccl
  fi
  # shellcheck disable=SC2046,SC2086
  if [[ -n $library ]] && found=$(probe nccl.h "$version" $flags $cuda_flags) &&
    links $(library_flags "$library"); then
    define NCCL_CFLAGS "$flags"
    define NCCL_LIBS "$(library_flags "$library")"
    row NCCL ok build "${found%%|*}" "${found#*|}"
    row "  at run time" ok info - "$library$(same_as_torch "$library")"
  else
    row NCCL missing build - "$hint"
  fi
}

# A driver runs the CUDA of its time and everything older.
check_driver() {
  local driver newest
  driver=$(nvidia_driver)
  [[ -n $driver && -n $cuda_major ]] || return 0
  newest=$(cuda_of_driver "$driver")
  if ((cuda_major <= newest)); then
    row "GPU driver" ok info "$driver" "runs LibTorch's CUDA $cuda_version"
  else
    row "GPU driver" missing build "$driver" "it runs CUDA $newest, and $torch is for CUDA $cuda_version: \
LIBTORCH=/path/to/one for CUDA $newest (pip install torch==$(default_torch_release) brings CUDA 12.8), or USE_CUDA=0 \
to build for CPUs only, or NVIDIA_DRIVER=VERSION if the compute nodes have a newer driver"
  fi
}

# LibTorch for CUDA 12 comes without nvcc: found missing before 4.7 GB are downloaded.
find_nvcc_for_driver() {
  local driver nvidia=/none cuda_venv=/none cuda_major=12
  driver=$(nvidia_driver)
  [[ ${USE_CUDA:-} != 0 && -n $driver ]] && (($(cuda_of_driver "$driver") < 13)) || return 0
  find_nvcc
}

find_gpu_side() {
  local why="this LibTorch is CPU-only"
  if [[ -z $torch ]]; then
    find_nvcc_for_driver
    return
  fi
  [[ ${USE_CUDA:-} != 0 ]] || why="USE_CUDA=0"
  if ! with_cuda; then
    define WITH_CUDA 0
    row CUDA ok info none "$why: the programs are built without CUDA and NCCL"
    return
  fi
  define WITH_CUDA 1
  nvidia=$(dirname "$torch")/nvidia
  cuda_version=$(torch_cuda "$torch" || true)
  cuda_major=${cuda_version%%.*}
  cuda_venv=$cache_dir/venv-nvcc-$cuda_version
  check_driver
  find_cuda
  find_nvcc
  # NCCL's header includes CUDA's, so there is nothing to say of it before.
  [[ -z $cuda_found ]] || find_nccl
}
