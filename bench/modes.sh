#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The modes against each other: bench/modes.cfg, trained again each time.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=config/common.sh
. config/common.sh

results=results/bench-modes-$(date -u +%Y%m%dT%H%M%SZ)
if [[ -z ${GRADSYNC_DATA:-} && ! -e data/cifar-10/data_batch_1.bin ]]; then
  export GRADSYNC_DATA=data/synthetic
  [[ -e $GRADSYNC_DATA/data_batch_1.bin ]] ||
    build/bin/gradsync-dataset synthesize --to "$GRADSYNC_DATA" --train 20000 --test 4000
  echo "data: the synthetic set in $GRADSYNC_DATA"
fi
use_mpirun_of_build
exec build/bin/gradsync-sweep bench/modes.cfg --results "$results"
