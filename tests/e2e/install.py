#!/usr/bin/env python3
"""What `make install` copies works from there. Prints PASS, FAIL or SKIP a case.

usage: install.py [NAME...]    (run by tests/run)
"""
import pathlib
import re
import sys

import harness
from harness import ROOT, check, mpirun, run, synthetic

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


def prepare(folder) -> None:
    global PREFIX
    PREFIX = folder / "prefix"
    programs = [ROOT / f"build/bin/gradsync-{program}" for program in PROGRAMS]
    run([ROOT / "config/install", PREFIX, *programs]).expect(0, "installed in")


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
