#!/usr/bin/env python3
"""What `make install` copies works from there. Prints PASS, FAIL or SKIP a case.

usage: install.py [NAME...]    (run by tests/run)
"""
import os
import pathlib
import re
import shutil
import sys

import harness
from harness import ROOT, Skip, check, mpirun, run, synthetic

PREFIX = pathlib.Path()
PROGRAMS = ["audit", "calibrate", "check", "dataset", "quantize", "report", "sweep", "train"]


def case_every_program_has_a_page_and_a_completion(folder):
    for program in PROGRAMS:
        name = f"gradsync-{program}"
        run([PREFIX / "bin" / name, "--version"]).expect(0, name)
        check(".SH OPTIONS" in (PREFIX / f"share/man/man1/{name}.1").read_text(), f"the page of {name}")
        run(["bash", "-n", PREFIX / "share/bash-completion/completions" / name]).expect(0)
    check((PREFIX / "share/man/man1/gradsync-report-compare.1").exists(), "no page of gradsync-report compare")
    check(not (PREFIX / "share/gradsync/slurm/site").exists(), "the site file of the checkout was installed")


def case_a_grid_runs_from_the_installed_files(folder):
    jobs = PREFIX / "share/gradsync/jobs"
    run([PREFIX / "bin/gradsync-sweep", jobs / "demo.cfg", "--list", "--results", folder / "results"]).expect(0, "vgg11-ddp-r2")
    data = synthetic(folder, 640, 64)
    run(mpirun(2) + [PREFIX / "bin/gradsync-train", "--model", "lenet", "--data", data, "--batch-per-rank", 16, "--iterations", 5,
                     "--output", folder / "run.h5"]).expect(0)  # fmt: skip
    run([PREFIX / "bin/gradsync-report", folder / "run.h5"]).expect(0, "ddp")
    run([PREFIX / "bin/gradsync-audit", PREFIX / "share/gradsync/results/published/reports.csv", "--table", "findings"]).expect(0)


def case_the_users_site_file_is_read(folder):
    """An installed folder belongs to all users."""
    site = folder / "config/gradsync/slurm-site"
    site.parent.mkdir(parents=True)
    site.write_text("account = physics\n")
    submit = PREFIX / "share/gradsync/slurm/submit"
    run([submit, "--environment"], environment={"XDG_CONFIG_HOME": str(folder / "config")}).expect(0, "SBATCH_ACCOUNT=physics")
    result = run([PREFIX / "bin/gradsync-sweep", PREFIX / "share/gradsync/jobs/demo.cfg", "--launcher", "slurm", "--ranks-per-node", 2,
                  "--dry-run", "--results", folder / "results"]).expect(0)  # fmt: skip
    check(re.search(rf"{PREFIX}/share/gradsync/slurm/submit .*grid", result.out), result.out[:500])


def install(prefix, **environment) -> harness.Result:
    programs = [ROOT / f"build/bin/gradsync-{program}" for program in PROGRAMS]
    return run([ROOT / "config/install", prefix, *programs], environment=environment, timeout=600)


def shared_and_moved(folder) -> pathlib.Path:
    """A prefix that all users can read, moved after it was installed."""
    if os.geteuid() != 0:
        raise Skip("only root can run programs as another user")
    folder.chmod(0o755)
    result = install(folder / "first")
    if result.code == 74:
        raise Skip(f"no space for the libraries: {result.err}")
    result.expect(0, "the prefix can be moved")
    return shutil.move(folder / "first", folder / "moved")


def as_nobody(folder) -> list:
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", f"--chdir={folder}", "HOME=/nonexistent"]


def check_libraries(program, prefix, user) -> None:
    """All are found: in the prefix, or where every user finds them."""
    found = re.findall(r"=> (.*?)(?: \(|$)", run([*user, "ldd", program]).expect(0).out, re.M)
    foreign = [path for path in found if not re.match(rf"{prefix}/|/(?:usr/)?lib|/usr/local/|/opt/", path)]
    check(found and not foreign, f"{program.name} loads {foreign}")
    runpath = run(["readelf", "-d", program]).expect(0, "RUNPATH").out
    check(str(pathlib.Path.home()) not in runpath, runpath)


def case_another_user_runs_a_moved_prefix_without_the_installers_files(folder):
    prefix = shared_and_moved(folder)
    nobody = as_nobody(folder)
    for program in PROGRAMS:
        path = prefix / "bin" / f"gradsync-{program}"
        run([*nobody, path, "--version"]).expect(0, f"gradsync-{program}")
        check_libraries(path, prefix, nobody)
    results = folder / "results"
    results.mkdir()
    results.chmod(0o777)
    data = synthetic(folder, 640, 64)
    training = [prefix / "bin/gradsync-train", "--model", "lenet", "--data", data, "--batch-per-rank", 16, "--iterations", 3]
    run(nobody + mpirun(2) + training + ["--output", results / "run.h5"]).expect(0)
    run([*nobody, prefix / "bin/gradsync-report", results / "run.h5"]).expect(0, "ddp")


def case_a_module_file_follows_its_prefix(folder):
    initialize = pathlib.Path("/usr/share/modules/init/bash")
    if not initialize.exists():
        raise Skip("there is no module command (package environment-modules)")
    moved = shutil.copytree(PREFIX, folder / "moved")
    load = f". {initialize}; module use {moved}/share/modulefiles; module load gradsync"
    for manual in ("unset MANPATH", "MANPATH=/usr/share/man"):
        result = run(["bash", "-c", f"export MANPATH; {manual}; {load}; type -p gradsync-train; man -w gradsync-train ls"])
        result.expect(0, f"{moved}/bin/gradsync-train\n{moved}/share/man/man1/gradsync-train.1\n/usr/share/man/")
    unloaded = run(["bash", "-c", f"{load}; module unload gradsync; type -p gradsync-train"])
    check(unloaded.code == 1 and not unloaded.out, unloaded.out)


def case_libraries_stay_where_they_are_for_a_private_prefix(folder):
    check(not (PREFIX / "lib/gradsync").exists(), "libraries were copied")
    name = "bin/gradsync-train"
    check((PREFIX / name).read_bytes() == (ROOT / "build" / name).read_bytes(), "the program was changed")


def case_an_mpi_of_the_installers_own_is_refused_for_a_shared_prefix(folder):
    folder.chmod(0o755)
    result = install(folder / "prefix", HOME="/usr")
    check(result.code == 69 and re.search(r"mpirun is private: .*\n +fix: MPICXX=", result.err), f"{result.code}: {result.err}")
    check(not (folder / "prefix").exists(), "something was installed")


def prepare(folder) -> None:
    global PREFIX
    PREFIX = folder / "prefix"
    install(PREFIX).expect(0, "installed in")


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
