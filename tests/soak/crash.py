#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Crash consistency: what a power cut may leave of a run is read by the programs and resumed.

usage: crash.py [--quick] [--seed N] [--limit-s N] [--states N]

Real runs are recorded call by call (tests/libraries/file_log.cpp). After every call the states that a crash may leave
(crash_disk.py) are read, and compared with what the run had acknowledged (crash_oracle.py). Of each kind of state some are
resumed with the command that was interrupted, and reported on. As a control the same is done as if fsync did nothing, for
all files and for each kind of file alone: that has to be noticed.

Each run is a case; finished cases are kept in build/soak/crash and not repeated for the same sources, seed and number of
states.
"""
import argparse
import collections
import dataclasses
import hashlib
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).absolute().parents[1] / "e2e")]

import campaign
import crash_runs
from crash_disk import Disk, Record
from crash_oracle import Oracle, StateReader
from harness import BIN, ROOT, Failure, run, synthetic

READER = ROOT / "build/tests/read_state"
FEWEST, MOST = 5, 100  # states at random after one call
IMAGES = 160  # 10 iterations an epoch at 16 images

LOCAL_SGD = crash_runs.of_mode("local-sgd", "--local-steps", 4, "--outer", "nesterov")
RUNS = (crash_runs.one_rank, crash_runs.killed, crash_runs.stopped, crash_runs.back, crash_runs.two_ranks, crash_runs.long,
        crash_runs.grid, crash_runs.of_mode("powersgd"), crash_runs.of_mode("top-k"), crash_runs.of_mode("zero1"), crash_runs.of_mode("fsdp"),
        LOCAL_SGD)  # fmt: skip
QUICK = (crash_runs.killed, crash_runs.grid, LOCAL_SGD)

# As if fsync did nothing: for which files.
CONTROLS = {
    "all files": lambda record: True,
    "journals": lambda record: record.path.endswith(".journal"),
    "checkpoints": lambda record: ".safetensors" in record.path,
    "run files": lambda record: ".h5.tmp" in record.path,
    "folders": lambda record: record.is_folder,
}


@dataclasses.dataclass
class Outcome:
    """What became of one case."""

    case: str
    states: int = 0
    reported: int = 0
    resumed: int = 0
    seconds: float = 0
    failures: list = dataclasses.field(default_factory=list)

    def line(self) -> str:
        counts = f"{self.states} states, {self.reported} reported, {self.resumed} resumed, {self.seconds:.0f} s"
        if not self.failures:
            return f"PASS crash: {self.case} ({counts})"
        return f"FAIL crash: {self.case} ({counts}): {len(self.failures)} wrong, the first: {self.failures[0]}".replace("\n", " | ")


def digest_of(state: dict, acknowledged: tuple) -> bytes:
    digest = hashlib.blake2b(repr(acknowledged).encode(), digest_size=16)
    for path in sorted(state):
        digest.update(path.encode() + b"\0" + hashlib.blake2b(state[path] or b"", digest_size=16).digest())
    return digest.digest()


class Replay:
    """Judges the states after each call of one run."""

    def __init__(self, run_: crash_runs.Run, records: list[Record], root: str, folder: pathlib.Path, rng: random.Random):
        self.run, self.records, self.root, self.folder, self.rng = run_, records, root, folder, rng
        self.seen: set[bytes] = set()
        self.samples: dict[tuple, list] = collections.defaultdict(list)  # kind → states
        self.failures: list[str] = []

    def states(self, wanted: int, stop_at_failure: bool = False) -> int:
        """Judges about so many different states, and returns how many it were."""
        reader = StateReader(READER, self.folder)
        oracle, disk = Oracle(self.run.outputs, self.run.failing, reader), Disk(self.root)
        try:
            for number, record in enumerate(self.records):
                disk.apply(record)
                oracle.follow(record, disk)
                # As many as are missing for this part of the run; where they are few, not after each call.
                due = wanted * (number + 1) / len(self.records) - len(self.seen)
                if record.call == "mark" or due >= FEWEST:
                    self._judge_prefix(number, record, oracle, disk, min(MOST, max(FEWEST, round(due))))
                if stop_at_failure and self.failures:
                    break
        finally:
            reader.close()
        return len(self.seen)

    def _judge_prefix(self, number: int, record: Record, oracle: Oracle, disk: Disk, count: int) -> None:
        for state in [disk.killed(), *disk.crashes(self.rng, count)]:
            digest = digest_of(state, oracle.acknowledged())
            if digest in self.seen:
                continue
            self.seen.add(digest)
            wrong, kind = oracle.judge(state)
            for what in wrong:
                self.failures.append(f"after call {number} ({record.call} {pathlib.Path(record.path).name}): {what}")
            if not wrong:
                self._keep(kind, state)

    def _keep(self, kind: tuple, state: dict) -> None:
        """Up to three of each kind, later ones at random."""
        kept = self.samples[kind]
        if len(kept) < 3:
            kept.append(state)
        elif self.rng.random() < 0.05:
            kept[self.rng.randrange(3)] = state

    def chosen(self, count: int) -> list[dict]:
        """One of each kind, then the second of each, …"""
        in_turn = [kept[i] for i in range(3) for kept in self.samples.values() if i < len(kept)]
        return in_turn[:count]


def make_files(state: dict, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True)
    for path in sorted(state.keys() - {"/"}):
        (folder / path).mkdir() if path.endswith("/") else (folder / path).write_bytes(state[path])


def report(folder: pathlib.Path, state: dict, reader: dict) -> list[str]:
    """gradsync-report reads what the reader reads, and refuses the rest with a message."""
    wrong = []
    for path in (path for path in state if path.endswith((".h5", ".journal"))):
        result = run([BIN / "gradsync-report", folder / path, "--plots", "no"])
        expected = reader[path].get("code", 0)
        if result.code != expected and not (expected == 0 and result.code == 65 and not reader[path]["rows"]):
            wrong.append(f"gradsync-report {path}: exit code {result.code}, not {expected}: {result.err[-300:]}")
    return wrong


def read(folder: pathlib.Path) -> dict:
    result = subprocess.run([READER], input=f"{folder}\n", capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


def resume(run_: crash_runs.Run, folder: pathlib.Path, expected: dict) -> list[str]:
    """The last command again: it completes the run, with the numbers of the run that no crash met."""
    before = read(folder)
    complete = all(before.get(path, {}).get("status") == "complete" and f"{path}.journal" not in before for path in run_.outputs)
    result = run(run_.commands[-1](folder), timeout=300)
    codes = (*run_.again_codes, run_.complete_code) if complete else run_.again_codes
    if result.code not in codes:
        return [f"resumed: exit code {result.code}, not {' or '.join(map(str, codes))}: {result.err[-400:]}"]
    found, wrong = read(folder), []
    for path, rows in run_.outputs.items():
        content = found.get(path, {})
        if content.get("status") != "complete" or len(content["rows"]) != rows:
            wrong.append(f"resumed: {path} is not complete: {str(content)[:200]}")
        elif content["numbers"] != expected[path]["numbers"]:
            wrong.append(f"resumed: {path} has other numbers than the run that was not stopped")
        if f"{path}.journal" in found:
            wrong.append(f"resumed: {path}.journal is still there")
    return wrong


def try_samples(outcome: Outcome, replay: Replay, folder: pathlib.Path, count: int, until_s: float) -> None:
    expected = read(pathlib.Path(replay.root))
    for number, state in enumerate(replay.chosen(count)):
        if time.monotonic() > until_s:
            return
        target = folder / f"sample-{number}" / "files"
        make_files(state, target)
        outcome.failures += report(target, state, read(target))
        outcome.reported += 1
        try:
            outcome.failures += resume(replay.run, target, expected)
        except Failure as failure:
            outcome.failures.append(f"resumed: {failure}")
        outcome.resumed += 1
        shutil.rmtree(target.parent)


def controls(outcome: Outcome, replay: Replay, folder: pathlib.Path, wanted: int) -> None:
    """Without fsync something has to be lost."""
    for name, covers in CONTROLS.items():
        records = [record for record in replay.records if record.call != "sync" or not covers(record)]
        if len(records) == len(replay.records):
            continue
        control = Replay(replay.run, records, replay.root, folder / f"control {name}", random.Random(1))
        control.states(wanted, stop_at_failure=True)
        if not control.failures:
            outcome.failures.append(f"control: without fsync of {name} nothing was lost in {len(control.seen)} states")


def one_case(run_: crash_runs.Run, arguments, states: int, samples: int, until_s: float, with_controls: bool) -> Outcome:
    start, outcome = time.monotonic(), Outcome(run_.name)
    with tempfile.TemporaryDirectory(prefix="gradsync-crash-") as folder:
        folder = pathlib.Path(folder).resolve()
        try:
            records = crash_runs.record(run_, folder / "recorded")
            replay = Replay(run_, records, str(folder / "recorded/files"), folder / "state", random.Random(arguments.seed))
            outcome.states = replay.states(states)
            outcome.failures += replay.failures
            try_samples(outcome, replay, folder, samples, until_s)
            if with_controls:
                controls(outcome, replay, folder, 2000)
        except Exception as error:
            outcome.failures.append(repr(error))
    outcome.seconds = time.monotonic() - start
    return outcome


# --- campaign ------------------------------------------------------------------------------------


def write_results(outcomes: list[Outcome], seed: int) -> None:
    rows = [[o.case, seed, campaign.revision(), o.states, o.reported, o.resumed, round(o.seconds), len(o.failures),
             "failed" if o.failures else "passed"] for o in outcomes]  # fmt: skip
    total = {name: sum(getattr(o, name) for o in outcomes) for name in ("states", "reported", "resumed", "seconds")}
    text = [f"# Crash consistency\n\nRevision {campaign.revision()}, seed {seed}: {total['states']} different states of "
            f"{len(outcomes)} runs read, {total['reported']} of them reported on and {total['resumed']} resumed, "
            f"{total['seconds'] / 60:.0f} minutes.\n",
            "| run | states | reported | resumed | seconds | wrong |\n|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    text += [f"| {o.case} | {o.states} | {o.reported} | {o.resumed} | {o.seconds:.0f} | {len(o.failures)} |" for o in outcomes]
    text += ["", *(f"- {o.case}: {failure}" for o in outcomes for failure in o.failures[:20])]
    text.append("Each run was also replayed as if fsync did nothing, for all files and for journals, checkpoints, run files and "
                "folders alone; each time the loss was noticed." if not any(o.failures for o in outcomes) else "")  # fmt: skip
    header = ["case", "seed", "revision", "states", "reported", "resumed", "seconds", "failures", "outcome"]
    campaign.write_results("crash", header, rows, "\n".join(text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=0, help="no case begins later; 0: no limit")
    parser.add_argument("--states", type=int, default=0, help="different states altogether")
    parser.add_argument("--samples", type=int, help="states of each run to resume")
    parser.add_argument("--verbose", action="store_true", help="print all that is wrong")
    parser.add_argument("--run", default="", help="only runs whose name holds this text")
    arguments = parser.parse_args()
    until_s = time.monotonic() + (arguments.limit_s or 1e9)
    wanted = arguments.states or (600 if arguments.quick else 12_000)
    makers = QUICK if arguments.quick else RUNS
    finished = None if arguments.quick else campaign.Finished("crash", arguments.seed, wanted)
    kept = {case: Outcome(**row) for case, row in finished.rows.items()} if finished else {}
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="gradsync-crash-") as shared:
        data = synthetic(pathlib.Path(shared), IMAGES, 16)
        for run_ in (make(data) for make in makers):
            if arguments.run not in run_.name or time.monotonic() > until_s:
                continue
            samples = arguments.samples if arguments.samples is not None else 4 if arguments.quick else 40
            outcome = kept.get(run_.name) or one_case(run_, arguments, wanted // len(makers), samples, until_s, not arguments.quick or run_.codes[0] == 137)
            print(outcome.line(), flush=True)
            if arguments.verbose:
                print(*(f"  {failure}" for failure in outcome.failures), sep="\n", flush=True)
            outcomes.append(outcome)
            if finished and run_.name not in kept:
                finished.add(**dataclasses.asdict(outcome))
    if finished and not arguments.run:
        write_results(outcomes, arguments.seed)
    return 1 if any(outcome.failures for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
