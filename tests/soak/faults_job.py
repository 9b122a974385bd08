# SPDX-License-Identifier: BSD-3-Clause
"""One job of the fault campaign: started in shared memory and temporary folders of its own, watched, struck from outside, ended."""
import csv
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "e2e"))
from harness import BIN, ENVIRONMENT, ROOT, STRIKE, processes  # noqa: E402

STRUCK = re.compile(r"^(strike|inject-fault): ")
# Processes that the launcher has ended may take that long to be gone.
GONE_WITHIN_S = 30


@dataclass
class Ended:
    """How a job ended. Times are seconds since it started."""

    code: int | None  # None: it had to be killed
    out: str
    err: str
    seconds: float
    struck_s: float | None  # the first line "strike: …"
    message_s: float | None  # the first message of ours that ends a job
    left: list = field(default_factory=list)  # processes, files in /dev/shm and in TMPDIR
    acknowledged: int = 0  # bytes of the journal

    @property
    def text(self) -> str:
        return self.err + self.out


def preloaded(place: pathlib.Path, strike: dict) -> list:
    """Goes before a program that is to be struck."""
    variables = {"LD_PRELOAD": STRIKE, "STRIKE_ACKNOWLEDGED": place / "acknowledged"} | strike
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def own_mounts() -> bool:
    """Whether a job can get a /dev/shm of its own here."""
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


OWN_MOUNTS = own_mounts()


class Job:
    """A command in a session of its own, in the folder `place` for what it leaves in shared memory and temporary folders."""

    def __init__(self, command: list, place: pathlib.Path):
        self.place = place
        self.marked_s = None
        for name in ("shm", "tmp"):
            shutil.rmtree(place / name, ignore_errors=True)
            (place / name).mkdir(parents=True)
        self.acknowledged = place / "acknowledged"
        self.acknowledged.unlink(missing_ok=True)
        surroundings = ENVIRONMENT | {"TMPDIR": str(place / "tmp")}
        parts = [str(part) for part in command]
        if OWN_MOUNTS:
            parts = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /dev/shm && exec "$@"', str(place / "shm"), *parts]
        self.start = time.monotonic()
        self.process = subprocess.Popen(parts, env=surroundings, cwd=ROOT, text=True, errors="replace", stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
        self.lines = {"out": [], "err": []}
        self.seen = threading.Condition()
        self.readers = [threading.Thread(target=self.read, args=(name,), daemon=True) for name in self.lines]
        for reader in self.readers:
            reader.start()

    def read(self, name: str) -> None:
        for line in self.process.stderr if name == "err" else self.process.stdout:
            with self.seen:
                self.lines[name].append((time.monotonic() - self.start, line))
                self.seen.notify_all()

    def mark_struck(self) -> None:
        """Now it is struck from outside."""
        self.marked_s = time.monotonic() - self.start

    def first(self, pattern) -> float | None:
        """When the first such line came."""
        times = [at for lines in self.lines.values() for at, line in lines if re.search(pattern, line)]
        return min(times, default=None)

    def wait_for(self, pattern, timeout: float) -> bool:
        """Whether such a line came in time, and before the end."""
        deadline = time.monotonic() + timeout
        with self.seen:
            while self.first(pattern) is None:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    return False
                self.seen.wait(0.1)
        return True

    def wait_for_stop(self, timeout: float) -> None:
        """Until a rank has stopped: it prints its line just before, and a SIGCONT in between would be lost."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and not any(one.state == "T" for one in processes(session=self.process.pid)):
            time.sleep(0.02)

    def signal(self, number: int, which: list) -> None:
        for pid in which:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def everything(self) -> list:
        return [one.pid for one in processes(session=self.process.pid)]

    def ranks(self) -> list:
        """Process ids of the ranks on this machine."""
        return [one.pid for one in processes(session=self.process.pid) if one.name.startswith("gradsync")]

    def end(self, timeout: float) -> Ended:
        """Waits for it, kills what is left, and tells what that was."""
        code = None
        try:
            code = self.process.wait(timeout=max(timeout - (time.monotonic() - self.start), 0.1))
            code = 128 - code if code < 0 else code
        except subprocess.TimeoutExpired:
            pass
        seconds = time.monotonic() - self.start
        left = self.remains() if code is not None else []
        self.signal(signal.SIGKILL, self.everything())
        self.process.wait()
        for reader in self.readers:
            reader.join(timeout=2)
        out, err = ("".join(line for _, line in self.lines[name]) for name in ("out", "err"))
        durable = int(self.acknowledged.read_text() or 0) if self.acknowledged.exists() else 0
        struck_s = self.first(STRUCK) if self.marked_s is None else self.marked_s
        return Ended(code, out, err, seconds, struck_s, self.first(r"gradsync-\w+: (?!warning)"), left, durable)

    def remains(self) -> list:
        deadline = time.monotonic() + GONE_WITHIN_S
        while self.everything() and time.monotonic() < deadline:
            time.sleep(0.02)
        left = [f"process {one.pid} {one.state} {one.name}" for one in processes(session=self.process.pid)]
        for name in ("shm", "tmp"):
            left += [f"{name}/{path.relative_to(self.place / name)}" for path in (self.place / name).rglob("*") if not path.is_dir()]
        return left


# --- what is in the files, read as docs/file-format.md describes them ----------------------------------


def journal_iterations(path: pathlib.Path, limit: int | None = None) -> list:
    """Numbers of the iterations that the first `limit` bytes of a journal hold and that count."""
    content = path.read_bytes()[:limit]
    rows, at = [], 16
    while at + 12 <= len(content):
        length, kind = struct.unpack_from("<II", content, at)
        if at + 12 + length > len(content):
            break
        if kind == 2:
            rows.append((at, struct.unpack_from("<q", content, at + 8)[0]))
        if kind == 9:
            before = int(re.search(rb'"journal_bytes":\s*(\d+)', content[at + 8 : at + 8 + length]).group(1))
            rows = [row for row in rows if row[0] < before]
        at += 12 + length
    return [number for _, number in rows]


def report_rows(path: pathlib.Path) -> int | None:
    """How many iterations gradsync-report reads there; None if it refuses the file."""
    command = [str(BIN / "gradsync-report"), str(path), "--plots", "no", "--verdict", "no", "--table", "modes", "--format", "csv"]
    result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)
    rows = list(csv.DictReader(result.stdout.splitlines()))
    return int(rows[0]["iterations"]) if result.returncode == 0 and rows else None
