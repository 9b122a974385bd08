#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""config/data, which downloads CIFAR-10, with archives of its own. Prints PASS, FAIL or SKIP a case.

usage: fetch.py [NAME...]    (run by tests/run)
"""
import contextlib
import hashlib
import http.server
import pathlib
import shutil
import sys
import tarfile
import threading

import harness
from harness import ROOT, Skip, check, run

FILES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]


def pack(folder: pathlib.Path, leave_out: str = "") -> tuple[pathlib.Path, dict]:
    """An archive of files of the official sizes, and the variable that makes it the one that is wanted."""
    inner = folder / "cifar-10-batches-bin"
    inner.mkdir()
    for name in FILES:
        with open(inner / name, "wb") as file:
            file.truncate(30730000)
    (inner / "batches.meta.txt").write_text("airplane\n")
    (inner / leave_out).unlink() if leave_out else None
    archive = folder / "archive.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(inner, inner.name)
    shutil.rmtree(inner)
    return archive, {"CIFAR10_SHA256": hashlib.sha256(archive.read_bytes()).hexdigest()}


def fetch(*arguments, environment: dict | None = None):
    return run([ROOT / "config/data", *arguments], environment=environment)


def expect(result, code: int, *texts: str):
    check(result.code == code, f"exit code {result.code}, not {code}: {result.err}")
    for text in texts:
        check(text in result.out + result.err, f"'{text}' is not in: {result.out}{result.err}")


def entries(folder: pathlib.Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def case_an_archive_is_unpacked_once(folder):
    archive, wanted = pack(folder)
    expect(fetch(folder / "set", archive, environment=wanted), 0, "CIFAR-10")
    check(entries(folder / "set") == {*FILES, "batches.meta.txt"}, str(entries(folder / "set")))
    check(entries(folder) == {"archive.tar.gz", "set"}, str(entries(folder)))
    expect(fetch(folder / "set", "/nowhere/archive"), 0, "already there")


def case_an_archive_goes_into_a_folder_that_is_not_there_yet(folder):
    archive, wanted = pack(folder)
    expect(fetch(folder / "new/set", archive, environment=wanted), 0, "CIFAR-10")
    check(entries(folder / "new") == {"set"}, str(entries(folder / "new")))


def case_a_synthetic_set_is_not_cifar_10(folder):
    archive, wanted = pack(folder)
    expect(fetch(folder / "set", archive, environment=wanted), 0)
    (folder / "set/gradsync-dataset.json").write_text("{}")
    expect(fetch(folder / "set", archive, environment=wanted), 73, "is not CIFAR-10")


def case_another_archive_is_refused(folder):
    archive, _ = pack(folder)
    expect(fetch(folder / "set", archive), 65, "is not the official archive")
    expect(fetch(folder / "set", f"file://{archive}"), 65, "is not the official archive")
    check(entries(folder) == {"archive.tar.gz"}, f"left behind: {entries(folder)}")


def case_an_archive_without_a_file_leaves_nothing(folder):
    archive, wanted = pack(folder, leave_out="data_batch_5.bin")
    expect(fetch(folder / "set", archive, environment=wanted), 65, "data_batch_5.bin", "cannot unpack")
    check(entries(folder) == {"archive.tar.gz"}, f"left behind: {entries(folder)}")


def case_a_folder_that_is_no_data_set_is_not_touched(folder):
    (folder / "thesis.tex").write_text("years of work")
    expect(fetch(folder, "/nowhere/archive"), 73, "was not changed")
    check(entries(folder) == {"thesis.tex"}, f"changed: {entries(folder)}")


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Sends everybody to a file of this machine."""

    def do_GET(self):
        self.send_response(302)
        self.send_header("Location", "file:///etc/passwd")
        self.end_headers()

    def log_message(self, *_):
        pass


def case_a_download_goes_where_it_was_meant_to(folder):
    if not shutil.which("curl"):
        raise Skip("needs curl")
    (folder / "mine").write_text("years of work")
    (folder / "set.download").symlink_to("mine")
    expect(fetch(folder / "set", f"file://{folder / 'mine'}"), 73, "is a link")
    check((folder / "mine").read_text() == "years of work", "written through a link")
    (folder / "set.download").unlink()
    server = http.server.HTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    expect(fetch(folder / "set", f"http://127.0.0.1:{server.server_port}/x", environment={"no_proxy": "127.0.0.1"}), 74, "cannot download")
    server.shutdown()
    check(entries(folder) == {"mine"}, f"left behind: {entries(folder)}")


class Torn(http.server.BaseHTTPRequestHandler):
    """Ends the first answer in the middle, and serves ranges; or with `whole_only` all, whatever is asked for."""

    content = b""
    ranges: list[str] = []
    whole_only = False

    def do_GET(self):
        asked = self.headers.get("Range", "")
        self.ranges.append(asked)
        if self.whole_only:
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.content)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # curl hangs up
                self.wfile.write(self.content)
            return
        begin = int(asked[len("bytes=") :].rstrip("-")) if asked else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{len(self.content) - 1}/{len(self.content)}")
        self.send_header("Content-Length", str(len(self.content) - begin))
        self.end_headers()
        self.wfile.write(self.content[begin:] if asked else self.content[: len(self.content) // 2])

    def log_message(self, *_):
        pass


def case_a_server_without_ranges_is_asked_for_all_again(folder):
    if not shutil.which("curl"):
        raise Skip("needs curl")
    archive, wanted = pack(folder)
    Torn.content, Torn.ranges, Torn.whole_only = archive.read_bytes(), [], True
    archive.unlink()
    server = http.server.HTTPServer(("127.0.0.1", 0), Torn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/archive.tar.gz"
    local = wanted | {"no_proxy": "127.0.0.1"}
    (folder / "set.download").write_bytes(Torn.content[:1000])
    expect(fetch(folder / "set", address, environment=local), 0, "CIFAR-10")
    check(Torn.ranges == ["bytes=1000-", ""], f"asked for {Torn.ranges}")
    server.shutdown()
    Torn.whole_only = False


def case_an_interrupted_download_is_continued(folder):
    if not shutil.which("curl"):
        raise Skip("needs curl")
    archive, wanted = pack(folder)
    Torn.content, Torn.ranges = archive.read_bytes(), []
    archive.unlink()
    server = http.server.HTTPServer(("127.0.0.1", 0), Torn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/archive.tar.gz"
    local = wanted | {"no_proxy": "127.0.0.1"}
    first = fetch(folder / "set", address, environment=local)
    if first.code != 0:
        expect(first, 74, "run the same command again")
        check(entries(folder) == {"set.download"}, str(entries(folder)))
        expect(fetch(folder / "set", address, environment=local), 0, "CIFAR-10")
    check(f"bytes={len(Torn.content) // 2}-" in Torn.ranges, f"not continued: {Torn.ranges}")
    check(entries(folder) == {"set"}, f"left behind: {entries(folder)}")
    server.shutdown()


def case_what_cannot_be_had_is_named(folder):
    expect(fetch(folder / "set", "/nowhere/archive"), 66, "/nowhere/archive")
    if shutil.which("curl"):
        expect(fetch(folder / "set", "file:///nowhere/archive"), 74, "cannot download")
        # No other protocol of curl's is spoken.
        expect(fetch(folder / "set", "gopher://localhost/x"), 74, "cannot download")
    check(entries(folder) == set(), f"left behind: {entries(folder)}")


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), lambda folder: None))
