# SPDX-License-Identifier: BSD-3-Clause
"""What the parts of the benchmark share: contenders in turn, ratios with their spread, tables, goals, pictures.

Every figure is a ratio of two contenders of the same round: on a shared machine times drift, ratios much less. A ratio is
given as its median over the rounds with the lowest and the highest.
"""
import csv
import dataclasses
import datetime
import os
import pathlib
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
from typing import Callable

ROOT = pathlib.Path(__file__).absolute().parents[2]
BIN = ROOT / "build/bin"
RESULTS = ROOT / "results/bench"
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
               "OMPI_MCA_btl_base_warn_component_unused": "0", "GRADSYNC_SITE": "/dev/null"}  # fmt: skip


# What gradsync-train sets for itself (tune_allocation): peers are given it too, where they are shown at their best.
TUNED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "2147483647", "MALLOC_TRIM_THRESHOLD_": "2147483647", "MALLOC_TOP_PAD_": "67108864",
                "THP_MEM_ALLOC_ENABLE": "1"}


class Unavailable(Exception):
    """Why a contender or a part cannot run on this machine."""


def detected(name: str) -> str:
    """What `make` found on this machine."""
    found = re.search(rf"^{name} *:?= *(.*)$", (ROOT / "build/config.mk").read_text(), re.M)
    return found.group(1).strip() if found else ""


MPIRUN = detected("MPIRUN") or "mpirun"
TORCH_PYTHON = detected("TORCH_PYTHON")


def mpirun(ranks: int) -> list:
    """The same binding for every contender: a core a rank where there are enough."""
    enough = ranks <= len(os.sched_getaffinity(0))
    return [MPIRUN, "-n", ranks, "--oversubscribe", "--bind-to", "core" if enough else "none"]


# A command that has not ended hangs: the longest take a quarter of an hour on slow cores.
LONGEST_S = 3600


def run(command: list, environment: dict | None = None, timeout: float = LONGEST_S) -> str:
    """Standard output of a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, cwd=ROOT,
                          env=os.environ | ENVIRONMENT | (environment or {}))  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    return done.stdout


def torch_python() -> str:
    if not TORCH_PYTHON or not pathlib.Path(TORCH_PYTHON).exists():
        raise Unavailable("no Python with PyTorch (make deps)")
    return TORCH_PYTHON


# --- contenders ---------------------------------------------------------------------------------------


def interleave(contenders: dict[str, Callable], rounds: int) -> dict[str, list]:
    """Runs every contender once a round, in an order of its own each round. A list of results for each, one a round;
    a contender that says Unavailable is left out, with its reason printed."""
    order, results, shuffle = list(contenders), {name: [] for name in contenders}, random.Random(1)
    for number in range(1, rounds + 1):
        shuffle.shuffle(order)
        for name in list(order):
            print(f"  round {number} of {rounds}: {name}", flush=True)
            try:
                results[name].append(contenders[name]())
            except Unavailable as reason:
                print(f"SKIP {name}: {reason}", flush=True)
                order.remove(name)
                del results[name]
    return results


@dataclasses.dataclass
class Ratio:
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} [{self.low:.3g}, {self.high:.3g}]"


def ratio(upper: list[float], lower: list[float]) -> Ratio:
    """upper / lower, round by round."""
    each = [a / b for a, b in zip(upper, lower)]
    return Ratio(statistics.median(each), min(each), max(each))


def best_of(results: dict[str, list], names: list[str]) -> list[float]:
    """The fastest of some contenders, round by round."""
    return [min(times) for times in zip(*(results[name] for name in names))]


# --- what comes out -----------------------------------------------------------------------------------


def first_line(command: list) -> str:
    try:
        return run(command).splitlines()[0]
    except (OSError, RuntimeError, IndexError):
        return "unknown"


def machine() -> list[str]:
    model = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    torch = "none"
    if TORCH_PYTHON and pathlib.Path(TORCH_PYTHON).exists():
        torch = first_line([TORCH_PYTHON, "-c", "import torch; print(torch.__version__)"])
    return [f"machine: {model.group(1) if model else platform.machine()}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}",
            f"versions: {first_line([BIN / 'gradsync-train', '--version'])}; {first_line([MPIRUN, '--version'])}; PyTorch {torch}"]  # fmt: skip


class Part:
    """One part of the benchmark, or a share `of` one: its tables and goals, printed and written to results/bench/<name>.*"""

    def __init__(self, name: str, title: str, of: str | None = None):
        self.name, self.began = name, os.getloadavg()[0]
        stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        # With arguments it was started by itself; where its data lay on this machine matters to nobody.
        words = [word for before, word in zip(["", *sys.argv[1:]], sys.argv[1:]) if not {word, before} & {"--data", "--runs"}]
        command = f"bench/suite/{pathlib.Path(sys.argv[0]).name} {' '.join(words)}" if words else f"make bench PARTS={of or name}"
        self.lines = [title, *machine(), f"measured: {stamp}, load of the machine before: {self.began:.1f}", f"command: {command}", ""]
        RESULTS.mkdir(parents=True, exist_ok=True)

    def table(self, header: list[str], rows: list[list], name: str | None = None) -> None:
        """Prints it, and writes it as CSV."""
        texts = [header] + [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
        widths = [max(len(row[i]) for row in texts) for i in range(len(header))]
        for row in texts:
            self.lines.append("  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip())
        self.lines.append("")
        with open(RESULTS / f"{name or self.name}.csv", "w", newline="") as file:
            csv.writer(file).writerows(texts)

    def goal(self, what: str, value: float, limit: float, at_most: bool = False) -> None:
        met = value <= limit if at_most else value >= limit
        self.lines.append(f"{'reached' if met else 'MISSED '}  {what}: {value:.3g} (goal: {'at most' if at_most else 'at least'} {limit:g})")

    def note(self, text: str) -> None:
        self.lines.append(text)

    def plot(self, script: str, name: str | None = None) -> None:
        """A picture by gnuplot; the script reads the CSV files of this folder."""
        picture = f"{name or self.name}.svg"
        head = f"set terminal svg size 900,560 font 'sans,14' background 'white'\nset output '{picture}'\nset datafile separator ','\nset grid\n"
        try:
            subprocess.run(["gnuplot"], input=head + script, text=True, check=True, cwd=RESULTS)
        except FileNotFoundError:
            print(f"SKIP {picture}: no gnuplot (apt-get install gnuplot-nox)")

    def finish(self) -> None:
        text = "\n".join(self.lines) + "\n"
        (RESULTS / f"{self.name}.txt").write_text(text)
        print(text, end="", flush=True)


def main(body: Callable[[], None]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, by which links and clusters end
    try:
        body()
    except Unavailable as reason:
        print(f"SKIP {pathlib.Path(sys.argv[0]).stem}: {reason}")
