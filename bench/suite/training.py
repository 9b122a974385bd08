# SPDX-License-Identifier: BSD-3-Clause
"""Runs of gradsync-train, and of PyTorch's DistributedDataParallel, as contenders of the benchmark's parts."""
import json
import math
import pathlib
import re
import tempfile

from bench import BIN, ROOT, TUNED_MEMORY, mpirun, run, torch_python
from link import INTERFACE, Link, address

try:
    import h5py
    import numpy
except ImportError:
    raise SystemExit("SKIP: needs a Python with h5py and numpy (make deps)") from None

WARMUP = 3


def images() -> pathlib.Path:
    """Times do not depend on what is in the images: the synthetic set."""
    folder = ROOT / "build/bench/images"
    if not (folder / "data_batch_1.bin").exists():
        run([BIN / "gradsync-dataset", "synthesize", "--to", folder, "--train", 20000, "--test", 100])
    return folder


class Recorded:
    """Of a run file: medians over the iterations after the warm-up, of the slowest rank; s."""

    def __init__(self, path: pathlib.Path):
        with h5py.File(path) as file:
            steady = file["iteration/warmup"][:] == 0
            steady[:WARMUP] = False
            self.step_s = float(numpy.median(file["time/iteration"][:][steady].max(axis=1)))
            self.exposed_s = float(numpy.median(file["time/exposed"][:][steady].max(axis=1)))
            self.ready_s, self.bytes = self.buckets(file, steady)
            until_backward_ends = sum(file[f"time/{name}"][:][steady] for name in ("data", "forward", "backward"))
            self.backward_end_s = float(numpy.median(until_backward_ends.max(axis=1)))

    @staticmethod
    def buckets(file, steady) -> tuple:
        """When each bucket of gradients was ready, s since its iteration began, and what it held."""
        bytes_held = file["bucket/bytes"][:][steady]
        used = bytes_held[-1] > 0
        ready_s = file["bucket/ready"][:][steady][:, used]
        return numpy.median(ready_s.max(axis=2), axis=0).tolist(), bytes_held[-1][used].tolist()


class Epochs:
    """Of a run file: running time until each epoch ended, s (slowest rank, without evaluation), and its test accuracy, %."""

    def __init__(self, path: str):
        with h5py.File(path) as file:
            self.until_s = numpy.cumsum(file["epoch/running_time"][:].max(axis=1))
            self.percent = 100 * file["epoch/test_accuracy"][:].mean(axis=1)

    def time_to(self, percent: float) -> float:
        """Infinite where no epoch reaches it."""
        return next((float(until) for until, reached in zip(self.until_s, self.percent) if reached >= percent), math.inf)

    def at(self, time_s: float) -> float:
        """Accuracy of the last epoch that had ended by then; nan where none had."""
        ended = self.percent[self.until_s <= time_s]
        return float(ended[-1]) if len(ended) else math.nan


def train_command(output, model: str, sync: str, batch: int, iterations: int, *options) -> list:
    return [BIN / "gradsync-train", "--device", "cpu", "--model", model, "--compare" if "," in sync else "--sync", sync, "--data", images(), "--batch-per-rank", batch,
            "--threads", 1, "--iterations", iterations + WARMUP, "--warmup", WARMUP, "--evaluate", "none", "--log-every", 100000,
            "--lr", 0.01, "--epochs", 1000, "--output", output, *options]  # fmt: skip


def file_of(folder: str, contender: str) -> str:
    """Of a job with --output FOLDER/a.h5."""
    return f"{folder}/a-{re.sub('[:=]', '-', contender)}.h5"


def trained(ranks: int, *words):
    """words: of train_command, after its first."""

    def measure() -> Recorded:
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "run.h5"
            run([*mpirun(ranks), *train_command(output, *words)])
            return Recorded(output)

    return measure


def ddp_command(*words) -> list:
    return [torch_python(), ROOT / "bench/suite/peer_ddp.py", *words]


def ddp_over(link: Link, *words) -> dict:
    """What it says of a rank on each side of the link; words: of peer_ddp.py, from its model on."""
    kept = [f"{name}={value}" for name, value in TUNED_MEMORY.items()]
    commands = [["env", *kept, "taskset", "-c", rank, *ddp_command(rank, 2, address(0), INTERFACE, *words)] for rank in (0, 1)]
    return json.loads(link.pair(commands)[0].splitlines()[-1])


def ddp_on_this_host(ranks: int, model: str, batch: int, iterations: int, cap_mib: float = 25):
    """PyTorch's DistributedDataParallel over Gloo: median step time, s."""

    def measure() -> float:
        command = ddp_command(-1, ranks, "127.0.0.1", "lo", model, batch, iterations, cap_mib)
        return json.loads(run(command, TUNED_MEMORY).splitlines()[-1])["step_s"]

    return measure

