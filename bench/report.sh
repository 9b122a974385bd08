#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The report on large and on many runs, made up by large_runs: every table and the verdict. Prints wall
# time and largest memory; the limits are 30 s, 10 s for the 500 files, and 1 GiB. About 9 GB of disk
# in TMPDIR for the largest (LARGEST=no leaves it out).
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ! -x /usr/bin/time ]]; then
  echo "SKIP bench/report.sh: /usr/bin/time is missing (apt-get install time)"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

measure() { # NAME RANKS ITERATIONS BUCKETS FILES
  build/bench/large_runs "$folder/$1" "${@:2}" >/dev/null
  cat "$folder/$1"/*.h5 >/dev/null # into memory: the disk is not what is measured
  /usr/bin/time -f "%e s, %M KiB, $2 ranks x $3 iterations, ${5:-1} files" \
    build/bin/gradsync-report "$folder/$1" >/dev/null
  rm -rf "${folder:?}/$1"
}

measure many 4 100 2 500
measure long 64 100000 1 1
if [[ ${LARGEST:-yes} == yes ]]; then measure wide 4096 10000 1 1; fi
