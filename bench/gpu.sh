#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests and benchmarks on one GPU: bench/gpu_suite.py says what and how. All of it takes three calls of at most
# 9 minutes, which add to one folder:
#   bench/gpu.sh OUT --only start,networks,drift,tests,kernels,modes
#   bench/gpu.sh OUT --only resnet18,measuring
#   bench/gpu.sh OUT --only vgg11,lenet,ladder
# usage: bench/gpu.sh [OUT-FOLDER] [--only PARTS] [--rehearse]     from a build, or as `run bench/gpu.sh OUT` of a bundle
# --rehearse goes through all of it on the CPU with tiny sizes: its numbers mean nothing.
set -euo pipefail
# A folder is meant from where the caller stands.
if (($#)) && [[ $1 != -* ]]; then
  set -- "$(realpath -m "$1")" "${@:2}"
fi
cd "$(dirname "$0")/.."

if (($# == 0)) && ! nvidia-smi >/dev/null 2>&1; then
  echo "SKIP bench/gpu.sh: no NVIDIA driver here (--rehearse goes through it on the CPU)"
  exit 0
fi
python=${TORCH_PYTHON:-$(sed -n 's/^TORCH_PYTHON := *//p' build/config.mk 2>/dev/null || true)}
# A machine that is rented for it.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec "${python:-python3}" bench/gpu_suite.py "$@"
