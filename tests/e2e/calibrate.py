#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradsync-calibrate, and gradsync-train with --calibrate, as programs. Prints PASS, FAIL or SKIP a case.

usage: calibrate.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

import harness
import trainer
from harness import BIN, ROOT, Skip, check, mpirun, run, synthetic
from resume import Job
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
    for size, count, kind, op, root, *placements in table:
        out_of_place, (time_us, algbw, busbw, wrong) = placements[:4], placements[4:]
        check(out_of_place == ["N/A"] * 4, f"all-reduce is in place: {out_of_place}")
        check(int(count) * 4 == int(size) and (kind, op, root, wrong) == ("float", "sum", "-1", "0"), f"row {size}")
        check(abs(float(algbw) - int(size) / float(time_us) / 1e3) < 0.01 * float(algbw) + 0.001, f"algbw of {size}")
        check(algbw == busbw, "on two ranks busbw is algbw")


def superbench(text: str, in_place: bool) -> dict:
    """What SuperBench's nccl-bw reads: the rows between the last line that says out-of-place and the last Out of
    bounds values, by columns counted from the end: the first of a name, or with --in_place the last."""
    lines = text.splitlines()
    first = [n for n, line in enumerate(lines) if "out-of-place" in line][-1]
    table = lines[first + 1 : [n for n, line in enumerate(lines) if "Out of bounds values" in line][-1]]
    titles = next(line[1:].split() for line in table if "time" in line and "busbw" in line)
    place = (lambda name: -1 - titles[::-1].index(name)) if in_place else (lambda name: titles.index(name) - len(titles))
    cells = [line.split() for line in table if re.match(r" *\d", line)]
    return {int(row[titles.index("size")]): [float(row[place(name)]) for name in ("time", "algbw", "busbw")] for row in cells}


def nccl_to_csv(text: str) -> tuple:
    """What nccl_to_csv.py of awsome-distributed-training reads: lines of 13 columns that are numbers, but for N/A as
    #wrong, and the last average."""
    number, wrong = r"\d+\.?\d*", r"(?:\d+|N/A)"
    placement = rf"\s+({number})\s+({number})\s+({number})\s+({wrong})"
    row = rf"\s*(\d+)\s+(\d+)\s+(float|double|int|half)\s+(sum|prod|max|min|none)\s+(-?\d+){placement}{placement}"
    average = re.findall(rf"# Avg bus bandwidth\s*:\s*({number})", text)
    return [found.groups() for found in (re.match(row, line) for line in text.splitlines()) if found], float(average[-1])


def case_parsers_of_nccl_tests_read_the_text(folder):
    asked = ["-b", 1024, "-e", "4K", "-f", 2, "-n", 3, "-w", 1, "-c", 1, "-g", 1, "-G", 0, "-d", "float", "--cadence", "isolated"]
    plain = calibrate(2, *asked, "--collective", "allreduce").expect(0).out
    measured = superbench(plain, in_place=True)
    check(sorted(measured) == [1024, 2048, 4096] and all(min(values[::2]) >= 0 for values in measured.values()), f"{measured}")
    check(not nccl_to_csv(plain)[0], "N/A where all-reduce is not measured")
    for collective in ("allreduce", "broadcast", "reduce", "allgather", "reduce-scatter", "alltoall", "sendrecv"):
        text = calibrate(2, *asked, "--collective", collective, "--unmeasured", "repeat").expect(0, "other columns repeat it").out
        table, average = nccl_to_csv(text)
        check(len(table) == 3 and average >= 0, f"{collective}: {text}")
        values = [[float(cell) for cell in row[5:8]] for row in table]
        for in_place in (False, True):
            check(list(superbench(text, in_place).values()) == values, f"{collective}: SuperBench, in place {in_place}")
    several = calibrate(2, *asked, "--collective", "allreduce,broadcast").expect(0).out
    check(len(superbench(several, in_place=True)) == 3, "the last table")


def case_json_is_nccl_tests(folder):
    calibrate(2, "-b", 1024, "-e", 2048, "-n", 5, "--collective", "alltoall", "--cadence", "isolated", "-J", folder / "c.json").expect(0)
    page = json.loads((folder / "c.json").read_text())
    check(page["version"] == 3 and page["config"]["iterations"] == 5 and page["out_of_bounds"] == {"count": 0, "okay": "true"}, f"{page}")
    check(page["average_bus_bandwidth"]["bandwidth"] >= 0 and page["average_bus_bandwidth"]["okay"] == "unchecked", "average")
    # The rule of nccl-tests' own analyze_perf_json.py: figures of the calls of each placement, found by these names.
    for row in page["results"]:
        calls = row["out_of_place_per_iter"]
        check(row["in_place"] is None and "in_place_per_iter" not in row, "all-to-all is out of place")
        check(row["size"] == 2 * row["bytes_per_rank"] and row["type"] == "float" and row["redop"] == "none", f"{row}")
        check(0 < calls["min_us"] <= calls["p50_us"] <= calls["p95_us"] <= calls["p99_us"] <= calls["max_us"], f"{calls}")
        check(calls["max_us"] / calls["avg_us"] >= 1 and calls["cv_pct"] >= 0, f"{calls}")


def case_types_cycles_and_columns(folder):
    asked = ["-b", 1024, "-e", 1024, "-n", 2, "--collective", "allreduce,reduce-scatter", "--cadence", "isolated"]
    result = calibrate(2, *asked, "-d", "all", "-N", 2, "-a", 1, "-I", 1, "-S", 1, "--output", folder / "c.h5").expect(0, "mean of the ranks")
    table = rows(result.out)
    check([row[2] for row in table[:12:2]] == ["float", "half", "bfloat16", "double", "int8", "int32"], f"{table}")
    check(len(table) == 24 and all(len(row) == 5 + 16 + 2 for row in table), f"{table}")
    check(all(row[8] == "0" or row[16] == "0" for row in table), f"right values: {table}")
    report(folder / "c.h5").expect(0)


def case_expected_bandwidth_is_the_exit_code(folder):
    asked = ["-b", 4096, "-e", 4096, "-n", 2, "--collective", "allreduce", "--cadence", "isolated"]
    calibrate(2, *asked, "--expect", "busbw>=0.000001@4K").expect(0, "Expected bandwidth   : OK")
    result = calibrate(2, *asked, "--expect", "allreduce:busbw>=100000@4K,busbw>=1@1M", "-J", folder / "c.json")
    result.expect(1, "Expected bandwidth   : FAILED", "busbw>=1@1M: not measured FAILED", "2 of 2 expected bandwidths")
    check(json.loads((folder / "c.json").read_text())["average_bus_bandwidth"]["okay"] == "false", "in JSON as well")
    calibrate(2, "--expect", "busbw>5@4K").expect(64, "--expect")
    # The file is on the host of some ranks only: whichever rank lacks it, srun's exit code is of an input that is missing.
    for rank in (0, 1):
        task = {"SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "PMIX_RANK": str(rank)}
        run([BIN / "gradsync-calibrate", "--expect", folder / "none"], environment=task).expect(66, "--expect: .*/none'" if rank == 0 else "rank 1: --expect: .*/none'")


REFRAME_SITE = """
site_configuration = {
    "systems": [{"name": "here", "hostnames": [".*"], "partitions": [
        {"name": "cpu", "scheduler": "local", "launcher": "mpirun", "environs": ["builtin"]}]}],
}
"""


def reframe() -> str:
    beside = pathlib.Path(sys.executable).parent / "reframe"
    found = os.environ.get("REFRAME") or shutil.which("reframe") or (str(beside) if beside.exists() else "")
    if not found:
        raise Skip("ReFrame is not installed: pip install ReFrame-HPC, or REFRAME=/its/bin/reframe")
    return found


def case_reframe_checks_with_references(folder):
    command = [reframe(), "-C", folder / "site.py", "-c", ROOT / "contrib/reframe/gradsync_check.py", "--prefix", folder / "out", "-r",
               "-S", f"bindir={BIN}", "-S", "launcher_options=--oversubscribe --bind-to none", "-S", f"references={folder / 'refs.json'}"]  # fmt: skip
    (folder / "site.py").write_text(REFRAME_SITE)
    small = ["-S", "GradsyncCalibrate.sizes=-b 1K -e 4K -n 5", "-S", "GradsyncTrain.options=--model lenet --sync ddp --iterations 12"]
    both, one = "GradsyncTrain|GradsyncCalibrate.*allreduce", "GradsyncCalibrate.*allreduce"
    # A bandwidth that nothing reaches fails, and on its own system only.
    for system, busbw, chosen, code in (("here:cpu", 0, both, 0), ("here:cpu", 1e6, one, 1), ("elsewhere:cpu", 1e6, one, 0)):
        limits = {"allreduce.busbw": [busbw, 0, None, "GB/s"], "train.iteration": [1e6, None, 0, "ms"]}
        (folder / "refs.json").write_text(json.dumps({system: limits}))
        result = run([*command, *small, "-n", chosen], timeout=300)
        check(result.code == code, f"{system} {busbw}: exit code {result.code}: {result.out[-3000:]}")
        check(("failed to meet reference" in result.out) == bool(code), f"{system}: {result.out[-3000:]}")


def case_one_rank_has_no_bus_bandwidth(folder):
    result = calibrate(1, "-b", 1024, "-e", 1024, "-n", 2).expect(0, "# Avg bus bandwidth    : N/A")
    check(all("0" in row[8:] and row[7] == row[11] == "N/A" for row in rows(result.out)), result)
    check(len(rows(result.out)) == 20, "ten collectives in two cadences")


def case_file_and_json_hold_what_was_printed(folder):
    result = calibrate(2, "-b", "1KiB", "-e", "16KiB", "-n", 3, "--output", folder / "c.h5", "-J", folder / "c.json").expect(0)
    page = json.loads((folder / "c.json").read_text())
    printed = [row[5] if row[5] != "N/A" else row[9] for row in rows(result.out)]
    times = [f"{(row['in_place'] or row['out_of_place'])['time']:.2f}" for curve in page["curves"] for row in curve["results"]]
    check(times == printed, f"{times} printed as {printed}")
    # Over shared memory: the ring is MPI's.
    check(len(page["curves"]) == 18 and len(page["ranks"]) == 2, "curves and ranks")
    check(len(list(folder.glob("c-*.json"))) == 18, "a file for each table")
    report(folder / "c.h5").expect(0)
    calibrate(2, "--output", folder / "c.h5").expect(73, "exists")
    calibrate(2, "-J", folder / "c.json").expect(73, "exists")
    calibrate(2, "-J", folder / "one.h5", "--output", f"{folder}/./one.h5").expect(64, "--output and --json name the same file")
    # One that is left of several is kept as well.
    (folder / "c.json").unlink()
    calibrate(2, "-J", folder / "c.json").expect(73, "/c-[a-z-]+.json' exists")


def case_a_signal_closes_the_file_between_two_rows(folder):
    long = ["-b", 8, "-e", "1M", "-f", 2, "-n", 20000, "--collective", "allreduce"]
    for rank, number in ((0, signal.SIGINT), (1, signal.SIGTERM), (0, signal.SIGHUP)):
        output = folder / f"{number}.h5"
        job = Job.of([*mpirun(2), BIN / "gradsync-calibrate", *long, "--output", output])
        job.wait_until(lambda output=output: pathlib.Path(f"{output}.journal").exists() and job.ranks()[1:])
        for _ in range(12):  # the head and the first rows
            job.process.stdout.readline()
        os.kill(sorted(job.ranks())[rank], number)
        job.end().expect(75, rf"stopped after \d+ rows? \(signal {number.name[3:]}\); '.*' is partial")
        check([path.name for path in folder.iterdir() if path.name.startswith(f"{number}.")] == [output.name], f"left: {list(folder.iterdir())}")
        report(output).expect(0, "partial")
    endless = Job.of([*mpirun(2), BIN / "gradsync-calibrate", "-b", 8, "-e", 8, "-n", 1000000, "--collective", "allreduce", "--cadence", "isolated"])
    endless.wait_until(lambda: endless.ranks()[1:])
    for _ in range(9):  # the head
        endless.process.stdout.readline()
    begin = time.monotonic()
    os.kill(sorted(endless.ranks())[0], signal.SIGTERM)
    endless.end().expect(75, "stopped after 0 rows .signal TERM.")
    check(time.monotonic() - begin < 20, f"{time.monotonic() - begin:.0f} s")
    to_head = shlex.join(map(str, [BIN / "gradsync-calibrate", *long, "--output", folder / "pipe.h5"]))
    run(["bash", "-c", f"{to_head} | head -n 1; exit ${{PIPESTATUS[0]}}"]).expect(75, "signal PIPE", "'.*pipe.h5' is partial")


def case_every_transport_in_one_run(folder):
    asked = ["-b", 1024, "-e", "4K", "-f", 4, "-n", 3, "--cadence", "isolated", "--output", folder / "c.h5", "-J", folder / "c.json"]
    result = calibrate(2, "--transport", "all", "--collective", "allreduce,broadcast", *asked).expect(0, "# transport shm", "# transport mpi", "# transport tcp-ring")
    check(len(rows(result.out)) == 8, "all-reduce over each of three, broadcast once, two sizes")
    curves = [(curve["collective"], curve["transport"]) for curve in json.loads((folder / "c.json").read_text())["curves"]]
    check(len(set(curves)) == 4, f"curves {curves}")
    report(folder / "c.h5").expect(0)
    calibrate(2, "--transport", "mpi, shm", "--collective", "allreduce", "-b", 8, "-e", 8, "-n", 2).expect(0, "# transport shm")
    calibrate(2, "--transport", "mpi,tcp", "-b", 8, "-e", 8).expect(64, "'tcp' is no transport")


def case_bucket_sizes_of_a_run(folder):
    trainer.train(2, "--first-bucket", "8KiB", "--bucket-cap", "64KiB", *trainer.short_run(folder)).expect(0)
    sizes = ["--sizes-from", folder / "run.h5", "-b", 4, "-e", 4, "-n", 2, "--collective", "allreduce-ring", "--transport", "mpi"]
    result = calibrate(2, *sizes, "--cadence", "isolated").expect(0)
    check(sum(int(row[0]) for row in rows(result.out)) >= 61780 * 4 // 2, "LeNet's gradients, each bucket size once")
    calibrate(2, "--sizes-from", folder / "none.h5").expect(66, "none.h5")


def case_what_does_not_fit_is_refused_before_it_runs(folder):
    calibrate(2, "-g", 4).expect(64, "one device")
    calibrate(2, "-d", "fp16").expect(64, "half")
    calibrate(2, "-b", "1M", "-e", "1K").expect(64, "first is above the last")
    calibrate(2, "-f", 1.000000000001).expect(64, "more than 10000 sizes")


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
    trainer.train(2, *trainer.short_run(trainer.folder_for(folder, "zero1")), "--sync", "zero1", "--calibrate").expect(0)
    with h5py.File(folder / "zero1/run.h5") as file:
        of_bucket = file["calibration/of_bucket"][:] == 1
        kinds = set(file["calibration/collective"].asstr()[:][of_bucket])
        check(kinds == {"allgather", "reduce-scatter"}, f"calibrated sizes of zero1's messages: {kinds}")


@harness.alone
def case_a_run_records_what_its_utilization_is_made_from(folder):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    calibrates = ["--calibrate", "--calibration-sizes", "1KiB:1KiB"]
    trainer.train(2, *trainer.short_run(folder), *calibrates).expect(0, "GFLOP/s a rank")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    try:
        import h5py
    except ImportError:
        raise Skip("h5py is not installed: make deps") from None
    with h5py.File(folder / "run.h5") as file:
        # On paper: 2 x outputs x weights of a filter; backward twice that, but for the gradient of the images.
        layers = [2 * 28 * 28 * 6 * 75, 2 * 10 * 10 * 16 * 150, 2 * 400 * 120, 2 * 120 * 84, 2 * 84 * 10]
        check(list(file["layer/forward"][:]) == layers, f"operations of LeNet: {file['layer/forward'][:]}")
        check(list(file["layer/backward"][:]) == [layers[0], *(2 * one for one in layers[1:])], f"{file['layer/backward'][:]}")
        cpu = file["usage/cpu_time"][:]
        check((cpu >= 0).all() and 0 < cpu.sum() <= used, f"{cpu.sum()} s of CPU time in iterations, {used} s in all")
        check((file["usage/voluntary_switches"][:] >= 0).all(), "context switches")
        check((file["probe/flop_per_s"][:] > 1e8).all(), f"probe {file['probe/flop_per_s'][:]}")
        at = file["host/at"][:]
        check(len(at) >= 2 and set(file["host/rank"][:]) == {0} and (at[1:] > at[:-1]).all(), f"samples of the host at {at}")
        check((file["topology/host_processors"][:] == os.cpu_count()).all(), "processors")
        check((file["topology/host_memory"][:] > 1e8).all(), "memory")
    report(folder / "run.h5", "--table", "utilization,layers,hardware").expect(0, "of probe %", "conv1", "memory GiB")
    report(folder / "run.h5", "--table", "energy", "--price-per-hour", 3).expect(0, "cost/epoch")
    result = report(folder / "run.h5", "--table", "energy").expect(0)
    counter = pathlib.Path("/sys/class/powercap/intel-rapl:0/energy_uj")
    check(counter.exists() or "no run with an energy counter" in result.err, result)


def case_calibration_leaves_training_as_it_was(folder):
    losses = set()
    for extra in ([], ["--calibrate", "--calibration-sizes", "4B:8B"]):
        result = trainer.train(2, "--batch-per-rank", 16, "--iterations", 20, "--log-every", 20, *extra).expect(0)
        losses.add(re.search(r"iteration 20 loss ([\d.]+)", result.out).group(1))
    check(len(losses) == 1, f"losses differ: {losses}")


def case_a_disk_that_is_full_meanwhile_ends_with_74(folder):
    """While the others wait in the next collective, over memory whose end is collective."""
    environment = {"LD_PRELOAD": harness.STRIKE, "STRIKE": "0:write:5+:ENOSPC", "STRIKE_PATH": "run.h5.journal"}
    result = calibrate(2, "--transport", "shm", "-b", 1024, "-e", 4096, "-n", 3, "--timeout", "100s", "--output", folder / "run.h5",
                       environment=environment)  # fmt: skip
    result.expect(74, "run.h5.journal.*No space left on device")
    check(result.seconds < 60, f"{result.seconds:.0f} s")


def prepare(folder) -> None:
    trainer.DATA = synthetic(folder, 2000, 100)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
