#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Mutation testing: the sources are changed in one place at a time, and the tests have to fail.

A mutant is one operator, constant or call of a source file that is changed (RULES). It is compiled, linked into the tests
of the build, and run against them: the test files that execute its line (mutation_coverage.py), those that name its
header first. A mutant whose machine code is that of the original is not counted. Survivors are listed with their line;
those that cannot be detected by any test are in mutation_reviewed.csv, with the reason, and are not counted either.

usage: tests/soak/mutation.py [--count 400] [--seed N] [--limit-s N] [--jobs N] [--only FOLDER_OR_FILE]
"""
import argparse
import csv
import dataclasses
import functools
import hashlib
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.path[:0] = [str(pathlib.Path(__file__).absolute().parents[1] / "e2e")]

import campaign
import mutation_coverage
from campaign import ROOT
from harness import end_session
from mutation_coverage import Coverage, Tests, start

STATE = campaign.STATE / "mutation"
REVIEWED = pathlib.Path(__file__).with_name("mutation_reviewed.csv")
FOLDERS = ["src/stats", "src/record", "src/comm", "src/exchange", "src/transport", "src/sync",
           "src/checkpoint", "src/sweep",
           "analysis/figures", "analysis/model", "analysis/verdict"]  # fmt: skip
# Nothing calls the first two without a GPU, and whole programs are run by tests/e2e, which takes too long for each mutant.
LEFT_OUT = {"src/machine/cuda_mpi.cpp", "src/sync/c10d_nccl_torch.cpp", "src/sweep/main.cpp"}
GOAL = 0.85
# Tests of a mutant are stopped after so many times their time in the coverage run, which is slower, and so many seconds more.
LIMIT_RATIO, LIMIT_MORE_S = 1, 30
ALL_TESTS_LIMIT_S = 900
MPI_RANKS = (2, 4)
UNDETECTED = ("survived", "not executed")

# Name, what is matched in code without comments and texts, and what replaces it. clang-format puts spaces around
# binary operators alone, never around those of templates, pointers and references.
RULES = [
    ("relation", r"(?<= )(<=|>=|<|>|==|!=)(?= )", {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}),
    ("arithmetic", r"(?<= )(\+|-|\*|/|%)(?= )", {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/"}),
    ("assignment", r"(?<= )(\+=|-=|\*=)(?= )", {"+=": "-=", "-=": "+=", "*=": "/="}),
    ("logic", r"(?<= )(&&|\|\|)(?= )", {"&&": "||", "||": "&&"}),
    ("not", r"!(?=[A-Za-z_(])", {"!": ""}),
    ("truth", r"\b(true|false)\b", {"true": "false", "false": "true"}),
    ("extreme", r"\bstd::(min|max)\b(?=[(<])", {"std::min": "std::max", "std::max": "std::min"}),
    ("constant", r"(?<![\w.\"'])\d+(?![\w.'])", None),
    ("call", r"(?m)^ +(?!return|throw|co_)[A-Za-z_][\w.:>-]*\([^;{}]*\);$", None),
]


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    begin: int
    rule: str
    old: str
    new: str
    line: int

    def key(self, source: str) -> str:
        text = f"{source}\0{self.file}\0{self.begin}\0{self.new}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def code_only(text: str) -> str:
    """The text with comments, literals of text and preprocessor lines blanked out, each character where it was."""
    pattern = r'R"\(.*?\)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|(?m:^#[^\n]*)'
    return re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found.group()), text, flags=re.S)


def replacement(rule: str, table: dict | None, old: str) -> str:
    if table is not None:
        return table[old]
    return str(int(old) + 1) if rule == "constant" else re.sub(r"\S.*", ";", old, flags=re.S)


def mutants_of(file: str) -> list[Mutant]:
    text = (ROOT / file).read_text()
    code = code_only(text)
    found = []
    for rule, pattern, table in RULES:
        for match in re.finditer(pattern, code):
            old = text[match.start() : match.end()]
            if rule == "call" and code[: match.start()].rstrip()[-1:] not in "{};":
                continue  # the rest of a statement that began above
            new = replacement(rule, table, old)
            found.append(Mutant(file, match.start(), rule, old, new, text.count("\n", 0, match.start()) + 1))
    return found


def sample(count: int, seed: int, only: str | None) -> list[Mutant]:
    """As many of each folder as its share of all mutants asks for, in an order that the seed gives."""
    by_folder = {}
    for folder in FOLDERS:
        files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob("*.cpp"))
        files = [file for file in files if file not in LEFT_OUT and (not only or file.startswith(only))]
        by_folder[folder] = [mutant for file in files for mutant in mutants_of(file)]
    total = sum(map(len, by_folder.values()))
    chosen = []
    for folder, mutants in by_folder.items():
        generator = random.Random(f"{seed} {folder}")
        chosen += generator.sample(mutants, min(len(mutants), round(count * 1.3 * len(mutants) / max(total, 1))))
    random.Random(seed).shuffle(chosen)
    return chosen


def command_for(target: str, file: str, last: str) -> list[str]:
    """What make would run for `target` if `file` had changed: the last command that names `last`."""
    out = subprocess.run(["make", "-n", "V=1", "-W", file, target], cwd=ROOT, text=True, capture_output=True, check=True)
    lines = [line for line in out.stdout.replace("\\\n", " ").splitlines() if last in line and "g++" in line]
    return shlex.split(lines[-1]) if lines else []


def with_output(command: list[str], output: pathlib.Path) -> list[str]:
    changed = list(command)
    changed[changed.index("-o") + 1] = str(output)
    return [part for part in changed if part not in ("-MMD", "-MP")]


class Commands:
    """How a file is compiled and its tests are linked; asked of make once each."""

    def __init__(self):
        self.known = {}

    def of(self, target: str, file: str, last: str) -> list[str]:
        key = (target, file if last == file else "")
        if key not in self.known:
            self.known[key] = command_for(target, file, last)
        return self.known[key]

    def compile(self, file: str) -> list[str]:
        return self.of(object_of(file), file, f"-c {unity_of(file)}")

    def link(self, program: str) -> list[str]:
        if program not in self.known:
            self.known[program] = command_for(program, "src/base/error.cpp", f"-o {program}")
        return self.known[program]


@functools.cache
def unity_of(file: str) -> str:
    """What make compiles it with: a file of includes. Those of an earlier division of its folder may be there, too."""
    linked = {name for class_ in ("plain", "mpi", "torch", "report") for name in members(f"build/{class_}.a")}
    files = [path for path in (ROOT / "build/unity" / file).parent.glob("*.cpp") if f'"{file}"' in path.read_text()]
    return next(name for name in (str(path.relative_to(ROOT)) for path in files) if name.removesuffix(".cpp") + ".o" in linked)


def object_of(file: str) -> str:
    return unity_of(file).removesuffix(".cpp") + ".o"


@functools.cache
def members(archive: str) -> list[str]:
    """Of a thin archive, from the root."""
    listed = subprocess.run(["ar", "t", archive], cwd=ROOT, text=True, capture_output=True, check=True).stdout.split()
    return [os.path.relpath(ROOT / name, ROOT) for name in listed]


def run(command: list, folder: pathlib.Path, variables: dict | None = None, limit_s: float = ALL_TESTS_LIMIT_S) -> int:
    """The exit code; 124 after the limit. Nothing of it is left behind."""
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": "/nonexistent",
        "TMPDIR": str(folder / "tmp")} | (variables or {})  # fmt: skip
    with open(folder / "log", "w") as log:
        process = subprocess.Popen([str(part) for part in command], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)  # fmt: skip
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = 124
        end_session(process)
        process.wait()
    return code


def nearest_tests(file: str) -> list[str]:
    """The test files that include the header of `file`."""
    header = file.removesuffix(".cpp").removeprefix("src/") + ".h"
    tests = sorted((ROOT / "tests").rglob("*_test.cpp"))
    return [path.name for path in tests if f'"{header}"' in path.read_text()]


def test_sets(mutant: Mutant, coverage: Coverage) -> list[list[Tests]]:
    """What to run one after the other, the quickest to detect a mutant first: test files of one program and number of ranks."""
    in_function = (ROOT / mutant.file).read_text().splitlines()[mutant.line - 1].startswith(" ")
    covering = coverage.of(mutant.file, mutant.line) if in_function else coverage.of_file(mutant.file)
    near = nearest_tests(mutant.file)
    sets = []
    for chosen in ([tests for tests in covering if tests.file in near], [tests for tests in covering if tests.file not in near]):
        for ranks in (0, *MPI_RANKS):
            sets.append(sorted((tests for tests in chosen if tests.ranks == ranks), key=lambda tests: tests.file))
    return [one for one in sets if one]


def detected_by(tests: list[Tests], program: pathlib.Path, coverage: Coverage, folder: pathlib.Path) -> str:
    """The name of the tests that fail, or "". With several ranks a failure has to be seen twice: they depend on time."""
    ranks = tests[0].ranks
    files = "--source-file=" + ",".join(f"*/{one.file}" for one in tests)
    limit_s = LIMIT_RATIO * sum(coverage.time_s[one] for one in tests) + LIMIT_MORE_S
    name = f"mpi-{ranks}" if ranks else "serial"
    for _ in range(2 if ranks else 1):
        code = run([*start(ranks), program, "--abort-after=1", files], folder, limit_s=limit_s)
        if code == 0:
            return ""
        if code == 124:
            return f"{name}, time limit"
    return name


def judge(mutant: Mutant, commands: Commands, coverage: Coverage, folder: pathlib.Path) -> str:
    """not compiled, equivalent, not executed, survived, or what has detected it."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    text = (ROOT / mutant.file).read_text()
    source, unity, changed = folder / "mutant.cpp", folder / "unity.cpp", folder / "changed.o"
    original = folder / f"original-{hashlib.sha256(text.encode()).hexdigest()[:16]}.o"
    end = mutant.begin + len(mutant.old)
    compile_command = commands.compile(mutant.file)
    for content, output in ((text, original), (text[: mutant.begin] + mutant.new + text[end:], changed)):
        if output == original and original.exists():
            continue
        source.write_text(content)
        unity.write_text((ROOT / unity_of(mutant.file)).read_text().replace(f'"{mutant.file}"', f'"{source}"'))
        command = with_output(compile_command, output)
        command[command.index("-c") + 1] = str(unity)
        if run(command, folder) != 0:
            return "not compiled"
    if original.read_bytes() == changed.read_bytes():
        return "equivalent"
    sets = test_sets(mutant, coverage)
    for name in sorted({one[0].program for one in sets}):
        link = commands.link(name)
        # Before the archive, so that the linker does not take the original from it.
        first = next(i for i, part in enumerate(link) if part.endswith(".o"))
        if run(with_output([*link[:first], str(changed), *link[first:]], folder / pathlib.Path(name).name), folder) != 0:
            return "not compiled"
    for tests in sets:
        name = detected_by(tests, folder / pathlib.Path(tests[0].program).name, coverage, folder)
        if name:
            return f"detected by {name}"
    return "survived" if sets else "not executed"


def require_passing_tests(folder: pathlib.Path) -> None:
    """The control: without a mutant nothing fails."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    for ranks in (0, *MPI_RANKS):
        program = Tests("", ranks).program
        if run([*start(ranks), ROOT / program], folder) != 0:
            sys.exit(f"mutation: {program} fails on {ranks or 1} ranks without a mutant; {folder / 'log'}")


def read_outcomes(path: pathlib.Path) -> dict[str, str]:
    """Of earlier runs. What other tests than those of today did not detect is not known."""
    if not path.exists():
        return {}
    with open(path) as file:
        rows = [row for row in csv.reader(file) if len(row) == 3]
    return {key: outcome for key, outcome, tests in rows if outcome not in UNDETECTED or tests == campaign.sources_key("tests/")}


def reviewed() -> set[tuple[str, str, str]]:
    if not REVIEWED.exists():
        return set()
    with open(REVIEWED) as file:
        return {(row["file"], row["code"], row["change"]) for row in csv.DictReader(file)}


def code_line(mutant: Mutant) -> str:
    return (ROOT / mutant.file).read_text().splitlines()[mutant.line - 1].strip()


def change_text(mutant: Mutant) -> str:
    return f"{mutant.old.strip()} -> {mutant.new.strip() or 'nothing'}"


def write_results(rows: list[tuple[Mutant, str]], seed: int) -> float:
    """The table of this run; returns the share of detected mutants."""
    known = reviewed()
    counted, table = [], []
    for mutant, outcome in sorted(rows, key=lambda row: (row[0].file, row[0].begin)):
        if outcome in UNDETECTED and (mutant.file, code_line(mutant), change_text(mutant)) in known:
            outcome = "reviewed: not detectable"
        table.append([mutant.file, mutant.line, mutant.rule, change_text(mutant), code_line(mutant), outcome])
        if outcome in UNDETECTED or outcome.startswith("detected"):
            counted.append((mutant, outcome))
    lines = [f"# Mutation testing of {campaign.revision()}, seed {seed}", "", "| folder | mutants | detected | share |", "|---|--:|--:|--:|"]
    for folder in [*FOLDERS, ""]:
        inside = [outcome for mutant, outcome in counted if mutant.file.startswith(folder)]
        detected = sum(outcome not in UNDETECTED for outcome in inside)
        if inside:
            lines.append(f"| {folder or '**all**'} | {len(inside)} | {detected} | {100 * detected / len(inside):.0f} % |")
    lines += ["", "Not counted: mutants that do not compile, that give the same machine code, or that no test can detect "
              "(tests/soak/mutation_reviewed.csv).", "", "Survivors:", ""]  # fmt: skip
    lines += [f"- `{m.file}:{m.line}` {m.rule}, `{change_text(m)}`: `{code_line(m)}` ({outcome})" for m, outcome in counted if outcome in UNDETECTED]
    campaign.write_results("mutation", ["file", "line", "rule", "change", "code", "outcome"], table, "\n".join(lines))
    return sum(outcome not in UNDETECTED for _, outcome in counted) / max(len(counted), 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="mutants that compile and differ (default: 400)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="start no further mutant after that time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", help="a folder or the beginning of a file's path")
    parser.add_argument("--quick", action="store_true", help="nothing: mutation testing has no quick subset")
    options = parser.parse_args()
    if options.quick:
        print("SKIP mutation: has no quick subset; make soak PARTS=mutation")
        return 0
    STATE.mkdir(parents=True, exist_ok=True)
    outcomes_file = STATE / "outcomes.csv"
    outcomes = read_outcomes(outcomes_file)
    commands, start_s = Commands(), time.monotonic()
    require_passing_tests(STATE / "control")
    coverage = mutation_coverage.load(MPI_RANKS, run)
    rows: list[tuple[Mutant, str]] = []

    def done() -> int:
        return sum(outcome in UNDETECTED or outcome.startswith("detected") for _, outcome in rows)

    def one(numbered: tuple[int, Mutant]) -> None:
        worker, mutant = numbered
        key = mutant.key((ROOT / mutant.file).read_text())
        if key not in outcomes:
            if done() >= options.count or time.monotonic() - start_s > options.limit_s:
                return
            outcomes[key] = judge(mutant, commands, coverage, STATE / f"worker-{worker}")
            with open(outcomes_file, "a") as file:
                csv.writer(file, lineterminator="\n").writerow([key, outcomes[key], campaign.sources_key("tests/")])
            print(f"{done() + 1:4} {mutant.file}:{mutant.line} {change_text(mutant)}: {outcomes[key]}", flush=True)
        rows.append((mutant, outcomes[key]))

    chosen = sample(options.count, options.seed, options.only)
    for mutant in chosen:  # make is asked before the workers begin
        commands.compile(mutant.file)
    queues = [[(worker, mutant) for mutant in chosen[worker :: options.jobs]] for worker in range(options.jobs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda queue: [one(entry) for entry in queue], queues))
    share = write_results(rows, options.seed)
    fine = share >= GOAL and done() >= options.count
    print(f"{'PASS' if fine else 'FAIL'} mutation: {done()} of {options.count} mutants, {100 * share:.1f} % detected (target 85 %)")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
