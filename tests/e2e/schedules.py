#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The learning rate of every iteration, as the trainer records it, against PyTorch's own torch.optim.lr_scheduler.

usage: schedules.py [NAME...]    (run by tests/run, which sets MPIRUN and TORCH_PYTHON)
"""
import json
import os
import subprocess
import sys

from harness import BIN, Skip, check, run, run_cases, synthetic

DATA = ""
EPOCHS, STEPS = 6, 5  # 320 images, 64 a step
RATE = 0.1

# Runs under a Python with torch: prints the rate of each iteration.
REFERENCE = """
import json, sys, torch
from torch.optim import lr_scheduler as s
parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], lr={rate})
schedule = {schedule}
rates = []
for _ in range({count}):
    rates.append(optimizer.param_groups[0]["lr"])
    optimizer.step()
    schedule.step()
print(json.dumps(rates))
"""


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 64 * STEPS, 32)


def recorded(folder, *options) -> list:
    try:
        import h5py
    except ImportError:
        raise Skip("needs a Python with h5py (make deps)") from None
    output = folder / "run.h5"
    run([BIN / "gradsync-train", "--model", "lenet", "--sync", "none", "--data", DATA, "--threads", 1, "--evaluate", "none",
         "--batch-global", 64, "--epochs", EPOCHS, "--lr", RATE, "--output", output, *options], timeout=300).expect(0)  # fmt: skip
    with h5py.File(output) as file:
        return [float(rate) for rate in file["iteration/lr"]]


def of_torch(schedule: str) -> list:
    python = os.environ.get("TORCH_PYTHON", "") or sys.executable
    script = REFERENCE.format(rate=RATE, schedule=schedule, count=EPOCHS * STEPS)
    done = subprocess.run([python, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode != 0 and "No module named 'torch'" in done.stderr:
        raise Skip("no Python with torch (LIBTORCH= without one)")
    check(done.returncode == 0, done.stderr[-500:])
    return json.loads(done.stdout)


def agree(folder, schedule: str, *options) -> None:
    wanted, found = of_torch(schedule), recorded(folder, *options)
    check(len(found) == EPOCHS * STEPS, f"{len(found)} iterations")
    for iteration, (one, other) in enumerate(zip(wanted, found, strict=True)):
        check(abs(one - other) <= 1e-9 * RATE, f"iteration {iteration}: torch {one}, recorded {other}")
    check(len(set(found)) > 1, "the rate never changes, or the test shows nothing")


def case_step(folder) -> None:
    agree(folder, f"s.StepLR(optimizer, {2 * STEPS}, gamma=0.5)",
          "--lr-schedule", "step", "--lr-step-epochs", 2, "--lr-decay", 0.5)  # fmt: skip


def case_multistep(folder) -> None:
    agree(folder, f"s.MultiStepLR(optimizer, [{2 * STEPS}, {5 * STEPS}], gamma=0.1)",
          "--lr-schedule", "multistep", "--lr-milestones", "2,5")  # fmt: skip


def case_cosine(folder) -> None:
    agree(folder, f"s.CosineAnnealingLR(optimizer, {EPOCHS * STEPS}, eta_min=0.01)",
          "--lr-schedule", "cosine", "--lr-min", 0.01)  # fmt: skip


def case_polynomial(folder) -> None:
    agree(folder, f"s.PolynomialLR(optimizer, {EPOCHS * STEPS}, power=2)",
          "--lr-schedule", "polynomial", "--lr-power", 2)  # fmt: skip


def case_cyclic(folder) -> None:
    agree(folder, f"s.CyclicLR(optimizer, 0.02, {RATE}, step_size_up={STEPS}, cycle_momentum=False)",
          "--lr-schedule", "cyclic", "--lr-cycle-epochs", 2, "--lr-min", 0.02)  # fmt: skip


def case_gradual_warmup_then_cosine(folder) -> None:
    agree(folder, f"s.SequentialLR(optimizer, [s.LinearLR(optimizer, 0.1, 1, {2 * STEPS}), "
                  f"s.CosineAnnealingLR(optimizer, {4 * STEPS})], [{2 * STEPS}])",
          "--warmup-epochs", 2, "--lr-schedule", "cosine")  # fmt: skip


def case_constant_warmup_then_constant(folder) -> None:
    agree(folder, f"s.ConstantLR(optimizer, 0.1, {2 * STEPS})", "--warmup-epochs", 2, "--warmup-rate", "constant")


if __name__ == "__main__":
    sys.exit(run_cases(globals(), prepare, at_once=2))
