#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradsync-train on two hosts (network namespaces of this one): what travels between them. Prints PASS, FAIL or SKIP a case.

usage: two_hosts.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import pathlib
import re
import sys
import time

import harness
from harness import BIN, Result, check, run, synthetic
from hosts_harness import TwoHosts

DATA = ""
# Without networks of one host alone, such as Docker's, MPI finds its way; the ring does not read what is set here.
WIRE_FOR_MPI = "btl_tcp_if_include = {}\n"


def trainer(*options, iterations=20) -> list:
    return [BIN / "gradsync-train", "--model", "lenet", "--data", DATA, "--evaluate", "none", "--threads", 1, "--batch-per-rank", 16,
            "--iterations", iterations, "--log-every", 20, *options]  # fmt: skip


def train(hosts: TwoHosts, ranks: tuple, *options, settings="", iterations=20, **how) -> Result:
    return run(hosts.mpirun(trainer(*options, iterations=iterations), ranks, settings), timeout=200, **how)


def loss_after(result: Result) -> str:
    return re.search(r"iteration 20 loss ([\d.]+)", result.expect(0).out).group(1)


def case_two_levels_over_two_hosts_train_the_network_that_mpi_trains(folder):
    """Equal gradients give equal losses, to the digits printed: on nodes of as many ranks, and on others."""
    with TwoHosts(folder) as hosts:
        for ranks, ways in (((2, 2), (("--sync", "allreduce"), ("--sync", "ddp"), ("--sync", "ddp", "--overlap", "step"))),
                            ((2, 1), (("--sync", "ddp"),))):  # fmt: skip
            expected = loss_after(train(hosts, ranks, "--sync", "allreduce", "--transport", "mpi", settings=hosts.on_the_wire()))
            for way in ways:
                result = train(hosts, ranks, *way, "--transport", "two-level", settings=hosts.on_the_wire())
                found = loss_after(result)
                check(found == expected, f"{ranks} {way}: loss {found}, over MPI {expected}")


def case_a_rank_killed_on_the_other_host_ends_the_job(folder):
    with TwoHosts(folder) as hosts:
        for overlap in ("backward", "step"):
            result = train(hosts, (2, 2), "--sync", "ddp", "--overlap", overlap, "--transport", "two-level", "--epochs", 50,
                           "--inject-fault", "kill@3:60", iterations=4000, settings=hosts.on_the_wire())  # fmt: skip
            # Its neighbor may see the connection end before the launcher sees the process end; the launcher may give the signal itself.
            check(result.code in (86, 137, 9) and result.seconds < 60, f"{overlap}: {result.code} after {result.seconds:.0f} s: {result.err[-500:]}")
            if result.code == 86:
                check(f"connection to rank 3 ({hosts.names[1]}) is lost" in result.err, f"{overlap}: {result.err[-500:]}")
            deadline = time.monotonic() + 20
            while (left := hosts.pids(0, "gradsync-train") + hosts.pids(1, "gradsync-train")) and time.monotonic() < deadline:
                time.sleep(0.2)
            check(not left, f"{overlap}: still running: {left}")


def case_a_ring_takes_no_address_that_both_hosts_own(folder):
    """docker0 has one address on all hosts; the networks that lead from host to host are not the same on both."""
    bridge = ("link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0", "link set docker0 up")
    with TwoHosts(folder, ("10.231.77.1/24", "10.231.78.1/24"), bridge, ("route add 10.231.0.0/16 dev wire",)) as hosts:
        (folder / ".openmpi").mkdir()
        (folder / ".openmpi/mca-params.conf").write_text(WIRE_FOR_MPI.format(hosts.networks()))
        result = train(hosts, (1, 1), "--sync", "ddp", environment={"HOME": str(folder)}).expect(0, "tcp-ring")
        check("iteration 20 loss" in result.out, result.out[-300:])


def prepare(folder: pathlib.Path) -> None:
    global DATA
    DATA = synthetic(folder, 8000, 64)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
