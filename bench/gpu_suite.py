#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests and benchmarks on one GPU against Python's PyTorch, in a budget of time. Writes to OUT:

  summary.json   machine, every number with its goal and verdict, what was skipped and why
  epochs.csv     seconds of every epoch of every program and round
  kernels.csv    our kernels against a copy of as many bytes
  batch-size.md  the batch ladder, up to the size that no longer fits
  log.txt        every command, its exit code, time and last lines, written as it ends
  failed/        all that a command printed which failed or came to its limit of time
  runs-PARTS.tar run files (HDF5)

Where OUT has the results of an earlier call they stay, but for those of the parts of this call.

usage: gpu_suite.py [OUT] [--rehearse] [--budget SECONDS] [--only PART,...]     (bench/gpu.sh finds the Python)
"""
import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).absolute().parents[1]
BUNDLE = os.environ.get("BUNDLE_OF_GRADSYNC")
BIN = pathlib.Path(BUNDLE) / "bin" if BUNDLE else ROOT / "build/bin"
BENCH = pathlib.Path(BUNDLE) / "bench" if BUNDLE else ROOT / "bench"
TESTS = pathlib.Path(BUNDLE) / "tests" if BUNDLE else ROOT / "build/tests"
KERNELS = BENCH / "gpu_kernels" if BUNDLE else ROOT / "build/bench/gpu_kernels"

# model: batch, epochs a process, goal in seconds, at least so many times eager and compile.
MODELS = {
    "resnet18": {"batch": 512, "epochs": 5, "goal_s": 0.60, "over_eager": 1.15, "over_compile": 0.95},
    "vgg11": {"batch": 512, "epochs": 8, "goal_s": 0.16, "over_eager": 1.3, "over_compile": None},
    "lenet": {"batch": 512, "epochs": 12, "goal_s": 0.015, "over_eager": 4.0, "over_compile": None},
}
MODES = ("gather-scatter", "allreduce", "ddp", "data-parallel", "c10d")
WARMUP_EPOCHS = 2
# After 50 steps on another device; sums are taken in another order.
PARAMETER_TOLERANCE = 5e-3
# A command that hangs leaves the others their time.
COMMAND_LIMIT_S = 150
# NCCL's own words where it refuses or fails.
ALWAYS = {"NCCL_DEBUG": "WARN"}
# Each process takes the GPU in turn: what all of them do together only gets slower with their number.
PROCESSES_ON_A_GPU = 4
# Several NCCL ranks on one GPU share its multiprocessors; few blocks each, and no feature of several GPUs.
ONE_GPU_NCCL = {"NCCL_IB_DISABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


class Failed(Exception):
    pass


class Suite:
    def __init__(self, options):
        self.out, self.rehearse = options.out, options.rehearse
        self.begin, self.budget_s = time.monotonic(), options.budget
        self.rows, self.skipped, self.epochs, self.now = [], [], [], ""
        self.commands, self.log_lock = 0, threading.Lock()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gradsync-gpu-"))
        self.data = self.find_data()

    # --- running -------------------------------------------------------------------------------------------

    def left_s(self) -> float:
        return self.budget_s - (time.monotonic() - self.begin)

    def run(self, *command, environment=None, may_fail=False, limit_s=None) -> str:
        """What the command printed; Failed with its last line if it fails or comes to its limit of time."""
        code, text, error = self.end_of(*command, environment=environment, may_fail=may_fail, limit_s=limit_s)
        if code != 0 and not may_fail:
            raise Failed(f"exit {code}: {(error or text).strip().splitlines()[-1:]}")
        return text

    def end_of(self, *command, environment=None, may_fail=True, limit_s=None) -> tuple[int, str, str]:
        """Exit code (124: it came to its limit of time) and what the command printed."""
        words, start = [str(word) for word in command], time.monotonic()
        limit_s = max(1, min(limit_s or COMMAND_LIMIT_S, self.left_s()))
        with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
            # In a group of its own, whose ranks end with it.
            process = subprocess.Popen(words, cwd=self.work, env=os.environ | ALWAYS | (environment or {}), stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=err, start_new_session=True)  # fmt: skip
            try:
                code, end = process.wait(limit_s), ""
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code, end = 124, f"not done in {limit_s:.0f} s\n"
            out.seek(0)
            err.seek(0)
            text, error = out.read(), err.read() + end
        self.note(words, code, time.monotonic() - start, text, error, keep=code != 0 and (not may_fail or code == 124))
        return code, text, error

    def note(self, words, code, seconds, text, error, keep) -> None:
        line = f"$ {' '.join(words)}\n  exit {code}, {seconds:.1f} s\n"
        with self.log_lock:
            self.commands += 1
            with open(self.out / "log.txt", "a") as log:
                log.write(line + tail(text, 12) + tail(error, 6))
            if keep:
                self.keep(line + text + error)

    def keep(self, text) -> None:
        (self.out / "failed").mkdir(exist_ok=True)
        name = f"{re.sub('[^a-z0-9]+', '-', self.now.lower())}-{self.commands}.txt"
        (self.out / "failed" / name).write_text(text)

    def train(self, ranks, *arguments, environment=None, **how) -> str:
        environment = (ONE_GPU_NCCL if ranks > 1 and not self.rehearse else {}) | (environment or {})
        return self.run(*self.trainer(ranks), "--data", self.data, *arguments, environment=environment, **how)

    def trainer(self, ranks, *before) -> list:
        return [*mpirun(ranks), *before, "gradsync-train" if BUNDLE else BIN / "gradsync-train"]

    def device(self, ranks=1) -> list:
        """Options that put a run on the GPU; in a rehearsal on the CPU."""
        if self.rehearse:
            return ["--device", "cpu", "--threads", "1"]
        return ["--device", "cuda", "--transport", "nccl"] + (["--allow-shared-gpu"] if ranks > 1 else [])

    def find_data(self) -> pathlib.Path:
        given = os.environ.get("GRADSYNC_DATA")
        if given and not self.rehearse:
            return pathlib.Path(given).resolve()
        folder = self.work / "data"
        images, tests = (640, 128) if self.rehearse else (50000, 10000)
        self.run(BIN / "gradsync-dataset", "synthesize", "--to", folder, "--train", images, "--test", tests)
        return folder

    def record(self, name, value, unit, goal=None, fine=None, **more) -> None:
        self.rows.append({"part": self.now, "name": name, "value": value, "unit": unit, "goal": goal, "met": fine, **more})
        print(f"{name}: {value if isinstance(value, str) else format(value, '.4g')} {unit}"
              + ("" if goal is None else f" (goal {goal}: {'met' if fine else 'MISSED'})"), flush=True)  # fmt: skip

    def part(self, name, needs_s, work) -> None:
        """Runs a part if its time is left; one that fails is a row, and the next part runs."""
        if not self.rehearse and self.left_s() < needs_s:
            self.skip(f"{name}: {self.left_s():.0f} s left, it takes {needs_s} s")
            return
        try:
            work()
        except (Failed, OSError, ValueError, KeyError, AttributeError, IndexError) as error:
            self.record(name, "FAILED", "", goal="runs", fine=False, error=repr(error))

    def skip(self, why) -> None:
        self.skipped.append({"part": self.now, "why": why})

    def side_by_side(self, works, cores_each) -> None:
        """Where only results count and no times: as many at once as the machine has cores for."""
        at_once = max(1, min(PROCESSES_ON_A_GPU, len(os.sched_getaffinity(0))) // cores_each)
        with concurrent.futures.ThreadPoolExecutor(min(at_once, len(works))) as threads:
            for done in [threads.submit(work) for work in works]:
                done.result()

    # --- parts ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """What is there, and that it trains: nothing else is worth its time before."""
        (self.out / "nvidia-smi.txt").write_text(self.run("nvidia-smi", "-q", may_fail=True) if not self.rehearse else "")
        code, text, error = self.end_of(*mpirun(1), BIN / "gradsync-check", "--device", "cpu" if self.rehearse else "cuda",
                                        "--data", self.data, "--json", self.out / "check.json")  # fmt: skip
        (self.out / "check.txt").write_text(text + error)
        self.record("preflight", f"exit {code}", "", goal="exit 0", fine=code == 0)
        self.train(1, "--model", "lenet", "--sync", "none", "--iterations", 20, "--evaluate", "none", *self.device())
        output = self.out / "first.h5"
        batch, how = (32, []) if self.rehearse else (512, ["--precision", "bf16"])
        text = self.train(1, "--model", "lenet" if self.rehearse else "resnet18", "--sync", "ddp", *how, "--batch-per-rank", batch,
                          "--iterations", 60 if not self.rehearse else 10, "--evaluate", "none", "--output", output, *self.device())  # fmt: skip
        text += self.run(BIN / "gradsync-report", output, "--table", "split,summary", "--plots", "no")
        (self.out / "first.txt").write_text(text)

    def networks(self) -> None:
        """Results and no times, so all at once: who waits for the GPU, a stopped rank, memory of a graph."""
        steps = [lambda model=model, more=more: self.part(f"{model}: waits grow with the steps", 40, lambda: self.growing_waits(model, *more))
                 for model, more in (("resnet50", [8]), ("gpt2-small", [2, "--sequence-length", 128]))]  # fmt: skip
        steps += [lambda model=model, more=more: self.part(f"{model}: a stopped rank", 90, lambda: self.stopped_rank(model, *more))
                  for model, more in (("resnet18", []), ("resnet50", []), ("gpt2-small", ["--sequence-length", 128]))]  # fmt: skip
        steps.append(lambda: self.part("memory of a graph", 60, self.graph_memory))
        with concurrent.futures.ThreadPoolExecutor(1 if self.rehearse else len(steps)) as threads:
            list(threads.map(lambda step: step(), steps))

    def growing_waits(self, model, batch, *more) -> None:
        """Twice the steps may not wait more often."""
        sums = []
        for steps in (4, 8) if self.rehearse else (20, 40):
            file = self.work / f"waits-{model}-{steps}"
            preload = ["env", f"LD_PRELOAD={TESTS / 'libcount_waits.so'}", f"COUNT_WAITS_FILE={file}"]
            self.run(*self.trainer(1, *preload), "--model", model, "--sync", "ddp", "--batch-per-rank", 1 if self.rehearse else batch,
                     "--iterations", steps, "--evaluate", "none", *self.device(), *more)  # fmt: skip
            sums.append(self.counted_waits(file, "exit"))
        more_calls = {name: calls - sums[0].get(name, 0) for name, calls in sums[1].items() if calls != sums[0].get(name, 0)}
        self.record(f"{model}: waiting calls that twice the steps add", sum(more_calls.values()), "", goal=0, fine=not more_calls, names=more_calls)

    def counted_waits(self, file, wanted) -> dict:
        """Waiting calls by name that were counted under a label, in the files of all processes."""
        calls = {}
        for path in file.parent.glob(f"{file.name}.*"):
            for label, name, number in map(str.split, path.read_text().splitlines()):
                if label == wanted:
                    calls[name] = calls.get(name, 0) + int(number)
        return calls

    def stopped_rank(self, model, *more) -> None:
        """One of two ranks is stopped in its eighth iteration."""
        data = ["--data", self.data] if model == "resnet18" else []
        code, text, error = self.end_of(*self.trainer(2), *data, "--model", model, "--batch-per-rank", 2, "--sync", "ddp", "--evaluate", "none",
                                        "--iterations", 300, "--timeout", "15s", "--inject-fault", "stop@1:8", *self.device(2), *more,
                                        limit_s=90, environment=ONE_GPU_NCCL)  # fmt: skip
        named = re.search(r"rank 1\b.*", text + error)
        self.keep(f"exit {code}\n{text}{error}")
        self.record(f"{model}: end of a job with a stopped rank", f"exit {code}", "", goal="exit 86, rank 1 named",
                    fine=code == 86 and named is not None, message=named.group(0) if named else "")  # fmt: skip

    def graph_memory(self) -> None:
        """A replayed step takes no less memory than a launched one."""
        peaks = []
        batch, model = (32, "lenet") if self.rehearse else (512, "resnet18")
        for name, more in (("launched", []), ("replayed", ["--graph"])):
            output = self.work / f"memory-{name}.h5"
            self.train(1, "--model", model, "--precision", "fp32" if self.rehearse else "bf16", "--sync", "none", "--batch-per-rank", batch,
                       "--last-batch", "drop", "--epochs", 2, "--evaluate", "none", "--output", output, *self.device(), *more)  # fmt: skip
            table = self.run(BIN / "gradsync-report", output, "--table", "batch-size", "--format", "csv", "--plots", "no")
            peaks.append(float(list(csv.DictReader(table.splitlines()))[-1]["peak_memory_mib"]))
        ratio = peaks[1] / peaks[0]
        self.record("peak memory, replayed over launched", ratio, "x", goal="0.9 to 1.1", fine=0.9 <= ratio <= 1.1, mib=peaks)

    def drift(self) -> None:
        """The idle GPU's clock against the host's over 20 s, each by the shortest of 200 readings."""
        import torch

        if self.rehearse or not torch.cuda.is_available():
            self.skip("drift: no GPU")
            return

        def pair():
            found = []
            for _ in range(200):
                event, begin = torch.cuda.Event(enable_timing=True), time.monotonic_ns()
                event.record()
                event.synchronize()
                found.append((time.monotonic_ns() - begin, begin, event))
            return min(found, key=lambda one: one[0])

        one, _, two = pair(), time.sleep(20), pair()
        host_ns = two[1] + two[0] / 2 - one[1] - one[0] / 2
        self.record("clock of the GPU against the host's", 1e6 * (1e6 * one[2].elapsed_time(two[2]) / host_ns - 1), "ppm",
                    readings_us=[one[0] / 1e3, two[0] / 1e3])  # fmt: skip

    def tests(self) -> None:
        self.part("GPU tests of kernels", 10, lambda: self.doctest("GPU tests of kernels", TESTS / "gpu", "--no-colors"))
        for ranks in (1, 2):
            self.part(f"GPU tests on {ranks} ranks", 30, lambda ranks=ranks: self.rank_tests(ranks))
        self.part("calls that wait for the GPU", 10, self.waits)
        self.part("memory checker", 30, self.memory_checker)

    def memory_checker(self) -> None:
        """The kernel tests under a program that looks at each of their accesses."""
        checker = shutil.which("compute-sanitizer") or next(map(str, pathlib.Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None)
        if checker is None:
            self.skip("memory checker: there is no compute-sanitizer")
            return
        self.doctest("kernels under compute-sanitizer", checker, "--tool", "memcheck", "--error-exitcode", 9, TESTS / "gpu", "--no-colors")

    def rank_tests(self, ranks) -> None:
        self.doctest(f"GPU tests on {ranks} ranks", *mpirun(ranks), TESTS / "mpi", "--no-colors", "--test-case=GPU:*", leaves_out=1)

    def waits(self) -> None:
        """The steady loop under a library that counts the calls in which the host waits for the GPU, by name."""
        counts = self.work / "waits"
        self.doctest("calls that wait for the GPU", *mpirun(1), "env", f"LD_PRELOAD={TESTS / 'libcount_waits.so'}", TESTS / "mpi",
                     "--no-colors", "--test-case=GPU: in the steady loop*no call*", environment={"COUNT_WAITS_FILE": str(counts)})  # fmt: skip
        steady = self.counted_waits(counts, "steady")
        self.record("calls that wait for the GPU in the steady loop", sum(steady.values()), "", goal=0, fine=not steady,
                    names=sorted(steady))  # fmt: skip

    def doctest(self, name, *command, leaves_out=0, environment=None) -> None:
        """`leaves_out`: so many cases say SKIP here, and run elsewhere."""
        text = self.run(*command, may_fail=True, environment=ONE_GPU_NCCL | (environment or {}))
        counts = re.search(r"test cases:\s*(\d+) \|\s*(\d+) passed \|\s*(\d+) failed", text)
        failed, skipped = int(counts.group(3)) if counts else 1, text.count("MESSAGE: SKIP")
        found = f"{counts.group(2)} passed, {failed} failed, {skipped} of them skipped" if counts else "ended before its last case"
        errors = re.search(r"ERROR SUMMARY: ([1-9]\d*) errors?", text)
        if failed or errors:
            self.keep(text)
        self.record(name, found + (f", {errors.group(1)} memory errors" if errors else ""), "", goal="0 failed",
                    fine=failed == 0 and not errors and (skipped <= leaves_out or self.rehearse))  # fmt: skip

    def fifty_steps(self, ranks, mode, device, name="") -> tuple[list[str], pathlib.Path]:
        """Hashes of the ranks' parameters after 50 steps (one where all are equal), and the checkpoint."""
        steps = 6 if self.rehearse else 50
        output = self.work / f"steps-{mode}-{ranks}{name}.h5"
        text = self.train(ranks, "--model", "lenet", "--sync", mode, "--batch-global", 64, "--iterations", steps, "--lr", 0.02,
                          "--evaluate", "none", "--precision", "fp32", "--checkpoint-every", steps, "--output", output, *device)  # fmt: skip
        hashes = re.search(r"^parameters:(.*)$", text, re.M).group(1).split()
        return hashes, next((output.parent / f"{output.stem}.checkpoints").glob("*.safetensors"))

    def modes(self) -> None:
        """Every mode on 1, 2 and 4 ranks of one GPU: equal parameters on all ranks, near those of the CPU."""
        references = {}
        self.side_by_side([lambda ranks=ranks: references.update({ranks: self.reference(ranks)}) for ranks in (1, 2, 4)], 4)
        for ranks in (1, 2, 4):
            self.side_by_side([lambda ranks=ranks, mode=mode: self.part(f"{mode} on {ranks} ranks", 30,
                               lambda: self.mode(ranks, mode, references[ranks])) for mode in MODES], ranks)  # fmt: skip

    def reference(self, ranks) -> pathlib.Path:
        return self.fifty_steps(ranks, "allreduce", ["--device", "cpu", "--threads", "1"], "-reference")[1]

    def mode(self, ranks, mode, reference) -> None:
        name = f"{mode} on {ranks} ranks"
        hashes, checkpoint = self.fifty_steps(ranks, mode, self.device(ranks))
        difference = largest_difference(checkpoint, reference)
        self.record(f"{name}: ranks with parameters of their own", len(hashes) - 1, "", goal=0, fine=len(hashes) == 1)
        self.record(f"{name}: largest difference to the CPU", difference, "", goal=f"<= {PARAMETER_TOLERANCE}",
                    fine=difference <= PARAMETER_TOLERANCE)  # fmt: skip

    def ours(self, model, how, *more) -> list[float]:
        plan = self.plan(model)
        output = self.work / f"epochs-{model}-{how}-{len(self.epochs)}.h5"
        text = self.train(1, "--model", model, "--batch-per-rank", plan["batch"], "--epochs", plan["epochs"], "--precision",
                          "fp32" if self.rehearse else "bf16", "--evaluate", "none", "--output", output, *self.device(), *more)  # fmt: skip
        return epoch_times(text)

    def peer(self, model, *more) -> list[float]:
        plan = self.plan(model)
        device = ["--device", "cpu", "--precision", "fp32"] if self.rehearse else []
        text = self.run(sys.executable, BENCH / "pytorch_gpu.py", self.data, "--model", model, "--batch", plan["batch"],
                        "--epochs", plan["epochs"], *device, *more, environment=without_bundle() | ({"OMP_NUM_THREADS": "1"} if self.rehearse else {}))  # fmt: skip
        return json.loads(text.strip().splitlines()[-1])["epoch_s"]

    def plan(self, model) -> dict:
        return MODELS[model] | ({"batch": 64, "epochs": 3} if self.rehearse else {})

    def model(self, model, rounds=2) -> None:
        """Programs interleaved, so that a slow minute of the machine is nobody's; median of the epochs after warm-up."""
        programs = {"gradsync": lambda: self.ours(model, "eager", "--sync", "none"),
                    "eager": lambda: self.peer(model)}  # fmt: skip
        if not self.rehearse:
            programs["compile"] = lambda: self.peer(model, "--compile")
        programs["gradsync-graph"] = lambda: self.ours(model, "graph", "--sync", "none", "--graph")
        if model == "resnet18":
            programs["gradsync-ddp"] = lambda: self.ours(model, "ddp", "--sync", "ddp")
        steady, errors = {name: [] for name in programs}, {}
        for round_number in range(rounds):
            for name, work in programs.items():
                if name in errors or name == "compile" and (round_number > 0 or self.left_s() < 120):
                    continue
                try:
                    times = work()
                except (Failed, ValueError, IndexError) as error:
                    errors[name] = repr(error)
                    continue
                self.epochs += [(model, name, round_number, epoch, seconds) for epoch, seconds in enumerate(times)]
                steady[name] += times[WARMUP_EPOCHS:]
        self.judge(model, steady, errors)

    def judge(self, model, steady, errors) -> None:
        """`steady`: seconds of the epochs after warm-up, by program. One without any has failed, or was not run."""
        for name, times in steady.items():
            if name == "compile" and name not in errors and not times:
                self.skip(f"{model}, compile: {self.left_s():.0f} s left, it takes 120 s")
            elif not times:
                self.record(f"{model} epoch, {name}", "FAILED", "", goal="runs", fine=False, error=errors.get(name, "no epoch has a time"))
        medians = {name: statistics.median(times) for name, times in steady.items() if times}
        plan = MODELS[model]
        for name, seconds in medians.items():
            self.record(f"{model} epoch, {name}", seconds, "s")
        best = min(medians[name] for name in ("gradsync", "gradsync-graph") if name in medians)
        self.record(f"{model} epoch", best, "s", goal=f"<= {plan['goal_s']}", fine=best <= plan["goal_s"])
        for peer, least in (("eager", plan["over_eager"]), ("compile", plan["over_compile"])):
            if peer in medians and least is not None:
                ratio = medians[peer] / best
                self.record(f"{model}: speed over {peer}", ratio, "x", goal=f">= {least}", fine=ratio >= least)
        if "gradsync-ddp" in medians:
            cost = medians["gradsync-ddp"] / medians["gradsync"] - 1
            self.record("ddp's machinery on one rank", 100 * cost, "%", goal="<= 1", fine=cost <= 0.01)

    def kernels(self) -> None:
        text = self.run(KERNELS)
        if "SKIP" in text:
            self.skip("kernels: no GPU")
            return
        (self.out / "kernels.csv").write_text(text)
        for row in csv.DictReader(text.splitlines()):
            goal, ratio = 1.3, float(row["ratio"])
            self.record(f"kernel {row['kernel']}: time over a copy's", ratio, "x", goal=f"<= {goal}", fine=ratio <= goal)

    def measuring(self) -> None:
        windows = 4 if self.rehearse else 60
        folder = self.work / "measuring"
        folder.mkdir()
        model = "lenet" if self.rehearse else "resnet18"
        self.train(1, "--model", model, "--compare", "ddp,ddp:stamps=off", "--batch-per-rank", self.plan(model)["batch"],
                   "--iterations", windows + 10, "--warmup", 10, "--precision", "fp32" if self.rehearse else "bf16", "--evaluate", "none",
                   "--output", folder / "run.h5", *self.device())  # fmt: skip
        text = self.run(BIN / "gradsync-report", folder, "--table", "modes", "--plots", "no", "--verdict", "yes")
        clause = re.search(r".*measuring [a-z ]+: an iteration takes.*|.*with measuring an iteration takes.*", text)
        ratio = re.search(r"([\d.]+) times the iteration", clause.group(0)) if clause else None
        cost = 100 * (float(ratio.group(1)) - 1)
        self.record("measuring on against off", cost, "%", goal="<= 0.5", fine=cost <= 0.5, clause=clause.group(0).strip())

    def ladder(self) -> None:
        results = self.work / "ladder"
        sizes = "32,64" if self.rehearse else "512,4096,16384,32768,49152"
        environment = {"GRADSYNC_DATA": str(self.data)}
        extra = ["--iterations", 4 if self.rehearse else 6, *self.device()]
        self.run(BIN / "gradsync-sweep", BENCH / "gpu-batch-size.cfg", "--results", results, "--set", f"batch-per-rank={sizes}",
                 *(["--set", "model=lenet", "--set", "precision=fp32"] if self.rehearse else []), "--", *extra,
                 environment=environment, may_fail=True, limit_s=self.left_s() - 10)  # fmt: skip
        text = self.run(BIN / "gradsync-report", results, "--table", "batch-size", "--format", "markdown", "--plots", "no")
        (self.out / "batch-size.md").write_text(text)
        self.record("batch ladder", "ends in out of memory" if "out of memory" in text else "all sizes fit", "",
                    goal=None if self.rehearse else "ends in out of memory", fine="out of memory" in text)  # fmt: skip

    # --- results -------------------------------------------------------------------------------------------

    def add_earlier(self, parts) -> None:
        """The results of an earlier call, but for those of `parts`."""
        if (self.out / "summary.json").exists():
            before = json.loads((self.out / "summary.json").read_text())
            self.rows = [row for row in before["results"] if row["part"] not in parts] + self.rows
            self.skipped = [skip for skip in before["skipped"] if skip["part"] not in parts] + self.skipped
        if (self.out / "epochs.csv").exists():
            rows = list(csv.reader((self.out / "epochs.csv").open()))[1:]
            self.epochs = [tuple(row) for row in rows if row[0] not in parts] + self.epochs

    def finish(self, parts) -> int:
        new = list(self.rows)
        self.add_earlier(parts)
        with open(self.out / "epochs.csv", "w", newline="") as file:
            csv.writer(file).writerows([("model", "program", "round", "epoch", "seconds"), *self.epochs])
        missed = [row["name"] for row in self.rows if row["met"] is False]
        summary = {"rehearsal": self.rehearse, "seconds": time.monotonic() - self.begin, "machine": machine(),
                   "results": self.rows, "missed": missed, "skipped": self.skipped}  # fmt: skip
        (self.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        with tarfile.open(self.out / f"runs-{'-'.join(parts)}.tar", "w") as archive:
            for path in sorted(self.work.rglob("*.h5")):
                archive.add(path, str(path.relative_to(self.work)))
        shutil.rmtree(self.work)
        for skip in self.skipped:
            print(f"SKIP {skip['why']}")
        print(f"{len(self.rows)} results, {len(missed)} missed, {len(self.skipped)} skipped, in {summary['seconds']:.0f} s: {self.out}")
        failed = [row for row in new if row["value"] == "FAILED" or row["goal"] == 0 and row["met"] is False]
        return 1 if failed else 0


def epoch_times(text: str) -> list[float]:
    """Seconds of each epoch as the peer measures them: the whole epoch on the host's clock, data and drain included."""
    return [float(seconds) for seconds in re.findall(r"([\d.]+) s running", text)]


def without_bundle() -> dict:
    """Python's own libraries are not those of the bundle."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return {"LD_LIBRARY_PATH": ":".join(folder for folder in folders if not (BUNDLE and folder.startswith(BUNDLE)))}


def tail(text: str, lines: int) -> str:
    return "".join(f"  | {line}\n" for line in text.splitlines()[-lines:])


def mpirun(ranks) -> list:
    """The bundle's own, which run has set up, or as tests/e2e/harness.py starts ranks."""
    if BUNDLE:
        return ["mpirun", "-n", ranks]
    os.environ.update({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    return [os.environ.get("MPIRUN", "mpirun"), "-n", ranks, "--oversubscribe", "--bind-to", "none"]


def tensors_of(path: pathlib.Path) -> dict:
    import torch

    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    return {name: torch.frombuffer(bytearray(data[8 + length :][slice(*entry["data_offsets"])]), dtype=torch.float32)
            for name, entry in header.items() if "parameters/" in name}  # fmt: skip


def largest_difference(one: pathlib.Path, other: pathlib.Path) -> float:
    ours, theirs = tensors_of(one), tensors_of(other)
    if ours.keys() != theirs.keys() or not ours:
        raise Failed(f"{one.name} and {other.name} hold other parameters")
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def machine() -> dict:
    import torch

    found = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none"}
    try:
        fields = "driver_version,clocks.max.sm,clocks.max.mem,power.limit,memory.total"
        found["nvidia-smi"] = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"], text=True,
                                             capture_output=True, timeout=20).stdout.strip()  # fmt: skip
    except OSError:
        pass
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=pathlib.Path)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--budget", type=float, default=530)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.rehearse:
        options.budget = max(options.budget, 3600)
    options.out = (options.out or ROOT / f"results/bench-gpu-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}").resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    suite = Suite(options)
    parts = {"start": (20, suite.start), "networks": (100, suite.networks), "drift": (25, suite.drift), "tests": (30, suite.tests), "kernels": (20, suite.kernels),
             **{model: (60, lambda model=model: suite.model(model)) for model in MODELS},
             "measuring": (30, suite.measuring), "modes": (60, suite.modes), "ladder": (60, suite.ladder)}  # fmt: skip
    chosen = options.only.split(",") if options.only else list(parts)
    if unknown := [name for name in chosen if name not in parts]:
        parser.error(f"--only {','.join(unknown)}: the parts are {', '.join(parts)}")
    for name in parts:
        if name in chosen:
            suite.now = name
            suite.part(name, *parts[name])
    return suite.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
