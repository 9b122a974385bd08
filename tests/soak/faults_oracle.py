# SPDX-License-Identifier: BSD-3-Clause
"""What each fault of the campaign has to lead to, and whether it did."""
import pathlib
import re
from dataclasses import dataclass

from faults_cases import DELAY_S, DISK_CALLS, LINKS, LOST, NUMBERS, PAUSE_S, START, Injection
from faults_job import Ended, journal_iterations, report_rows

# Beyond a documented limit, until the message; from there until the launcher has ended all processes.
LATE_S, TEAR_DOWN_S = 10, 30
# How much later than rank 0 the next rank reports that MPI does not start or end.
TURN_S = 1.5
# How soon a launcher ends a job of which a process is gone.
LAUNCHER_S = 30
BY_SIGNAL = {"kill": (137, 9), "abort": (134, 6)}
# What Open MPI's daemon of the lost node would have removed.
LOST_DAEMON = "tmp/ompi.n2."
# The launchers of several nodes give a lost one up after 20 s, and end what is left of the job after that.
NODE_LOST_S, NODE_TEAR_DOWN_S = 25, 60
# A wish to stop is heard between two iterations. Behind the last one a run may as well be completed.
LATE_PHASES = ("evaluation", "publishing", "shutdown", "checkpoint", "between iterations")


@dataclass
class Expected:
    endings: dict  # exit code: pattern of the message, or None
    within_s: float | None = None  # from the strike to the message, or to the end if there is none
    names_missing: bool = False  # the message lists the missing ranks


def missing_ranks(text: str) -> set | None:
    """The ranks that the message of a hang says are missing."""
    found = re.search(r"missing ranks: ([\d, -]+)", text)
    if not found:
        return None
    ranks = set()
    for part in found.group(1).split(","):
        first, _, last = part.strip().partition("-")
        ranks |= set(range(int(first), int(last or first) + 1))
    return ranks


def lost(rank: int) -> str:
    return rf"(connection to rank {rank} .*lost|missing ranks: {rank}\b)"


def stopped(injection: Injection) -> Expected:
    """MPI cannot tell which ranks it waits for while it starts or ends; a watchdog can, in between."""
    turn_s = TURN_S if injection.rank == 0 else 0
    if injection.where in START:
        return Expected({69: "MPI has not started"}, injection.timeout_s + turn_s)
    if injection.phase == "shutdown":
        return Expected({86: "hang|MPI has not ended"}, injection.timeout_s + turn_s)
    return Expected({86: "hang"}, injection.timeout_s, names_missing=True)


def expected(injection: Injection) -> Expected:
    """As documented: exit codes in README.md, limits in docs/hangs.md."""
    rank, fault, phase = injection.rank, injection.fault, injection.phase
    if fault in BY_SIGNAL:
        code, number = BY_SIGNAL[fault]
        return Expected({code: rf"process rank {rank} .*exited on signal {number}|task {rank}: ", 86: lost(rank)}, LAUNCHER_S)
    if fault == "exit":
        # srun ends with the highest code of all tasks, also of those that it has killed. mpirun counts a rank that exits
        # before MPI_Init, and names it only if another rank was in MPI_Init already.
        counted = "|1 process returned" if injection.where == START[0] else ""
        return Expected({3: rf"Process name: \[\[\d+,\d+\],{rank}\]|task {rank}: {counted}", 86: lost(rank),
                         137: rf"task {rank}: Exited with exit code 3"}, LAUNCHER_S)  # fmt: skip
    if fault == "stop":
        return stopped(injection)
    if fault in ("TERM", "USR1"):
        endings = {75: rf"signal {fault} at rank {rank}"}
        return Expected(endings | {0: None} if phase in LATE_PHASES else endings)
    if fault == "NaN":
        return Expected({80: rf"not finite on rank {rank} .*in iteration {injection.where}\b"}, LAUNCHER_S)
    if fault == "mismatched tensor size":
        return Expected({87: rf"ranks disagree about a collective: .*\brank {rank}\b"}, LAUNCHER_S)
    if fault in ("disk full", "EIO"):
        text = {"disk full": "No space left on device", "EIO": "Input/output error"}[fault]
        return Expected({74: rf"{re.escape(DISK_CALLS[injection.cell.program][phase][0])}.*{text}"}, LAUNCHER_S)
    if fault in LOST:
        return Expected({86: rf"missing ranks: |connection to rank \d+ .*lost", 137: "Killed", 143: "NODE FAILURE|DUE TO NODE FAILURE", 205: "lost"},
                        injection.timeout_s + NODE_LOST_S)  # fmt: skip
    return Expected({0: None})


def pause_s(injection: Injection) -> float:
    """How long the fault itself holds a job up that it does not end."""
    if injection.fault == "suspend all":
        return injection.timeout_s + 2
    if injection.fault == "stop and continue":
        return PAUSE_S
    return DELAY_S if injection.fault in ("delay", "slow disk") else 0


def hard_limit_s(injection: Injection, undisturbed_s: float) -> float:
    """A job that runs for longer hangs."""
    if injection.fault in LINKS:
        return 2 * undisturbed_s + NODE_LOST_S + NODE_TEAR_DOWN_S
    return 4 * undisturbed_s + injection.timeout_s + 2 * pause_s(injection) + 30


def errors_of(injection: Injection, ended: Ended) -> list:
    """What is wrong with this end of the job."""
    wanted = expected(injection)
    if ended.struck_s is None and injection.fault not in NUMBERS:
        return ["not struck: " + ended.text[-300:]]
    if ended.code is None:
        return [f"hangs: still running after {ended.seconds:.0f} s"]
    errors = []
    if ended.code not in wanted.endings:
        codes = " or ".join(str(code) for code in wanted.endings)
        errors.append(f"exit code {ended.code}, not {codes}: {ended.err[-400:]}")
    elif wanted.endings[ended.code] and not re.search(wanted.endings[ended.code], ended.text):
        errors.append(f"'{wanted.endings[ended.code]}' is not in: {ended.err[-600:]}")
    if wanted.names_missing and ended.code == 86 and missing_ranks(ended.text) != {injection.rank}:
        errors.append(f"names the ranks {missing_ranks(ended.text)}: {ended.err[-400:]}")
    errors += messages_of(injection, ended) + times_of(injection, wanted, ended)
    left = [name for name in ended.left if injection.fault != "node lost" or not name.startswith(LOST_DAEMON)]
    return errors + [f"left: {', '.join(left)}" for _ in left[:1]]


def messages_of(injection: Injection, ended: Ended) -> list:
    """One message of ours, from one rank; from each side of a network that is cut."""
    messages = [line for line in ended.err.splitlines() if re.match(r"gradsync-\w+: (?!warning)", line)]
    hosts = {found[1] for found in (re.search(r"rank \d+ \((\w+)\)", line) for line in messages) if found}
    most = 0 if ended.code == 0 else max(1, len(hosts)) if injection.fault in LOST else 1
    return [f"{len(messages)} messages: {messages}"] if len(messages) > most else []


def times_of(injection: Injection, wanted: Expected, ended: Ended) -> list:
    if wanted.within_s is None or ended.code not in wanted.endings or ended.struck_s is None:
        return []
    told_s = ended.message_s or ended.seconds
    errors = []
    if told_s - ended.struck_s > wanted.within_s + LATE_S:
        errors.append(f"late: told after {told_s - ended.struck_s:.1f} s, limit {wanted.within_s:g} s")
    if ended.seconds - told_s > (NODE_TEAR_DOWN_S if injection.fault in LINKS else TEAR_DOWN_S):
        errors.append(f"late: ended {ended.seconds - told_s:.1f} s after its message")
    return errors


def errors_of_files(output: pathlib.Path, ended: Ended) -> list:
    """Every acknowledged row has to be readable."""
    journal = pathlib.Path(f"{output}.journal")
    if not journal.exists() or ended.acknowledged == 0:
        return []
    acknowledged = journal_iterations(journal, ended.acknowledged)
    if not acknowledged:
        return []
    rows = report_rows(journal)
    if rows is None or rows < len(acknowledged):
        return [f"{len(acknowledged)} rows were acknowledged, gradsync-report reads {rows}"]
    return []


def errors_of_folder(output: pathlib.Path) -> list:
    """A completed run leaves its run file and at most two checkpoints."""
    folder = output.with_suffix(".checkpoints")
    known = {output, folder} | set(sorted(folder.glob("iteration-*.safetensors"))[:2] if folder.exists() else [])
    left = sorted(str(path.relative_to(output.parent)) for path in output.parent.rglob("*") if path not in known)
    return [f"left in the folder: {', '.join(left)}"] if left else []
