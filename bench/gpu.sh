#!/usr/bin/env bash
# Tests and benchmarks on one GPU, in at most 9 minutes: bench/gpu_suite.py says what and how.
# usage: bench/gpu.sh [OUT-FOLDER] [--rehearse]     from a build, or as `run bench/gpu.sh OUT` of a bundle
# --rehearse goes through all of it on the CPU with tiny sizes: its numbers mean nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

if (($# == 0)) && ! nvidia-smi >/dev/null 2>&1; then
  echo "SKIP bench/gpu.sh: no NVIDIA driver here (--rehearse goes through it on the CPU)"
  exit 0
fi
python=${TORCH_PYTHON:-$(sed -n 's/^TORCH_PYTHON := *//p' build/config.mk 2>/dev/null || true)}
exec "${python:-python3}" bench/gpu_suite.py "$@"
