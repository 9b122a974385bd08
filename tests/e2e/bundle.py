#!/usr/bin/env python3
"""The bundle (make bundle), copied elsewhere: two ranks train with its own MPI and the machine's PyTorch.

usage: bundle.py [NAME...]    (run by tests/run, which sets TORCH_PYTHON; SKIP where there is no build/bundle)
"""
import os
import pathlib
import re
import shutil
import sys

import harness
from harness import ROOT, Failure, Skip, run, synthetic

BUNDLE = ROOT / "build/bundle"
DATA = ""
# What a bundle must bring itself; its copies lie elsewhere.
OF_THE_SYSTEM = re.compile(r"^(?:/usr)?/lib\S*/(?:openmpi|pmix|lib(?:mpi|open-rte|open-pal|pmix|hdf5|boost|fmt|hwloc|event|crypto)\b)")


def copied(folder) -> pathlib.Path:
    if not (BUNDLE / "run").exists():
        raise Skip("there is no bundle (make bundle)")
    if not os.environ.get("TORCH_PYTHON"):
        raise Skip("no Python with torch (LIBTORCH= without one)")
    shutil.copytree(BUNDLE, folder / "elsewhere")
    return folder / "elsewhere"


def environment(folder, **more) -> dict:
    """Neither this build's MPI settings nor its paths."""
    return {"PYTHON": os.environ["TORCH_PYTHON"], "MPIRUN": "/none", "OPAL_PREFIX": "/none", "PATH": "/usr/bin:/bin", **more}


def training(bundle, folder) -> list:
    return [bundle / "run", "-n", 2, "gradsync-train", "--model", "lenet", "--data", DATA, "--batch-per-rank", 16,
            "--iterations", 8, "--evaluate", "none", "--output", folder / "run.h5"]  # fmt: skip


def case_two_ranks_train_and_load_nothing_of_the_systems_mpi_or_hdf5(folder):
    bundle = copied(folder)
    trace = environment(folder, LD_DEBUG="libs", LD_DEBUG_OUTPUT=str(folder / "loaded"))
    run(training(bundle, folder), environment=trace, timeout=600).expect(0, "ddp, 2 ranks", "run file")
    logs = [path.read_text(errors="replace") for path in folder.glob("loaded.*")]
    ranks = [text for text in logs if "libtorch_cpu.so" in text]
    if len(ranks) < 2:
        raise Failure(f"{len(ranks)} of {len(logs)} processes loaded LibTorch")
    for text in logs:
        loaded = re.findall(r"calling init: (\S+)", text)
        if strangers := sorted(path for path in loaded if OF_THE_SYSTEM.match(path)):
            raise Failure(f"loaded from the system: {strangers}")
    for part in ("mpi/plugins/mca_pml_ob1.so", "lib/libmpi.so", "lib/libhdf5"):
        if not any(str(bundle / part) in text for text in ranks):
            raise Failure(f"no rank loaded the bundle's {part}")
    run([bundle / "run", "gradsync-report", folder / "run.h5", "--plots", "no"], environment=environment(folder)).expect(0, "ddp")


def case_errors_of_mpirun_have_their_help_files(folder):
    bundle = copied(folder)
    result = run([bundle / "run", "-n", 2, "no-such-program"], environment=environment(folder))
    if result.code == 0 or "unable to find the specified executable file" not in result.out + result.err:
        raise Failure(f"exit {result.code}: {result.out}{result.err}")


def case_a_python_without_torch_is_named(folder):
    bundle = copied(folder)
    result = run([bundle / "run", "gradsync-train", "--version"], environment=environment(folder, PYTHON="/usr/bin/false"))
    if result.code != 69 or "has no PyTorch" not in result.err:
        raise Failure(f"exit {result.code}: {result.out}{result.err}")


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 2000, 200)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
