# SPDX-License-Identifier: BSD-3-Clause
"""What the end-to-end tests share: running programs, and running the cases of a file, which print PASS, FAIL or SKIP."""
import atexit
import collections
import concurrent.futures
import contextlib
import functools
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable

ROOT = pathlib.Path(__file__).absolute().parents[2]
BIN = ROOT / "build/bin"
STRIKE = str(ROOT / "build/tests/libstrike.so")  # for LD_PRELOAD: chosen calls of one rank fail, wait or end it
MPIRUN = os.environ.get("MPIRUN") or "mpirun"
# Settings of ours, options of Slurm's commands, and what a bash reads before its script: Lmod defines `module` there once more.
OF_THIS_MACHINE = ("GRADSYNC_", "SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "BASH_ENV", "BASH_FUNC_")
# Open MPI's search for fast networks takes a fifth of a second a launch; calls that are counted, the bundle and jobs of tests/slurm have
# it, as a user's. Sweeps of a calibration are short where a case does not give their sizes.
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(OF_THIS_MACHINE)} | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
    "I_MPI_THREAD_YIELD": "2", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "GRADSYNC_SWEEP_MPIRUN": MPIRUN,
    "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": "/nonexistent", "CUDA_VISIBLE_DEVICES": "",
    "OMPI_MCA_pml": "ob1", "GRADSYNC_CALIBRATION_SIZES": "1KiB:2KiB",
}  # fmt: skip


class Failure(Exception):
    pass


class Skip(Exception):
    pass


class LauncherCrash(Exception):
    """mpirun itself ended by SIGSEGV in `orte_finalize`, after all ranks had ended: its exit code says nothing of the job. Seen with
    Open MPI 4.1.4 (PMIx handles an event while its server is closed, as in open-mpi/ompi#10117)."""


class Result:
    def __init__(self, code: int, out: str, err: str, seconds: float):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def __str__(self) -> str:
        return f"exit code {self.code}: {self.out[-800:]}{self.err[-600:]}"

    def expect(self, code: int, *texts: str) -> "Result":
        """The exit code, each text in what was printed, and one message of ours only."""
        if self.code == 139 and re.search(r"orte_finalize.*\n(?s:.*)mpirun\(", self.err):
            raise LauncherCrash(self.err[-600:])
        if self.code != code:
            raise Failure(f"exit code {self.code}, not {code}: {self.err[-600:] or self.out[-600:]}")
        for text in texts:
            if not re.search(text, self.err + self.out):
                raise Failure(f"'{text}' is not in: {self}")
        errors = [line for line in self.err.splitlines() if re.match(r"(gradsync-\w+|tests/mpi): (?!warning)", line)]
        if code not in (0, 137) and len(errors) != 1:
            raise Failure(f"{len(errors)} messages instead of one: {errors}")
        return self


class Process:
    """One that runs, from /proc: a bare system has neither ps nor pkill. A zombie does not count."""

    def __init__(self, pid: int):
        line = pathlib.Path(f"/proc/{pid}/stat").read_text()
        self.pid, self.name = pid, line[line.index("(") + 1:line.rindex(")")]
        self.state, self.parent, _, self.session = (word if word.isalpha() else int(word) for word in line[line.rindex(")") + 2:].split()[:4])
        self.command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()


def processes(**wanted) -> list:
    """Those whose attributes have these values: processes(session=pid, name="gradsync-train")."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if "session" in wanted and os.getsid(int(folder.name)) != wanted["session"]:
                continue
            process = Process(int(folder.name))
        except (OSError, ValueError):  # it has ended
            continue
        if process.state != "Z" and all(getattr(process, key) == value for key, value in wanted.items()):
            found.append(process)
    return found


def rank_pids(launcher: int) -> dict:
    """Process numbers of a trainer's ranks, by rank, in the session that the launcher began."""
    pids = {}
    for process in processes(session=launcher, name="gradsync-train"):
        with contextlib.suppress(OSError):  # it has ended
            environment = pathlib.Path(f"/proc/{process.pid}/environ").read_bytes()
            pids[int(re.search(rb"(?:OMPI_COMM_WORLD|PMI)_RANK=(\d+)", environment)[1])] = process.pid
    return pids


def kill(pids) -> None:
    """Without the program `kill`, which a bare system lacks as well. One may have ended meanwhile."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def end_session(leader: subprocess.Popen) -> None:
    """Kills whatever is left in the session that a process began, and waits for its end: a rank that is dying still holds its locks
    and files. The number of a process that was waited for may be another's by now; that cannot be while its session has a member."""
    for process in processes(session=leader.pid):
        with contextlib.suppress(OSError), open(os.pidfd_open(process.pid)) as handle:
            foreign = leader.returncode is not None and pathlib.Path(f"/proc/{leader.pid}").exists()
            if not foreign and Process(process.pid).session == leader.pid:  # what the handle is of
                signal.pidfd_send_signal(handle.fileno(), signal.SIGKILL)
                select.select([handle], [], [], 60)


def run(command: list, timeout: float = 120, environment: dict | None = None) -> Result:
    """Runs in a process group of its own, and leaves nothing of it behind."""
    start = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command], env=ENVIRONMENT | (environment or {}), cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise Failure(f"still running after {timeout} s: {err[-500:]}") from None
    # A stopped rank outlives its mpirun; the session is this command's own.
    end_session(process)
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Result(code, out, err, time.monotonic() - start)


@functools.cache
def launcher_facts() -> list:
    """The family of mpirun (open-mpi-4, open-mpi-5, hydra, intel or unknown), and the options that it is given."""
    return run([BIN / "gradsync-sweep", "mpirun", MPIRUN]).expect(0).out.split()


def family() -> str:
    return launcher_facts()[0]


def launcher() -> list:
    """mpirun with the options of its family, before -n."""
    return [MPIRUN, *launcher_facts()[1:]]


def require_open_mpi_4(why: str) -> None:
    if family() != "open-mpi-4":
        raise Skip(f"{why}: Open MPI 4's mpirun, and {MPIRUN} is of the family {family()}")


def mpirun(ranks: int) -> list:
    return [*launcher(), "-n", ranks]


def with_shared_memory(size: str) -> list:
    """A command that runs what follows it with a /dev/shm of this size, in a mount namespace of its own."""
    command = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        raise Skip("needs root and mount namespaces, to make /dev/shm small")
    return command


def synthetic(folder, train_images: int, test_images: int) -> str:
    target = folder / f"set-{train_images}"
    run([BIN / "gradsync-dataset", "synthesize", "--to", target, "--train", train_images, "--test", test_images]).expect(0)
    return str(target)


def once(make: Callable) -> Callable:
    """Makes what several cases use, and none changes, once for the same arguments: in a folder that lasts as long as the process,
    the first argument of `make`."""
    made, locks = {}, collections.defaultdict(threading.Lock)

    @functools.wraps(make)
    def shared(*arguments, **named):
        key = (*map(str, arguments), *sorted(named.items()))
        with locks[key]:
            if key not in made:
                made[key] = make(pathlib.Path(tempfile.mkdtemp(dir=lasting_folder())), *arguments, **named)
            return made[key]

    return shared


@functools.cache
def lasting_folder() -> str:
    folder = tempfile.TemporaryDirectory(prefix="gradsync-e2e-")
    atexit.register(folder.cleanup)
    return folder.name


@once
def torchscript_modules(target: pathlib.Path) -> pathlib.Path:
    """The folder with a file of each module of modules_harness.py."""
    python = os.environ.get("TORCH_PYTHON", "")
    if not python:
        raise Skip("no Python with torch (LIBTORCH= without one)")
    written = run([python, ROOT / "tests/e2e/modules_harness.py", target])
    if written.code != 0:
        raise Skip(f"{python} cannot write TorchScript: {written.err[-200:]}")
    return target


def small_runs(folder: pathlib.Path) -> pathlib.Path:
    """Two epochs of a small set: one rank without exchange, two that overlap it."""
    runs = folder / "runs"
    runs.mkdir()
    data = synthetic(folder, 640, 64)
    for ranks, mode, batch in ((1, "none", 32), (2, "ddp", 16)):
        run(mpirun(ranks) + [BIN / "gradsync-train", "--model", "lenet", "--data", data, "--evaluate", "shard", "--sync", mode,
                             "--batch-per-rank", batch, "--epochs", 2, "--output", runs / f"{mode}.h5"]).expect(0)  # fmt: skip
    return runs


def checkout(folder: pathlib.Path, site: str = "") -> pathlib.Path:
    """A folder as a checkout is for Slurm's jobs, whose slurm/site says `site`: that of the real one is its user's."""
    shutil.copytree(ROOT / "slurm", folder / "slurm")
    (folder / "slurm/site").write_text(site)
    (folder / "build").symlink_to(ROOT / "build")
    return folder


def check(fine: bool, found: object) -> None:
    """`found` is what it says where not: a text, or the Result."""
    if not fine:
        raise Failure(str(found))


def place_of(error: Exception) -> str:
    """The line of a case that failed: one text may be of several checks."""
    places = [(pathlib.Path(frame.filename).name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return "{}:{}".format(*next((place for place in places[::-1] if not place[0].endswith("harness.py")), places[-1]))


def run_case(title: str, case: Callable, after_crash: bool = False) -> bool:
    """In an empty folder. False if it failed: whatever a case does, the others still run. Once more if mpirun crashed."""
    with tempfile.TemporaryDirectory(prefix="gradsync-e2e-") as folder:
        start = time.monotonic()
        try:
            case(pathlib.Path(folder))
            print(f"PASS {title} ({time.monotonic() - start:.1f} s)", flush=True)
        except Skip as reason:
            print(f"SKIP {title}: {reason}", flush=True)
        except Exception as error:
            if isinstance(error, LauncherCrash) and not after_crash:
                print(f"{title}: mpirun crashed in orte_finalize; the case is run again", flush=True)
                return run_case(title, case, after_crash=True)
            print(f"FAIL {title}: {place_of(error)}: {error!r}"[:1500].replace("\n", " | "), flush=True)
            return False
    return True


def alone(case: Callable) -> Callable:
    """Marks a case that looks at all processes or files of the machine, or at times: no other runs at the same time."""
    case.alone = True
    return case


def run_cases(names: dict, prepare: Callable, at_once: int = 1) -> int:
    """The functions of `names` called case_…, or those that the command line names; `prepare` gets a folder that lasts
    as long as they do. Cases that mostly wait may run several `at_once`. Returns the exit code."""
    chosen = sys.argv[1:]
    cases = {name.removeprefix("case_"): case for name, case in names.items() if name.startswith("case_")}
    wanted = [(name.replace("_", " "), case) for name, case in cases.items() if not chosen or name in chosen]
    together = [case for case in wanted if at_once > 1 and not hasattr(case[1], "alone")]
    with tempfile.TemporaryDirectory(prefix="gradsync-e2e-") as shared:
        prepare(pathlib.Path(shared))
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            passed = list(pool.map(lambda case: run_case(*case), together))
        # In the main thread, where a case may set a signal handler.
        passed += [run_case(*case) for case in wanted if case not in together]
    return 0 if all(passed) else 1
