#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fuzzing of every parser (tests/fuzz) by libFuzzer, and mutated checkpoints, of which none may be accepted.

usage: fuzz.py [--quick] [--seed N] [--limit-s N] [--seconds N] [TARGET...]

Each target runs for --seconds (600) with AddressSanitizer and UndefinedBehaviorSanitizer, 10 s an input and 1 GiB of memory
at most. What it finds is kept in build/soak/fuzz/found; what it learned in build/soak/fuzz/corpus, for the next time. --quick
leaves libFuzzer out: tests/serial reads the committed corpus.
"""
import argparse
import dataclasses
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).absolute().parents[1] / "e2e")]

import campaign
from crash_oracle import StateReader
from harness import BIN, ROOT, run, synthetic

FUZZER = ROOT / "build/fuzz/fuzz"
READER = ROOT / "build/tests/read_state"
CORPUS = ROOT / "build/tests/corpus"
KEPT = ROOT / "build/soak/fuzz"
INPUT_LIMIT_S, MEMORY_LIMIT_MIB = 10, 1024


@dataclasses.dataclass
class Outcome:
    case: str
    inputs: int = 0
    seconds: float = 0
    peak_mib: int = 0
    failures: list = dataclasses.field(default_factory=list)
    skipped: str = ""

    def line(self) -> str:
        if self.skipped:
            return f"SKIP fuzz: {self.case}: {self.skipped}"
        counts = f"{self.inputs} inputs, {self.seconds:.0f} s"
        if not self.failures:
            return f"PASS fuzz: {self.case} ({counts})"
        return f"FAIL fuzz: {self.case} ({counts}): {len(self.failures)} wrong, the first: {self.failures[0]}".replace("\n", " | ")


# --- libFuzzer -----------------------------------------------------------------------------------


def build() -> dict:
    """What of an Outcome is the same for all targets: nothing where the fuzzer is built."""
    if not shutil.which("clang++"):
        return {"skipped": "needs clang (apt-get install clang libclang-rt-14-dev)"}
    made = subprocess.run(["make", "-s", str(FUZZER.relative_to(ROOT))], cwd=ROOT, capture_output=True, text=True, check=False)
    return {} if made.returncode == 0 else {"failures": [f"the fuzzer does not build: {made.stderr[-300:]}"]}


def fuzz(target: str, seconds: int, seed: int) -> Outcome:
    outcome, corpus, found = Outcome(target), KEPT / "corpus" / target, KEPT / "found"
    corpus.mkdir(parents=True, exist_ok=True)
    found.mkdir(exist_ok=True)
    command = [FUZZER, f"--target={target}", f"-max_total_time={seconds}", f"-timeout={INPUT_LIMIT_S}", f"-rss_limit_mb={MEMORY_LIMIT_MIB}",
               f"-seed={seed}", f"-artifact_prefix={found}/{target}-", "-print_final_stats=1", "-close_fd_mask=1", corpus, CORPUS / target]  # fmt: skip
    result = run(command, timeout=seconds + 120)
    statistics = dict(re.findall(r"stat::(\w+): +(\d+)", result.err))
    outcome.inputs, outcome.peak_mib = int(statistics.get("number_of_executed_units", 0)), int(statistics.get("peak_rss_mb", 0))
    outcome.seconds = result.seconds
    if result.code != 0:
        why = re.search(r"(ERROR: .*|.*runtime error: .*|terminate called.*|.*what\(\):.*)", result.err)
        kept = re.search(r"Test unit written to (\S+)", result.err)
        outcome.failures.append(f"{why.group(1) if why else result.err[-400:]}; the input: {kept.group(1) if kept else 'none'}")
    return outcome


# --- mutated checkpoints -------------------------------------------------------------------------


def mutated(sound: bytes, rng: random.Random) -> bytes:
    content = bytearray(sound)
    at = rng.randrange(len(content))
    # Half of the changes are in the header, which is the smaller part.
    if rng.random() < 0.5:
        at = rng.randrange(min(len(content), 8 + int.from_bytes(content[:8], "little")))
    size = rng.choice((1, 2, 8, 64, 512))
    kind = rng.randrange(8)
    if kind == 0:
        content[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        content[at : at + size] = rng.randbytes(min(size, len(content) - at))
    elif kind == 2:
        del content[at:]
    elif kind == 3:
        del content[at : at + size]
    elif kind == 4:
        content[at:at] = rng.randbytes(size)
    elif kind == 5:
        content[at : at + size] = bytes(min(size, len(content) - at))
    elif kind == 6:  # two parts change places
        other = rng.randrange(len(content))
        low, high = sorted((at, other))
        size = min(size, high - low, len(content) - high)
        content[low : low + size], content[high : high + size] = content[high : high + size], content[low : low + size]
    else:
        content += rng.randbytes(size)
    return bytes(content)


def trained_checkpoint(folder: pathlib.Path) -> bytes:
    data = synthetic(folder, 160, 16)
    run([BIN / "gradsync-train", "--model", "lenet", "--sync", "none", "--data", data, "--evaluate", "none", "--threads", 1, "--device", "cpu",
         "--batch-per-rank", 16, "--iterations", 2, "--checkpoint-every", "end", "--output", folder / "run.h5"]).expect(0)  # fmt: skip
    return next((folder / "run.checkpoints").glob("*.safetensors")).read_bytes()


def refuse_mutated(name: str, sound: bytes, count: int, seed: int, folder: pathlib.Path) -> Outcome:
    start, outcome, rng = time.monotonic(), Outcome(name), random.Random(seed)
    reader = StateReader(READER, folder / name)
    verdict = lambda content: reader.read({"/": None, "a.safetensors": content})["a.safetensors"]  # noqa: E731
    if "refused" in verdict(sound):
        outcome.failures.append("the sound checkpoint is refused")
    while outcome.inputs < count and not outcome.failures:
        content = mutated(sound, rng)
        if content == sound:
            continue
        outcome.inputs += 1
        found = verdict(content)
        if "refused" not in found or found["code"] != 65:
            kept = KEPT / "found" / f"accepted-{seed}-{outcome.inputs}.safetensors"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(content)
            outcome.failures.append(f"not refused as damaged: {kept}: {found}")
    reader.close()
    outcome.seconds = time.monotonic() - start
    return outcome


# --- campaign ------------------------------------------------------------------------------------


def write_results(outcomes: list[Outcome], seed: int) -> None:
    state = lambda o: "not run" if o.skipped else "failed" if o.failures else "passed"  # noqa: E731
    rows = [[o.case, seed, campaign.revision(), o.inputs, round(o.seconds), o.peak_mib or "", len(o.failures), state(o)] for o in outcomes]
    text = [f"# Fuzzing\n\nRevision {campaign.revision()}, seed {seed}; libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer, "
            f"{INPUT_LIMIT_S} s an input and {MEMORY_LIMIT_MIB} MiB at most.\n",
            "| target | inputs | seconds | peak MiB | outcome |\n|---|---:|---:|---:|---|"]  # fmt: skip
    text += [f"| {o.case} | {o.inputs} | {o.seconds:.0f} | {o.peak_mib or ''} | {state(o)} |" for o in outcomes]
    text += ["", *(f"- {o.case}: {failure}" for o in outcomes for failure in [*o.failures, *([o.skipped] if o.skipped else [])])]
    header = ["case", "seed", "revision", "inputs", "seconds", "peak_mib", "failures", "outcome"]
    campaign.write_results("fuzz", header, rows, "\n".join(text))


def cases(arguments, folder: pathlib.Path):
    """Name → function that gives its outcome."""
    small = (CORPUS / "checkpoint/small.safetensors").read_bytes()[1:]
    count = 300 if arguments.quick else 5000
    yield "mutated small checkpoints", lambda: refuse_mutated("mutated small checkpoints", small, count, arguments.seed, folder)
    if not arguments.quick:
        yield "mutated trained checkpoints", lambda: refuse_mutated(
            "mutated trained checkpoints", trained_checkpoint(folder), count, arguments.seed, folder)  # fmt: skip
    if arguments.quick:
        return
    lacking = build()
    for target in sorted(path.name for path in CORPUS.iterdir()):
        yield target, lambda target=target: (
            Outcome(target, **lacking) if lacking else fuzz(target, arguments.seconds, arguments.seed))  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-s", type=float, default=0, help="no case begins later; 0: no limit")
    parser.add_argument("--seconds", type=int, default=600, help="of each target of libFuzzer")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="only these; writes no table")
    arguments = parser.parse_args()
    until_s = time.monotonic() + (arguments.limit_s or 1e9)
    finished = None if arguments.quick else campaign.Finished("fuzz", arguments.seed, arguments.seconds)
    kept = {case: Outcome(**row) for case, row in finished.rows.items()} if finished else {}
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="gradsync-fuzz-") as folder:
        for name, case in cases(arguments, pathlib.Path(folder)):
            if (arguments.targets and name not in arguments.targets) or time.monotonic() > until_s:
                continue
            outcome = kept.get(name) or case()
            print(outcome.line(), flush=True)
            outcomes.append(outcome)
            if finished and name not in kept and not outcome.skipped:
                finished.add(**dataclasses.asdict(outcome))
    if finished and not arguments.targets:
        write_results(outcomes, arguments.seed)
    return 1 if any(outcome.failures for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
