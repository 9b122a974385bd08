#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""All-reduce among ranks of one host: gradsync's shared memory against Open MPI, default and best settings, and Gloo.

usage: all_reduce.py [ROUNDS [RANKS...]]    (make bench PARTS=all_reduce; 2 and 4 ranks)
"""
import json
import statistics
import sys
import tempfile

from bench import BIN, ROOT, TUNED_MEMORY, Part, best_of, interleave, main, mpirun, ratio, run, torch_python

SIZES = [4**k for k in range(1, 14)]  # 4 B to 64 MiB
RANKS = (2, 4)
KIB, MIB = 1 << 10, 1 << 20
NO_COPY = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
# gradsync-calibrate leaves malloc alone where it finds this.
AS_IT_COMES = {"GLIBC_TUNABLES": ""}


def algorithm(number: int) -> dict:
    return {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_MCA_coll_tuned_allreduce_algorithm": str(number)}


# The settings that were found to matter, alone and together: how a copy is made, whether freed memory is kept, and
# which algorithm (3 recursive doubling, 4 ring, 5 segmented ring, 6 Rabenseifner).
TUNED = {"no single copy": NO_COPY | AS_IT_COMES, "memory kept": TUNED_MEMORY, "no single copy, memory kept": NO_COPY | TUNED_MEMORY,
         "recursive doubling": NO_COPY | TUNED_MEMORY | algorithm(3), "ring": NO_COPY | TUNED_MEMORY | algorithm(4),
         "segmented ring": NO_COPY | TUNED_MEMORY | algorithm(5), "Rabenseifner": NO_COPY | TUNED_MEMORY | algorithm(6)}  # fmt: skip


def calibrated(ranks: int, transport: str, environment: dict | None = None):
    """Median time by size, s."""

    def measure() -> dict[int, float]:
        with tempfile.TemporaryDirectory() as folder:
            result = f"{folder}/times.json"
            run([*mpirun(ranks), BIN / "gradsync-calibrate", "--device", "cpu", "--transport", transport, "--collective", "allreduce",
                 "--cadence", "back-to-back", "-b", SIZES[0], "-e", SIZES[-1], "-f", 4, "-n", 200, "-w", 5, "-J", result],
                environment)  # fmt: skip
            with open(result) as file:
                return times_in(json.load(file))

    return measure


def times_in(document: dict) -> dict[int, float]:
    """Sizes in bytes, times in microseconds."""
    return {row["size"]: row["in_place"]["time"] * 1e-6 for row in document["curves"][0]["results"]}


def gloo(ranks: int):
    def measure() -> dict[int, float]:
        out = run([torch_python(), ROOT / "bench/suite/peer_gloo.py", ranks, *SIZES], TUNED_MEMORY)
        return {int(size): float(time) for size, time in json.loads(out.splitlines()[-1]).items()}

    return measure


def memory_bound_s(size: int) -> float:
    """Two buffers read and written once by two threads of one process, the fastest pass."""
    return float(run([ROOT / "build/bench/memory_bandwidth", size]).split()[0])


def compare(ranks: int, rounds: int) -> None:
    part = Part(f"all_reduce-{ranks}", f"All-reduce of float32 among {ranks} ranks of one host: how many times slower the others are", "all_reduce")
    part.note(f"medians of {rounds} interleaved rounds [lowest, highest]; a round: the median of 200 calls back to back (fewer where they take long)")
    contenders = {"gradsync": calibrated(ranks, "shm"), "Open MPI": calibrated(ranks, "mpi", AS_IT_COMES), "Gloo": gloo(ranks)}
    contenders |= {name: calibrated(ranks, "mpi", settings) for name, settings in TUNED.items()}
    results = interleave(contenders, rounds)
    rows = []
    for size in SIZES:
        at = {name: [times[size] for times in each] for name, each in results.items()}
        best = best_of(at, ["Open MPI", *TUNED])
        fastest = min(TUNED, key=lambda name: statistics.median(at[name]))
        row = [ranks, size, statistics.median(at["gradsync"]) * 1e6, ratio(at["Open MPI"], at["gradsync"]), ratio(best, at["gradsync"]), fastest]
        rows.append(row + [ratio(at["Gloo"], at["gradsync"]) if "Gloo" in at else "-"])
    part.table(["ranks", "bytes", "gradsync_us", "Open MPI/gradsync", "best Open MPI/gradsync", "its setting", "Gloo/gradsync"],
               rows)  # fmt: skip
    judge(part, ranks, rows, "Gloo" in results)
    part.finish()


def judge(part: Part, ranks: int, rows: list, gloo_too: bool) -> None:
    part.goal(f"{ranks} ranks: never slower than the best Open MPI at any size", min(row[4].median for row in rows), 1)
    if ranks == 2:
        middle = [row for row in rows if 64 * KIB <= row[1] <= 16 * MIB]
        part.goal("2 ranks, 64 KiB to 16 MiB: times the best Open MPI, least of the sizes", min(row[4].median for row in middle), 4)
        if gloo_too:
            part.goal("2 ranks, 64 KiB to 16 MiB: times Gloo, least of the sizes", min(row[6].median for row in middle), 25)
        part.note("What memory allows (build/bench/memory_bandwidth): both buffers read and written once by two threads that wait for nothing, fastest pass")
        part.goal("2 ranks, 64 MiB: share of what memory bandwidth allows", memory_bound_s(SIZES[-1]) / (rows[-1][2] * 1e-6), 0.6)
        part.note(f"2 ranks, 16 MiB: share of what memory bandwidth allows: {memory_bound_s(SIZES[-2]) / (rows[-2][2] * 1e-6):.3g}")


def body() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    for ranks in [int(word) for word in sys.argv[2:]] or RANKS:
        compare(ranks, rounds)


if __name__ == "__main__":
    main(body)
