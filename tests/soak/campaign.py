# SPDX-License-Identifier: BSD-3-Clause
"""What the parts of the soak campaign share: which cases are finished, and the files of results/soak."""
import csv
import functools
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).absolute().parents[2]
STATE = ROOT / "build/soak"
RESULTS = ROOT / "results/soak"
# What a finished case depends on: the programs, and what injects, records and judges.
SOURCES = ("src/", "analysis/", "tests/soak/", "tests/libraries/", "tests/fuzz/", "Makefile")
# What a build of its own and its tests need.
BUILT_FROM = ("src/", "analysis/", "tests/", "config/", "jobs/", "slurm/", "results/", "docs/", "bench/", "Makefile", "README")


@functools.cache
def revision() -> str:
    """Of the checkout, for tables."""
    described = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True, check=False)
    return described.stdout.strip() or "unknown"


@functools.cache
def committed_files() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return tuple(file for file in listed.split("\0") if file and (ROOT / file).is_file())


@functools.cache
def sources_key(*more: str) -> str:
    """Changes with the content of SOURCES, and of what else is given; not with results, docs and other tests."""
    digest = hashlib.sha256()
    for file in committed_files():
        if file.startswith((*SOURCES, *more)):
            digest.update(file.encode() + b"\0" + (ROOT / file).read_bytes())
    return digest.hexdigest()[:16]


def build(tree: pathlib.Path, compile_flags: str, link_flags: str, *targets: str) -> None:
    """Makes `targets` in a copy of the sources. Copies what has changed, so that make compiles no more than that."""
    files = [file for file in committed_files() if file.startswith(BUILT_FROM)]
    tree.mkdir(parents=True, exist_ok=True)
    wanted = {tree / file for file in files}
    for folder in {file.split("/")[0] for file in files if "/" in file}:
        for path in (tree / folder).rglob("*"):
            if path.is_file() and path not in wanted:
                path.unlink()
    subprocess.run(["xargs", "-0", "cp", "-u", "-p", "--parents", "-t", str(tree)], cwd=ROOT, input="\0".join(files), text=True, check=True)
    subprocess.run(["make", f"-j{os.cpu_count()}", f"CXXFLAGS={compile_flags}", f"LDFLAGS={link_flags}", *targets], cwd=tree, check=True,
                   stdout=sys.stderr)  # fmt: skip


class Finished:
    """Results of finished cases, one JSON line each, kept for the same sources and the same `setting`. Threads may share it."""

    def __init__(self, part: str, *setting, sources: tuple = ()):
        (STATE / part).mkdir(parents=True, exist_ok=True)
        self.path = STATE / part / f"{'-'.join([sources_key(*sources), *map(str, setting)])}.jsonl"
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.rows = {row["case"]: row for row in map(json.loads, lines)}
        self.lock = threading.Lock()

    def add(self, case, **result) -> None:
        with self.lock, open(self.path, "a") as file:
            self.rows[case] = {"case": case, **result}
            file.write(json.dumps(self.rows[case]) + "\n")


def write_results(part: str, header: list, rows: list, text: str) -> None:
    """results/soak/PART.csv and PART.md."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with open(RESULTS / f"{part}.csv", "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)
    (RESULTS / f"{part}.md").write_text(text.rstrip() + "\n")
