#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that hang, are late or are suspended, and slow disks: who is named, in which time, and what goes through.

usage: hangs.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import harness
from harness import BIN, ENVIRONMENT, ROOT, STRIKE, Failure, Result, Skip, check, end_session, mpirun, rank_pids, run, synthetic

DATA = ""
# Until a job of a few ranks has started on a busy machine, and until a launcher has ended one.
START_S, END_S = 40, 45


def trainer(*arguments) -> list:
    return [BIN / "gradsync-train", "--model", "lenet", "--data", DATA, "--evaluate", "none", "--threads", 1, *arguments]


def train(ranks: int, *arguments, **how) -> Result:
    return run(mpirun(ranks) + trainer(*arguments), **how)


def short_run(folder, *arguments) -> list:
    return ["--batch-per-rank", 16, "--iterations", 8, "--output", folder / "run.h5", *arguments]


def missing(result: Result) -> str:
    found = re.search(r"missing ranks: ([\d, -]+)[;.]", result.err)
    return found.group(1) if found else result.err[-800:]


def named(result: Result, ranks: str, *texts: str) -> None:
    """Ended as a hang by one message that names these ranks and no other."""
    result.expect(86, "hang: ", *texts)
    check(missing(result) == ranks, f"missing ranks {ranks} expected: {result.err[-800:]}")


class Job:
    """A run in the background, in a session of its own, of which nothing is left."""

    def __init__(self, ranks: int, *arguments):
        self.process = subprocess.Popen(
            [str(part) for part in mpirun(ranks) + trainer(*arguments)], env=ENVIRONMENT, cwd=ROOT, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_) -> None:
        end_session(self.process)
        self.process.wait()

    def until_iteration(self, number: int) -> None:
        for line in self.process.stdout:
            found = re.search(r"iteration (\d+) ", line)
            if found and int(found.group(1)) >= number:
                return
        raise Failure(f"ended before iteration {number}: {self.process.stderr.read()[-600:]}")

    def send(self, number: int, ranks=None) -> None:
        for rank, pid in rank_pids(self.process.pid).items():
            if ranks is None or rank in ranks:
                os.kill(pid, number)

    def end(self, timeout: float) -> Result:
        start = time.monotonic()
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"still running after {timeout} s") from None
        code = self.process.returncode
        return Result(code if code >= 0 else 128 - code, out, err, time.monotonic() - start)


SHORT = ["--batch-per-rank", 16]
ENDLESS = ["--batch-per-rank", 8, "--epochs", 100000, "--log-every", 10]


# --- cases: each gets an empty folder ---------------------------------------------------------------


def a_stopped_rank_is_named_alone(folder, *modes_and_transports) -> None:
    for mode, transport in modes_and_transports:
        path = folder / f"{mode}-{transport}.h5"
        result = train(4, "--timeout", "3s", "--sync", mode, "--transport", transport, "--batch-per-rank", 16, "--iterations", 8,
                       "--output", path, "--inject-fault", "stop@1:5")  # fmt: skip
        named(result, "1", "rank 1 .*, process stopped", r"waiting ranks: 0, 2-3\.")
        run([BIN / "gradsync-report", f"{path}.journal", "--plots", "no"]).expect(0)


def case_a_stopped_rank_is_named_alone_by_ddp_and_allreduce(folder):
    a_stopped_rank_is_named_alone(folder, ("ddp", "shm"), ("ddp", "mpi"), ("ddp", "two-level"), ("allreduce", "shm"))


def case_a_stopped_rank_is_named_alone_by_modes_of_the_libraries(folder):
    a_stopped_rank_is_named_alone(folder, ("gather-scatter", "mpi"), ("data-parallel", "mpi"), ("c10d", "mpi"), ("fsdp", "tcp-ring"))


def case_a_stopped_rank_is_named_alone_by_modes_that_send_less(folder):
    a_stopped_rank_is_named_alone(folder, ("powersgd", "shm"), ("top-k", "mpi"), ("local-sgd", "mpi"), ("zero1", "mpi"))


def case_a_stopped_rank_is_named_by_ranks_on_a_device(folder):
    """On the stand-in for GPU and NCCL: the host waits for the numbers of an iteration, or in a launch where the device's queue is full."""
    for name, text in (("ddp with", "hang: barrier number .* of iteration 7"), ("zero1 without", "hang: allgather number .* of iteration 5")):
        case = [ROOT / "build/tests/mpi", "--no-colors", "--no-skip", f"--test-case=hang on a device: {name} room for launches"]
        named(run([*mpirun(3), *case]), "1", text, "rank 1 .*, process stopped", r"waiting ranks: 0, 2\.")


def case_ranks_in_user_namespaces_of_their_own_name_the_option_of_mpi(folder):
    """Open MPI 4 cannot copy between them, and an allreduce of some megabytes never returns."""
    harness.require_open_mpi_4("the single-copy mechanism of vader is a part of")
    container = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*container, "true"], capture_output=True).returncode != 0:
        raise Skip("no user namespaces here (unshare)")
    training = [BIN / "gradsync-train", "--model", "mlp:1024x4", "--data", DATA, "--evaluate", "none", "--sync", "ddp", "--transport",
                "mpi", "--batch-per-rank", 8, "--iterations", 4, "--timeout", "3s"]  # fmt: skip
    result = run(mpirun(2) + [*container, *training, "--output", folder / "hangs.h5"])
    if result.code == 0:
        raise Skip("this Open MPI does not hang there")
    result.expect(86, "hang: allreduce", "different user namespaces", "fix: .*--mca btl_vader_single_copy_mechanism none")
    without = [*harness.launcher(), "--mca", "btl_vader_single_copy_mechanism", "none", "-n", 2]
    run([*without, *container, *training, "--output", folder / "run.h5"]).expect(0)


def case_counts_of_collectives_do_not_drift_apart(folder):
    """Whichever rank posts its last bucket last: after hundreds of iterations all are in the same collective."""
    result = train(4, "--batch-per-rank", 8, "--epochs", 60, "--iterations", 600, "--sync", "ddp", "--transport", "shm", "--timeout", "3s",
                   "--inject-fault", "stop@1:500")  # fmt: skip
    named(result, "1", r"waiting ranks: 0, 2-3\.")


def case_a_stopped_root_is_named_by_the_next_rank(folder):
    result = train(4, "--timeout", "3s", *short_run(folder, "--inject-fault", "stop@0:5"))
    named(result, "0", "rank 1 .*: hang", "rank 0 .*, process stopped")


def case_a_rank_that_leaves_early_is_named(folder):
    named(train(4, "--timeout", "3s", *short_run(folder, "--inject-fault", "leave@1:5")), "1", "rank 1 .*after its last iteration")


def case_a_skipped_collective_hangs_and_is_named(folder):
    named(train(4, "--timeout", "3s", *short_run(folder, "--inject-fault", "skip@1:5")), "1")


def case_the_ranks_that_are_left_report_whichever_are_lost(folder):
    for transport, stopped, text, reporter in (("mpi", (0, 1, 2, 3), "0-3", 4), ("shm", (0, 2, 3, 4, 5), "0, 2-5", 1)):
        with Job(6, *ENDLESS, "--transport", transport, "--timeout", "3s") as job:
            job.until_iteration(20)
            job.send(signal.SIGSTOP, stopped)
            result = job.end(3 + 1 + END_S)
        named(result, text, f"rank {reporter} .*: hang", "process stopped")


def case_a_job_that_is_suspended_and_continued_goes_on(folder):
    for transport in ("mpi", "shm", "tcp-ring"):
        with Job(3, *ENDLESS, "--sync", "allreduce", "--transport", transport, "--timeout", "2s") as job:
            job.until_iteration(20)
            job.send(signal.SIGSTOP)
            time.sleep(5)
            job.send(signal.SIGCONT)
            job.until_iteration(40)
            time.sleep(3)
            job.send(signal.SIGTERM, (1,))
            job.end(START_S).expect(75)


def stopped_in(call: str, rank: int, expected: tuple, folder) -> None:
    """`expected`: exit code and a pattern of the message."""
    code, pattern = expected
    passed_on = ["env", f"LD_PRELOAD={STRIKE}", f"STRIKE={rank}:{call}:STOP"]
    result = run(mpirun(2) + passed_on + trainer("--timeout", "3s", "--start-timeout", "15s", "--io-timeout", "6s", "--transport", "mpi", "--calibrate",
                                                 "--calibration-sizes", "4KiB:4KiB", "--batch-per-rank", 16, "--iterations", 4, "--epochs", 1,
                                                 "--output", folder / f"{call.replace(':', '-')}-{rank}.h5"))  # fmt: skip
    result.expect(code, pattern)
    if code == 86 and "MPI_Finalize" not in pattern:
        check(missing(result) == str(rank), f"{call} on rank {rank}: {result.err[-600:]}")
    check(result.seconds < START_S + 15 + END_S, f"{call} on rank {rank}: {result.seconds:.0f} s")


def case_a_stop_in_any_phase_ends_the_job_by_itself(folder):
    """Before, while and after the watchdog stands; each in a limit of its own."""
    no_start, hang = (69, "MPI has not started in 15 s"), (86, r"hang: .*process stopped")
    stops = [("MPI_Init_thread:1", 1, no_start), ("MPI_Comm_split_type:1", 0, no_start), ("MPI_Allreduce:1", 1, no_start),
             ("MPI_Win_allocate_shared:1", 1, no_start),
             ("MPI_Finalize:1", 1, (86, "MPI has not ended in 15 s .MPI_Finalize"))]  # fmt: skip
    # The root's first calls and the other rank's: agreement, data, devices, transport, clocks, places, calibration …
    for call, calls in (("MPI_Allreduce", (2, 4, 7, 10)), ("MPI_Gather", (1, 2)), ("MPI_Bcast", (2, 4, 9)), ("MPI_Barrier", (3, 6)),
                        ("MPI_Comm_dup", (4,)), ("MPI_Recv", (1,))):  # fmt: skip
        stops += [(f"{call}:{number}", number % 2, hang) for number in calls]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = {pool.submit(stopped_in, *stop, folder): stop[:2] for stop in stops}
        for job in concurrent.futures.as_completed(jobs):
            try:
                job.result()
            except Failure as failure:
                raise Failure(f"{jobs[job]}: {failure}") from None


def case_a_rank_that_stops_before_it_starts_ends_the_job(folder):
    for rank in (0, 1):
        script = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = {rank} ] && kill -STOP $$; exec "$@"'
        result = run(mpirun(2) + ["bash", "-c", script, "bash"] + trainer("--iterations", 2, "--start-timeout", "5s"))
        result.expect(69, f"rank {1 - rank} .*: MPI has not started in 5 s", "--start-timeout")
        check(result.seconds < 5 + 2 + END_S, f"{result.seconds:.0f} s")


def slow_disk(folder, ranks: int, *arguments, **seconds) -> Result:
    """`seconds`: that fsync (checkpoints, run files) or fdatasync (journals) takes."""
    strikes = ",".join(f"0:{call}:1+:sleep={wait_s}" for call, wait_s in seconds.items())
    return run(mpirun(ranks) + ["env", f"LD_PRELOAD={STRIKE}", f"STRIKE={strikes}"] + trainer("--timeout", "2s", *arguments))


def slow_but_no_hang(folder, ranks: int, *arguments, **seconds) -> None:
    slow_disk(folder, ranks, *arguments, "--output", folder / "run.h5", **seconds).expect(0, "run file")
    left = [path.name for path in folder.iterdir() if ".journal" in path.name or ".tmp" in path.name]
    check(not left, f"left: {left}")


def case_a_slow_checkpoint_is_no_hang(folder):
    slow_but_no_hang(folder, 2, "--transport", "mpi", *SHORT, "--iterations", 6, "--checkpoint-every", 5, fsync=4)


def case_a_slow_checkpoint_without_synchronization_is_no_hang(folder):
    slow_but_no_hang(folder, 2, "--sync", "none", *SHORT, "--iterations", 6, "--checkpoint-every", 5, fsync=4)


def case_a_slow_run_file_is_no_hang(folder):
    slow_but_no_hang(folder, 2, "--transport", "shm", *SHORT, "--iterations", 4, fsync=4)


def case_a_slow_journal_is_no_hang(folder):
    """It is synced once a second, by rank 0 alone, while the others begin the next iteration."""
    slow_but_no_hang(folder, 3, "--transport", "mpi", "--batch-per-rank", 64, "--epochs", 20, "--iterations", 30, fdatasync=4)


def case_a_disk_that_is_slower_than_its_limit_is_named(folder):
    result = slow_disk(folder, 2, "--transport", "mpi", *SHORT, "--iterations", 6, "--checkpoint-every", 5, "--io-timeout", "4s",
                       "--output", folder / "run.h5", fsync=12)  # fmt: skip
    named(result, "0", "rank 0 .*: checkpoint, iteration", "checkpoint: limit 4 s", "--io-timeout")


def case_a_rank_that_waits_for_a_lost_reporter_names_it(folder):
    """Rank 0 finds a bad number, and its disk stands while it keeps the rows: the others name it instead of ending with 70."""
    result = slow_disk(folder, 3, *SHORT, "--iterations", 8, "--output", folder / "run.h5", "--io-timeout", "4s", "--inject-fault", "nan@1:5",
                       fdatasync=20)  # fmt: skip
    named(result, "0", "rank 0 .*: journal")


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 8000, 500)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare, at_once=4))
