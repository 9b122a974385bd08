#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tables of gradsync-report from real runs, from outside: LaTeX, claims, failed cells, the example runs.
Prints PASS, FAIL or SKIP a case.

usage: report.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

import harness
from harness import BIN, ROOT, Result, Skip, check, run

RUNS = pathlib.Path()
EXAMPLE = ROOT / "results/example"
# What librsvg draws with the fonts of the machine.
PICTURES = {".png", ".pdf"}


def report(*arguments) -> Result:
    return run([BIN / "gradsync-report", "--site", "/dev/null", *arguments])


def case_latex_compiles(folder):
    if not shutil.which("pdflatex") or not shutil.which("kpsewhich"):
        raise Skip("needs pdflatex (Debian: texlive-latex-recommended)")
    for package in ("booktabs", "graphicx", "rotating"):
        if run(["kpsewhich", f"{package}.sty"]).code:
            raise Skip(f"needs LaTeX's {package} (Debian: texlive-latex-recommended)")
    report(RUNS, "--format", "latex", "--output", folder, "--plots", "no").expect(0)
    tables = sorted(folder.glob("*.tex"))
    check(len(tables) >= 7, f"{tables}")
    inputs = "".join(f"\\input{{{path.stem}}}\\clearpage\n" for path in tables)
    labels = " ".join(f"\\ref{{tab:{path.stem}}}" for path in tables)
    (folder / "all.tex").write_text(
        "\\documentclass{article}\n\\usepackage{booktabs,graphicx,rotating}\n\\begin{document}\n"
        f"{inputs}{labels}\n\\end{{document}}\n")  # fmt: skip
    for _ in range(2):  # labels are known the second time
        done = subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"], cwd=folder,
                              capture_output=True, text=True, timeout=120, errors="replace")  # fmt: skip
        check(done.returncode == 0, done.stdout[-800:])
    log = (folder / "all.log").read_text(errors="replace")
    check("undefined" not in log and "multiply defined" not in log, re.findall(".*(?:undefined|multiply).*", log))
    check((folder / "all.pdf").read_bytes().startswith(b"%PDF"), "no PDF")


def case_claims_hold_and_the_first_that_does_not_ends_it(folder):
    runs = folder / "runs"
    shutil.copytree(RUNS, runs)
    claims = folder / "claims.json"
    report(runs, "--claims", claims, "--format", "markdown").expect(0)
    report("--verify-claims", claims).expect(0, r"\d{3,} numbers from 2 files hold")
    report("--verify-claims", claims, runs).expect(64, "takes no run files")
    document = json.loads(claims.read_text())
    for claim in document["claims"]:
        check(claim["formula"] != "" and claim["dataset"].startswith("/") and claim["files"], f"{claim}")
    wrong = json.loads(claims.read_text())
    number = next(claim for claim in wrong["claims"] if claim["value"] not in (None, 0))
    number["value"] *= 1.001
    (folder / "wrong.json").write_text(json.dumps(wrong))
    report("--verify-claims", folder / "wrong.json").expect(1, f"claim {re.escape(number['id'])} does not hold: claimed")
    with open(runs / "ddp.h5", "ab") as file:
        file.write(b"x")
    report("--verify-claims", claims).expect(65, "ddp.h5 is not the file")
    (runs / "ddp.h5").unlink()
    report("--verify-claims", claims).expect(66, "ddp.h5' does not exist")
    report("--verify-claims", folder / "none.json").expect(66, "none.json")


def case_ids_of_markdown_are_those_of_the_claims(folder):
    report(RUNS, "--claims", folder / "claims.json", "--format", "markdown", "--output", folder, "--plots",
           "no").expect(0)  # fmt: skip
    ids = [claim["id"] for claim in json.loads((folder / "claims.json").read_text())["claims"]]
    written = [i for path in sorted(folder.glob("*.md")) for i in re.findall('<span id="([^"]+)">', path.read_text())]
    check(len(ids) == len(set(ids)) and sorted(ids) == sorted(written), f"{len(ids)} claims, {len(written)} ids")


def case_out_of_memory_in_a_sweep_is_a_row(folder):
    job = folder / "oom.cfg"
    job.write_text(f"model = lenet\nsync = ddp\nranks = 2\nbatch-per-rank = 8\niterations = 4\nevaluate = none\n"
                   f"data = {harness.synthetic(folder, 640, 64)}\ninject-fault = out-of-memory@0:2\n")  # fmt: skip
    results = folder / "results"
    run([BIN / "gradsync-sweep", "--results", results, job], environment={"OMPI_MCA_rmaps_base_oversubscribe": "1"})
    check(bool(list(results.glob("*.failed.json"))), f"no failed cell in {list(results.iterdir())}")
    shutil.copy(RUNS / "none.h5", results)
    report(results, "--table", "batch-size").expect(0, r"OUT OF MEMORY \(exit code 81\)")
    table = report(results, "--table", "batch-size", "--wide").expect(0)
    row = next(line for line in table.out.splitlines() if "OUT OF MEMORY" in line)
    check(row.split()[:5] == ["ddp", "lenet", "2", "8", "16"], row)


def case_a_folder_of_failed_cells_says_how_each_failed(folder):
    job = folder / "lost.cfg"
    job.write_text(f"model = lenet\nsync = none\nranks = 1\nbatch-per-rank = 8, 16\niterations = 2\nevaluate = none\n"
                   f"data = {folder}/none\n")  # fmt: skip
    results = folder / "results"
    run([BIN / "gradsync-sweep", "--results", results, job])
    check(len(list(results.glob("*.failed.json"))) == 2, f"{list(results.iterdir())}")
    report(results).expect(65, "all 2 cells failed and left no run", r"lenet-none-\S+: FAILED \(exit code 66\): .*none")


def digests_of(folder: pathlib.Path) -> dict:
    """SHA-256 of each file, by its path in the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def committed_digests() -> dict:
    lines = [line.split("  ", 1) for line in (EXAMPLE / "tables.sha256").read_text().splitlines()]
    check(len({name for _, name in lines}) == len(lines), "a file has two digests")
    check([name for _, name in lines] == sorted(name for _, name in lines), "the digests are not sorted by name")
    return {name: digest for digest, name in lines}


def differing(one: dict, other: dict) -> list:
    """Names that only one of the two has, or whose digests differ."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def is_picture(name: str) -> bool:
    return pathlib.PurePath(name).suffix in PICTURES


def committed_pictures(page: pathlib.Path) -> set:
    """The pictures that a page of the examples shows, and itself; other plots are digests alone."""
    return {page, *(page.parent / name for name in re.findall(r"!\[.*?\]\((.+?)\)", page.read_text()))}


def check_names_each_wrong_file(tables: pathlib.Path) -> None:
    """Changes a byte, removes a file, adds one: config/tables --check has to name all three."""
    changed = tables / "modes/bandwidth.csv"
    changed.write_bytes(changed.read_bytes()[:-1] + b" ")
    (tables / "modes/bandwidth.tex").unlink()
    (tables / "modes/new.txt").touch()
    done = run([ROOT / "config/tables", "--check", tables])
    named = re.findall(r"^(?:differs|missing|no digest): modes/\w+\.(?!png|svg|pdf).*$", done.err, re.MULTILINE)
    expected = ["differs: modes/bandwidth.csv", "missing: modes/bandwidth.tex", "no digest: modes/new.txt"]
    check(done.code == 1 and named == expected, f"exit code {done.code}, {named}")


def case_tables_of_the_example_runs_are_the_same_bytes(folder):
    if not list(EXAMPLE.rglob("*.h5")):
        raise Skip("there are no example runs in results/example")
    done = run([ROOT / "config/tables", folder / "one"], timeout=1200)
    expected, generated = committed_digests(), digests_of(folder / "one")
    wrong = differing(generated, expected)
    drawn = [name for name in wrong if is_picture(name)]
    check(drawn == wrong, f"differ from tables.sha256: {sorted(set(wrong) - set(drawn))}")
    done.expect(0, f"{len(expected) - len(drawn)} of {len(expected)} files match")
    # Only the pages and their pictures are committed; `make tables` writes the other files beside them.
    shown = set().union(*(committed_pictures(page) for page in (EXAMPLE / "tables").glob("*/README.md")))
    names = {str(path.relative_to(EXAMPLE / "tables")) for path in shown} | {name for name in expected if name.endswith("/README.md")}
    present = digests_of(EXAMPLE / "tables")
    wrong = sorted(name for name in names if present.get(name) not in ({expected[name]} | ({generated[name]} if name in drawn else set())))
    check(not wrong, f"results/example/tables does not match tables.sha256: {wrong}")
    if drawn:
        run([ROOT / "config/tables", folder / "two"], timeout=600).expect(0)
        wrong = differing(generated, digests_of(folder / "two"))
        check(not wrong, f"differ from run to run: {wrong}")
    check_names_each_wrong_file(folder / "one")
    if drawn:
        raise Skip(f"all tables are the same; pictures drawn by another librsvg or other fonts: {len(drawn)}")


def prepare(folder) -> None:
    global RUNS
    RUNS = harness.small_runs(folder)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
