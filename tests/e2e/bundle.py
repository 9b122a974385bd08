#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The bundle (make bundle), copied elsewhere: two ranks train with its own MPI and the machine's PyTorch. And what runs
there, bench/first_visit: its rehearsal, and what it makes of times, hangs, earlier results and what a machine lacks.

usage: bundle.py [NAME...]    (run by tests/run, which sets TORCH_PYTHON; SKIP where there is no build/bundle)
"""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import sys

import harness
from harness import ROOT, Failure, Skip, run, synthetic

harness.ENVIRONMENT.pop("OMPI_MCA_pml")
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


def case_python_modules_and_a_torch_of_the_current_folder_are_not_run(folder):
    bundle = copied(folder)
    planted = folder / "shared"
    (planted / "torch/lib").mkdir(parents=True)
    for name in ("pathlib.py", "re.py", "os.py", "torch/__init__.py"):
        (planted / name).write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    (planted / "torch/version.py").write_text((bundle / "torch-version").read_text().join(("__version__ = '", "'\n")))
    shown = run(["bash", "-c", f"cd {planted} && {bundle}/run env"], environment=environment(folder)).expect(0).out
    harness.check(not (folder / "ran").exists(), "a module of the current folder was run")
    harness.check(str(planted) not in re.search("^LD_LIBRARY_PATH=.*", shown, re.M)[0], shown)


def case_only_in_a_container_root_is_let_through(folder):
    """Open MPI asks before it starts ranks of root."""
    bundle = copied(folder)
    shown = run(["env", "-u", "OMPI_ALLOW_RUN_AS_ROOT", "-u", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", bundle / "run", "env"], environment=environment(folder)).expect(0).out
    contained = run(["bash", "-c", f"cd {ROOT} && . config/common.sh && in_container"]).code == 0
    harness.check(("OMPI_ALLOW_RUN_AS_ROOT=1" in shown) == contained, f"in a container: {contained}")


def case_each_library_has_a_license_text_and_is_in_the_bill_of_materials(folder):
    if not (BUNDLE / "sbom.spdx").exists():
        raise Skip("there is no bundle (make bundle)")
    sbom = (BUNDLE / "sbom.spdx").read_text()
    entries = {part.split("\n")[0]: part for part in sbom.split("\nPackageName: ")[1:]}
    for path in [*BUNDLE.glob("lib/*"), *BUNDLE.glob("mpi/plugins/*"), *BUNDLE.glob("pmix/plugins/*"), *BUNDLE.glob("mpi/bin/*")]:
        name = str(path.relative_to(BUNDLE))
        harness.check(name in entries, f"{name} is not in sbom.spdx")
        package = re.search(r"purl pkg:(?:deb/debian|pypi)/(.*)@", entries[name])
        harness.check(package is None or (BUNDLE / "licenses" / package[1]).stat().st_size > 0, f"no license text of {name}")
        harness.check(package is not None or name == "lib/libcurl.so.4", f"{name}: of no package")
    harness.check("deb/debian/nlohmann-json3-dev@" in sbom or "pgm-build-deps" in sbom, "no entry for the headers of nlohmann-json")
    unused = [path.name for path in BUNDLE.glob("*/plugins/*") if re.search("netlink|plm_slurm|ras_slurm", path.name)]
    harness.check(not unused and not list(BUNDLE.glob("lib/libnl*")), f"{unused}")


# Beside Python all that `run` calls.
TOOLS = ("bash", "cat", "dirname", "env", "readlink", "sed", "tar", "xz")
# Of these no bundle brings its own.
LOADER = re.compile(r"(ld-linux|lib(?:c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+)\.so)")


def libraries_of(*files) -> set[str]:
    text = run(["ldd", *files]).out
    return set(re.findall(r"(?:=> )?(/\S+) \(0x", text))


def empty_root(root, python) -> list[str]:
    """Copies Python and the tools with their libraries; returns the folders of Python that are to be shown there as well."""
    shown = run([python, "-c", "import sys, sysconfig; print(sys.prefix); print(sysconfig.get_path('stdlib'))"]).out.split()
    tools = [shutil.which(tool) for tool in TOOLS]
    while os.path.islink(python):
        python = os.path.join(os.path.dirname(python), os.readlink(python))
        tools.append(python)
    extensions = list(pathlib.Path(shown[1]).glob("lib-dynload/*.so"))
    ours = {path for path in libraries_of(BUNDLE / "bin/gradsync-train") if LOADER.search(path)}
    for path in {*tools, *libraries_of(*tools, *extensions), *ours}:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    (root / "bin").exists() or (root / "bin").symlink_to("usr/bin")
    for name in ("proc", "dev", "sys", "tmp", *(folder.lstrip("/") for folder in shown)):
        (root / name).mkdir(parents=True, exist_ok=True)
    return shown


def case_the_archive_trains_in_a_root_with_nothing_but_a_python_that_has_torch(folder):
    copied_from, python = BUNDLE.with_suffix(".tar.xz"), os.environ.get("TORCH_PYTHON")
    harness.check(copied_from.exists() or not BUNDLE.exists(), f"{BUNDLE} was begun and has no archive: build/tests/bundle.log says why")
    if not copied_from.exists() or not python:
        raise Skip("there is no archive of a bundle (make bundle), or no Python with torch")
    if os.geteuid() != 0 or run(["unshare", "--mount", "--pid", "--fork", "true"]).code != 0:
        raise Skip("only root can make namespaces, and here they are not allowed")
    harness.check(copied_from.stat().st_size <= 30 << 20, f"the archive has {copied_from.stat().st_size} bytes")
    root = folder / "root"
    root.mkdir()
    shown = empty_root(root, python)
    run(["tar", "-xf", copied_from, "-C", root]).expect(0)
    train = "/bundle/run gradsync-dataset synthesize --to /tmp/set --train 640 --test 64 && " \
            "/bundle/run -n 2 gradsync-train --model lenet --data /tmp/set --batch-per-rank 16 --iterations 8 --output /tmp/run.h5 && " \
            "/bundle/run gradsync-report /tmp/run.h5 --plots no"  # fmt: skip
    mounts = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev", f"mount --rbind /sys {root}/sys",
              *(f"mount --rbind -o ro {path} {root}{path}" for path in shown)]  # fmt: skip
    inside = f"exec chroot {root} /usr/bin/env -i PATH=/usr/bin PYTHON={python} CUDA_VISIBLE_DEVICES= bash -c '{train}'"
    command = ["unshare", "--mount", "--pid", "--fork", "bash", "-ec", "\n".join([*mounts, inside])]
    run(command, timeout=600).expect(0, "ddp, 2 ranks", "test accuracy", "ddp")


def first_visit(out, limit_s=150, **more):
    """The module and a visit that writes to `out`; nothing of it needs a GPU or torch."""
    loader = importlib.machinery.SourceFileLoader("first_visit", str(ROOT / "bench/first_visit"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("first_visit", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    module.COMMAND_LIMIT_S, module.GRACE_S, module.machine = limit_s, 1, lambda _: {}
    module.print = lambda *_, **__: None  # its lines are no results of this script
    out.mkdir(exist_ok=True)
    return module, module.Visit(argparse.Namespace(out=out, rehearse=False, minutes=1, **more))


def row(visit, name) -> dict:
    return next((row for row in visit.rows if row["name"] == name), {})


def case_first_visit_both_sides_are_timed_on_the_hosts_clock(folder):
    module, visit = first_visit(folder)
    text = "epoch 1: train loss 2.1, 0.0100 s training, 0.0250 s running, order 5f\nepoch 2: …, nan s training, 0.0240 s running, order 5f\n"
    harness.check(module.epoch_times(text) == [0.025, 0.024], f"{module.epoch_times(text)}")
    visit.judge("lenet", {"gradsync": [0.025], "eager": [0.1], "compile": []}, {})
    harness.check(row(visit, "lenet: speed over eager")["value"] == 4, f"{visit.rows}")


def case_first_visit_a_program_without_times_is_a_failed_row(folder):
    _, visit = first_visit(folder)
    visit.judge("lenet", {"gradsync": [0.02], "gradsync-graph": [], "eager": []}, {"eager": "exit 1"})
    for program in ("gradsync-graph", "eager"):
        found = row(visit, f"lenet epoch, {program}")
        harness.check(found.get("value") == "FAILED" and found["met"] is False, f"{visit.rows}")
    harness.check(visit.finish(["lenet"]) == 1, "the visit does not fail")


def case_first_visit_what_fails_or_hangs_leaves_all_that_it_printed(folder):
    module, visit = first_visit(folder, limit_s=10)
    lines = "".join(f"line {i}\n" for i in range(40))
    visit.now = "tests"
    for command in ("seq -f 'line %g' 0 39; exit 3", "seq -f 'line %g' 0 39; sleep 600"):
        try:
            visit.run("bash", "-c", command)
            raise Failure("it does not fail")
        except module.Failed:
            pass
    log = (folder / "log.txt").read_text()
    harness.check("exit 3" in log and "exit 124" in log and "line 0\n" not in log, log)
    kept = [path.read_text() for path in sorted((folder / "failed").iterdir())]
    harness.check(len(kept) == 2 and all(lines in text for text in kept) and "not done in 10 s" in kept[1], f"{kept}")


def case_first_visit_calls_add_to_one_folder(folder):
    for parts, seconds in ((["lenet", "tests"], 1), (["kernels"], 2), (["lenet"], 3)):
        _, visit = first_visit(folder)
        for part in parts:
            visit.now = part
            visit.record(f"of {part}", seconds, "s")
            visit.skip(f"{part} in part")
        visit.epochs.append((parts[0], "gradsync", 0, 0, seconds))
        visit.finish(parts)
    summary = json.loads((folder / "summary.json").read_text())
    values = {row["name"]: row["value"] for row in summary["results"]}
    harness.check(values == {"of tests": 1, "of kernels": 2, "of lenet": 3}, f"{values}")
    harness.check(len(summary["skipped"]) == 3, f"{summary['skipped']}")
    epochs = (folder / "epochs.csv").read_text().split()
    harness.check(epochs[1:] == ["kernels,gradsync,0,0,2", "lenet,gradsync,0,0,3"], f"{epochs}")
    page = (folder / "README.md").read_text()
    harness.check("| lenet | of lenet |  | 3 s |" in page and page.count("- SKIP") == 3, page)


def case_first_visit_leaves_out_what_the_machine_lacks_and_all_behind_a_failed_training(folder):
    _, visit = first_visit(folder)
    ran, missing = [], folder / "no-kernels"

    def fails():
        visit.stopped_by = "the first training failed"
        raise OSError("no")

    visit.step("several", ("gpus",), 1, 60, lambda: ran.append("several"))
    visit.step("kernels", (missing,), 1, 60, lambda: ran.append("kernels"))
    visit.step("ladder", (), 61, 600, lambda: ran.append("ladder"))
    visit.step("modes", (), 1, 60, lambda: ran.append("modes"))
    visit.step("trains", (), 1, 60, fails)
    visit.step("lenet", (), 1, 60, lambda: ran.append("lenet"))
    harness.check(ran == ["modes"], f"{ran}")
    whys = [skip["why"] for skip in visit.skipped]
    wanted = ["several: it takes two GPUs", f"kernels: there is no {missing}", "ladder: [0-9]+ s left, it takes 61 s", "lenet: the first training failed"]
    harness.check(len(whys) == 4 and all(re.match(*pair) for pair in zip(wanted, whys)), f"{whys}")
    harness.check(row(visit, "trains")["value"] == "FAILED", f"{visit.rows}")


def case_first_visit_ends_a_step_at_its_limit(folder):
    module, visit = first_visit(folder)
    visit.step("modes", (), 1, 2, lambda: visit.run("sleep", 600))
    harness.check("not done in" in (folder / "log.txt").read_text() and not row(visit, "modes"), f"{visit.rows}")
    harness.check(visit.skipped[-1]["why"] == "modes: the time was over after 2 s of a command", f"{visit.skipped}")
    module.COMMAND_LIMIT_S = 1
    visit.step("tests", (), 1, 30, lambda: visit.run("sleep", 600))
    harness.check(row(visit, "tests").get("value") == "FAILED", f"what hangs has failed: {visit.rows}")
    harness.check(module.gpu_count("Attached GPUs                             : 4\n", None) == 4, "GPUs of nvidia-smi -q")
    harness.check(module.gpu_count("Attached GPUs                             : 4\n", "1,3") == 2, "GPUs that CUDA_VISIBLE_DEVICES leaves")


def case_first_visit_is_rehearsed_on_the_cpu(folder):
    """In a short form: the whole takes 5 minutes."""
    out = folder / "visit"
    first = run([ROOT / "bench/first_visit", out, "--rehearse", "--only", "trains,several,measuring"], timeout=600)
    first.expect(0, "preflight: exit 0", "it trains: yes", "end of a job of 2 ranks, one stopped: exit 86", "A/A", "SKIP srun: not in a job of Slurm")
    second = run([ROOT / "bench/first_visit", out, "--rehearse", "--only", "ladder"], timeout=300).expect(0)
    harness.check("it trains" in (out / "README.md").read_text(), "a second call keeps the results of the first")
    files = {path.name for path in out.iterdir()}
    wanted = {"README.md", "summary.json", "log.txt", "check.json", "first.txt", "calibration-2.txt", "batch-size.md", "runs-trains.tar.xz", "epochs.csv"}
    harness.check(wanted <= files, f"not there: {wanted - files}")
    counted = json.loads((out / "summary.json").read_text())
    harness.check(counted["rehearsal"] and f"{len(counted['skipped'])} skipped" in second.out, second.out)
    refused = run([ROOT / "bench/first_visit", out, "--only", "no-such"], timeout=60)
    harness.check(refused.code == 2 and "the steps are machine, trains" in refused.err, refused.err)


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 2000, 200)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare, at_once=3))
