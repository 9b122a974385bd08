#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The library that counts calls in which the host waits for a GPU (tests/libraries/count_waits.cpp), on a CUDA that is a stand-in, and
beside the real runtime.

usage: waits.py [NAME...]    (run by tests/run)
"""
import sys

import harness
from harness import ROOT, Failure, Skip, mpirun, run

harness.ENVIRONMENT.pop("OMPI_MCA_pml")
COUNTER, FAKE = ROOT / "build/tests/libcount_waits.so", ROOT / "build/tests/libfake_cuda.so"


def calls(folder, script, *libraries) -> dict:
    """Runs Python under the counter and the libraries; returns the counts by label and name."""
    counts = folder / "counts"
    run([sys.executable, "-c", "import ctypes\n" + script], timeout=300,
        environment={"LD_PRELOAD": ":".join(map(str, (COUNTER, *libraries))), "COUNT_WAITS_FILE": str(counts)}).expect(0)  # fmt: skip
    return read(folder)


def read(folder) -> dict:
    lines = [line.split() for path in folder.glob("counts.*") for line in path.read_text().splitlines()]
    return {(label, name): int(count) for label, name, count in lines}


def expect(found, wanted) -> None:
    if found != wanted:
        raise Failure(f"counted {found}, not {wanted}")


def case_calls_of_the_runtime_are_counted_by_name_and_passed_on(folder):
    found = calls(folder, """
cuda = ctypes.CDLL(None)
assert cuda.cudaDeviceSynchronize() == 100
assert [cuda.cudaStreamSynchronize(stream) for stream in (1, 2, 3)] == [101, 102, 103]
assert cuda.cudaMemcpy(1, 20, 300, 4000) == 4421
assert cuda.cudaStreamQuery(7) == 107
""", FAKE)  # fmt: skip
    expect(found, {("exit", "cudaDeviceSynchronize"): 1, ("exit", "cudaStreamSynchronize"): 3, ("exit", "cudaMemcpy"): 1})


def case_a_marker_writes_what_came_since_the_last_one(folder):
    found = calls(folder, """
cuda = ctypes.CDLL(None)
cuda.cudaDeviceSynchronize()
assert cuda.gradsync_waits(b"before") == 1
assert cuda.gradsync_waits(b"loop") == 0
cuda.cudaStreamSynchronize(0)
cuda.cuCtxSynchronize()
assert cuda.gradsync_waits(b"loop") == 2
cuda.cuCtxSynchronize()
""", FAKE)  # fmt: skip
    expect(found, {("before", "cudaDeviceSynchronize"): 1, ("loop", "cudaStreamSynchronize"): 1, ("loop", "cuCtxSynchronize"): 1,
                   ("exit", "cuCtxSynchronize"): 1})  # fmt: skip


def case_functions_that_a_library_looks_up_in_the_driver_are_counted(folder):
    """By dlsym, and by cuGetProcAddress, which the CUDA runtime finds by dlsym and asks for all others, itself among them."""
    found = calls(folder, f"""
driver = ctypes.CDLL("{FAKE}", mode=ctypes.RTLD_LOCAL)
assert driver.cuStreamSynchronize(5) == 105
def ask(through, name, version=13000):
    function, status = ctypes.c_void_p(), ctypes.c_int(-1)
    through(name, ctypes.byref(function), version, ctypes.c_uint64(0), *([ctypes.byref(status)] if version >= 12000 else []))
    assert status.value == (-1 if version < 12000 else 0 if function.value else 500)
    return function.value
older = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
newer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)
call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_long)
first = older(ask(driver.cuGetProcAddress, b"cuGetProcAddress", 11040))
again = newer(ask(driver.cuGetProcAddress_v2, b"cuGetProcAddress"))
assert call(ask(first, b"cuStreamSynchronize", 11040))(4, 0, 0) == 104
assert call(ask(driver.cuGetProcAddress_v2, b"cuStreamSynchronize"))(6, 0, 0) == 106
assert call(ask(again, b"cuMemcpyHtoD"))(1, 2, 3) == 106
assert call(ask(again, b"cuStreamQuery"))(9, 0, 0) == 109
assert ask(again, b"cuNothing") is None
""")  # fmt: skip
    expect(found, {("exit", "cuStreamSynchronize"): 3, ("exit", "cuMemcpyHtoD_v2"): 1})


def case_the_real_runtime_is_counted_and_answers_as_before(folder):
    if not (ROOT / "build/tests/gpu").exists():
        raise Skip("built with a LibTorch without CUDA")
    libraries = run(["ldd", ROOT / "build/tests/gpu"]).out
    runtime = next(line.split()[2] for line in libraries.splitlines() if "libcudart" in line)
    script = "cuda = ctypes.CDLL(None)\nprint(cuda.cudaDeviceSynchronize(), cuda.cudaStreamSynchronize(0))"
    plain = run([sys.executable, "-c", f"import ctypes\n{script}"], environment={"LD_PRELOAD": runtime}).expect(0).out
    to_file = f"import os\nos.dup2(os.open('{folder}/said', os.O_CREAT | os.O_WRONLY), 1)\n"
    found = calls(folder, to_file + script, runtime)
    if (folder / "said").read_text() != plain:
        raise Failure(f"answered {(folder / 'said').read_text()}, not {plain}")
    expect(found, {("exit", "cudaDeviceSynchronize"): 1, ("exit", "cudaStreamSynchronize"): 1})


def case_training_runs_under_the_counter(folder):
    """Two ranks of MPI, LibTorch, NCCL and the runtime, all loaded: dlsym serves them as before."""
    program = ["env", f"LD_PRELOAD={COUNTER}", ROOT / "build/tests/mpi", "--no-colors", "--test-case=GPU: in the steady loop*"]
    run(mpirun(2) + program, timeout=600, environment={"COUNT_WAITS_FILE": str(folder / "counts")}).expect(0, "Status: SUCCESS")


def prepare(folder) -> None:
    if not COUNTER.exists():
        raise Failure("there is no build/tests/libcount_waits.so (make tests)")


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
