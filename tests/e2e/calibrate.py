#!/usr/bin/env python3
"""gradsync-calibrate, and gradsync-train with --calibrate, as programs. Prints PASS, FAIL or SKIP a case.

usage: calibrate.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import json
import pathlib
import re
import subprocess
import sys

import harness
import trainer
from harness import BIN, ROOT, Skip, check, mpirun, run, synthetic
from trainer import report


def calibrate(ranks: int, *arguments, **how):
    return run(mpirun(ranks) + [BIN / "gradsync-calibrate", *arguments], **how)


def rows(text: str) -> list:
    """The rows as a parser of nccl-tests' output reads them."""
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def case_columns_and_footer_are_nccl_tests(folder):
    result = calibrate(2, "-b", 1024, "-e", "64K", "-f", 4, "-n", 5, "--collective", "allreduce", "--cadence", "isolated")
    result.expect(0, "# Out of bounds values : 0 OK", r"# Avg bus bandwidth    : \d+\.\d+", "# Plateau", "# Fit of time")
    table = rows(result.out)
    check([int(row[0]) for row in table] == [1024, 4096, 16384, 65536], f"sizes: {table}")
    for size, count, kind, op, root, time_us, algbw, busbw, wrong in table:
        check(int(count) * 4 == int(size) and (kind, op, root, wrong) == ("float", "sum", "-1", "0"), f"row {size}")
        check(abs(float(algbw) - int(size) / float(time_us) / 1e3) < 0.01 * float(algbw) + 0.001, f"algbw of {size}")
        check(algbw == busbw, "on two ranks busbw is algbw")


def case_one_rank_has_no_bus_bandwidth(folder):
    result = calibrate(1, "-b", 1024, "-e", 1024, "-n", 2).expect(0, "# Avg bus bandwidth    : n/a")
    check(all(row[7] == "n/a" and row[8] == "0" for row in rows(result.out)), result.out)
    check(len(rows(result.out)) == 12, "six collectives in two cadences")


def case_file_and_json_hold_what_was_printed(folder):
    result = calibrate(2, "-b", "1KiB", "-e", "16KiB", "-n", 3, "--output", folder / "c.h5", "-J", folder / "c.json").expect(0)
    page = json.loads((folder / "c.json").read_text())
    printed = [row[5] for row in rows(result.out)]
    times = [f"{row['in_place']['time']:.2f}" for curve in page["curves"] for row in curve["results"]]
    check(times == printed, f"{times} printed as {printed}")
    # Over shared memory: the ring is MPI's.
    check(len(page["curves"]) == 10 and len(page["ranks"]) == 2, "curves and ranks")
    report(folder / "c.h5").expect(0)
    calibrate(2, "--output", folder / "c.h5").expect(73, "exists")
    calibrate(2, "-J", folder / "c.json").expect(73, "exists")


def case_every_transport_in_one_run(folder):
    asked = ["-b", 1024, "-e", "4K", "-f", 4, "-n", 3, "--cadence", "isolated", "--output", folder / "c.h5", "-J", folder / "c.json"]
    result = calibrate(2, "--transport", "all", "--collective", "allreduce,broadcast", *asked).expect(0, "# transport shm", "# transport mpi", "# transport tcp-ring")
    check(len(rows(result.out)) == 8, "all-reduce over each of three, broadcast once, two sizes")
    curves = [(curve["collective"], curve["transport"]) for curve in json.loads((folder / "c.json").read_text())["curves"]]
    check(len(set(curves)) == 4, f"curves {curves}")
    report(folder / "c.h5").expect(0)
    calibrate(2, "--transport", "mpi, shm", "--collective", "allreduce", "-b", 8, "-e", 8, "-n", 2).expect(0, "# transport shm")
    calibrate(2, "--transport", "mpi,tcp", "-b", 8, "-e", 8).expect(64, "'tcp' is none of")


def case_bucket_sizes_of_a_run(folder):
    trainer.train(2, "--first-bucket", "8KiB", "--bucket-cap", "64KiB", *trainer.short_run(folder)).expect(0)
    sizes = ["--sizes-from", folder / "run.h5", "-b", 4, "-e", 4, "-n", 2, "--collective", "allreduce-ring", "--transport", "mpi"]
    result = calibrate(2, *sizes, "--cadence", "isolated").expect(0)
    check(sum(int(row[0]) for row in rows(result.out)) >= 61780 * 4 // 2, "LeNet's gradients, each bucket size once")
    calibrate(2, "--sizes-from", folder / "none.h5").expect(66, "none.h5")


def case_what_does_not_fit_is_refused_before_it_runs(folder):
    calibrate(2, "-g", 4).expect(64, "one device")
    calibrate(2, "-d", "half").expect(64, "float32")
    calibrate(2, "-b", "1M", "-e", "1K").expect(64, "first is above the last")


def case_what_does_not_fit_in_memory_is_refused(folder):
    """On a host that says it has 2 GiB left: a gather of 1 GiB on 2 ranks needs 3."""
    meminfo = re.sub(r"(?m)^MemAvailable:.*", "MemAvailable: 2097152 kB", pathlib.Path("/proc/meminfo").read_text())
    (folder / "meminfo").write_text(meminfo)
    in_namespace = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /proc/meminfo && exec "$@"', folder / "meminfo"]
    if subprocess.run([*in_namespace, "true"], capture_output=True).returncode:
        raise Skip("needs root and mount namespaces, to say that memory is short")
    command = mpirun(2) + [BIN / "gradsync-calibrate", "-b", "1G", "-e", "1G", "--collective", "gather"]
    run([*in_namespace, *command]).expect(81, "gather of 1 GiB a rank needs")


def case_trainer_calibrates_before_and_after_and_reads_the_clocks(folder):
    options = ["--calibrate", "--calibration-sizes", "1KiB:4KiB", "--first-bucket", "8KiB", "--bucket-cap", "64KiB"]
    trainer.train(2, *trainer.short_run(folder), *options).expect(0, "Calibration on these ranks", "clocks: drift at most")
    try:
        import h5py
    except ImportError:
        raise Skip("h5py is not installed: make deps") from None
    with h5py.File(folder / "run.h5") as file:
        of_bucket, sizes = file["calibration/of_bucket"][:], file["calibration/bytes"][:]
        check((of_bucket == 0).sum() == 5 * 2 * 3, "five collectives, two cadences, three sizes")
        buckets = set(file["bucket/bytes"][-1]) - {0}
        check(set(sizes[of_bucket == 1]) == buckets, f"sizes of buckets {buckets}")
        check((file["calibration/wrong"][:] == 0).all() and (file["calibration/median"][:] > 0).all(), "values and times")
        check(list(file["clock/when"].asstr()[:]) == ["start", "end"], "readings of the clocks")
        check(file["clock/at"][1] > file["clock/at"][0] and (file["clock/offset"][:, 0] == 0).all(), "clock of rank 0")
        check((file["epoch/peak_memory"][:] > 50e6).all(), "memory with LibTorch loaded")


def case_counterfactual_windows_of_every_mode(folder):
    for mode, kinds in (("none", 3), ("allreduce", 4), ("data-parallel", 4), ("ddp", 5), ("c10d", 5)):
        path = folder / f"{mode}.h5"
        result = trainer.train(2, "--sync", mode, "--batch-per-rank", 16, "--iterations", 4, "--counterfactual", 3,
                               "--counterfactual-rounds", 2, "--output", path)  # fmt: skip
        result.expect(0, "Counterfactual windows", "overlap gain", "cost of measuring")
        check(("overlap gain n/a" in result.out) == (kinds < 5), f"{mode}: {result.out}")
        report(path).expect(0)
        try:
            import h5py
        except ImportError:
            continue
        with h5py.File(path) as file:
            check(file["counterfactual/iteration"].shape == (2 * kinds, 2), f"{mode}: {kinds} kinds in 2 rounds")


def case_counterfactual_leaves_training_as_it_was(folder):
    losses = set()
    for extra in ([], ["--counterfactual", 2, "--counterfactual-rounds", 1, "--calibrate", "--calibration-sizes", "4B:8B"]):
        result = trainer.train(2, "--batch-per-rank", 16, "--iterations", 20, "--log-every", 20, *extra).expect(0)
        losses.add(re.search(r"iteration 20 loss ([\d.]+)", result.out).group(1))
    check(len(losses) == 1, f"losses differ: {losses}")


def case_a_disk_that_is_full_meanwhile_ends_with_74(folder):
    """While the others wait in the next collective, over memory whose end is collective."""
    environment = {"LD_PRELOAD": str(ROOT / "build/tests/libstrike.so"), "STRIKE": "0:write:5+:ENOSPC", "STRIKE_PATH": "run.h5.journal"}
    result = calibrate(2, "--transport", "shm", "-b", 1024, "-e", 4096, "-n", 3, "--timeout", "20s", "--output", folder / "run.h5",
                       environment=environment)  # fmt: skip
    result.expect(74, "run.h5.journal.*No space left on device")
    check(result.seconds < 15, f"{result.seconds:.0f} s")


def prepare(folder) -> None:
    trainer.DATA = synthetic(folder, 2000, 100)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
