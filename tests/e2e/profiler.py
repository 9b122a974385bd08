#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Traces of torch.profiler as runs. PyTorch's DistributedDataParallel over Gloo is recorded on 2 and 4 ranks; what gradsync-report
makes of it is compared with a computation of its own here, and, as traces of a GPU, with Holistic Trace Analysis.

usage: profiler.py [NAME...]    (run by tests/run, which sets TORCH_PYTHON and PEER_PYTHON)
       profiler.py record RANK RANKS FOLDER STEPS    (a rank, with a Python that has torch)
"""
import gzip
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

RECORDED: dict = {}
STEPS = 6


def record(rank: int, ranks: int, folder: str, steps: int) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(32 * 15 * 15, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))  # fmt: skip
    network = torch.nn.parallel.DistributedDataParallel(network, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=steps), record_shapes=True,
                 on_trace_ready=lambda done: done.export_chrome_trace(f"{folder}/rank{rank}.json")) as profiler:  # fmt: skip
        for _ in range(2 + steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(torch.randn(16, 3, 32, 32)), torch.randint(0, 10, (16,))).backward()
            optimizer.step()
            profiler.step()
    torch.distributed.destroy_process_group()


if __name__ == "__main__" and sys.argv[1:2] == ["record"]:
    record(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    sys.exit()

import h5py  # noqa: E402
import harness  # noqa: E402
from harness import BIN, Result, Skip, check, run  # noqa: E402

SHARED = pathlib.Path()


def report(*arguments) -> Result:
    return run([BIN / "gradsync-report", *arguments])


def recorded(ranks: int) -> pathlib.Path:
    """A folder with the traces of a job, recorded once."""
    if ranks in RECORDED:
        return RECORDED[ranks]
    python = os.environ.get("TORCH_PYTHON", "")
    if not python:
        raise Skip("needs a Python with torch (TORCH_PYTHON)")
    folder = SHARED / f"traces-{ranks}"
    folder.mkdir()
    jobs = [subprocess.Popen([python, __file__, "record", str(rank), str(ranks), str(folder), str(STEPS)], text=True,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for rank in range(ranks)]  # fmt: skip
    errors = [job.communicate(timeout=600)[1] for job in jobs]
    check(all(job.returncode == 0 for job in jobs), f"torch: {errors}"[-800:])
    RECORDED[ranks] = folder
    return folder


# --- the same numbers, computed here ----------------------------------------------------------------


def union(intervals: list) -> list:
    merged: list = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(intervals: list) -> float:
    return sum(end - begin for begin, end in union(intervals))


def minus(intervals: list, others: list) -> list:
    """By the points where one of them begins or ends: a piece between two of these lies in a list or outside of it."""
    left, right = union(intervals), union(others)
    points = sorted({point for piece in left + right for point in piece})
    pieces, at, other = [], 0, 0
    for begin, end in zip(points, points[1:], strict=False):
        while at < len(left) and left[at][1] <= begin:
            at += 1
        while other < len(right) and right[other][1] <= begin:
            other += 1
        inside = at < len(left) and left[at][0] <= begin
        if inside and not (other < len(right) and right[other][0] <= begin):
            pieces.append([begin, end])
    return union(pieces)


def within(intervals: list, begin: float, end: float) -> list:
    return [[max(b, begin), min(e, end)] for b, e in intervals if e > begin and b < end]


class Rank:
    """A trace as intervals in us since the epoch: iterations by number, compute, collectives."""

    def __init__(self, path: pathlib.Path):
        trace = json.loads(path.read_text())
        base = trace["baseTimeNanoseconds"] / 1e3
        spans = [(e.get("cat"), e["name"], [base + e["ts"], base + e["ts"] + e["dur"]], e.get("args", {}))
                 for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") != "Trace"]  # fmt: skip
        self.steps = {int(name.split("#")[1]): span for _, name, span, _ in spans if name.startswith("ProfilerStep#")}
        calls = [span for cat, name, span, _ in spans if cat == "cpu_op" and name.startswith("c10d::")]
        self.compute = minus([span for cat, _, span, _ in spans if cat == "cpu_op"], calls)
        # torch 2.11 writes a collective without its sizes now and then, and two threads of Gloo may begin a later call first.
        found = sorted((span, args.get("Input Dims", [[0]])[0][0]) for _, name, span, args in spans if name.startswith("gloo:"))
        waiting = sorted((span[0], args["Input Dims"][0][0][0]) for _, name, span, args in spans if name == "c10d::allreduce_")
        called = []
        for span, size in sorted(found, key=lambda one: one[1] == 0):  # those without a size take what is left
            fits = [call for call in waiting if call[0] <= span[0] and size in (0, call[1])]
            waiting.remove(fits[0])
            called.append((fits[0][0], span, size))
        self.collectives = [span for _, span, _ in sorted(called)]
        self.bytes = [4 * size for _, _, size in sorted(called)]


def split(ranks: list, at: int, number: int) -> dict:
    """Of one iteration, by the definitions of docs/numbers.md, in us."""
    begin, end = ranks[at].steps[number]
    arrivals = [max(all_begin) for all_begin in zip(*[[b for b, _ in rank.collectives] for rank in ranks], strict=True)]
    mine = [(b, min(max(arrival, b), e), e) for (b, e), arrival in zip(ranks[at].collectives, arrivals, strict=True)
            if begin <= b < end]  # fmt: skip
    compute = within(ranks[at].compute, begin, end)
    carried = [[b, e] for b, e in ranks[at].collectives if b < begin and any(b >= step[0] for step in ranks[at].steps.values())]
    moving = within([[arrival, e] for _, arrival, e in mine] + carried, begin, end)
    waiting = within([[b, arrival] for b, arrival, _ in mine], begin, end)
    return {"iteration": end - begin, "compute": length(compute), "comm_busy": length(moving),
            "exposed": length(minus(moving, compute)), "wait": length(minus(waiting, compute + moving)),
            "hidden": length(moving) - length(minus(moving, compute)),
            "other": end - begin - length(compute + moving + waiting)}  # fmt: skip


def agree(found: float, expected: float, whole: float, what: str) -> None:
    """Within 0.1 percentage points of the whole."""
    check(abs(found - expected) <= 1e-3 * whole, f"{what}: {found:.3f} us, not {expected:.3f} of {whole:.3f}")


def compare_with_own_computation(folder, count: int) -> None:
    traces = recorded(count)
    report("--trace-in", traces, "--save", folder / "run.h5", "--table", "split").expect(0)
    ranks = [Rank(traces / f"rank{rank}.json") for rank in range(count)]
    with h5py.File(folder / "run.h5") as file:
        numbers = list(file["iteration/number"])
        check(numbers == sorted(ranks[0].steps), f"iterations {numbers}")
        for row, number in enumerate(numbers):
            for rank in range(count):
                expected = split(ranks, rank, number)
                for phase, time in expected.items():
                    agree(1e6 * file[f"time/{phase}"][row, rank], time, expected["iteration"], f"{phase} of {number}, {rank}")
        sizes = [size for row in file["bucket/bytes"][:] for size in row]
        expected = [max(of_ranks) for of_ranks in zip(*(rank.bytes for rank in ranks), strict=True)]
        check(sizes == expected, f"sizes {sizes}, not {expected}")
        ready, start = file["bucket/ready"][:], file["bucket/start"][:]
        check(bool((ready <= start).all() and (ready > 0).all()), f"ready {ready}, start {start}")


def case_gloo_on_2_ranks_as_computed_here(folder):
    compare_with_own_computation(folder, 2)


def case_gloo_on_4_ranks_as_computed_here(folder):
    compare_with_own_computation(folder, 4)


# --- Holistic Trace Analysis ------------------------------------------------------------------------

HTA = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={int(rank): path for rank, path in json.loads(sys.argv[1]).items()}, trace_dir="/",
                         include_last_profiler_step=True)
parts = analysis.get_temporal_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
print("HTA", json.dumps([parts.to_dict("list"), overlap.to_dict("list")]))
"""


def as_gpu_trace(path: pathlib.Path, target: pathlib.Path, rank: int, ranks: int) -> None:
    """The compute and the collectives of a trace as kernels on two streams: what HTA reads. In whole us, to which HTA rounds."""
    trace = json.loads(path.read_text())
    read = Rank(path)
    base = trace["baseTimeNanoseconds"] / 1e3
    events = [event for event in trace["traceEvents"] if event.get("name", "").startswith("ProfilerStep#")]
    begin = min(span[0] for span in read.steps.values())
    kernels = [(span, 7, "void compute_kernel<float>(float*)", {}) for span in read.compute]
    about = {"Collective name": "allreduce", "dtype": "Float", "Group size": ranks}
    kernels += [(span, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", about | {"In msg nelems": size // 4})
                for span, size in zip(read.collectives, read.bytes, strict=True)]  # fmt: skip
    for number, (exact, stream, name, args) in enumerate(kernels, 1):
        span = [round(moment) for moment in exact]
        if span[0] == span[1] or not any(step[0] <= span[0] < step[1] for step in read.steps.values()):
            continue  # nothing, or between two iterations
        launched = max(span[0] - 2, begin)
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                       "ts": launched - base, "dur": 1, "args": {"correlation": number}})  # fmt: skip
        events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": span[0] - base,
                       "dur": span[1] - span[0], "args": {"correlation": number, "stream": stream, "device": 0,
                                                                     "External id": number, **args}})  # fmt: skip
    info = {"backend": "nccl", "rank": rank, "world_size": ranks}
    whole = {"schemaVersion": 1, "distributedInfo": info, "baseTimeNanoseconds": trace["baseTimeNanoseconds"]}
    target.write_bytes(gzip.compress(json.dumps(whole | {"traceEvents": events}).encode()))


def hta_python() -> str:
    for python in (os.environ.get("PEER_PYTHON", ""), os.environ.get("TORCH_PYTHON", ""), sys.executable):
        if python and subprocess.run([python, "-c", "import hta"], capture_output=True, check=False).returncode == 0:
            return python
    raise Skip("needs a Python with HolisticTraceAnalysis (make deps)")


def compare_with_hta(folder, count: int) -> None:
    python, traces = hta_python(), recorded(count)
    paths = {rank: folder / f"rank{rank}.json.gz" for rank in range(count)}
    for rank, path in paths.items():
        as_gpu_trace(traces / f"rank{rank}.json", path, rank, count)
    found = run([python, "-c", HTA, json.dumps({rank: str(path) for rank, path in paths.items()})], 600).expect(0, "HTA ")
    parts, overlap = json.loads(found.out.split("HTA ", 1)[1])
    for rank, path in paths.items():
        # Alone: HTA does not take the wait for other ranks out of a collective.
        report("--trace-in", path, "--save", folder / f"{rank}.h5", "--table", "split").expect(0)
        with h5py.File(folder / f"{rank}.h5") as file:
            sums = {phase: file[f"time/{phase}"][:, rank].sum() for phase in file["time"]}
        at = parts["rank"].index(rank)
        for name, ours in (("compute_time_pctg", sums["compute"]), ("non_compute_time_pctg", sums["exposed"]),
                           ("idle_time_pctg", sums["other"])):  # fmt: skip
            share = 100 * ours / sums["iteration"]
            check(abs(share - parts[name][at]) <= 0.1, f"{name} of rank {rank}: {share:.3f}, HTA {parts[name][at]}")
        share, theirs = 100 * sums["hidden"] / sums["comm_busy"], overlap["comp_comm_overlap_pctg"][overlap["rank"].index(rank)]
        check(abs(share - theirs) <= 0.1, f"overlap of rank {rank}: {share:.3f}, HTA {theirs}")


def case_2_ranks_as_kernels_like_holistic_trace_analysis(folder):
    compare_with_hta(folder, 2)


def case_4_ranks_as_kernels_like_holistic_trace_analysis(folder):
    compare_with_hta(folder, 4)


# --- the command ------------------------------------------------------------------------------------


def case_a_saved_run_is_read_like_its_traces(folder):
    traces = recorded(2)
    names = [traces / f"rank{rank}.json" for rank in (1, 0)]
    tables = ["--table", "split,bandwidth,stragglers,traffic", "--columns", "rank,compute ms,wait ms,busbw GB/s"]
    direct = report("--trace-in", *names, *tables).expect(0)
    saved = report("--trace-in", *names, *tables, "--save", folder / "run.h5").expect(0)
    check(direct.out == saved.out == report(folder / "run.h5", *tables).expect(0).out, "tables differ")
    again = report("--trace-in", traces, "--save", folder / "again.h5", "--table", "split").expect(0)
    # A size may be missing in the traces of all ranks.
    warnings = [line for line in again.err.splitlines() if "warning" in line and "without a size" not in line]
    check(not warnings, again)
    report("--trace-in", traces, "--save", folder / "run.h5").expect(73, "run.h5' exists", "choose another --save")
    report("--trace-in", traces, "--trace-batch", 16, "--html", folder / "page.html").expect(0)
    check("pytorch-ddp" in (folder / "page.html").read_text(), "the page does not name the mode")
    report("--trace-in", traces, "--trace-batch", 16, "--what-if", "bandwidth=10GB/s", "--table", "what-if").expect(0, "10")
    report("--trace-in", traces, "--trace", folder / "out.json").expect(0)


def case_the_lines_of_the_docs_record_a_run(folder):
    if not os.environ.get("TORCH_PYTHON"):
        raise Skip("needs a Python with torch (TORCH_PYTHON)")
    lines = re.search(r"```python\n(.+?)```", (harness.ROOT / "docs/page-and-trace.md").read_text(), re.DOTALL)[1]
    training = """
import torch
def train(profiler):
    for _ in range(20):
        torch.randn(64, 64) @ torch.randn(64, 64)
        profiler.step()
"""
    script = folder / "script.py"
    script.write_text(f"import os\nos.chdir({str(folder)!r})\n{training}{lines}")
    run([os.environ["TORCH_PYTHON"], script], 600).expect(0)
    report("--trace-in", folder / "traces", "--save", folder / "run.h5").expect(0)
    with h5py.File(folder / "run.h5") as file:
        check(list(file["iteration/number"]) == list(range(7, 17)), f"{list(file['iteration/number'])}")
        check(file["topology/host"][0].decode() == socket.gethostname(), f"host {file['topology/host'][0]}")


def case_bad_wishes_are_refused(folder):
    report("--save", folder / "run.h5").expect(64, "needs --trace-in")
    report("--trace-in", folder / "missing.json").expect(66, "missing.json")
    report("--trace-in", folder).expect(66, "no trace")
    (folder / "rank0.json").write_text('{"traceEvents": [{"ph": "X", "na')
    report("--trace-in", folder, "--save", folder / "run.h5").expect(65, "ends at byte .* within a value", "fix: ")
    report("--trace-in", folder, "--claims", folder / "claims.json").expect(64, "add --save")
    check(sorted(path.name for path in folder.iterdir()) == ["rank0.json"], f"left behind: {list(folder.iterdir())}")


def prepare(folder) -> None:
    global SHARED
    SHARED = folder


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
