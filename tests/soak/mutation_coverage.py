# SPDX-License-Identifier: BSD-3-Clause
"""Which test files execute a line, by a build of the tests that records each block of code it executes (tests/libraries/code_coverage.cpp)."""
import bisect
import collections
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from typing import Callable

import campaign
from campaign import ROOT

sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import mpirun  # noqa: E402

TREE = campaign.STATE / "mutation/coverage"
LIBRARY = "build/tests/libcode_coverage.so"
FLAGS = "-fsanitize-coverage=trace-pc -g1 -O0"
# How many lines below a changed one the first block of its statement may begin.
LINES_OF_STATEMENT = 3
# Thousands of damaged files against crashes: too slow to run for each mutant, and they judge no result.
LEFT_OUT = {"mutation_test.cpp", "fuzz_corpus_test.cpp"}
# Of a command, a folder for its log and temporary files, and variables; returns the exit code.
Run = Callable[[list, pathlib.Path, dict], int]


@dataclasses.dataclass(frozen=True)
class Tests:
    """The cases of one test file in one of the programs."""

    file: str
    ranks: int  # 0: serial, without mpirun

    @property
    def program(self) -> str:
        return "build/tests/mpi" if self.ranks else "build/tests/serial"


def start(ranks: int) -> list[str]:
    """What starts a program on so many ranks."""
    return [str(word) for word in mpirun(ranks)] if ranks else []


def all_tests(mpi_ranks: tuple[int, ...]) -> list[Tests]:
    found = []
    for folder, numbers in (("serial", (0,)), ("mpi", mpi_ranks)):
        files = sorted(path.name for path in (ROOT / "tests" / folder).rglob("*_test.cpp") if path.name not in LEFT_OUT)
        found += [Tests(file, ranks) for ranks in numbers for file in files]
    return found


def source_lines(program: pathlib.Path, addresses: list[int]) -> list[tuple[str, int]]:
    """File, from the root, and line of each; the call is in the byte before the address it returns to."""
    numbers = "\n".join(hex(address - 1) for address in addresses)
    out = subprocess.run(["addr2line", "-e", program], input=numbers, text=True, capture_output=True, check=True).stdout
    lines = []
    for line in out.splitlines():
        path, _, number = re.sub(r" \(.*", "", line).rpartition(":")
        lines.append((os.path.relpath(path, TREE) if path.startswith("/") else path, int(number) if number.isdigit() else 0))
    return lines


class Coverage:
    """The tests that execute the lines of each file, and the time each of them takes."""

    def __init__(self, by_file: dict[str, dict[int, set[Tests]]], time_s: dict[Tests, float]):
        self.by_file, self.time_s = by_file, time_s
        self.lines = {file: sorted(lines) for file, lines in by_file.items()}

    def of(self, file: str, line: int) -> set[Tests]:
        """Those of the block that begins at the line or above it, and of the rest of its statement."""
        lines = self.lines.get(file, [])
        first = max(bisect.bisect_right(lines, line) - 1, 0)
        last = bisect.bisect_right(lines, line + LINES_OF_STATEMENT)
        return {tests for number in lines[first:last] for tests in self.by_file[file][number]}

    def of_file(self, file: str) -> set[Tests]:
        """Those of any block of the file: what a constant of its namespace may change."""
        return set().union(*self.by_file.get(file, {}).values())


def executed(tests: Tests, run: Run) -> tuple[list[int], float]:
    """The addresses to which its blocks' calls return, and how long the tests took."""
    folder = TREE / "executed" / f"{tests.file}-{tests.ranks}"
    (folder / "tmp").mkdir(parents=True)
    start_s = time.monotonic()
    run([*start(tests.ranks), TREE / tests.program, f"--source-file=*/{tests.file}"], folder, {"CODE_COVERAGE": str(folder)})
    time_s = time.monotonic() - start_s
    image = folder / pathlib.Path(tests.program).name
    return [match.start() for match in re.finditer(b"\1", image.read_bytes())], time_s


def measure(mpi_ranks: tuple[int, ...], run: Run) -> Coverage:
    """Builds the programs and runs each test file alone."""
    link = f"-Wl,--no-as-needed {TREE / LIBRARY} -Wl,--as-needed"
    campaign.build(TREE, FLAGS, link, LIBRARY)
    campaign.build(TREE, FLAGS, link, "build/tests/serial", "build/tests/mpi")
    shutil.rmtree(TREE / "executed", ignore_errors=True)
    by_file, time_s, line_of = collections.defaultdict(lambda: collections.defaultdict(set)), {}, collections.defaultdict(dict)
    for tests in all_tests(mpi_ranks):
        addresses, time_s[tests] = executed(tests, run)
        known = line_of[tests.program]
        new = [address for address in addresses if address not in known]
        known.update(zip(new, source_lines(TREE / tests.program, new)))
        for file, line in {known[address] for address in addresses}:
            if file.startswith(("src/", "analysis/")):
                by_file[file][line].add(tests)
    return Coverage(by_file, time_s)


def load(mpi_ranks: tuple[int, ...], run: Run) -> Coverage:
    """What was measured on the same sources and tests, or measures it."""
    path = campaign.STATE / "mutation" / f"coverage-{campaign.sources_key('tests/')}.json"
    if not path.exists():
        measured = measure(mpi_ranks, run)
        numbers = {tests: number for number, tests in enumerate(measured.time_s)}
        lines = [[file, line, sorted(numbers[one] for one in tests)] for file, found in measured.by_file.items() for line, tests in found.items()]
        path.write_text(json.dumps({"tests": [[one.file, one.ranks, time_s] for one, time_s in measured.time_s.items()], "lines": lines}))
    content = json.loads(path.read_text())
    tests = [Tests(file, ranks) for file, ranks, _ in content["tests"]]
    by_file = collections.defaultdict(dict)
    for file, line, covering in content["lines"]:
        by_file[file][line] = {tests[number] for number in covering}
    return Coverage(by_file, {Tests(file, ranks): time_s for file, ranks, time_s in content["tests"]})
