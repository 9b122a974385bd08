#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Bad input for every program: the options that its help states, times what can be wrong with a value, a file, a folder or
standard output. A program ends within ten seconds with a code that its help documents, and with a message of at most 1,000
bytes, without control characters, that names what was given and has a fix; nothing is left behind.

usage: inputs.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import functools
import os
import pathlib
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import time

import harness
from harness import BIN, ENVIRONMENT, ROOT, Failure, Skip, check, mpirun, run, synthetic

LIMIT_S = 60
MOST_BYTES = 1000
WORD = "x" * 3000
USAGE, BAD_DATA, NO_INPUT, UNAVAILABLE, CANNOT_CREATE, INPUT_OUTPUT, STOPPED = 64, 65, 66, 69, 73, 74, 75
DATA = RUN = CHECKPOINT = JOB = ""
PUBLISHED = str(ROOT / "results/published/reports.csv")
tried = 0

# What an option of a path is for; one that is not here fails its case. "word" is the argument without an option.
READS = set("config site sizes-from expect sacct calibration trace-in verify-claims as checkpoint data resume word".split())
WRITES = set("output json junit html trace claims save results to".split())
NO_FILES = {"mpirun", "sysfs"}  # a program on the PATH; a folder for tests
FOLDERS = {"data", "results", "to", "verify word", "report output", "compare output", "audit output"}
FREE_TEXTS = {"title", "trace-model", "launcher-options", "gpu-request"}
# Programs that start LibTorch, which takes half a second of CPU time: every twelfth option, and fewer files.
SLOW = {"train", "quantize", "check"}


class Program:
    """`word` is its argument without an option, a file or folder that is read; `prefix` a command of the program."""

    def __init__(self, name: str, arguments: list, prefix: tuple = (), program: str = "", word: str = ""):
        self.name, self.arguments, self.prefix, self.word = name, arguments, list(prefix), word
        self.program = BIN / f"gradsync-{program or name}"

    def command(self, *arguments, without: str = "") -> list:
        """With the usual arguments, of which an option may be left out."""
        usual = list(self.arguments)
        if f"--{without}" in usual:
            at = usual.index(f"--{without}")
            del usual[at:at + 2]
        if without in ("verify-claims", "word"):
            usual.remove(self.word)
        return [self.program, *self.prefix, *usual, *arguments]

    @functools.cached_property
    def help(self) -> str:
        return run([self.program, *self.prefix, "--help-all"]).expect(0).out

    @functools.cached_property
    def codes(self) -> set:
        return {int(code) for code in re.findall(r"^  +(\d+)  ", self.help.split("Exit codes\n")[1], re.M)}

    @functools.cached_property
    def options(self) -> dict:
        """The value names of all options that take a value."""
        found = dict(re.findall(r"^  (?:-\w, )?--([a-z0-9-]+) (\S.*?)(?:  |$)", self.help, re.M))
        if self.name == "verify":  # the help is that of all commands
            found = {name: found[name] for name in ("config", "site", "json")}
        check(len(found) > 2, f"{self.name}: no option in the help")
        return found

    def paths(self) -> list:
        words = [name for name, value in self.options.items() if re.search(r"FILE|FOLDER|DIR|\.h5|LAYOUT|PROGRAM", value)]
        unknown = [name for name in words if name not in READS | WRITES | NO_FILES]
        check(not unknown, f"{self.name}: is --{unknown} read or written? (READS, WRITES)")
        return words + ["word"] * bool(self.word)

    def is_folder(self, option: str) -> bool:
        return option in FOLDERS or f"{self.name} {option}" in FOLDERS

    def values(self) -> list:
        chosen = [name for name in self.options if name not in self.paths() and name not in FREE_TEXTS]
        return chosen[::12] if self.name in SLOW else chosen


@functools.cache
def programs() -> dict:
    training = ["--model", "lenet", "--data", DATA, "--sync", "none", "--threads", 1, "--evaluate", "none", "--iterations", 1]
    all_of_them = [
        Program("train", training),
        Program("calibrate", ["-b", 64, "-e", 64, "-n", 1, "-w", 1, "--collective", "broadcast"]),
        Program("check", ["--threads", 1, "--data", DATA]),
        Program("quantize", ["--checkpoint", CHECKPOINT, "--data", DATA, "--threads", 1, "--calibration-images", 8]),
        Program("sweep", [JOB], word=JOB),
        Program("dataset", [], ["synthesize"]),
        Program("verify", [DATA], ["verify"], "dataset", DATA),
        Program("report", [RUN], word=RUN),
        Program("compare", [RUN, RUN], ["compare"], "report", RUN),
        Program("audit", [PUBLISHED], word=PUBLISHED),
    ]
    return {program.name: program for program in all_of_them}


# What Open MPI prints when a rank ends the job.
OF_MPI = re.compile(r"-{20}|MPI_ABORT was invoked|with errorcode|NOTE: invoking MPI_ABORT|You may or may not see output|"
                    r"exactly when Open MPI kills them|.*ORTE_ERROR_LOG")  # fmt: skip


def judge(result, codes: set, program: Program, what: str, *names: str) -> None:
    """Raises Failure unless the program ended as described above."""
    global tried
    tried += 1
    text = "\n".join(line for line in result.err.splitlines() if not OF_MPI.match(line)).strip()
    said = f"{program.name} {what}: exit code {result.code}: {text[:300]!r}"
    check(result.code in codes, f"{said}, not {sorted(codes)}")
    check(result.code in program.codes, f"{said}: this code is not in --help-all")
    check(result.seconds < LIMIT_S, f"{said} after {result.seconds:.0f} s")
    check(len(text.encode()) <= MOST_BYTES, f"{said}: {len(text.encode())} bytes")
    check(not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text + result.out), f"{said}: control characters in {text + result.out!r}")
    check("\n  fix: " in text, f"{said}: no fix")
    check(any(name in text for name in names), f"{said}: names none of {names}")


class Judged:
    """The failures of the inputs of a case, whose files are in a folder."""

    def __init__(self, program: Program, folder: pathlib.Path):
        self.program, self.folder, self.failures = program, folder, []

    def run(self, codes: set, what: str, names: list, command: list) -> None:
        before = set(self.folder.rglob("*"))
        try:
            judge(run(command, timeout=3 * LIMIT_S), codes, self.program, what, *names)
            left = set(self.folder.rglob("*")) - before
            check(not left, f"{self.program.name} {what}: left behind: {left}")
        except Failure as failure:
            self.failures.append(str(failure))

    def require_none(self) -> None:
        for failure in self.failures:
            print(f"    {failure[:500]}")
        check(not self.failures, f"{len(self.failures)} inputs")


def bad_inputs(folder: pathlib.Path) -> dict:
    """Paths that no program can read as a file, with the codes that say so, and files that hold nothing of use."""
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    useless = {"long": b"y" * 3_000_000, "latin1": b"caf\xe9 \xff\n", "escapes": b"\x1b]0;owned\x07\x1b[2J\n",
               "binary": bytes(range(256)) * 20, "truncated": pathlib.Path(RUN).read_bytes()[:2000]}  # fmt: skip
    for name, content in useless.items():
        (folder / f"{name}.json").write_bytes(content)
    missing, special = {NO_INPUT}, {BAD_DATA, NO_INPUT}
    paths = {"missing.json": missing, "loop": missing, WORD: missing, "fifo": special, "socket": special, "folder": special}
    return paths | {f"{name}.json": {USAGE, BAD_DATA, NO_INPUT} for name in useless}


def is_other_input(program: Program, option: str, bad: str) -> bool:
    """What is no bad input of this option, or is left to a faster program."""
    if program.name == "check" and option == "data":
        return True  # one finding among others: see check.py
    if option in ("as", "word") and program.name in ("report", "compare") and bad == "folder":
        return True  # one without runs has a message of its own
    if option == "as" and "." not in bad and bad != WORD:
        return True  # the name of a layout
    return program.name in SLOW and bad in ("socket", "binary.json", "latin1.json", "escapes.json", "truncated.json")


def bad_outputs(folder: pathlib.Path, for_folder: bool) -> list:
    """Paths where nothing can be written."""
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "file").write_text("mine")
    (folder / "folder").mkdir()
    paths = ["fifo", "loop", WORD, "file/x"]
    if not for_folder:
        paths += ["folder", "nodir/x"]
        try:
            os.mknod(folder / "full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
            paths.append("full")
        except PermissionError:
            pass
    return paths


def try_input(judged: Judged, option: str) -> None:
    program = judged.program
    for bad, codes in bad_inputs(judged.folder).items():
        if is_other_input(program, option, bad):
            continue
        if program.is_folder(option):
            codes = {NO_INPUT, UNAVAILABLE} if bad == "folder" else {NO_INPUT}
        if option in ("as", "expect"):  # a name, or rules, as well
            codes = codes | {USAGE}
        given = judged.folder / bad
        argument = given if option == "word" else f"--{option}={given}"
        judged.run(codes, f"--{option} {bad[:20]}", [str(given)[:100], f"--{option}"], program.command(argument, without=option))


def try_output(judged: Judged, option: str) -> None:
    program, folder = judged.program, judged.folder
    more = []
    if program.name == "dataset":
        more = ["--train", 10, "--test", 10] + ["--to", folder / "set"] * (option != "to")
    elif option == "save" and program.name == "report":
        more = ["--trace-in", RUN]
    for bad in bad_outputs(folder, program.is_folder(option)):
        command = program.command(f"--{option}={folder / bad}", *more, without=option)
        judged.run({CANNOT_CREATE}, f"--{option} {bad[:20]}", [str(folder / bad)[:100], f"--{option}"], command)
        check((folder / "file").read_text() == "mine", f"{program.name} --{option} {bad}: changed another file")


def paths_of(program: Program, folder: pathlib.Path) -> None:
    judged = Judged(program, folder)
    for option in program.paths():
        if option in NO_FILES or (program.name == "check" and option == "results"):
            continue
        if program.name in SLOW and option in ("config", "site") and (program.name, option) != ("train", "config"):
            continue  # read by the code that reads those of the other programs
        judged.folder = folder / option
        judged.folder.mkdir()
        (try_input if option in READS else try_output)(judged, option)
    judged.require_none()


def values_of(program: Program, folder: pathlib.Path) -> None:
    judged = Judged(program, folder)
    for option in program.values():
        for value in [WORD] + ["\x1b]0;owned\x07", "caf\udce9"] * (program.name not in SLOW):
            judged.run({USAGE}, f"--{option} {value[:12]!r}", [f"--{option}"], program.command(f"--{option}={value}", without=option))
    for argument in (f"--{WORD}", f"--no-{WORD}", "-Z"):
        judged.run({USAGE}, argument[:12], [argument[:20]], program.command(argument))
    judged.require_none()


def misspelt(word: str) -> str:
    """Two neighbors in the middle change places."""
    at = next(at for at in range(1, len(word) - 1) if word[at] != word[at + 1])
    return word[:at] + word[at + 1] + word[at] + word[at + 2:]


def lists_of(program: Program, folder: pathlib.Path) -> None:
    """Of each option that takes names of a list, one that is misspelt: the right one is proposed."""
    global tried
    judged = Judged(program, folder)
    for option in program.values():
        refused = run(program.command(f"--{option}=nonesuch", without=option))
        names = re.search(r"give one of (.*)", refused.err)
        words = [word for word in names[1].split(", ") if re.fullmatch(r"[a-z0-9-]{5,}", word)] if names else []
        if not words:
            continue
        tried += 1
        result = run(program.command(f"--{option}={misspelt(words[-1])}", without=option))
        if result.code != USAGE or f"did you mean {words[-1]}?" not in result.err:
            judged.failures.append(f"{program.name} --{option}={misspelt(words[-1])}: {result.code}, {result.err[:300]!r}")
    judged.require_none()


def into(target: str, command: list) -> list:
    return ["sh", "-c", f'exec "$@" {target}', "sh", *command]


def outputs_of(program: Program, folder: pathlib.Path) -> None:
    """Standard output that cannot be written: 74, by the work and by each question."""
    judged = Judged(program, folder)
    asked = ["--help"] + ["--version", "--help-all", "--help-man", "--help-bash"] * (program.name not in SLOW)
    commands = [[program.program, *program.prefix, argument] for argument in asked]
    commands += {
        "train": [program.command(), program.command("--print-config")],
        "verify": [program.command(), [program.program, "info", DATA]],
        "sweep": [program.command("--dry-run"), program.command("--list"), program.command("--status")],
        "dataset": [],
        "report": [program.command(), program.command("--list"), program.command("--json", "-"), program.command("--print-config")],
    }.get(program.name, [program.command()])
    for command in commands:
        for target in (">/dev/full", ">&-"):
            judged.run({INPUT_OUTPUT}, f"{' '.join(map(str, command[1:]))} {target}", ["standard output"], into(target, command))
    judged.require_none()


def make_cases() -> None:
    """case_paths_of_train and so on: each kind for each program."""
    for name in ("train", "calibrate", "check", "quantize", "sweep", "dataset", "verify", "report", "compare", "audit"):
        for kind in (paths_of, values_of, outputs_of) + (lists_of,) * (name not in ("check", "quantize")):
            def case(folder, kind=kind, name=name):
                kind(programs()[name], folder)
            globals()[f"case_{kind.__name__}_{name}"] = case


make_cases()


# --- the inputs that a review found ---------------------------------------------------------------------------------------------


def program(name: str, *arguments) -> list:
    return programs()[name].command(*arguments)


def case_01_calibrate_on_a_full_device(folder):
    run(into(">/dev/full", program("calibrate"))).expect(INPUT_OUTPUT, "standard output cannot be written")


def case_02_check_on_a_full_device(folder):
    run(into(">/dev/full", program("check"))).expect(INPUT_OUTPUT, "standard output cannot be written")


def case_03_calibrate_with_closed_output(folder):
    run(into(">&-", program("calibrate", "--output", folder / "c.h5"))).expect(INPUT_OUTPUT, "standard output is closed")
    check(b"busbw" not in (folder / "c.h5").read_bytes()[:200], "what was printed went into a file")


def case_04_train_on_a_full_device(folder):
    run(into(">/dev/full", program("train"))).expect(INPUT_OUTPUT, "standard output cannot be written")


def case_05_a_job_file_that_is_a_fifo(folder):
    os.mkfifo(folder / "fifo")
    run(program("train", "--config", folder / "fifo"), timeout=LIMIT_S).expect(BAD_DATA, "fifo' is a FIFO, not a file")
    # What a shell puts in place of <(command) is read.
    given = run(["bash", "-c", 'exec "$@" --print-config --config <(echo "lr = 0.7")', "bash", *program("train")])
    given.expect(0, r"lr +. = 0.7|lr += 0.7")


def case_06_a_run_that_is_a_fifo(folder):
    os.mkfifo(folder / "fifo.h5")
    run([BIN / "gradsync-report", folder / "fifo.h5"], timeout=LIMIT_S).expect(BAD_DATA, "is a FIFO, not a file")


def small_shared_memory(command: list, size: str = "64k") -> list:
    if os.geteuid() != 0 or run(["unshare", "-m", "true"]).code != 0:
        raise Skip("no mount namespace: needs root")
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"', "sh", *command]


def case_07_train_without_room_in_shared_memory(folder):
    result = run(small_shared_memory(mpirun(2) + programs()["train"].command("--sync", "ddp", without="sync")))
    check(result.code in (0, UNAVAILABLE), f"{result.code}: {result.err[-600:]}")
    check(result.code == 0 or "/dev/shm" in result.err, f"no message: {result.err[-600:]}")


def case_07_collectives_with_little_room_in_shared_memory(folder):
    """Its own counters fit, no buffer does."""
    tests = pathlib.Path(BIN).parent / "tests/mpi"
    for cases in ("two levels*", "shm: sums*"):
        run(small_shared_memory(mpirun(3) + [tests, "--no-colors", f"--test-case={cases}"], "15m")).expect(0, "0 failed")


def case_08_calibrate_without_room_in_shared_memory(folder):
    result = run(small_shared_memory(mpirun(2) + program("calibrate", "--transport", "shm")))
    result.expect(UNAVAILABLE, "/dev/shm")


def case_09_check_without_room_in_shared_memory(folder):
    run(small_shared_memory(mpirun(2) + program("check"))).expect(UNAVAILABLE, "shared-memory.space")


def case_10_outputs_are_checked_before_the_work(folder):
    for name, option in (("calibrate", "--json"), ("check", "--json"), ("check", "--junit"), ("quantize", "--save"),
                         ("report", "--html"), ("report", "--claims"), ("sweep", "--json")):  # fmt: skip
        result = run(program(name, option, folder / "nodir/x")).expect(CANNOT_CREATE, f"mkdir -p {folder}/nodir")
        check(not re.search("busbw|^pass|^warn", result.out, re.M), f"{name} {option} worked first: {result.out[:300]}")


def stopped(command: list, number: int, after: str, folder: pathlib.Path) -> tuple:
    """The command's code and errors, when it is sent a signal once `after` is in its output."""
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        process = subprocess.Popen([str(part) for part in command], env=ENVIRONMENT, stdout=out, stderr=err, start_new_session=True)
    end = time.monotonic() + 30
    while after not in (folder / "out").read_text() + str(list(folder.iterdir())):
        check(time.monotonic() < end and process.poll() is None, f"ended before the signal: {(folder / 'err').read_text()}")
        time.sleep(0.02)
    process.send_signal(number)
    code = process.wait(timeout=LIMIT_S)
    harness.end_session(process)
    return code, (folder / "err").read_text()


def case_11_calibrate_ends_on_request(folder):
    for number in (signal.SIGINT, signal.SIGTERM):
        command = [BIN / "gradsync-calibrate", "-b", "1MiB", "-e", "64MiB", "-n", 2000, "--output", folder / "c.h5"]
        code, err = stopped(command, number, "GB/s", folder)
        check(code == STOPPED, f"signal {number}: {code}: {err}")
        check(not (folder / "c.h5.journal.lock").exists(), "the lock is left")
        for path in folder.glob("c.h5*"):
            path.unlink()


def case_12_a_size_in_the_unit_of_the_limit(folder):
    run([BIN / "gradsync-calibrate", "-b", "1TiB", "-e", "1TiB", "--print-config"]).expect(0, "minbytes .* = 1TiB")


def case_13_results_in_a_loop(folder):
    (folder / "loop").symlink_to("loop")
    run(program("sweep", "--results", folder / "loop")).expect(CANNOT_CREATE, "--results")


def case_14_a_checkpoint_in_a_loop(folder):
    (folder / "loop").symlink_to("loop")
    run(programs()["quantize"].command("--checkpoint", folder / "loop", without="checkpoint")).expect(NO_INPUT, "loop")


def case_15_a_job_file_of_one_line_of_3_MB(folder):
    (folder / "job.cfg").write_text("y" * 3_000_000)
    result = run([BIN / "gradsync-sweep", folder / "job.cfg"]).expect(USAGE, "3000000 bytes", "job.cfg:1")
    check(len(result.err) < MOST_BYTES, f"{len(result.err)} bytes")


def case_16_a_grid_that_is_too_large(folder):
    numbers = ", ".join(str(number) for number in range(1, 301))
    (folder / "job.cfg").write_text(f"name = large\nseed = {numbers}\nbatch-per-rank = {numbers}\niterations = {numbers}\nranks = 1\n")
    judge(run([BIN / "gradsync-sweep", folder / "job.cfg", "--dry-run"]), {USAGE}, programs()["sweep"], "a large grid", "job.cfg")


def case_17_an_empty_job_file(folder):
    (folder / "job.cfg").write_text("# nothing\n")
    judge(run([BIN / "gradsync-sweep", folder / "job.cfg", "--dry-run"]), {USAGE}, programs()["sweep"], "an empty job file", "job.cfg")


def case_18_a_data_set_is_whole_or_not_there(folder):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        place = folder / str(int(number))
        place.mkdir()
        command = [BIN / "gradsync-dataset", "synthesize", "--to", place / "set", "--train", 200000]
        code, err = stopped(command, number, "set.partial-", place)
        check(code == STOPPED and "fix:" in err, f"{code}: {err}")
        check({path.name for path in place.iterdir()} == {"out", "err"}, f"left: {list(place.iterdir())}")


def case_19_a_reader_that_goes(folder):
    # Training ends as by a signal, or with 74; what it has measured is kept, and nothing is in the way of the next start.
    output = folder / "run.h5"
    result = run(["bash", "-c", 'set -o pipefail; "$@" | true', "bash", *program("train", "--output", output)])
    check(result.code in (0, INPUT_OUTPUT, STOPPED), f"{result.code}: {result.err}")
    check(output.exists() and not list(folder.glob("*.lock")), f"there are {list(folder.iterdir())}")
    # Other programs end as shells expect, after their work.
    page = folder / "page.html"
    result = run(["bash", "-c", 'set -o pipefail; "$@" | true', "bash", *program("report", "--html", page)])
    check(result.code in (0, 141) and page.exists() and not re.search("gradsync-report: (?!warning)", result.err), f"{result.code}: {result.err}")


def case_20_more_iterations_than_the_epochs_have(folder):
    run(programs()["train"].command("--iterations", 4000, without="iterations")).expect(0, r"--iterations 4000 is more than .*--epochs")


def case_21_a_table_that_is_misspelt(folder):
    result = run(program("report", "--table", "sumary")).expect(USAGE, r"'sumary' is no table; did you mean summary\?")
    check(max(map(len, result.err.splitlines())) < 600, f"long lines: {result.err}")


# --- as another user, and on a machine that others use --------------------------------------------------------------------------


def case_no_rights(folder):
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if os.geteuid() != 0 or run([*other, "test", "-x", BIN / "gradsync-report"]).code != 0:
        raise Skip("no other user can run the programs: needs root and a build that others can read")
    folder.chmod(0o755)
    secret = folder / "secret"
    secret.write_text("x = 1\n")
    secret.chmod(0o600)
    failures = []
    for name in ("calibrate", "report", "sweep", "dataset", "compare"):
        judged = Judged(programs()[name], folder)
        for option in ("config", "site"):
            command = judged.program.command(f"--{option}={secret}")
            judged.run({NO_INPUT}, f"--{option} without rights", [str(secret)], other + command)
        output = ["--to", folder / "set", "--train", 10] if name == "dataset" else ["--json", folder / "x.json"]
        judged.run({CANNOT_CREATE}, f"{output[0]} without rights", [str(folder)], other + judged.program.command(*output))
        failures += judged.failures
    check(not failures, "\n".join(failures))


def case_a_name_that_is_a_control_sequence(folder):
    """Of a run file, and in it: nothing of it reaches the terminal or a file."""
    named = folder / "\x1b]0;owned\x07.h5"
    named.write_bytes(pathlib.Path(RUN).read_bytes())
    result = run([BIN / "gradsync-report", named, "--format", "all", "--output", folder / "tables", "--table", "all"])
    check(not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", result.out + result.err), f"{(result.out + result.err)[:500]!r}")
    check(result.code in (0, USAGE), result)
    (folder / "x.csv").write_text("model,quantity,value\n\x1b]0;owned\x07,epoch time,1\n")
    result = run([BIN / "gradsync-audit", folder / "x.csv", "--table", "all"]).expect(0, r"\\x1b]0;owned\\x07")
    check(not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", result.out + result.err), f"{(result.out + result.err)[:500]!r}")
    (folder / "x.csv").unlink()
    for path in folder.rglob("*.*"):
        if path.suffix in (".txt", ".md", ".csv", ".json"):
            check(not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", path.read_bytes()), f"{path} has control characters")


def prepare(folder) -> None:
    global DATA, RUN, CHECKPOINT, JOB
    DATA = str(synthetic(folder, 640, 64))
    RUN, CHECKPOINT = str(folder / "run.h5"), str(folder / "run.checkpoints")
    run([BIN / "gradsync-train", "--model", "lenet", "--data", DATA, "--sync", "none", "--threads", 1, "--evaluate", "none",
         "--iterations", 4, "--batch-per-rank", 8, "--checkpoint-every", "end", "--output", RUN]).expect(0)  # fmt: skip
    JOB = str(folder / "job.cfg")
    pathlib.Path(JOB).write_text(
        f"name = inputs\nmodel = lenet\nsync = none\nranks = 1\niterations = 1\ndata = {DATA}\nresults = {folder}/results\n")


if __name__ == "__main__":
    code = harness.run_cases(globals(), prepare, at_once=2)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{tried} inputs, {used.ru_utime + used.ru_stime:.0f} s of CPU time", flush=True)
    sys.exit(code)
