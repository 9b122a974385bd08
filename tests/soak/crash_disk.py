# SPDX-License-Identifier: BSD-3-Clause
"""What a crash may leave of files: replays a log of tests/libraries/file_log.cpp.

The model is that of POSIX, not of one file system. fsync and fdatasync of a file make its content durable; fsync of a
folder makes the names in it durable. Of what is not durable each 512-byte sector of a file may be missing (zeros, or the
file ends before it), whatever became of the others, and each creation, renaming or removal of a name may have happened
or not, whatever became of the others.
"""
import dataclasses
import pathlib
import random
import struct

SECTOR = 512
HEAD = struct.Struct("<IIiiqqqIIII")
MAGIC = 0x474C4F47
CALLS = ("", "open", "write", "truncate", "sync", "rename", "link", "unlink", "make-folder", "remove-folder", "mark")


@dataclasses.dataclass
class Record:
    """One call; `mark` is none: crash.py adds it where a program ended, its text in `path`."""

    call: str
    time_s: float
    inode: int = 0
    offset: int = 0
    path: str = ""
    other: str = ""
    data: bytes = b""
    is_folder: bool = False
    process: int = 0


def read_log(path: pathlib.Path) -> list[Record]:
    content, at, records = path.read_bytes(), 0, []
    while at < len(content):
        magic, call, process, _, time_ns, inode, offset, *sizes, is_folder = HEAD.unpack_from(content, at)
        if magic != MAGIC:
            raise ValueError(f"{path}: no record at byte {at}")
        at += HEAD.size
        parts = []
        for size in sizes:
            parts.append(content[at : at + size])
            at += size
        path_text, other = (part.decode(errors="surrogateescape") for part in parts[:2])
        records.append(Record(CALLS[call], time_ns / 1e9, inode, offset, path_text, other, parts[2], bool(is_folder), process))
    return records


def add_mark(path: pathlib.Path, text: str, time_s: float) -> None:
    encoded = text.encode()
    with open(path, "ab") as log:
        log.write(HEAD.pack(MAGIC, CALLS.index("mark"), 0, 0, int(time_s * 1e9), 0, 0, len(encoded), 0, 0, 0) + encoded)


# --- files ---------------------------------------------------------------------------------------


def applied(content: bytearray, change: tuple, sectors=None) -> None:
    """Applies a write or a truncation; of a write only the sectors that `sectors` says yes to."""
    kind, offset, data = change
    if kind == "truncate":
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    at = 0
    while at < len(data):
        end = min(len(data), (offset + at) // SECTOR * SECTOR + SECTOR - offset) if sectors else len(data)
        if not sectors or sectors():
            if len(content) < offset + end:
                content.extend(bytes(offset + end - len(content)))
            content[offset + at : offset + end] = data[at:end]
        at = end


class File:
    def __init__(self):
        self.durable = b""
        self.pending: list[tuple] = []
        self._whole: bytes | None = b""

    def change(self, kind: str, offset: int, data: bytes) -> None:
        self.pending.append((kind, offset, data))
        self._whole = None

    def sync(self) -> None:
        self.durable, self.pending = self.whole(), []

    def whole(self) -> bytes:
        if self._whole is None:
            content = bytearray(self.durable)
            for change in self.pending:
                applied(content, change)
            self._whole = bytes(content)
        return self._whole

    def zeroed(self) -> bytes:
        """As long as it should be, without the data."""
        return self.durable[: len(self.whole())].ljust(len(self.whole()), b"\0")

    def torn(self, rng: random.Random) -> bytes:
        """Some changes in their order, the last of them in part; or any sectors of all of them."""
        content, share = bytearray(self.durable), rng.random()
        in_order = rng.random() < 0.5
        count = rng.randrange(len(self.pending) + 1) if in_order else 0
        for change in self.pending[:count]:
            applied(content, change)
        for change in self.pending[count : count + 1] if in_order else self.pending:
            if change[0] == "write" or rng.random() < share:
                applied(content, change, lambda: rng.random() < share)
        if rng.random() < 0.5:  # the new length, without all of the data
            content.extend(bytes(max(0, len(self.whole()) - len(content))))
        return bytes(content)


# --- names ---------------------------------------------------------------------------------------


class Folder:
    def __init__(self):
        self.names: dict = {}  # as the running programs see them
        self.durable: dict = {}


@dataclasses.dataclass(eq=False)
class NameChange:
    """Names that change at once: (folder, name, what it names afterwards, or None)."""

    updates: list


class Disk:
    """All below one folder, which exists and was empty."""

    def __init__(self, root: str):
        self.root_path = root
        self.root = Folder()
        self.by_inode: dict[int, File] = {}
        self.pending: list[NameChange] = []

    # Looking up

    def _place(self, path: str) -> tuple:
        """The folder that a path lies in and its name there."""
        parts = path.removeprefix(self.root_path).strip("/").split("/")
        folder = self.root
        for part in parts[:-1]:
            folder = folder.names[part]
        return folder, parts[-1]

    def _folder(self, path: str) -> Folder:
        if path.rstrip("/") == self.root_path:
            return self.root
        folder, name = self._place(path)
        return folder.names[name]

    def _change(self, *updates) -> None:
        for folder, name, target in updates:
            if target is None:
                folder.names.pop(name, None)
            else:
                folder.names[name] = target
        self.pending.append(NameChange(list(updates)))

    # Replaying

    def _file(self, record: Record) -> File | None:
        """The file of a call on an open one, made when it is new; none if it has no name any more."""
        if record.path.endswith(" (deleted)"):
            return self.by_inode.get(record.inode)
        folder, name = self._place(record.path)
        if name not in folder.names:
            self._change((folder, name, File()))
        self.by_inode[record.inode] = folder.names[name]
        return folder.names[name]

    def apply(self, record: Record) -> None:
        getattr(self, "_" + record.call.replace("-", "_"))(record)

    def _mark(self, record: Record) -> None:
        pass

    def _open(self, record: Record) -> None:
        file = self._file(record)
        if record.offset == 1 and file.whole():
            file.change("truncate", 0, b"")

    def _write(self, record: Record) -> None:
        if file := self._file(record):
            file.change("write", record.offset, record.data)

    def _truncate(self, record: Record) -> None:
        file = self._file(record)
        if file and record.offset != len(file.whole()):
            file.change("truncate", record.offset, b"")

    def _sync(self, record: Record) -> None:
        if not record.is_folder:
            if file := self._file(record):
                file.sync()
            return
        synced, kept = self._folder(record.path), []
        for change in self.pending:
            if any(folder is synced for folder, _, _ in change.updates):
                self._make_durable(change)
            else:
                kept.append(change)
        self.pending = kept

    @staticmethod
    def _make_durable(change: NameChange) -> None:
        for folder, name, target in change.updates:
            if target is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = target

    def _rename(self, record: Record) -> None:
        folder, name = self._place(record.path)
        to_folder, to_name = self._place(record.other)
        self._change((folder, name, None), (to_folder, to_name, folder.names[name]))

    def _link(self, record: Record) -> None:
        folder, name = self._place(record.path)
        to_folder, to_name = self._place(record.other)
        self._change((to_folder, to_name, folder.names[name]))

    def _unlink(self, record: Record) -> None:
        self._change((*self._place(record.path), None))

    _remove_folder = _unlink

    def _make_folder(self, record: Record) -> None:
        self._change((*self._place(record.path), Folder()))

    # What a crash leaves

    def state(self, happened, content) -> dict[str, bytes]:
        """Path below the root → content. `happened(change)` decides whether a pending change of names did, `content(file)`
        what is left of a file."""
        names = {}

        def entries(folder: Folder) -> dict:
            return names.setdefault(id(folder), dict(folder.durable))

        for change in self.pending:
            if happened(change):
                for folder, name, target in change.updates:
                    if target is None:
                        entries(folder).pop(name, None)
                    else:
                        entries(folder)[name] = target
        found: dict[str, bytes] = {}
        seen: dict[int, bytes] = {}

        def collect(folder: Folder, prefix: str) -> None:
            found[prefix or "/"] = None  # a folder
            for name, target in entries(folder).items():
                if isinstance(target, Folder):
                    collect(target, f"{prefix}{name}/")
                else:
                    if id(target) not in seen:
                        seen[id(target)] = content(target)
                    found[prefix + name] = seen[id(target)]

        collect(self.root, "")
        return found

    def killed(self) -> dict[str, bytes]:
        """What is left when the processes are killed and the machine runs on."""
        return self.state(lambda change: True, File.whole)

    def crashes(self, rng: random.Random, count: int):
        """States after a power cut now: the extremes, then `count` at random."""
        yield self.state(lambda change: False, lambda file: file.durable)
        yield self.state(lambda change: True, lambda file: file.durable)
        yield self.state(lambda change: True, File.zeroed)
        yield self.state(lambda change: False, File.whole)
        for _ in range(count):
            share = rng.choice((0, 0.5, 0.9, 1))
            yield self.state(lambda change, share=share: rng.random() < share, lambda file: file.torn(rng))
