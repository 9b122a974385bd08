# SPDX-License-Identifier: BSD-3-Clause
"""What a crash may not take: follows a run's calls, notes what the run has acknowledged, and judges states against it."""
import json
import pathlib
import re
import subprocess

from crash_disk import Disk, Record

INTERVAL_S = 1.05  # a journal is synced at the first row that comes a second after the last time


class StateReader:
    """build/tests/read_state, and a folder in which states are made for it."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path):
        self.folder = folder
        self.there: dict[str, bytes] = {}
        folder.mkdir(parents=True)
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def make(self, state: dict[str, bytes]) -> None:
        """Only what differs from the state before is written."""
        for path in sorted(self.there.keys() - state.keys() - {"/"}, reverse=True):
            target = self.folder / path
            target.rmdir() if path.endswith("/") else target.unlink()
        for path in sorted(state.keys() - {"/"}):
            if path.endswith("/"):
                (self.folder / path).mkdir(exist_ok=True)
            elif self.there.get(path) is not state[path] and self.there.get(path) != state[path]:
                (self.folder / path).write_bytes(state[path])
        self.there = state

    def read(self, state: dict[str, bytes]) -> dict[str, dict]:
        self.make(state)
        self.process.stdin.write(f"{self.folder}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"read_state ended with {self.process.wait()} on the state in {self.folder}")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Output:
    """What one run has acknowledged."""

    def __init__(self, path: str):
        self.path, self.journal = path, f"{path}.journal"
        self.checkpoints = path.removesuffix(".h5") + ".checkpoints/"
        self.rows = 0  # that have to be there
        self.checkpoint = 0  # iteration that a usable checkpoint has to have at least
        self.complete = False  # the run file has to be there
        self.written: list[tuple[float, int]] = []  # when the journal grew, and to how many rows
        self.known = {(0, 0)}  # (rows, digest of these rows) that the run has really had
        self.newest = 0  # iteration of the newest checkpoint that has its name

    def grown(self, rows: list[int], time_s: float) -> None:
        """The journal was written to; without a crash these are its rows."""
        if len(rows) < self.rows or (self.written and len(rows) < self.written[-1][1]):  # it was resumed
            self.rows = min(self.rows, len(rows))
            self.checkpoint = self.newest = min(self.checkpoint, len(rows))
            self.written.clear()
        self.known.update(enumerate(rows, 1))
        if self.written:
            before_s = self.written[-1][0]
            self.rows = max([self.rows] + [count for at_s, count in self.written if at_s <= before_s - INTERVAL_S])
        self.written.append((time_s, len(rows)))
        # The run continues only after its checkpoint is written.
        self.checkpoint = self.newest

    def all_rows(self) -> int:
        return self.written[-1][1] if self.written else 0


class Oracle:
    def __init__(self, outputs: dict[str, int], failing: dict[str, int], reader: StateReader):
        self.totals, self.failing = outputs, failing
        self.outputs = {path: Output(path) for path in outputs | failing}
        self.by_journal = {output.journal: output for output in self.outputs.values()}
        self.reader = reader
        self.records: set[str] = set()  # files of a sweep that have to be whole
        self.sweep_wrote = ""

    # --- following the run ---

    def follow(self, record: Record, disk: Disk) -> None:
        """After `disk` has applied the record."""
        path = record.path.removeprefix(disk.root_path + "/")
        if record.call == "mark":
            self._ended(int(record.path.split()[1]))
        elif record.call == "write" and path in self.by_journal:
            self.by_journal[path].grown(self._rows(disk, path), record.time_s)
        elif record.call == "sync" and path in self.by_journal:
            self.by_journal[path].rows = self.by_journal[path].all_rows()
        elif record.call == "rename":
            self._named(record.other.removeprefix(disk.root_path + "/"))
        if record.call == "open" and self.sweep_wrote and not path.startswith(self.sweep_wrote):
            self.records.add(self.sweep_wrote)
            self.sweep_wrote = ""

    def _rows(self, disk: Disk, journal: str) -> list[int]:
        content = disk.killed()[journal]
        found = self.reader.read({"/": None, "a.journal": content})["a.journal"]
        return found.get("rows", [])

    def _named(self, path: str) -> None:
        if path.endswith(".json"):
            self.sweep_wrote = path
        for output in self.outputs.values():
            if match := re.fullmatch(re.escape(output.checkpoints) + r"iteration-(\d+)\.safetensors", path):
                output.newest = max(output.newest, int(match.group(1)))

    def _ended(self, code: int) -> None:
        for output in self.outputs.values():
            if output.path in self.failing:
                output.rows = self.failing[output.path]
            elif code == 75:
                output.rows, output.checkpoint = output.all_rows(), output.newest
            elif code in (0, 1):
                output.complete = True
        if self.sweep_wrote:
            self.records.add(self.sweep_wrote)

    def acknowledged(self) -> tuple:
        """Equal for two moments at which the same has to be there."""
        return tuple((o.rows, o.checkpoint, o.complete) for o in self.outputs.values()) + tuple(sorted(self.records))

    # --- judging ---

    def judge(self, state: dict[str, bytes]) -> tuple[list[str], tuple]:
        """What is wrong with a state, and of which kind it is: for choosing states of many kinds."""
        found = self.reader.read(state)
        wrong, kinds = [], []
        for output in self.outputs.values():
            wrong += self._judge_output(output, found)
            mine = [path for path in found if path.startswith(output.path.removesuffix("h5"))]
            kinds += [(path, found[path].get("status", "refused" if "refused" in found[path] else "sound")) for path in mine]
        for path in self.records:
            if not is_json(state.get(path)):
                wrong.append(f"{path} is {'damaged' if path in state else 'missing'}")
        # A lock that names nobody is never seen to be stale.
        wrong += [f"{path} names no process" for path, content in state.items()
                  if path.endswith(".journal.lock") and not re.search(rb"process [1-9].*\n$", content)]  # fmt: skip
        return wrong, tuple(sorted(kinds))

    def _judge_output(self, output: Output, found: dict) -> list[str]:
        wrong = []
        file, journal = found.get(output.path), found.get(output.journal)
        if file and "refused" in file:
            wrong.append(f"the run file has its name and is damaged: {file['refused']}")
        rows = 0
        for name, content in (("run file", file), ("journal", journal)):
            if content and "rows" in content:
                digests = content["rows"]
                rows = max(rows, len(digests))
                if digests and (len(digests), digests[-1]) not in output.known:
                    wrong.append(f"the {name} has rows that the run never had")
        complete = bool(file) and file.get("status") == "complete"
        if complete and len(file["rows"]) != self.totals.get(output.path):
            wrong.append(f"the run file is complete with {len(file['rows'])} of {self.totals.get(output.path)} rows")
        if rows < output.rows and not complete:
            refused = f"; the journal is refused: {journal['refused']}" if journal and "refused" in journal else ""
            wrong.append(f"{output.rows} rows were acknowledged, {rows} are there{refused}")
        if output.complete and not complete:
            wrong.append("the run had ended, its file is not there")
        return wrong + self._judge_checkpoints(output, found, complete)

    def _judge_checkpoints(self, output: Output, found: dict, complete: bool) -> list[str]:
        mine = {path: content for path, content in found.items() if path.startswith(output.checkpoints)}
        wrong = [f"{path} has its name and is damaged: {content['refused']}" for path, content in mine.items() if "refused" in content]
        journal = found.get(output.journal, {})
        usable = [content["iteration"] for content in mine.values()
                  if "iteration" in content and journal.get("run_id") == content["run_id"]
                  and journal["sound_bytes"] >= content["journal_bytes"]]  # fmt: skip
        if output.checkpoint > max(usable, default=0) and not complete:
            wrong.append(f"checkpoint {output.checkpoint} was written, {max(usable, default='none')} can be used")
        return wrong


def is_json(content: bytes | None) -> bool:
    try:
        return isinstance(json.loads(content or b""), dict)
    except ValueError:
        return False
