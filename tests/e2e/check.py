#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradsync-check from outside, on real ranks. Prints PASS, FAIL or SKIP a case.

usage: check.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

import harness
from harness import BIN, Skip, check, mpirun, run, synthetic, with_shared_memory

PROGRAM = BIN / "gradsync-check"
DATA = ""
harness.ENVIRONMENT["GRADSYNC_CHECK_VERBOSE"] = "true"  # or rows that passed are not printed


def preflight(ranks: int, folder: pathlib.Path, *arguments, data: str | None = None, **how):
    return run(mpirun(ranks) + [PROGRAM, "--data", data or DATA, "--results", folder / "results", *arguments], **how)


def row(result, name: str) -> str:
    """What the table says of one check: "pass", "warn", "fail" or "skip"."""
    found = re.search(rf"^(\w+)  {re.escape(name)} ", result.out, re.MULTILINE)
    check(found is not None, f"no row {name}: {result.out}")
    return found.group(1)


@harness.alone
def case_ranks_of_one_machine_pass(folder):
    for ranks in (1, 2, 4):
        result = preflight(ranks, folder, "--ranks", ranks, "--ranks-per-node", ranks)
        result.expect(0, r"\d+ pass, \d+ warn, 0 fail, \d+ skip")
        for name in ("launch.ranks", "ranks.per-node", "libraries.versions", "results.write", "results.lock", "data"):
            check(row(result, name) == "pass", f"{name} on {ranks} ranks: {result.out}")
        check(row(result, "links.sum") == ("pass" if ranks > 1 else "skip"), result)
        check(row(result, "libraries.equal") == ("pass" if ranks > 1 else "skip"), result)
    check(list(folder.iterdir()) == [], "it leaves nothing behind")


def case_a_process_that_is_alone_though_tasks_were_asked_for(folder):
    alone = [PROGRAM, "--data", DATA, "--results", folder, "--skip", "links"]
    result = run(alone, environment={"SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"})
    result.expect(69, "launch.ranks", "SLURM_NTASKS says 4 ranks")
    check(row(result, "launch.ranks") == "fail" and "srun --mpi=pmix -n 4" in result.out, result)
    second = run(alone, environment={"SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2"})
    check(second.code == 0 and second.out == "", f"one of the tasks speaks, and gives the exit code: {second.code} {second.out}")


def case_expectations_that_do_not_hold(folder):
    result = preflight(2, folder, "--ranks", 3, "--ranks-per-node", 4, "--device", "cuda", "--threads", 1024)
    result.expect(69, "--ranks says 3", "--ranks-per-node says 4", "needs 1024")
    check(row(result, "binding.threads") == "fail" and row(result, "ranks.per-node") == "fail", result)
    if not pathlib.Path("/dev/nvidia0").exists():
        check(row(result, "gpus.seen") == "fail" and "no CUDA driver" in result.out, result)


def case_missing_and_damaged_data(folder):
    missing = preflight(2, folder, data=str(folder / "none"))
    missing.expect(69, "checks failed: data", "config/data")
    check(row(missing, "data") == "fail", missing)
    copy = folder / "copy"
    shutil.copytree(DATA, copy)
    with open(copy / "data_batch_3.bin", "r+b") as file:
        file.seek(5000)
        byte = file.read(1)
        file.seek(5000)
        file.write(bytes([byte[0] ^ 1]))
    preflight(2, folder, data=str(copy)).expect(69, "data_batch_3.bin' has SHA-256")


def case_a_results_folder_that_cannot_be(folder):
    (folder / "results").write_text("a file\n")
    result = preflight(2, folder, "--skip", "data").expect(69, "checks failed: results.write")
    check("--results FOLDER" in result.out, result)


def mount(folder: pathlib.Path, options: str) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True).returncode != 0:
        raise Skip("mounting needs root")


def case_a_results_folder_that_is_full_or_read_only(folder):
    results = folder / "results"
    results.mkdir()
    mount(results, "size=64k")
    try:
        result = preflight(2, folder, "--skip", "data").expect(69, "results.space|results.write")
        check("results" in result.out, result)
        subprocess.run(["mount", "-o", "remount,ro", results], check=True)
        preflight(2, folder, "--skip", "data").expect(69, "Read-only file system")
    finally:
        subprocess.run(["umount", results], check=True)


@harness.alone
def case_too_little_shared_memory_fails(folder):
    for size, outcome in (("64k", "fail"), ("8m", "warn")):
        command = [*with_shared_memory(size), *mpirun(2), PROGRAM, "--data", DATA, "--results", folder / "results"]
        result = run(command).expect(69 if outcome == "fail" else 0, "2 ranks", "fix: |--shm-size=1g")
        check(row(result, "shared-memory.space") == outcome, f"{size}: {result.out}")


@harness.alone
def case_leftovers_in_shared_memory_are_named_not_removed(folder):
    shared = pathlib.Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        raise Skip("no /dev/shm here")
    # All users may write there: a name that cannot be guessed, of a file that was not there before.
    file, name = tempfile.mkstemp(prefix="vader_segment.gradsync-e2e-", dir=shared)
    os.write(file, b"x" * 4096)
    os.close(file)
    left = pathlib.Path(name)
    hour_ago = time.time() - 3600
    os.utime(left, (hour_ago, hour_ago))
    try:
        result = preflight(2, folder, "--skip", "data,links").expect(0)
        check(row(result, "shared-memory.leftovers") == "warn", result)
        check(re.search(rf"rm .*{re.escape(str(left))}", result.out) is not None, result)
        check(left.exists(), "it removes nothing by itself")
    finally:
        left.unlink()


@contextlib.contextmanager
def mapped_by(user: int, age_s: int = 3600):
    """A segment in /dev/shm that a process of that user has mapped, which no process number leads to from a container."""
    shared = pathlib.Path("/dev/shm")
    if os.geteuid() != 0:
        raise Skip("only root can start programs as another user")
    if subprocess.run(["unshare", "--user", "--map-root-user", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        raise Skip("no user and process-id namespaces here (unshare)")
    file, name = tempfile.mkstemp(prefix="vader_segment.gradsync-e2e-", dir=shared)
    os.write(file, b"x" * 4096)
    os.fchown(file, user, user)
    os.utime(file, (time.time() - age_s,) * 2)
    os.close(file)
    hold = "import mmap, os, sys; m = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 4096, prot=mmap.PROT_READ); print(flush=True); sys.stdin.read()"
    holder = subprocess.Popen(["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", sys.executable, "-c", hold, name],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    try:
        check(holder.stdout.readline() == b"\n", "the segment is mapped")
        yield name
    finally:
        holder.communicate()
        os.unlink(name)


@harness.alone
def case_segments_of_living_processes_outside_of_a_container_are_left_alone(folder):
    """In a process-id namespace they are not seen; the root of a user namespace may not look at them."""
    for user, container in ((0, ["unshare", "--pid", "--fork", "--mount-proc"]), (65534, ["unshare", "--user", "--map-root-user"])):
        with mapped_by(user) as name:
            here = ["--data", DATA, "--results", folder / "results", "--skip", "data,links,load"]
            check(name not in run([PROGRAM, *here]).expect(0).out, f"user {user}: mapped by a process that is seen")
            result = run([*container, PROGRAM, *here]).expect(0)
            check(row(result, "shared-memory.leftovers") in ("skip", "pass"), f"user {user}: {result.out}")
            check(not re.search(rf"fix: .*{re.escape(name)}", result.out), f"user {user}: {result.out}")


def case_a_launcher_outside_of_the_container_is_not_compared_by_paths(folder):
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        raise Skip("no mount namespaces here (unshare)")
    here = ["--data", DATA, "--results", folder / "results", "--skip", "data,links,load"]
    check(row(run(mpirun(2) + [PROGRAM, *here]).expect(0), "launch.mpi") == "pass", "the same files")
    result = run(mpirun(2) + ["unshare", "--mount", PROGRAM, *here]).expect(0)
    check(row(result, "launch.mpi") == "skip", result)


def case_ranks_in_user_namespaces_of_their_own_are_named_before_a_message_hangs(folder):
    """Open MPI 4's CMA: `apptainer exec` as the site's container starts ranks so."""
    harness.require_open_mpi_4("the single-copy mechanism of vader is a part of")
    container = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*container, "true"], capture_output=True).returncode != 0:
        raise Skip("no user namespaces here (unshare)")
    here = ["--data", DATA, "--results", folder / "results", "--skip", "data,load"]
    copies = row(run(mpirun(2) + [PROGRAM, *here]).expect(0), "shared-memory.cma")
    if copies != "pass":
        raise Skip("this Open MPI does not copy messages by CMA")
    result = run(mpirun(2) + [*container, PROGRAM, *here])
    check(row(result, "shared-memory.cma") in ("fail", "warn"), result)
    check("--mca btl_vader_single_copy_mechanism none" in result.out, result)
    without = [*harness.launcher(), "--mca", "btl_vader_single_copy_mechanism", "none", "-n", 2]
    result = run([*without, *container, PROGRAM, *here]).expect(0)
    check(row(result, "shared-memory.cma") == "skip", result)


@harness.alone
def case_a_busy_core_is_a_warning_with_its_host(folder):
    core = str(sorted(os.sched_getaffinity(0))[0])
    here = ["--data", DATA, "--results", folder / "results", "--threads", 1, "--skip", "data,links"]
    busy = subprocess.Popen(["taskset", "-c", core, sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        busy.stdout.readline()
        result = run(["taskset", "-c", core, PROGRAM, *here]).expect(0, r"\d+ % of the cores that its ranks need are free")
        check(row(result, "load") == "warn" and os.uname().nodename in result.out.partition("  load ")[2].partition("\n")[0], result)
    finally:
        busy.kill()
        busy.wait()


def loaded_hdf5() -> pathlib.Path:
    names = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
    return pathlib.Path(re.search(r"libhdf5\S*\.so\S* => (\S+)", names.replace("libhdf5_serial_hl", "hl")).group(1))


def another_build(path: pathlib.Path) -> None:
    """Another build ID in a library, as a build from other sources has."""
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", notes)
    if found is None:
        raise Skip("this HDF5 has no build ID")
    old = bytes.fromhex(found.group(1))
    content = path.read_bytes()
    check(content.count(old) == 1, "one build ID")
    path.write_bytes(content.replace(old, old[::-1]))


def case_another_hdf5_on_one_rank(folder):
    original = loaded_hdf5()
    copy = folder / "lib" / original.name
    copy.parent.mkdir()
    shutil.copy(original, copy)
    place = ["--data", DATA, "--results", folder / "results", "--skip", "data,links"]
    path = f"{copy.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    command = mpirun(1) + [PROGRAM, *place, ":", "-n", 1, "env", f"LD_LIBRARY_PATH={path}", PROGRAM, *place]
    result = run(command).expect(0, "the same builds from different files", str(copy))
    check(row(result, "libraries.equal") == "warn", result)
    another_build(copy)
    result = run(command).expect(69, "checks failed: libraries.equal", rf"HDF5: rank 0 .* rank 1 .* has [\d.]+ {copy}")
    check(row(result, "libraries.equal") == "fail", result)


def case_what_fails_is_printed_last_and_what_passes_on_request(folder):
    brief = {"GRADSYNC_CHECK_VERBOSE": "false"}
    passes = preflight(2, folder, environment=brief).expect(0, r"0 fail, \d+ skip \(--verbose prints every row")
    check(not re.search(r"^(pass|skip|fail) ", passes.out, re.MULTILINE) and "Hosts" not in passes.out, passes)
    fails = preflight(2, folder, "--ranks", 3, environment=brief).expect(69, r"1 of \d+ checks failed: launch.ranks", "fix: ")
    check("MPI_ABORT" not in fails.err, fails)
    row, fix = fails.out.splitlines()[-2:]
    check(row.startswith("fail  launch.ranks ") and fix.startswith("  fix: "), fails)
    check("Hosts" in preflight(2, folder, "--verbose", environment=brief).expect(0, r"\npass  launch.ranks ").out, "the tables")


def case_json_and_junit_hold_every_row(folder):
    files = ["--json", folder / "check.json", "--junit", folder / "check.xml"]
    result = preflight(2, folder, *files, data=str(folder / "none")).expect(69)
    page = json.loads((folder / "check.json").read_text())
    printed = result.out[: result.out.index("\nHosts")]  # behind the tables those that warn or fail are printed again
    rows = re.findall(r"^(pass|warn|fail|skip)  (\S+) ", printed, re.MULTILINE)
    check([(one["result"], one["id"]) for one in page["checks"]] == rows, f"{rows}")
    check(page["result"] == "fail" and sum(page["summary"].values()) == len(rows), str(page["summary"]))
    check(page["tables"]["hosts"][0]["ranks"] == 2 and page["tables"]["libraries"][1]["library"] == "MPI", "tables")
    check(all(one["fix"] for one in page["checks"] if one["result"] in ("warn", "fail")), "each has its fix")
    suite = ElementTree.parse(folder / "check.xml").getroot()
    check(int(suite.get("tests")) == len(rows) == len(suite.findall("testcase")), "tests of JUnit")
    check(int(suite.get("failures")) == len(suite.findall(".//failure")) == 1, "failures of JUnit")
    preflight(2, folder, *files).expect(0)
    check(json.loads((folder / "check.json").read_text())["result"] == "pass", "an older file is replaced")


def case_junit_to_standard_output_is_all_that_is_printed(folder):
    result = preflight(2, folder, "--junit", "-", "--skip", "links,load").expect(0)
    check(int(ElementTree.fromstring(result.out).get("failures")) == 0, result)
    check(not (harness.ROOT / "-").exists(), "a file of that name")
    for one in ("-", folder / "both"):
        preflight(2, folder, "--junit", one, "--json", one).expect(64, "--junit and --json name the same file|--json and --junit name")


def case_ranks_with_different_options_end_at_once(folder):
    common = [PROGRAM, "--data", DATA, "--results", folder / "results", "--skip"]
    result = run(mpirun(1) + [*common, "links,data", ":", "-n", 1, *common, "links"])
    result.expect(87, "skip", "links,data")
    check(result.seconds < 30, f"{result.seconds:.0f} s")


def case_a_pipe_in_place_of_data_is_named(folder):
    pipe = folder / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / "gradsync-dataset.json")
    preflight(2, folder, data=str(pipe), timeout=30).expect(69, "gradsync-dataset.json' is a FIFO, not a file")


@harness.alone
def case_a_rank_that_stands_still_ends_the_job_and_is_named(folder):
    strike = ["env", f"LD_PRELOAD={harness.STRIKE}"]
    for rank, where in ((1, "collective:8"), (0, "fsync:1"), (1, "MPI_Allreduce:9")):
        stops = [*strike, f"STRIKE={rank}:{where}:STOP", PROGRAM, "--timeout", "10s", "--data", DATA, "--results", folder / "results"]
        named = f"missing ranks: {rank}; waiting ranks: {1 - rank}. rank {rank} .*process stopped"
        result = run(mpirun(2) + stops).expect(86, f"gradsync-check: rank {1 - rank} .*: hang: (?!.*(iteration|training)).*{named}", "--timeout sets the limit")
        check(result.seconds < 60, f"{result.seconds:.0f} s")


def case_mpi_that_does_not_start_ends_the_process(folder):
    late = f"[ ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} = 1 ] && sleep 30; exec {PROGRAM} --timeout 3s --data {DATA} --results {folder}/results"
    run(mpirun(2) + ["bash", "-c", late], timeout=90).expect(69, "MPI has not started in 3 s")


def case_help_commands_are_taken(folder):
    text = run([PROGRAM, "--help"]).expect(0).out
    for line in re.search(r"Examples\n(.*?)\n\n", text, re.DOTALL).group(1).splitlines():
        arguments = line.split("gradsync-check", 1)[1].split()
        only_print = [] if "--print-config" in arguments else ["--print-config"]
        run([PROGRAM, *arguments, *only_print]).expect(0, "ranks-per-node")
    run([PROGRAM, "--skip", "dta"]).expect(64, "did you mean data")


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 200, 50)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare, at_once=2))
