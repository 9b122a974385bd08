#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fault campaign: one fault in each job, in a phase, on a rank, and what follows held against the documentation.

usage: faults.py [--quick] [--seed N] [--count N] [--limit-s N] [--jobs N] [--only KEY=VALUE,…] [--number N] [--program NAME]

  --quick    24 injections in gradsync-train, and three of each fault in each phase of gradsync-calibrate, on one node; prints PASS, FAIL
             and SKIP
  --count    injections of the whole campaign (2000), all in gradsync-train
  --only     draws from phase=…, fault=…, launcher=… alone
  --number   this injection alone, of the quick ones with --quick; what a failed one leaves is in build/soak/faults/failed-PROGRAM-NUMBER

State of the whole campaign: build/soak/faults, a line an injection; those of the same sources and seed are not repeated.
Results of the whole campaign: results/soak/faults.md, and faults.csv with those that did not end as documented. Needs mpirun and the programs; root and Slurm for links and nodes.
"""
import argparse
import concurrent.futures
import pathlib
import shutil
import signal
import sys
import threading
import time
from collections import Counter

import campaign
import faults_nodes
from faults_cases import CHECKPOINT_EVERY, EPOCHS, LINKS, LOST, WHERE, Cell, Injection, draw_injection, pairs, strike
from faults_job import BIN, ROOT, STRIKE, STRUCK, Ended, Job, preloaded
from faults_oracle import NODE_LOST_S, errors_of, errors_of_files, errors_of_folder, hard_limit_s, pause_s
from harness import Failure, Skip, mpirun, synthetic

FOLDER = ROOT / "build/soak/faults"
COLUMNS = ("number", "seed", "revision", "program", "phase", "fault", "where", "mode", "transport", "ranks", "rank", "launcher", "code", "resumed",
           "told_s", "seconds", "outcome")  # fmt: skip
FULL, QUICK_TRAIN, QUICK_EACH, QUICK_JOBS = 2000, 24, 3, 4
AS_DOCUMENTED = "as documented"
LIMITS = ("timeout", "start-timeout", "io-timeout")
LAUNCHERS = {"mpirun": lambda ranks: [part for part in mpirun(ranks) if part != "--quiet"], "srun": faults_nodes.srun,
             "mpirun over nodes": faults_nodes.mpirun_over_nodes}  # fmt: skip


class Jobs:
    """Runs injections; keeps references and the data set in its folder."""

    def __init__(self, seed: int):
        self.seed = seed
        self.data = ""
        self.references = {}
        self.lock = threading.Lock()
        self.cluster = faults_nodes.Cluster()

    def prepare(self) -> None:
        if not pathlib.Path(STRIKE).exists() or not (BIN / "gradsync-train").exists():
            raise Skip(f"needs {STRIKE} and build/bin (make tests)")
        if b"gradsync_enters" not in (BIN / "gradsync-train").read_bytes():
            raise Skip("build/bin/gradsync-train tells no library in which phase it is")
        FOLDER.mkdir(parents=True, exist_ok=True)
        target = FOLDER / "set-128"
        self.data = str(target) if target.exists() else synthetic(FOLDER, 128, 32)

    def command(self, cell: Cell, output: pathlib.Path, phase: str, limits_s: dict, before: list | None = None) -> list:
        known = ("timeout",) if cell.program == "calibrate" else LIMITS
        options = [part for name in known if name in limits_s for part in (f"--{name}", f"{limits_s[name]:g}s")]
        if cell.program == "train":
            options += ["--model", "lenet", "--data", self.data, "--batch-global", 33 if cell.ranks == 3 else 32, "--epochs", EPOCHS,
                        "--threads", 1, "--log-every", 1, "--checkpoint-every", CHECKPOINT_EVERY, "--resume", "auto"]  # fmt: skip
        program = BIN / f"gradsync-{cell.program}"
        return [*LAUNCHERS[cell.launcher](cell.ranks), *(before or []), program, *cell.options(phase), *options, "--output", output]

    def reference(self, cell: Cell) -> tuple[pathlib.Path, float]:
        """An undisturbed run of the same cell, and how long it took."""
        name = f"{cell.program}-{cell.mode}-{cell.transport}-{cell.ranks}-{cell.launcher}".replace(" ", "_")
        with self.lock:
            mine = self.references.setdefault(name, {"lock": threading.Lock()})
        place = FOLDER / "references" / name
        with mine["lock"]:
            if "seconds" not in mine:
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                ended = Job(self.command(cell, place / "run.h5", "", {}), place / "job").end(240)
                if ended.code != 0:
                    raise Failure(f"the undisturbed run ends with {ended.code}: {ended.text[-400:]}")
                mine["seconds"] = ended.seconds
        return place / "run.h5", mine["seconds"]

    def run(self, injection: Injection, place: pathlib.Path) -> dict:
        """Injects, checks, and completes the run with the same command."""
        if not injection.on_nodes:
            return self.run_one(injection, place)
        with self.cluster.lock:
            if self.cluster.why_not():
                raise Skip(f"no test cluster: {self.cluster.why_not()}")
            return self.run_one(injection, place)

    def run_one(self, injection: Injection, place: pathlib.Path) -> dict:
        shutil.rmtree(place, ignore_errors=True)
        (place / "out").mkdir(parents=True)
        output = place / "out/run.h5"
        whole, undisturbed_s = self.reference(injection.cell)
        ended = self.disturbed(injection, output, place / "job", undisturbed_s)
        errors = errors_of(injection, ended) + errors_of_files(output, ended)
        (place / "log").write_text(ended.text)
        resumed = None
        # gradsync-calibrate starts from the beginning.
        if injection.cell.program == "train" and not output_is_complete(output):
            resumed = Job(self.command(injection.cell, output, injection.phase, {}), place / "again").end(4 * undisturbed_s + 60)
            if resumed.code != 0:
                errors.append(f"the same command then ends with {resumed.code}: {resumed.text[-400:]}")
        if injection.cell.program == "train" and (ended.code == 0 or (resumed and resumed.code == 0)):
            errors += difference(output, whole) + errors_of_folder(output)
        return {"code": ended.code, "resumed": resumed.code if resumed else None, "told_s": told_s(ended),
                "seconds": round(ended.seconds, 2), "errors": errors}  # fmt: skip

    def disturbed(self, injection: Injection, output: pathlib.Path, place: pathlib.Path, undisturbed_s: float) -> Ended:
        limit_s = hard_limit_s(injection, undisturbed_s)
        options, variables = strike(injection)
        before = preloaded(place, variables)
        job = Job([*self.command(injection.cell, output, injection.phase, injection.limits_s, before), *options], place)
        left = []
        if injection.fault in LINKS:
            if job.wait_for("iteration 3 loss", limit_s):
                self.cluster.strike(injection.fault, job)
            if injection.fault in LOST:
                left = self.cluster.ranks_that_stay(injection.timeout_s + NODE_LOST_S)
                faults_nodes.cable("up")
        elif injection.fault in ("stop and continue", "suspend all") and job.wait_for(STRUCK, limit_s):
            self.pause(injection, job)
        ended = job.end(limit_s)
        ended.left += left
        if injection.on_nodes:
            ended.left += self.cluster.recover(injection.fault)
        return ended

    def pause(self, injection: Injection, job: Job) -> None:
        """One rank stops itself; for `suspend all`, all others are stopped too. Then they continue."""
        if not injection.on_nodes:
            job.wait_for_stop(injection.timeout_s)
        nodes = [pid for node in faults_nodes.NODES for pid, _ in faults_nodes.processes_on(node)] if injection.on_nodes else []
        ranks = job.ranks() + nodes
        if injection.fault == "suspend all":
            job.signal(signal.SIGSTOP, ranks)
        time.sleep(pause_s(injection))
        job.signal(signal.SIGCONT, ranks)


def told_s(ended: Ended) -> float | None:
    if ended.struck_s is None:
        return None
    return round((ended.message_s or ended.seconds) - ended.struck_s, 2)


def output_is_complete(output: pathlib.Path) -> bool:
    import h5py

    if not output.exists():
        return False
    with h5py.File(output) as file:
        return file.attrs["status"] == b"complete"


def difference(output: pathlib.Path, whole: pathlib.Path) -> list:
    """Rows, losses and parameters have to be those of the undisturbed run, bit for bit."""
    import h5py
    from resume import require_same_rows

    try:
        require_same_rows(output, whole)
        with h5py.File(output) as one, h5py.File(whole) as other:
            name = "replica/parameter_hash"
            if one[name][:].tobytes() != other[name][:].tobytes():
                return ["the parameters differ from those of the undisturbed run"]
    except Failure as failure:
        return [f"the run differs from the undisturbed one: {failure}"]
    except (OSError, KeyError) as error:
        return [f"the run file cannot be read: {error}"]
    return []


# --- state and results ----------------------------------------------------------------------------------


def row_of(injection: Injection, seed: int, result: dict) -> dict:
    cell = injection.cell
    return {"number": injection.number, "seed": seed, "revision": campaign.revision(), "program": cell.program, "phase": injection.phase, "fault": injection.fault,
            "where": injection.where, "mode": cell.mode, "transport": cell.transport, "ranks": cell.ranks, "rank": injection.rank,
            "launcher": cell.launcher} | {name: result[name] for name in ("code", "resumed", "told_s", "seconds")} | {
            "outcome": "; ".join(result["errors"]).replace("\n", " | ") or AS_DOCUMENTED}  # fmt: skip


def summary(rows: list) -> str:
    """Phase × fault: injections, and those that did not end as documented."""
    all_of, bad = Counter(), Counter()
    for row in rows:
        key = (row["phase"], row["fault"])
        all_of[key] += 1
        bad[key] += row["outcome"] != AS_DOCUMENTED
    phases = list(dict.fromkeys(phase for phase, _ in sorted(all_of)))
    faults = list(dict.fromkeys(fault for _, fault in sorted(all_of, key=lambda key: key[1])))
    cell = lambda key: f"{all_of[key]}" + (f" (**{bad[key]}**)" if bad[key] else "") if all_of[key] else ""  # noqa: E731
    revisions = ", ".join(sorted({row["revision"] for row in rows}))
    seeds = ", ".join(sorted({str(row["seed"]) for row in rows}))
    lines = ["# Fault campaign", "", f"`make soak PARTS=faults`: {len(rows)} injections, seed {seeds}, revision {revisions}; "
             f"{sum(bad.values())} did not end as documented (bold in the table; `faults.csv` says how).", "",
             "| fault | " + " | ".join(phases) + " |", "|---|" + "---|" * len(phases)]  # fmt: skip
    lines += [f"| {fault} | " + " | ".join(cell((phase, fault)) for phase in phases) + " |" for fault in faults]
    return "\n".join(lines) + "\n"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int)
    arguments.add_argument("--limit-s", type=float)
    arguments.add_argument("--jobs", type=int)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--number", type=int)
    arguments.add_argument("--program", default="train", choices=("train", "calibrate"))
    given = arguments.parse_args()
    jobs = Jobs(given.seed)
    try:
        jobs.prepare()
        return run_all(jobs, given)
    except Skip as reason:
        print(f"SKIP faults: {reason}")
        return 0
    finally:
        jobs.cluster.stop()


def chosen(given) -> list:
    """The injections asked for."""
    only = dict(part.split("=", 1) for part in given.only.split(",") if part)
    if given.quick:
        # Each phase of the trainer in turn, and the rest in a program that starts in a fifth of the time.
        phases = list(WHERE["train"])
        few = [draw_injection(given.seed, n, "train", {"launcher": "mpirun", "phase": phases[n % len(phases)]} | only, quick=True)
               for n in range(QUICK_TRAIN)]  # fmt: skip
        each = [{"phase": phase, "fault": fault} for phase, fault in pairs("calibrate")] * QUICK_EACH
        few += [draw_injection(given.seed, n, "calibrate", only | one) for n, one in enumerate(each, QUICK_TRAIN) if all(only.get(key, value) == value for key, value in one.items())]
        return [one for one in few[:given.count] if given.number in (None, one.number)]
    numbers = range(given.count or FULL) if given.number is None else [given.number]
    return [draw_injection(given.seed, n, given.program, only) for n in numbers]


def run_all(jobs: Jobs, given) -> int:
    whole = not given.quick and given.number is None and not given.only and given.program == "train"
    finished = campaign.Finished("faults", given.seed) if whole else None
    done = {row["number"]: row for row in finished.rows.values()} if finished else {}
    deadline = time.monotonic() + given.limit_s if given.limit_s else None
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    rows, writing = list(done.values()), threading.Lock()

    def one(injection: Injection) -> None:
        if stopped.is_set() or (deadline and time.monotonic() > deadline):
            return
        name = f"{injection.cell.program}-{injection.number}"
        place = FOLDER / f"work-{name}"
        result = {"code": None, "resumed": None, "told_s": None, "seconds": 0, "errors": []}
        try:
            result = jobs.run(injection, place)
        except Skip as reason:
            print(f"SKIP {name} {injection.name}: {reason}", flush=True)
            return
        except Exception as error:
            result["errors"] = [f"{error!r}"]
        row = row_of(injection, given.seed, result)
        shutil.rmtree(FOLDER / f"failed-{name}", ignore_errors=True)
        if result["errors"] and place.exists():
            place.rename(FOLDER / f"failed-{name}")
        shutil.rmtree(place, ignore_errors=True)
        with writing:
            rows.append(row)
            print(f"FAIL {name} {injection.name}: {row['outcome'][:900]}" if result["errors"] else f"PASS {name} {injection.name}", flush=True)
        if finished:
            finished.add(name, **row)

    with concurrent.futures.ThreadPoolExecutor(given.jobs or (QUICK_JOBS if given.quick else 2)) as pool:
        list(pool.map(one, (injection for injection in chosen(given) if injection.number not in done)))
    if finished:
        rows.sort(key=lambda row: row["number"])
        wrong = [[row[name] for name in COLUMNS] for row in rows if row["outcome"] != AS_DOCUMENTED]
        campaign.write_results("faults", list(COLUMNS), wrong, summary(rows))
    return 1 if any(row["outcome"] != AS_DOCUMENTED for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
