# SPDX-License-Identifier: BSD-3-Clause
"""What the fault campaign injects: phase × fault × mode × transport × ranks × launcher, drawn from a seed."""
import random
from dataclasses import dataclass

# Limits of jobs that a fault is to end, and of those that are to survive it.
SHORT_S, START_S, LONG_S = 5, 20, 20
DELAY_S, PAUSE_S = 3, 1.5

MODES = ("none", "gather-scatter", "allreduce", "ddp", "data-parallel", "c10d", "ddp across iterations", "powersgd", "top-k", "local-sgd", "zero1", "fsdp")
# One transport for each mode, on two ranks: few undisturbed runs to compare with.
QUICK_MODES = {"gather-scatter": "mpi", "allreduce": "tcp-ring", "ddp": "shm", "data-parallel": "mpi", "c10d": "two-level",
               "powersgd": "shm", "top-k": "mpi", "local-sgd": "tcp-ring", "zero1": "shm", "fsdp": "tcp-ring"}
TRANSPORTS = ("shm", "mpi", "tcp-ring", "two-level")
BETWEEN_NODES = ("mpi", "tcp-ring", "two-level")
EPOCHS, PER_EPOCH, CHECKPOINT_EVERY = 2, 4, 3
ITERATIONS = EPOCHS * PER_EPOCH

# Where a phase can be struck (tests/libraries/strike.cpp): in the N-th phase or call of this name.
START = ["MPI_Init_thread:1", "MPI_Comm_dup:1", "MPI_Comm_split_type:1", "MPI_Win_allocate_shared:1"]
END = ["MPI_Win_free:1", "MPI_Comm_free:1", "MPI_Finalize:1"]
WRITES = ["write:2", "sync:1", "rename:1"]
WHERE = {
    "train": {
        "start-up": START + ["MPI_Allreduce:1", "MPI_Allreduce:2", "data check:1", "transport set-up:1"],
        "calibration": ["calibration:1"],
        "forward": [f"forward:{n}" for n in (1, 2, 4, 5, 7)],
        # The first 45 or so are of the start and have its limit.
        "collective": [f"collective:{n}" for n in (56, 57, 59, 62, 69)],
        "between iterations": [f"between iterations:{n}" for n in (1, 2, 3, 4, 6)] + ["journal:2", "journal:4"],
        "checkpoint": ["checkpoint:1", "checkpoint:2"],
        "evaluation": ["evaluation:1", "evaluation:2"],
        "publishing": WRITES + ["publishing:1", "publishing:1"],
        "shutdown": END + ["shutdown:1"],
    },
    "calibrate": {
        # The first collective is of the start, and has its limit.
        "start-up": START + ["MPI_Allreduce:1", "collective:1", "transport set-up:1"],
        "calibration": [f"collective:{n}" for n in (2, 3, 5, 9, 20, 35)],
        "publishing": WRITES + ["publishing:1", "publishing:1"],
        "shutdown": END + ["shutdown:1"],
    },
}
SIGNALS = ("kill", "stop", "stop and continue", "suspend all", "exit", "abort", "delay", "TERM", "USR1")
DISK = ("disk full", "EIO", "slow disk")
NUMBERS = ("NaN", "mismatched tensor size")
LINKS = ("link down", "link down then up", "slow link", "node lost")
LOST = ("link down", "node lost")
ACTIONS = {"kill": "KILL", "stop": "STOP", "stop and continue": "STOP", "suspend all": "STOP", "exit": "exit=3", "abort": "ABRT",
           "delay": f"sleep={DELAY_S}", "TERM": "TERM", "USR1": "USR1", "disk full": "ENOSPC", "EIO": "EIO",
           "slow disk": f"sleep={DELAY_S}"}  # fmt: skip
# Files of rank 0 that a disk fault is about, and calls on them.
DISK_CALLS = {
    "train": {
        "start-up": ("run.h5.journal", ["open:1", "write:1"]),
        "between iterations": ("run.h5.journal", ["write:5", "write:7", "sync:1"]),
        "checkpoint": (".safetensors", ["open:1", "write:1", "write:2", "sync:1", "rename:1", "sync:2"]),
        "publishing": ("run.h5.tmp", ["write:2", "sync:1"]),
    },
    "calibrate": {
        "start-up": ("run.h5.journal", ["open:1", "write:1"]),
        "calibration": ("run.h5.journal", ["write:3", "write:5"]),
        "publishing": ("run.h5.tmp", ["write:2", "sync:1"]),
    },
}


@dataclass(frozen=True)
class Cell:
    """What runs."""

    program: str  # "train" or "calibrate"
    mode: str
    transport: str
    ranks: int
    launcher: str

    def options(self, phase: str) -> list:
        """Its own; phases that not every run has are asked for."""
        if self.program == "calibrate":
            return ["--transport", self.transport, "-b", "1KiB", "-e", "2KiB", "-n", 3]
        options = ["--sync", self.mode.split()[0], "--transport", self.transport]
        if self.mode == "ddp across iterations":
            options += ["--overlap", "step"]
        if phase == "calibration":
            options += ["--calibrate", "--calibration-sizes", "1KiB:2KiB"]
        return options


@dataclass(frozen=True)
class Injection:
    number: int
    cell: Cell
    phase: str
    fault: str
    rank: int
    where: str  # as STRIKE has it, or the iteration

    @property
    def name(self) -> str:
        cell = self.cell
        job = f"{cell.mode} over {cell.transport}" if cell.program == "train" else f"calibrate over {cell.transport}"
        return f"{self.fault} at rank {self.rank} of {cell.ranks} in {self.phase} ({self.where}), {job}, {cell.launcher}"

    @property
    def on_nodes(self) -> bool:
        return self.cell.launcher != "mpirun"

    @property
    def survives(self) -> bool:
        """Whether the limits are such that the job outlasts the fault."""
        return self.fault in ("stop and continue", "delay", "slow disk", "link down then up", "slow link")

    @property
    def limits_s(self) -> dict:
        """By option. MPI_Init on a busy machine needs more than a collective."""
        if self.survives:
            return {"timeout": LONG_S, "start-timeout": LONG_S, "io-timeout": LONG_S}
        return {"timeout": SHORT_S, "start-timeout": START_S, "io-timeout": SHORT_S}

    @property
    def timeout_s(self) -> float:
        """That of the phase in which the others wait for it: while rank 0 publishes, for rank 0 alone."""
        waited_for_later = self.where == "publishing:1" and self.rank != 0
        return self.limits_s["start-timeout" if self.phase in ("start-up", "shutdown") or waited_for_later else "timeout"]


def pairs(program: str) -> list:
    """Each phase with each fault that it can meet on one machine."""
    signals = [(phase, fault) for phase in WHERE[program] for fault in SIGNALS]
    if program == "calibrate":
        # It takes no wish to stop, and its limits of start-up, publishing and shutdown have no option.
        late = {(phase, fault) for phase, fault in signals if phase != "calibration" and fault in ("stop", "suspend all")}
        signals = [pair for pair in signals if pair[1] not in ("TERM", "USR1") and pair not in late]
    disks = [(phase, fault) for phase in DISK_CALLS[program] for fault in DISK]
    return signals + disks + ([("collective", fault) for fault in NUMBERS] * 3 if program == "train" else [])


def draw_cell(draw: random.Random, program: str, launcher: str, phase: str, fault: str, quick: bool) -> Cell:
    transports = TRANSPORTS if launcher == "mpirun" else BETWEEN_NODES
    ranks = draw.choice((2, 2, 3, 4))
    if program == "calibrate":
        return Cell(program, "", draw.choice(transports), ranks, launcher)
    # A short message needs an exchange that --verify all compares.
    left_out = {"mismatched tensor size": ("none", "ddp across iterations")}.get(fault, ())
    if phase in ("calibration", "collective") or fault in LINKS:
        left_out += ("none",)
    mode = draw.choice([one for one in (QUICK_MODES if quick else MODES) if one not in left_out])
    if quick:
        return Cell(program, mode, QUICK_MODES[mode], 2, launcher)
    if mode in ("none", "gather-scatter", "data-parallel"):
        transports = transports[:2]
    return Cell(program, mode, "tcp-ring" if mode == "ddp across iterations" else draw.choice(transports), ranks, launcher)


def draw_injection(seed: int, number: int, program: str = "train", only: dict | None = None, quick: bool = False) -> Injection:
    """The injection with this number; always the same. One in twenty is on several nodes."""
    draw = random.Random(f"{seed}:{number}:{program}")
    only = only or {}
    launcher = only.get("launcher") or draw.choices(("mpirun", "srun", "mpirun over nodes"), (38, 1, 1))[0]
    if program == "calibrate":
        launcher = "mpirun"
    possible = pairs(program)
    if launcher != "mpirun":
        possible = [pair for pair in possible if pair[1] not in (*DISK, *NUMBERS)] + [("between iterations", fault) for fault in LINKS] * 25
    possible = [pair for pair in possible if only.get("phase", pair[0]) == pair[0] and only.get("fault", pair[1]) == pair[1]]
    phase, fault = draw.choice(possible)
    cell = draw_cell(draw, program, launcher, phase, fault, quick)
    if fault in DISK:
        return Injection(number, cell, phase, fault, 0, draw.choice(DISK_CALLS[program][phase][1]))
    if fault in LINKS:
        return Injection(number, cell, phase, fault, 0, "")
    where = str(draw.randrange(1, ITERATIONS)) if fault in NUMBERS else draw.choice(WHERE[program][phase])
    rank = 0 if where in WRITES or where.startswith("journal") else draw.randrange(cell.ranks)
    return Injection(number, cell, phase, fault, rank, where)


def strike(injection: Injection) -> tuple[list, dict]:
    """Options and variables of the environment that make it happen."""
    if injection.fault in NUMBERS:
        kind = {"NaN": "nan", "mismatched tensor size": "short"}[injection.fault]
        verify = ["--verify", "all"] if kind == "short" else []
        return ["--inject-fault", f"{kind}@{injection.rank}:{injection.where}", *verify], {}
    if injection.fault in LINKS:
        # Slow iterations, so that there is time to pull a cable.
        return [], {"STRIKE": "0:forward:2+:sleep=1"}
    lasts = "+" if injection.fault == "disk full" else ""
    path = ""
    if injection.fault in DISK:
        path = DISK_CALLS[injection.cell.program][injection.phase][0]
    elif injection.where in WRITES:
        path = "run.h5.tmp"
    return [], {"STRIKE": f"{injection.rank}:{injection.where}{lasts}:{ACTIONS[injection.fault]}", "STRIKE_PATH": path}
