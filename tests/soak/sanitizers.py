#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The serial and MPI tests under AddressSanitizer with UndefinedBehaviorSanitizer and leak detection, and the tests of
transports, exchange, watchdog and loader under ThreadSanitizer. Each sanitizer has a copy of the sources and a build of
its own below build/soak/sanitizers. Any finding fails the part. So does a class that two files define differently
(-Wodr, which only a link with -flto can see).

usage: tests/soak/sanitizers.py [--seed N] [--limit-s N] [--only address|thread|odr]

A case that passed on the same sources is not run again.
"""
import argparse
import dataclasses
import functools
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Callable

import campaign
from campaign import ROOT

sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import mpirun  # noqa: E402

STATE = campaign.STATE / "sanitizers"
CASE_LIMIT_S = 3600

# What Open MPI and the C library leave allocated at the end, and code that is not compiled with the sanitizer.
LEAKS = ["leak:libmpi.so", "leak:libopen-pal", "leak:libopen-rte", "leak:libpmix", "leak:libhwloc", "leak:libevent",
         "leak:mca_", "leak:libtorch", "leak:libnvidia", "leak:libcuda"]  # fmt: skip
RACES = ["called_from_lib:libmpi.so", "called_from_lib:libopen-pal.so", "called_from_lib:libopen-rte.so",
         "called_from_lib:libtorch_cpu.so", "called_from_lib:libgomp.so",
         "race:mca_*", "race:ompi_*", "race:opal_*"]  # fmt: skip
FINDING = re.compile(r"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error:")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    ranks: int  # 0: no mpirun
    arguments: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Sanitizer:
    name: str
    flags: str
    options: dict[str, str]
    suppressed_in: str  # of the options: the one whose reader knows the suppressions, which others reject
    suppressions: list[str]
    cases: list[Case]
    targets: tuple[str, ...] = ("build/tests/serial", "build/tests/mpi")


def cases_of(*tests: str) -> tuple[str, ...]:
    return ("--source-file=" + ",".join(f"*{test}_test.cpp" for test in tests),)


SANITIZERS = [
    Sanitizer(
        "address", "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1 -O1",
        # Null for what is too large, as outside the sanitizer: the tests ask for it.
        {"ASAN_OPTIONS": "detect_leaks=1:detect_odr_violation=1:strict_init_order=1:allocator_may_return_null=1",
         "UBSAN_OPTIONS": "print_stacktrace=1", "LSAN_OPTIONS": ""},
        "LSAN_OPTIONS", LEAKS, [Case("serial", 0), *(Case("mpi", ranks) for ranks in (1, 2, 3, 8))],
    ),
    Sanitizer(
        "thread", "-fsanitize=thread -g1 -O1", {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1:history_size=7"}, "TSAN_OPTIONS", RACES,
        [Case("serial", 0, cases_of("data_loader", "shared_all_reduce", "ring_all_reduce", "ring_connection")),
         *(Case("mpi", ranks, cases_of("transports", "exchange", "watchdog")) for ranks in (2, 3))],
    ),
]  # fmt: skip
# What is linked is the test: one definition of everything in each program.
LTO = "-flto -fno-fat-lto-objects -O0 -Wodr -Werror=odr"
ODR = Sanitizer("odr", LTO, {}, "", [], [], ("build/bin/gradsync-report", "build/tests/serial", "build/tests/mpi"))


def build(sanitizer: Sanitizer) -> pathlib.Path:
    tree = STATE / sanitizer.name
    campaign.build(tree, sanitizer.flags, sanitizer.flags, *sanitizer.targets)
    return tree


def linked(tree: Callable) -> tuple[str, str]:
    """Outcome and result of the links with -Wodr."""
    try:
        tree()
    except subprocess.CalledProcessError as error:
        return "failed", f"make exited with {error.returncode}; its messages are above"
    return "passed", f"{', '.join(pathlib.Path(target).name for target in ODR.targets)}: one definition of each class"


def checks(sanitizer: Sanitizer, tree: Callable) -> list[tuple[str, Callable]]:
    """Names, and what runs each. `tree` builds the programs when it is first called."""
    if sanitizer is ODR:
        return [(ODR.name, functools.partial(linked, tree))]
    ranks = lambda case: f" on {case.ranks} ranks" if case.ranks else ""  # noqa: E731
    return [(f"{sanitizer.name} {case.name}{ranks(case)}", functools.partial(run, sanitizer, case, tree)) for case in sanitizer.cases]


def command(case: Case, tree: pathlib.Path) -> list[str]:
    program = [str(tree / "build/tests" / case.name), "--no-colors", *case.arguments]
    return program if case.ranks == 0 else [*map(str, mpirun(case.ranks)), *program]


def run(sanitizer: Sanitizer, case: Case, built: Callable) -> tuple[str, str]:
    """Outcome, and the first finding or the last line of the log."""
    tree = built()
    suppressions = tree / "suppressions"
    suppressions.write_text("\n".join(sanitizer.suppressions) + "\n")
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
                                "OMPI_MCA_mpi_yield_when_idle": "1", "XDG_CONFIG_HOME": "/nonexistent"}  # fmt: skip
    environment |= sanitizer.options
    if case.ranks > 0 and "ASAN_OPTIONS" in environment:
        # Whole stacks: the C library has no frame pointers, and a leak is recognized by the library of MPI that called it. Slow.
        environment["ASAN_OPTIONS"] += ":fast_unwind_on_malloc=0"
    environment[sanitizer.suppressed_in] += f":suppressions={suppressions}:print_suppressions=0"
    log = tree / f"{case.name}-{case.ranks}.log"
    with open(log, "w") as out:
        code = subprocess.run(["timeout", "--kill-after=10", str(CASE_LIMIT_S), *command(case, tree)], cwd=tree, env=environment,
                              stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode  # fmt: skip
    lines = log.read_text(errors="replace").splitlines()
    found = [line for line in lines if FINDING.search(line)]
    counted = [line for line in lines if line.startswith("[doctest] test cases")]
    if found or code != 0 or not counted:
        return "failed", (found or lines[-1:] or ["no output"])[0] + f" (exit code {code}, {log})"
    return "passed", counted[0].removeprefix("[doctest] test cases:").strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="not used: the tests are the same each time")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="start no further case after that time")
    parser.add_argument("--only", choices=[sanitizer.name for sanitizer in [*SANITIZERS, ODR]])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        print("SKIP sanitizers: need builds of their own, 20 min each; make soak PARTS=sanitizers")
        return 0
    start_s, rows, failed = time.monotonic(), [], 0
    finished = campaign.Finished("sanitizers", sources=("tests/",))
    for sanitizer in [ODR, *SANITIZERS]:
        if options.only not in (None, sanitizer.name):
            continue
        tree = functools.cache(functools.partial(build, sanitizer))
        for name, check in checks(sanitizer, tree):
            if name in finished.rows:
                outcome, text = "passed", finished.rows[name]["text"]
            elif time.monotonic() - start_s > options.limit_s:
                outcome, text = "not run", "time limit"
            else:
                outcome, text = check()
            if outcome == "passed" and name not in finished.rows:
                finished.add(name, text=text)
            print(f"{({'passed': 'PASS', 'failed': 'FAIL'}).get(outcome, 'SKIP')} {name}: {text}", flush=True)
            rows.append([name, outcome, text])
            failed += outcome != "passed"
    table = [f"# Sanitizers, revision {campaign.revision()}", "", "| tests | outcome | result |", "|---|---|---|"]
    table += [f"| {name} | {outcome} | {text.replace('|', ',')} |" for name, outcome, text in rows]
    campaign.write_results("sanitizers", ["revision", "case", "outcome", "result"], [[campaign.revision(), *row] for row in rows], "\n".join(table))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
