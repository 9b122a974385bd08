#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Int8 quantization of trained networks against its goals: accuracy lost and bytes.
#
# LeNet is trained first (about 2 minutes on 2 cores); NETWORKS=yes adds VGG11 and ResNet-18 (half an hour).
# Networks in results/bench-quantize are not trained again, only quantized again.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly results=results/bench-quantize
if [[ -z ${GRADSYNC_DATA:-} && ! -e data/cifar-10/data_batch_1.bin ]]; then
  echo "SKIP bench/quantize.sh: accuracy is of CIFAR-10, which is not there (make data, or GRADSYNC_DATA)"
  exit 0
fi

# The goals are of the defaults; the other choices are for `make quantize` to compare.
export GRADSYNC_QUANTIZE_ABLATION=${GRADSYNC_QUANTIZE_ABLATION:-no}
jobs=(jobs/quantize.cfg)
[[ ${NETWORKS:-no} != yes ]] || jobs+=(jobs/quantize-networks.cfg)
for job in "${jobs[@]}"; do
  folder=$results/$(basename "$job" .cfg)
  mkdir -p "$folder"
  rm -f "$folder"/*-int8.*
  config/quantize "$job" --results "$folder" >"$folder.log"
done

# A column of the rows of a table, by names of columns; CSV without commas in what is asked for here.
column() { # FILE.csv COLUMN
  python3 -I -c '
import csv, sys
for row in csv.DictReader(open(sys.argv[1])):
    if sys.argv[2] in row: print(row["name"], row["model"], row[sys.argv[2]], sep="|")
' "$@"
}

goal() { # NAME VALUE LIMIT at-most|at-least
  local verdict
  verdict=$(awk -v v="$2" -v l="$3" -v how="$4" 'BEGIN { print ((how == "at-most" ? v <= l : v >= l) ? "PASS" : "FAIL") }')
  printf '%s %s: %.4g (%s %s)\n' "$verdict" "$1" "$2" "${4/-/ }" "$3"
}

for tables in "$results"/*/tables; do
  while IFS='|' read -r name model drop; do
    [[ $name == "all, with bias" ]] || continue
    goal "$model: accuracy lost in percentage points" "$drop" "$([[ $model == lenet ]] && echo 0.3 || echo 0.5)" at-most
  done < <(column "$tables/quantize.csv" drop_points)
done
for saved in "$results"/*/*-int8.safetensors; do
  tables=${saved%/*}/tables
  model=$(basename "$saved")
  model=${model%%-none-*}
  fp32=$(column "$tables/quantize.csv" model_bytes | awk -F'|' -v m="$model" '$1 == "fp32" && $2 == m { print $3; exit }')
  goal "$model: bytes of the file over fp32" "$(awk -v a="$(stat -c %s "$saved")" -v b="$fp32" 'BEGIN { printf "%.4f", a / b }')" 0.27 at-most
done
