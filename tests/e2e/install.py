#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the build finds, refuses and downloads; another release of LibTorch; what `make install` copies. Prints PASS, FAIL or SKIP a case.

usage: install.py [NAME...]    (run by tests/run)
"""
import hashlib
import os
import pathlib
import re
import shutil
import sys
import zipfile

import harness
from harness import ROOT, Skip, check, mpirun, run, synthetic

PREFIX = pathlib.Path()
BUILD_S = int(os.environ.get("BUILD_S", 600))
NOBODY = 65534  # the user
PROGRAMS = ["audit", "calibrate", "check", "dataset", "quantize", "report", "sweep", "train"]


def case_every_program_has_a_page_and_a_completion(folder):
    for program in PROGRAMS:
        name = f"gradsync-{program}"
        run([PREFIX / "bin" / name, "--version"]).expect(0, name)
        check(".SH OPTIONS" in (PREFIX / f"share/man/man1/{name}.1").read_text(), f"the page of {name}")
        run(["bash", "-n", PREFIX / "share/bash-completion/completions" / name]).expect(0)
    check((PREFIX / "share/man/man1/gradsync-report-compare.1").exists(), "no page of gradsync-report compare")
    tracked = run(["git", "-C", ROOT, "ls-files", "slurm", "jobs"])  # neither a site file nor what an editor left
    if tracked.code == 0:
        share = PREFIX / "share/gradsync"
        installed = {str(path.relative_to(share)) for part in ("slurm", "jobs") for path in (share / part).iterdir()}
        check(installed == set(tracked.out.split()), f"{installed ^ set(tracked.out.split())}")


def case_a_grid_runs_from_the_installed_files(folder):
    jobs = PREFIX / "share/gradsync/jobs"
    run([PREFIX / "bin/gradsync-sweep", jobs / "demo.cfg", "--list", "--results", folder / "results"]).expect(0, "vgg11-ddp-r2")
    data = synthetic(folder, 640, 64)
    run(mpirun(2) + [PREFIX / "bin/gradsync-train", "--model", "lenet", "--data", data, "--batch-per-rank", 16, "--iterations", 5,
                     "--output", folder / "run.h5"]).expect(0)  # fmt: skip
    run([PREFIX / "bin/gradsync-report", folder / "run.h5"]).expect(0, "ddp")
    run([PREFIX / "bin/gradsync-audit", PREFIX / "share/gradsync/published/reports.csv", "--table", "findings"]).expect(0)


def case_the_users_site_file_is_read(folder):
    """An installed folder belongs to all users."""
    submit = PREFIX / "share/gradsync/slurm/submit"
    (folder / "gradsync").mkdir()
    # Options of programs stand in the file of this name as well; the other name is that of older releases.
    for name, text in (("site.cfg", "account = physics\nlr = 0.5\n"), ("slurm-site", "account = chemistry\n")):
        (folder / "gradsync" / name).write_text(text)
        result = run([submit, "--environment"], environment={"XDG_CONFIG_HOME": str(folder)})
        result.expect(0, f"SBATCH_ACCOUNT={text.split()[2]}")
    result = run([PREFIX / "bin/gradsync-sweep", PREFIX / "share/gradsync/jobs/demo.cfg", "--launcher", "slurm", "--ranks-per-node", 2,
                  "--dry-run", "--results", folder / "results"]).expect(0)  # fmt: skip
    check(re.search(rf"{PREFIX}/share/gradsync/slurm/submit .*grid", result.out), result.out[:500])


def case_documents_link_only_to_files_that_are_installed(folder):
    docs = PREFIX / "share/doc/gradsync"
    broken, followed = [], 0
    for page in docs.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#: ]+)[)#]", page.read_text()):
            followed += 1
            if not (page.parent / link).exists():
                broken.append(f"{page.relative_to(docs)}: {link}")
    check(followed > 100 and not broken, f"{len(broken)} of {followed} links: {broken[:20]}")


def case_uninstall_leaves_nothing_and_a_second_install_no_file_of_the_first(folder):
    prefix = pathlib.Path.home() / "gradsync"  # private: without copies of libraries
    destination = {"DESTDIR": str(folder / "image"), "docdir": f"{prefix}/doc", "mandir": f"{prefix}/man"}
    install(prefix, **destination).expect(0)
    image = pathlib.Path(f"{folder}/image{prefix}")
    check((image / "doc/README.md").exists() and (image / "man/man1/gradsync-train.1").exists(), "docdir or mandir was not used")
    manifest = image / "share/gradsync/installed-files"
    check({str(path.relative_to(image)) for path in image.rglob("*") if path.is_file()} == set(manifest.read_text().split("\n")[:-1]), "files and their list differ")
    (image / "share/gradsync/jobs/renamed.cfg").touch()
    manifest.write_text(manifest.read_text() + "share/gradsync/jobs/renamed.cfg\n")
    install(prefix, **destination).expect(0)
    check(not (image / "share/gradsync/jobs/renamed.cfg").exists(), "a file that an earlier installation had is left")
    (image.parent / "other").write_text("of another package")
    words = [f"PREFIX={prefix}", f"DESTDIR={folder}/image"]
    run(["make", "-C", ROOT, "uninstall", *words], environment=destination).expect(0, "removed from")
    check([path.name for path in (folder / "image").rglob("*") if path.is_file()] == ["other"], f"{list(image.rglob('*'))}")
    check(not image.exists(), f"folders are left: {list(image.rglob('*'))}")
    again = run(["make", "-C", ROOT, "uninstall", *words])
    check(again.code == 2 and "nothing was removed" in again.err, again)


def case_an_install_that_fails_can_be_removed_and_leaves_the_last_one(folder):
    prefix, gone = pathlib.Path.home() / "gradsync-fails", folder / "gradsync-report"
    shutil.copy(ROOT / "build/bin/gradsync-report", gone)
    run([ROOT / "config/install", prefix, gone], environment={"docdir": f"{prefix}/doc"}, timeout=300).expect(0)
    gone.write_text("#!/bin/sh\nexit 3\n")
    failed = run([ROOT / "config/install", prefix, ROOT / "build/bin/gradsync-sweep", gone], timeout=300)
    check(failed.code == 3 and (prefix / "bin/gradsync-sweep").exists(), f"{failed.code}: {failed.err}")
    run([ROOT / "config/install", "--remove", prefix]).expect(0, "removed from")
    check(not prefix.exists(), f"left: {list(prefix.rglob('*'))}")


def case_installcheck_trains_with_the_installed_programs_and_names_a_missing_file(folder):
    words, busy = ["make", "-C", ROOT, "installcheck"], {"SMOKE_LIMIT_S": "250"}  # beside other tests
    run([*words, f"PREFIX={PREFIX}"], environment=busy, timeout=300).expect(0, "all [0-9]+ steps passed")
    moved = shutil.copytree(PREFIX, folder / "moved")
    (moved / "bin/gradsync-dataset").write_text("#!/bin/sh\nexit 3\n")
    broken = run([*words, f"PREFIX={moved}"], environment=busy, timeout=300)
    check(broken.code == 2 and "FAIL  gradsync-dataset starts: exit code 3" in broken.out, broken)
    (moved / "share/gradsync/jobs/demo.cfg").unlink()
    missing = run([*words, f"PREFIX={moved}"])
    check(missing.code == 2 and "jobs/demo.cfg was installed and is not there" in missing.err, missing)


def case_jobs_are_submitted_from_any_folder(folder):
    """A template that is submitted by hand reads no run.sh of the folder that sbatch is called in."""
    (folder / "bin").mkdir()
    (folder / "bin/sbatch").write_text("#!/bin/sh\necho \"sbatch $*\"\n")
    (folder / "bin/sbatch").chmod(0o755)
    (folder / "slurm").mkdir()
    (folder / "slurm/run.sh").write_text(f"touch {folder}/ran\n")
    path = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(folder)}
    run(["bash", "-c", f"cd {folder} && {PREFIX}/bin/gradsync-submit --value launcher"], environment=path).expect(0, "auto|srun|mpirun")
    for template in (PREFIX / "share/gradsync/slurm").glob("*.sbatch"):
        run(["bash", "-c", f"cd {folder} && bash {template} --help"], environment=path)
        check(not (folder / "ran").exists(), f"{template.name} ran the run.sh of the current folder")
    # What could not run is not queued.
    words = ["two-gpu", ROOT / "jobs/speedup.cfg", "--results", folder / "results"]
    run([ROOT / "slurm/submit", *words], environment=path).expect(69, "4 ranks, and the job has 1 node × 2 ranks", "--set exclude=ranks=4 behind")
    for options in (["--nodes=2"], ["-N", 2], ["-N1-2"], ["--ntasks", 4]):
        run([ROOT / "slurm/submit", *options, *words], environment=path).expect(0, f"sbatch .*{options[0]}")
    run([ROOT / "slurm/submit", *words, "--set", "exclude=ranks=4"], environment=path).expect(0, "sbatch .*two-gpu")
    install(folder / "other", bindir=f"{folder}/other/programs").expect(0)
    run([folder / "other/programs/gradsync-submit", "--value", "launcher"], environment={"CDPATH": "."}).expect(0, "auto|srun|mpirun")
    run(["bash", "-c", f"cd {ROOT} && slurm/submit --value launcher"], environment={"CDPATH": "."}).expect(0, "auto|srun|mpirun")


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
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env", f"--chdir={folder}", "HOME=/nonexistent"]


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
        if program != "audit":  # Python
            check_libraries(path, prefix, nobody)
        check(f"{pathlib.Path.home()}/".encode() not in path.read_bytes(), f"{path.name} holds a path of the builder's home")
    licenses = prefix / "share/doc/gradsync/licenses"
    sbom = (prefix / "share/doc/gradsync/sbom.spdx").read_text()
    for library in (prefix / "lib/gradsync").glob("*"):
        entry = re.search(rf"PackageName: lib/gradsync/{re.escape(library.name)}\n(?:.+\n)*?ExternalRef: PACKAGE-MANAGER purl pkg:\w+/(?:debian/)?(.*)@", sbom)
        check(entry is not None and (licenses / entry[1]).stat().st_size > 0, f"no license text of {library.name}")
    results = folder / "results"
    results.mkdir()
    os.chown(results, NOBODY, NOBODY)
    data = synthetic(folder, 640, 64)
    training = [prefix / "bin/gradsync-train", "--model", "lenet", "--data", data, "--batch-per-rank", 16, "--iterations", 3]
    run(nobody + mpirun(2) + training + ["--output", results / "run.h5"]).expect(0)
    run([*nobody, prefix / "bin/gradsync-report", results / "run.h5"]).expect(0, "ddp")


def load_the_module_of_a_moved_prefix(folder, initialize: str) -> None:
    if not pathlib.Path(initialize).exists():
        raise Skip(f"there is no {initialize} (packages environment-modules, lmod)")
    moved = shutil.copytree(PREFIX, folder / "moved")
    load = f". {initialize}; module use {moved}/share/modulefiles; module load gradsync"
    run(["bash", "-c", f"{load}; echo $GRADSYNC_HOME"]).expect(0, f"(?m)^{moved}/share/gradsync$")
    for manual in ("unset MANPATH", "MANPATH=/usr/share/man"):
        result = run(["bash", "-c", f"export MANPATH; {manual}; {load}; type -p gradsync-train; man -w gradsync-train ls"])
        result.expect(0, f"{moved}/bin/gradsync-train\n{moved}/share/man/man1/gradsync-train.1\n/usr/share/man/")
    unloaded = run(["bash", "-c", f"{load}; module unload gradsync; type -p gradsync-train"])
    check(unloaded.code == 1 and not unloaded.out, unloaded)


def case_a_module_file_follows_its_prefix(folder):
    load_the_module_of_a_moved_prefix(folder, "/usr/share/modules/init/bash")


def case_lmod_reads_the_module_file(folder):
    load_the_module_of_a_moved_prefix(folder, "/usr/share/lmod/lmod/init/bash")


def case_the_module_of_the_mpi_is_a_prerequisite(folder):
    for loaded, wanted in (("GCC/13.3.0:MVAPICH2/2.3.7:HDF5/1.14", "MVAPICH2/2.3.7"), ("gcc/12:mpi4py/3.1", None)):
        install(folder / "prefix", LOADEDMODULES=loaded).expect(0)
        text = next((folder / "prefix/share/modulefiles/gradsync").iterdir()).read_text()
        check(re.findall("^prereq (.*)", text, re.M) == ([wanted] if wanted else []), text)


def case_libraries_stay_where_they_are_for_a_private_prefix(folder):
    check(not (PREFIX / "lib/gradsync").exists(), "libraries were copied")
    name = "bin/gradsync-train"
    check((PREFIX / name).read_bytes() == (ROOT / "build" / name).read_bytes(), "the program was changed")


def case_libraries_below_a_folder_that_others_can_write_are_copied(folder):
    if os.geteuid() != 0:
        raise Skip("only root installs for other users here")
    folder.chmod(0o755)
    for mode, stays in ((0o777, False), (0o1777, False), (0o775, True), (0o755, True)):
        shared = folder / f"{mode:o}"
        shared.mkdir()
        shared.chmod(mode)
        result = run(["bash", "-c", f"cd {ROOT} && . config/common.sh && is_trusted {shared}/torch/lib"])
        check((result.code == 0) == stays, f"{mode:o}: is_trusted gives {result.code}")
    (folder / "1777/own").mkdir()  # nobody else can replace it
    (folder / "755/foreign").mkdir()
    os.chown(folder / "755/foreign", NOBODY, NOBODY)
    for path, trusted in (("1777/own", True), ("755/foreign", False)):
        check((run(["bash", "-c", f"cd {ROOT} && . config/common.sh && is_trusted {folder}/{path}"]).code == 0) == trusted, path)
    # Of a program whose run path has both, the first does not stay.
    for name in ("777", "755"):
        shutil.copy("/usr/lib/x86_64-linux-gnu/libfmt.so.9" if os.path.exists("/usr/lib/x86_64-linux-gnu/libfmt.so.9") else "/bin/true", folder / name / "lib.so")
    program = folder / "gradsync-report"
    shutil.copy(ROOT / "build/bin/gradsync-report", program)
    if run(["patchelf", "--set-rpath", f"$ORIGIN/../lib/gradsync:{folder}/777:{folder}/755", program]).code != 0:
        raise Skip("patchelf is not installed")
    result = run([ROOT / "config/install", folder / "prefix", program], timeout=600)
    result.expect(0)
    runpath = run(["readelf", "-d", folder / "prefix/bin/gradsync-report"]).out
    check(f"{folder}/755" in runpath and f"{folder}/777" not in runpath, runpath)


def case_an_mpi_of_the_installers_own_is_refused_for_a_shared_prefix(folder):
    folder.chmod(0o755)
    result = install(folder / "prefix", HOME="/usr")
    check(result.code == 69 and re.search(r"mpirun is private: .*\n +fix: MPICXX=", result.err), f"{result.code}: {result.err}")
    check(not (folder / "prefix").exists(), "something was installed")


# --- what the build finds and refuses --------------------------------------------------------------------


def detected(variable) -> str:
    return re.search(rf"^{variable} := *(.*?) *$", (ROOT / "build/config.mk").read_text(), re.M)[1]


def make(folder, *words, **environment) -> harness.Result:
    """make in a copy of this folder's Makefile and what it detects with, without its user.mk, on the same sources."""
    if not (folder / "config").exists():
        for part in ("config", "slurm"):
            shutil.copytree(ROOT / part, folder / part)
        for part in ("src", "analysis", "tests", "bench"):
            (folder / part).symlink_to(ROOT / part)
        shutil.copy(ROOT / "Makefile", folder)
    environment = {"XDG_CACHE_HOME": str(folder / "cache")} | environment
    return run(["make", "-C", folder, *words], environment=environment, timeout=300)


def case_no_variable_of_make_reaches_the_tests(folder):
    """One that did once made the tests of a first `make test` differ from those of a second."""
    inherited = {name for name in os.environ if name.startswith(("MAKE", "MFLAGS", "DEPS_"))}
    check(not inherited, f"{inherited}")


def without_mpi(folder, user: int) -> dict:
    """An environment without MPI, of root (0) or another user, whose apt-get writes its words to apt.log and installs nothing."""
    bin = folder / "bin"
    bin.mkdir(parents=True)
    for path in pathlib.Path("/usr/bin").iterdir():
        if path.name not in ("apt-get", "id") and not path.name.startswith("mpi"):
            (bin / path.name).symlink_to(path)
    for name, text in (("apt-get", f"echo $* >>{folder}/apt.log; echo Unpacking"), ("id", f"echo {user}")):
        (bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (bin / name).chmod(0o755)
    return {"PATH": str(bin), "LIBTORCH": detected("LIBTORCH_FOUND"), "PYTHON": "/usr/bin/python3", "XDG_CACHE_HOME": str(folder / "cache")}


def case_only_demo_test_and_deps_install(folder):
    words = {0: ("all", "check", "build/bin/gradsync-train", "install PREFIX=/nonexistent/prefix", "demo DOWNLOAD=no", "-n test"),
             1000: ("all", "-n demo")}  # fmt: skip
    for user in words:
        environment = without_mpi(folder / str(user), user)
        apt_log = folder / str(user) / "apt.log"
        for goals in words[user]:
            result = make(folder, *goals.split(), **environment)
            said = result.code == 2 and re.search("MPI is missing.*make deps", result.err, re.S)
            check(said or goals.startswith("-n"), f"make {goals}: {result.code}\n{result.err}")
            check(not apt_log.exists() and not (folder / str(user) / "cache").exists(), f"make {goals} installed something")
            check(not list((folder / "build").rglob("*.o")) and not (folder / "build/gch").exists(), f"make {goals} compiled something")
        installing = make(folder, "demo", **environment)
        if user == 0:
            check("libopenmpi-dev" in apt_log.read_text(), apt_log.read_text())
            check("Unpacking" in (folder / "build/apt.log").read_text() and "Unpacking" not in installing.out + installing.err, installing)
            check(installing.code == 2 and "still missing after installing" in installing.err, installing)
        else:
            check(re.search("This line does all of it:\n  sudo apt-get .*install .*libopenmpi-dev", installing.err), installing)
            check(not apt_log.exists(), "an ordinary user called apt-get")


def case_kernels_have_code_for_the_gpus_that_nvcc_knows(folder):
    """A stand-in for nvcc lists the architectures of three releases; one before CUDA 11 has no list."""
    if detected("WITH_CUDA") != "1":
        raise Skip("this LibTorch is CPU-only, or USE_CUDA=0")
    nvcc = folder / "nvcc"

    def stand_in(*known):
        listed = "".join(f"echo sm_{arch}; " for arch in known) or "exit 1; "
        nvcc.write_text(f"#!/bin/sh\ncase $1 in\n--version) echo 'Cuda compilation tools, release 13.0, V13.0.88';;\n"
                        f"--list-gpu-code) {listed};;\n*) exit 0;;\nesac\n")  # fmt: skip
        nvcc.chmod(0o755)

    cuda_12_6, cuda_12_8 = (70, 75, 80, 86, 89, 90), (75, 80, 89, 90, 100, 101, 120)
    cuda_13 = (75, 80, 86, 87, 88, 89, 90, 100, 110, 103, 120, 121)
    for known, wanted in (((), ""), (cuda_12_6, "80 90"), (cuda_13, "80 90 100 120"), (cuda_12_8, "80 90 100 120")):
        stand_in(*known)
        found = run(["bash", "-c", f". {ROOT}/config/find/gpu.sh && archs_of {nvcc}"]).expect(0).out.strip()
        check(found == wanted, f"{known}: {found}")
    words = [f"NVCC={nvcc}", f"LIBTORCH={detected('LIBTORCH_FOUND')}", "print-NVCC_FLAGS"]
    for more, wanted in ((), "sm_80 sm_90 sm_100 sm_120 compute_90"), (("NVCC_ARCHS=",), "sm_80 sm_90 compute_90"), (("CUDA_ARCHS=80 89",), "sm_80 sm_89 compute_89"):
        code = re.findall(r"code=(\S+)", make(folder, *words, *more).out)
        check(code == wanted.split(), f"{more}: {code}")


def case_data_are_not_downloaded_against_the_users_word(folder):
    refused = run(["make", "-C", ROOT, "data", "DOWNLOAD=no"])
    check(refused.code == 2 and "CIFAR-10 was not downloaded" in refused.err, f"{refused.code}: {refused.err}")


def case_a_package_whose_file_has_another_hash_is_not_installed(folder):
    """And a cache that others can write is not used."""
    nothing = {"LIBTORCH": "", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "index"), "PYTHON": "/usr/bin/python3", "NVIDIA_DRIVER": "580.65"}
    if run(["/usr/bin/python3", "-c", "import torch"]).code == 0:
        raise Skip("the system's Python has torch")
    (folder / "index").mkdir()
    wheel = folder / "index/tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n")
    make(folder, "print-Q")
    lock, environments = folder / "config/locks/torch-2.11.0.txt", folder / "cache/gradsync"
    lock.write_text(f"tiny==1.0 --hash=sha256:{'0' * 64}\n")
    refused = make(folder, "deps", "SCOPES=build", **nothing)
    check("DO NOT MATCH THE HASHES" in refused.err and "nothing of it was kept" in refused.err, refused)
    check(not list(environments.glob("venv-torch-*[0-9]")), "an environment was made")
    lock.write_text(f"tiny==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    make(folder, "deps", "SCOPES=build", **nothing)
    check((environments / "venv-torch-2.11.0/lib").exists(), "the right file was not installed")
    lock.unlink()
    shutil.rmtree(environments / "venv-torch-2.11.0")
    unlocked = make(folder, "deps", "SCOPES=build", **nothing)
    check("no file config/locks/torch-2.11.0.txt" in unlocked.err and "LOCKS=no" in unlocked.err, unlocked)
    (environments / "venv-libraries").mkdir()
    environments.chmod(0o777)
    planted = make(folder, "status")
    check(planted.code == 2 and "others than you and root can write to" in planted.err, planted)


def case_python_modules_of_the_current_folder_are_not_run(folder):
    make(folder, "print-Q")
    for name in ("pathlib.py", "importlib.py", "venv.py", "ensurepip.py", "platform.py", "pip.py", "torch.py"):
        (folder / name).write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    make(folder, "status", PYTHON="/usr/bin/python3", LIBTORCH="").expect(0)
    check(not (folder / "ran").exists(), "a module of the current folder was run")


def case_a_cpu_that_the_compiler_does_not_have_is_found_before_compiling(folder):
    refused = make(folder, "all", "MARCH=bogus")
    check(refused.code == 2 and re.search("target CPU is missing.*\n.*no -march=bogus", refused.err), refused)


def case_compile_jobs_fit_into_the_memory_of_the_control_group(folder):
    run(["make", "-C", ROOT, "print-COMPILE"]).expect(0, "nice -n 10")
    groups = folder / "groups"
    (groups / "user/alice").mkdir(parents=True)
    (folder / "cgroup").write_text("0::/user/alice\n")
    for own, parent, jobs in ((3 << 30, "max", 1), ("max", 3 << 30, 1), ("max", "max", None)):
        (groups / "user/alice/memory.max").write_text(f"{own}\n")
        (groups / "user/memory.max").write_text(f"{parent}\n")
        make(folder, "status", CGROUP_ROOT=str(groups), CGROUP_FILE=str(folder / "cgroup")).expect(0)
        found = int(re.search(r"^BUILD_JOBS := (\d+)", (folder / "build/config.mk").read_text(), re.M)[1])
        check(found == jobs if jobs else found >= 1, f"{own}, {parent}: {found} jobs")


def case_on_a_login_node_a_line_says_so(folder):
    (folder / "bin").mkdir()
    (folder / "bin/sinfo").write_text("#!/bin/sh\necho batch\n")
    (folder / "bin/sinfo").chmod(0o755)
    path = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    for job, said in (("", True), ("17", False)):
        result = run(["make", "-n", "-C", ROOT, "bench"], environment=path | {"SLURM_JOB_ID": job}, timeout=300)
        check(("looks like a login node" in result.out) == said, result.out[:300])


def case_the_release_is_the_same_bytes_each_time_and_builds_without_git(folder):
    if run(["git", "-C", ROOT, "rev-parse", "HEAD"]).code != 0:
        raise Skip("not a checkout")
    digests = set()
    for _ in range(2):
        archive = pathlib.Path(run(["make", "--no-print-directory", "-C", ROOT, "dist"], timeout=300).expect(0).out.split("\n")[-2])
        digests.add(hashlib.sha256((ROOT / archive).read_bytes()).hexdigest())
    check(len(digests) == 1, "two archives differ")
    run(["tar", "-xf", ROOT / archive, "-C", folder]).expect(0)
    source = folder / archive.name.removesuffix(".tar.xz")
    check((source / "revision").read_text().strip() in run(["git", "-C", ROOT, "describe", "--always"]).out, "the file revision")
    words = [f"LIBTORCH={detected('LIBTORCH_FOUND')}", "build/alone/src/base/version.o", "build/bin/gradsync-audit"]
    run(["make", "-C", source, *words], timeout=300, environment={"GIT_DIR": "/nonexistent"}).expect(0)
    revision = (source / "revision").read_text().strip()
    run([source / "build/bin/gradsync-audit", "--version"]).expect(0, rf"gradsync-audit \d+\.\d+\.\d+(-dev)? \(revision {revision}\)")
    # In another folder: the sources are linked, and nothing is written beside them.
    (folder / "elsewhere").mkdir()
    before = sorted(source.rglob("*"))
    run(["make", "-f", source / "Makefile", "-C", folder / "elsewhere", *words], timeout=300).expect(0)
    check((folder / "elsewhere/build/alone/src/base/version.o").exists() and sorted(source.rglob("*")) == before, "beside the sources")
    run(["bash", "-c", f"cd {folder}/elsewhere && config/walls"], timeout=300).expect(0)


def case_a_prefix_that_is_no_absolute_path_is_refused(folder):
    for prefix in ("", "here", "./here", "~/here"):
        refused = run(["make", "-C", ROOT, "install", f"PREFIX={prefix}"])
        check(refused.code == 2 and f"PREFIX='{prefix}' is not an absolute path" in refused.err, f"{refused.code}: {refused.err}")


def fake_libtorch(folder, version, symbol) -> pathlib.Path:
    (folder / "include/torch/csrc/api/include").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "lib/libtorch_cpu.so").touch()
    (folder / "lib/libc10.so").write_text(symbol)
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


def case_a_libtorch_that_cannot_be_used_is_refused_before_compiling(folder):
    new_abi, old_abi = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx11", "_ZN3c105ErrorC1ENS_14SourceLocationESs"
    for version, symbol, reason in (("2.6.0+cpu", new_abi, "is 2.6.0.cpu, and 2.7 or newer is needed"),
                                    ("2.7.1+cpu", old_abi, "was built with _GLIBCXX_USE_CXX11_ABI=0"),
                                    ("2.10.0+cpu", new_abi, None)):  # fmt: skip
        libtorch = fake_libtorch(folder / version, version, symbol)
        result = make(folder, "status", f"LIBTORCH={libtorch}").expect(0)
        line = re.search(r"^LibTorch +.*", result.out, re.M)[0]
        check((reason is None and f" {version} " in line) or (reason and re.search(f"MISSING +fix: .*{reason}; set it", line)), line)
    result = make(folder, f"LIBTORCH={folder}/2.6.0+cpu", f"GRADSYNC_ANY={folder}")
    check(result.code != 0 and "nothing was installed or built" in result.err, f"{result.code}: {result.err}")


def case_a_libtorch_for_a_newer_cuda_than_the_drivers_is_refused(folder):
    libtorch = detected("LIBTORCH_FOUND")
    if not (pathlib.Path(libtorch) / "lib/libtorch_cuda.so").exists():
        raise Skip("LibTorch is CPU-only")
    cuda = int(re.search(r"cuda.*= '(\d+)", (pathlib.Path(libtorch) / "version.py").read_text())[1])
    old, new = {12: ("470.57", "525.60"), 13: ("570.86", "580.65")}[cuda]
    refused = make(folder, "status", f"LIBTORCH={libtorch}", f"NVIDIA_DRIVER={old}").expect(0).out
    check(re.search(rf"^GPU driver +MISSING +fix: .* for CUDA {cuda}\.\d+: LIBTORCH=.*torch==.*USE_CUDA=0", refused, re.M), refused)
    make(folder, "status", f"LIBTORCH={libtorch}", f"NVIDIA_DRIVER={new}").expect(0, rf"GPU driver +{new} +runs LibTorch's CUDA {cuda}")
    make(folder, "status", f"LIBTORCH={libtorch}", f"NVIDIA_DRIVER={old}", "USE_CUDA=0").expect(0, "CUDA +none +USE_CUDA=0")


def case_nvidia_smi_without_a_driver_is_no_gpu(folder):
    """As on a login node with the image of the GPU nodes: it says why on standard output."""
    (folder / "bin").mkdir()
    (folder / "bin/nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not communicate with the driver.'\nexit 9\n")
    (folder / "bin/nvidia-smi").chmod(0o755)
    if pathlib.Path("/proc/driver/nvidia/version").exists():
        raise Skip("this machine has a driver")
    path = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
    driver = run(["bash", "-euo", "pipefail", "-c", f'cd {ROOT}; . config/common.sh; driver=$(nvidia_driver); echo "none: $driver, $torch_release"'], environment=path)
    driver.expect(0, r"none: , 2\.")
    check(driver.err == "", driver.err)


# With the system's headers elsewhere or nowhere.
HIDE = """set -e
for name in cmeel.prefix:boost pgm_build_deps/nlohmann_json:nlohmann pgm_build_deps/doctest:doctest; do
  folder=$1/${name%:*}/include/${name#*:}
  [ -z "$1" ] || { mkdir -p "$folder"; mount --bind /usr/include/${name#*:} "$folder"; }
  mount -t tmpfs none /usr/include/${name#*:}
done
mount -t tmpfs none /usr/include/fmt
shift
exec "$@"
"""


def case_without_packages_the_header_libraries_come_from_pypi_and_libtorch(folder):
    headers = [pathlib.Path("/usr/include") / name for name in ("boost", "nlohmann", "doctest", "fmt")]
    if not all(path.is_dir() for path in headers) or run(["unshare", "-m", "true"]).code != 0:
        raise Skip("needs root, namespaces and the headers in /usr/include")
    (folder / "hide").write_text(HIDE)
    make(folder, "print-Q")
    (folder / "bin").mkdir()
    (folder / "bin/id").write_text("#!/bin/sh\necho 1000\n")  # an ordinary user cannot use apt-get
    (folder / "bin/id").chmod(0o755)
    status = ["make", "-C", folder, "status", f"LIBTORCH={detected('LIBTORCH_FOUND')}"]
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    nothing = run(["unshare", "-m", "sh", folder / "hide", "", *status], environment=environment).expect(0).out
    for name in ("Boost", "nlohmann-json", "doctest"):
        check(re.search(rf"^{name} +MISSING +fix: make deps .pip install cmeel-boost==\S+ pgm-build-deps==\S+ into {folder}", nothing, re.M), nothing)
    pypi = folder / "cache/gradsync/venv-libraries/lib/python3.11/site-packages"
    found = run(["unshare", "-m", "sh", folder / "hide", pypi, *status], environment=environment).expect(0).out
    for name in ("cmeel.prefix", "pgm_build_deps/nlohmann_json", "pgm_build_deps/doctest"):
        check(f"{pypi}/{name}/include" in found, found)
    if (pathlib.Path(detected("LIBTORCH_FOUND")) / "include/fmt").exists():
        check(re.search(r"^fmt +\d+\.\d+\.\d+ +.*/torch/include$", found, re.M), found)


def case_the_libraries_of_an_active_conda_environment_are_taken(folder):
    compiler = folder / "conda/bin/conda-g++"
    compiler.parent.mkdir(parents=True)
    compiler.symlink_to(shutil.which("g++"))
    shutil.copytree("/usr/include/nlohmann", folder / "conda/include/nlohmann")
    (folder / "conda/lib").mkdir()
    words = ["status", f"CXX={compiler}"]
    own = make(folder, *words, CONDA_PREFIX=str(folder / "conda")).expect(0).out
    check(re.search(rf"^nlohmann-json +[\d.]+ +{folder}/conda/include$", own, re.M), own)
    other = make(folder, "status", CONDA_PREFIX=str(folder / "conda")).expect(0).out
    check(str(folder / "conda") not in other, other)


def case_cores_are_counted_whatever_omp_num_threads_says(folder):
    for threads in ("1", "99"):
        result = run(["bash", "-c", f"cd {ROOT} && . config/common.sh && cores"],
                     environment=os.environ | {"OMP_NUM_THREADS": threads, "OMP_THREAD_LIMIT": threads})
        check(result.out.strip() == str(len(os.sched_getaffinity(0))), result)


def case_a_large_download_is_announced_and_can_be_declined(folder):
    nothing = {"LIBTORCH": "", "PIP_NO_INDEX": "1", "PYTHON": "/usr/bin/python3", "NVIDIA_DRIVER": "550.54", "USE_CUDA": "0"}
    if run(["/usr/bin/python3", "-c", "import torch"]).code == 0:
        raise Skip("the system's Python has torch")
    declined = make(folder, "demo", "DOWNLOAD=no", **nothing)
    check("DOWNLOAD=no" in declined.err and "LibTorch is missing" in declined.err, declined)
    check(not (folder / "cache").exists(), "something was downloaded")
    tried = make(folder, "demo", **nothing)  # not on a terminal: as in CI
    check(re.search("a large download.*\n  pip install torch==2.10.0 numpy\n.*\n  DOWNLOAD=no declines", tried.err), tried)
    check("pip install torch==2.10.0 numpy failed" in tried.err, tried)
    # That LibTorch comes without nvcc, and another version's is no use.
    for_gpus = make(folder, "demo", **nothing | {"USE_CUDA": "", "NVCC": "/usr/bin/false"})
    check("nvcc is missing" in for_gpus.err and "a large download" not in for_gpus.err, for_gpus)
    answers = f"cd {folder} && XDG_CACHE_HOME={folder}/cache PIP_NO_INDEX=1 script -qec 'make demo LIBTORCH=' /dev/null <<<n"
    asked = run(["bash", "-c", answers], environment=nothing)
    check("download it? [Y/n]" in asked.out and "the download was declined" in asked.out, asked)


def another_libtorch() -> pathlib.Path:
    """Of another release than this build's: OTHER_LIBTORCH, else one that make deps has installed."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gradsync"
    found = [pathlib.Path(os.environ.get("OTHER_LIBTORCH", "/none")), *cache.glob("venv-torch-*/lib/python3*/site-packages/torch")]
    others = [path for path in found if (path / "lib/libtorch_cpu.so").exists() and str(path) != detected("LIBTORCH_FOUND")]
    if not others:
        raise Skip("no second release of LibTorch: make deps LIBTORCH= TORCH_RELEASE=2.7.1 installs one (4 GB)")
    return others[0]


def case_another_release_of_libtorch_builds_for_cpus_and_trains(folder):
    libtorch = another_libtorch()
    make(folder, "status").expect(0)
    program = folder / "build/bin/gradsync-train"
    run(["make", "-C", folder, f"LIBTORCH={libtorch}", "USE_CUDA=0", "OPTIMIZE=-O0", "build/bin/gradsync-train"], timeout=BUILD_S).expect(0)
    check(str(libtorch / "lib/libtorch_cpu.so") in run(["ldd", program]).out, "another LibTorch is loaded")
    check("libtorch_cuda" not in run(["ldd", program]).out, "CUDA's libraries are loaded in a build for CPUs")
    data = synthetic(folder, 640, 64)
    for mode in ("ddp", "c10d"):
        run(mpirun(2) + [program, "--model", "lenet", "--data", data, "--batch-per-rank", 16, "--iterations", 8, "--sync", mode,
                         "--output", folder / f"{mode}.h5"]).expect(0, mode)  # fmt: skip


def case_the_container_recipe_uses_its_arguments_and_no_environment(folder):
    """apptainer build runs %post without the variables of the caller."""
    recipe = (ROOT / "contrib/apptainer.def").read_text()
    sections = dict(re.findall(r"^%(\w+)\n(.*?)(?=^%|\Z)", recipe, re.M | re.S))
    post, arguments = sections["post"], re.findall(r"^ +(\w+)=\S+$", sections["arguments"], re.M)
    check("$" not in post, post)
    check(arguments and set(re.findall(r"\{\{ (\w+) \}\}", recipe)) == set(arguments), str(arguments))
    settings = (ROOT / "Makefile").read_text()
    check(all(name in settings for name in arguments), str(arguments))
    run(["sh", "-n", "-c", post]).expect(0)


def case_the_changelog_and_the_citation_name_the_same_release(folder):
    changes, citation = (ROOT / "CHANGELOG.md").read_text(), (ROOT / "CITATION.cff").read_text()
    headings = re.findall(r"^## (.*)", changes, re.M)
    check(headings[0] == "Unreleased" and all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", text) for text in headings[1:]), f"{headings}")
    kinds = set(re.findall(r"^### (.*)", changes, re.M))
    check(kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}, f"{kinds}")
    version, date = (re.search(rf"^{key}: (\S+)", citation, re.M)[1] for key in ("version", "date-released"))
    check(headings[1] == f"{version} - {date}", f"{headings[1]}, and CITATION.cff has {version}, {date}")
    built = re.search(r'return "(.*)";', (ROOT / "src/base/version.cpp").read_text())[1]
    check(built == version or built.endswith("-dev"), f"--version is {built}, the release {version}")
    if shutil.which("cffconvert"):
        run(["cffconvert", "--validate", "-i", ROOT / "CITATION.cff"]).expect(0, "valid")


def case_each_file_states_its_license(folder):
    reuse = shutil.which("reuse", path=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    if not (ROOT / "REUSE.toml").exists() or not reuse:
        raise Skip("there is no REUSE.toml, or no reuse (pip install reuse)")
    run([reuse, "--root", ROOT, "lint"]).expect(0, "compliant")


def case_recipes_name_settings_of_the_makefile_and_packages_that_exist(folder):
    settings = (ROOT / "config/build.mk").read_text() + (ROOT / "Makefile").read_text()
    spack, easybuild = (ROOT / "contrib/spack/package.py").read_text(), next((ROOT / "contrib/easybuild").glob("gradsync-*.eb")).read_text()
    for text in (spack, easybuild):
        compile(text, "recipe", "exec")
    named = set(re.findall(r'"([A-Z]\w+)": ', spack)) | set(re.findall(r'words\["(\w+)"\]', spack)) | set(re.findall(r"(\w+)=", re.search(r"_settings = \((.*?)\)\n", easybuild, re.S)[1]))
    check(len(named) > 15 and all(re.search(rf"\b{name}\b", settings) for name in named), f"{named}")
    packages = os.environ.get("SPACK_PACKAGES")
    if not packages:
        raise Skip("SPACK_PACKAGES names no copy of spack-packages, whose names the recipe would be compared with")
    known = set(run(["git", "-C", packages, "ls-tree", "--name-only", "HEAD:repos/spack_repo/builtin/packages"]).expect(0).out.replace("_", "-").split())
    wanted = {re.match(r"[a-z0-9-]+", name)[0] for name in re.findall(r'depends_on\("([^"]+)"', spack)} - {"cxx", "mpi"}
    check(len(wanted) > 10 and wanted <= known, f"{wanted - known}")


def prepare(folder) -> None:
    global PREFIX
    PREFIX = folder / "prefix"
    install(PREFIX).expect(0, "installed in")


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare, at_once=3))
