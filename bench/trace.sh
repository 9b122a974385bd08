#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# How fast gradsync-report reads a trace of torch.profiler, and the memory it takes: 1 GB of JSON (MEGABYTES=1000), as text and
# compressed, made up of iterations of 20,000 operators and kernels. Prints GB of JSON per second of CPU time, and the largest memory.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ! -x /usr/bin/time ]]; then
  echo "SKIP bench/trace.sh: /usr/bin/time is missing (apt-get install time)"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 - "$folder/rank0.json" "${MEGABYTES:-1000}" <<'EOF'
import json
import sys

path, most = sys.argv[1], int(sys.argv[2]) * 10**6
with open(path, "w") as file:
    written = file.write('{"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}, "traceEvents": [{}')
    step, dims = 0, [[32, 256, 14, 14], [256, 256, 3, 3], [256], [], [], [], [], [], []]
    while written < most:
        at = 1e6 * step
        events = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": at, "dur": 1e6}]
        for i in range(10000):
            number, begin = 10000 * step + i, round(at + 100 * i, 3)
            events += [
                {"ph": "X", "cat": "cpu_op", "name": "aten::cudnn_convolution", "pid": 1, "tid": 1, "ts": begin, "dur": 39.573,
                 "args": {"External id": number, "Record function id": 0, "Sequence number": i, "Fwd thread id": 0, "Input Dims": dims,
                          "Input type": ["float"] * 3 + ["ScalarList"] * 3 + ["Scalar"] * 3, "Ev Idx": number}},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": begin + 5, "dur": 3.1,
                 "args": {"External id": number, "cbid": 211, "correlation": number}},
                {"ph": "X", "cat": "kernel", "name": "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64>(Params)", "pid": 0,
                 "tid": 7, "ts": begin + 50, "dur": 60.215, "args": {"External id": number, "device": 0, "context": 1, "stream": 7,
                 "correlation": number, "grid": [392, 2, 1], "block": [128, 1, 1], "est. achieved occupancy %": 31}}]  # fmt: skip
        written += file.write("".join(",\n" + json.dumps(event) for event in events))
        step += 1
    file.write("]}\n")
EOF
gzip -1 -k "$folder/rank0.json"

for file in rank0.json rank0.json.gz; do
  cat "$folder/$file" >/dev/null # into memory: the disk is not what is measured
  /usr/bin/time -f '%e %U %M' -o "$folder/time" build/bin/gradsync-report --trace-in "$folder/$file" --table split >/dev/null
  awk -v file="$file" -v bytes="$(stat -c %s "$folder/rank0.json")" \
    '{ printf "%-14s %.2f GB of JSON, %.1f s, %.1f s of CPU, %.3f GB per s of CPU, %d MiB\n",
      file, bytes / 1e9, $1, $2, bytes / 1e9 / $2, $3 / 1024 }' "$folder/time"
done
