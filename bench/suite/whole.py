#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A whole training step of one process of two threads, each network: gradsync against Python's PyTorch, default and
best settings of layout, precision and torch.compile on this machine.

usage: whole.py [ROUNDS]    (make bench PARTS=whole)
"""
import itertools
import json
import pathlib
import statistics
import sys
import tempfile

from bench import BIN, ROOT, TUNED_MEMORY, Part, interleave, main, mpirun, ratio, run, torch_python
from training import Recorded, train_command

THREADS = 2
DEFAULT = ("nchw", "fp32", "eager")
NETWORKS = {"vgg11": (64, 12), "resnet18": (32, 8), "lenet": (128, 200)}  # batch, iterations


def ours(model: str, batch: int, iterations: int, precision: str):
    def measure() -> float:
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "run.h5"
            command = train_command(output, model, "none", batch, iterations, "--precision", precision)
            command[command.index("--threads") + 1] = THREADS
            run([*mpirun(1)[:3], "--bind-to", "none", *command])
            return Recorded(output).step_s

    return measure


def python(model: str, batch: int, iterations: int, layout: str, precision: str, compiled: str):
    settings = {} if (layout, precision, compiled) == DEFAULT else TUNED_MEMORY

    def measure() -> float:
        command = [torch_python(), ROOT / "bench/suite/peer_step.py", model, batch, iterations, THREADS, layout, precision, compiled]
        return json.loads(run(command, settings, timeout=900).splitlines()[-1])["step_s"]

    return measure


def compare(part: Part, model: str, rounds: int) -> list[list]:
    batch, iterations = NETWORKS[model]
    peers = {f"PyTorch, {', '.join(how)}": python(model, batch, iterations, *how)
             for how in itertools.product(("nchw", "nhwc"), ("fp32", "bf16"), ("eager", "compiled"))}  # fmt: skip
    own = {f"gradsync, {precision}": ours(model, batch, iterations, precision) for precision in ("fp32", "bf16")}
    times = interleave(own | peers, rounds)
    middle = {name: statistics.median(each) for name, each in times.items()}
    fastest, best = min(own, key=middle.get), min((name for name in peers if name in middle), key=middle.get)
    default = f"PyTorch, {', '.join(DEFAULT)}"
    part.goal(f"{model}: PyTorch's best ({best}) over gradsync ({fastest})", ratio(times[best], times[fastest]).median, 1)
    part.note(f"{model}: PyTorch, default settings, over gradsync: {ratio(times[default], times[fastest])}")
    return [[model, batch, name, middle[name] * 1e3, ratio(each, times[fastest])] for name, each in times.items()]


def body() -> None:
    torch_python()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    part = Part("whole", f"A whole training step of one process of {THREADS} threads, data to update")
    part.note(f"medians of {rounds} interleaved rounds [lowest, highest]; gradsync's step loads and augments its images, PyTorch's has them beforehand; "
              "except for PyTorch with default settings, malloc keeps what is freed, as gradsync sets it")  # fmt: skip
    rows = []
    for model in NETWORKS:
        rows += compare(part, model, rounds)
    part.table(["model", "batch", "contender", "step_ms", "over gradsync's best"], rows)
    part.finish()


if __name__ == "__main__":
    main(body)
