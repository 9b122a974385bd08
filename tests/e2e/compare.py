#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`gradsync-report compare A B` and the merging of repeats, from real runs. Prints PASS, FAIL or SKIP a case.

B runs the same cells as A, three times each, with 4 threads a rank where A has one: a difference that must never be averaged away. Its times are
set to 50 times those of A, so that it is slower by one factor on any machine and beside any load.

usage: compare.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import json
import pathlib
import re
import sys
import xml.etree.ElementTree

import h5py
import harness
from harness import BIN, Result, Skip, check, run

STARTS = 3  # the fewest of which a ratio has an interval
PLACES = {}
DATA = ""


def report(*arguments) -> Result:
    return run([BIN / "gradsync-report", "--site", "/dev/null", *arguments])


def compare(*arguments) -> Result:
    return run([BIN / "gradsync-report", "compare", "--site", "/dev/null", *arguments])


def slower(result: Result, *texts: str) -> Result:
    """Ended with 1: a verdict and no error, so stderr has nothing but the warning of too few cores or a shared host."""
    errors = [line for line in result.err.splitlines() if not re.search("warning: (oversubscribed|shared host)", line)]
    check(result.code == 1 and not errors, f"exit code {result.code}: {result.err[-500:]}")
    for text in ("slower", *texts):
        check(bool(re.search(text, result.out)), f"'{text}' is not in: {result.out[-800:]}")
    return result


def trainer(output: pathlib.Path, mode: str, *options) -> list:
    return [BIN / "gradsync-train", "--model", "lenet", "--data", DATA, "--evaluate", "none", "--iterations", 24,
            "--batch-per-rank", 8, "--sync", mode, "--output", output, *options]  # fmt: skip


def case_a_set_of_runs_is_no_slower_than_itself(folder):
    a = PLACES["few threads"]
    compared = compare(a, a).expect(0, "no difference")
    check(len(re.findall("no difference", compared.out)) >= 2, compared)


def case_slower_cells_end_with_1(folder):
    slower(compare(PLACES["few threads"], PLACES["many threads"]), "threads: '1 .*' in A, '4 .*' in B")


def case_junit_has_a_test_a_cell(folder):
    a, b = PLACES["few threads"], PLACES["many threads"]
    for threshold, failures in ((5, 2), (10000, 0)):
        compared = compare(a, b, "--threshold", f"{threshold}%", "--junit", folder / "out.xml")
        check(compared.code == (1 if failures else 0), f"exit code {compared.code}: {compared.err}")
        suite = xml.etree.ElementTree.parse(folder / "out.xml").getroot()
        check(suite.tag == "testsuite" and suite.get("tests") == "2", str(suite.attrib))
        check(suite.get("failures") == str(failures) == str(len(suite.findall("testcase/failure"))), str(suite.attrib))
        check({case.get("name") for case in suite} == {"lenet.none.n1.b8", "lenet.ddp.n2.b8"}, str(list(suite)))


def case_foms_are_the_numbers_of_the_table(folder):
    a, b = PLACES["few threads"], PLACES["many threads"]
    lines = slower(compare(a, b, "--fom", "--format", "json")).out.splitlines()
    foms = {line.split()[1]: (float(line.split()[2]), line.split()[3]) for line in lines if line.startswith("FOM ")}
    table = json.loads("\n".join(line for line in lines if not line.startswith("FOM ")))
    check(len(foms) == 3 * len(table["rows"]) == 6, f"{foms}")
    columns = {"iteration_median_a": "a_median_ms", "iteration_median_b": "b_median_ms", "ratio": "ratio"}
    for row in table["rows"]:
        for name, column in columns.items():
            value, unit = foms[f"{name}.{row['cell']}"]
            check(abs(value / row[column] - 1) < 1e-6 and unit == ("B/A" if name == "ratio" else "ms"), f"{name}: {foms}, {row}")


def case_repeats_that_differ_in_threads_are_not_merged_silently(folder):
    places = (PLACES["few threads"], PLACES["many threads"])
    report(*places).expect(65, r"differ in threads: '1 \(1 rank\)' in .*, '4 \(1 rank\)' in", "--force-merge")
    report(*places, "--table", "modes", "--verdict", "no").expect(0)  # a row a run: nothing is merged
    report(*places, "--force-merge", "--format", "json", "--output", folder, "--plots", "no").expect(0)
    tables = [json.loads(path.read_text()) for path in folder.glob("*.json") if path.stem != "verdict"]
    check(len(tables) >= 10, f"{len(tables)} tables")
    for table in tables:
        check("MERGED ACROSS threads" in table["title"], table["title"])


def case_repeats_on_other_hosts_are_not_merged_silently(folder):
    """Two ranks on one host, and on two: the second rank sees another host name."""
    elsewhere = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]
    if run([*elsewhere, "true"]).code:
        raise Skip("needs the right to change a host name (unshare --uts)")
    run(harness.mpirun(2) + trainer(folder / "together.h5", "ddp")).expect(0)
    program = trainer(folder / "apart.h5", "ddp")
    run(harness.mpirun(1) + program + [":", "-n", 1, *elsewhere, *program]).expect(0)
    # Runs of one second are in the order of their names.
    for hosts in (r"host 1 \(2 ranks\)", r"host 1 \(1 rank\), host 2 \(1 rank\)"):
        report(folder).expect(65, f"differ in ranks per host: .*'{hosts}' in")
    report(folder, "--force-merge").expect(0, "MERGED ACROSS ranks per host")


def prepare(folder) -> None:
    global DATA
    DATA = harness.synthetic(folder, 640, 64)
    for name, threads in (("few threads", 1), ("many threads", 4)):
        PLACES[name] = folder / name.replace(" ", "-")
        PLACES[name].mkdir()
        for start in range(STARTS):
            for ranks, mode in ((1, "none"), (2, "ddp")):
                output = PLACES[name] / f"{mode}-{start}.h5"
                run(harness.mpirun(ranks) + trainer(output, mode, "--threads", threads)).expect(0)
                if threads > 1:
                    with h5py.File(output, "r+") as file, h5py.File(PLACES["few threads"] / output.name) as one:
                        for part in file["time"].values():
                            part[...] = 50 * one[part.name][()]
                            del part.attrs["crc32c"]


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
