#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The test cluster itself: separate nodes, MPI between them over links that can be slowed, and an end that leaves nothing.

usage: nodes.py [NAME...]    (run by tests/run slurm; needs root and the packages that `tests/slurm/cluster why-not` names)
"""
import pathlib
import re
import signal
import subprocess
import sys

from slurm_harness import BIN, CLUSTER, STATE, cluster, run_on_cluster, slurm, srun, wait_until
import harness  # noqa: E402
from harness import ROOT, check, kill  # noqa: E402


def busbw_gb_per_s(*where) -> float:
    """What an all-reduce of 4 MiB on these ranks reached at best."""
    result = srun(*where, BIN / "gradsync-calibrate", "-b", "4MiB", "-e", "4MiB", "-n", 3, "--collective", "allreduce-ring",
                  "--transport", "mpi", "--cadence", "isolated").expect(0)  # fmt: skip
    return float(re.search(r"^ +4194304 .*", result.out, re.M).group(0).split()[-2])


def processes() -> set:
    """Daemons of Slurm and what they started."""
    return {f"{process.pid} {process.command}" for process in harness.processes()
            if re.search(r"slurmctld|slurmd |slurmstepd|munged", process.command + " ")}


def traces() -> dict:
    """Whatever a cluster could leave on the machine."""
    def shown(*command):
        return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())

    links = {re.sub(r"^\d+: ", "", line).split(":")[0] for line in shown("ip", "-o", "link")}
    return {"process": processes(), "namespace": shown("ip", "netns", "list"), "link": links, "file": set(STATE.glob("*")),
            "mount": {line for line in pathlib.Path("/proc/mounts").read_text().splitlines() if "gradsync" in line},
            "file in /dev/shm": {path for path in pathlib.Path("/dev/shm").iterdir() if "n1" in path.name}}  # fmt: skip


def check_nothing_left() -> None:
    check(not STATE.exists(), f"{STATE} is still there")
    left = {kind: [name for name in names if re.search("gradsync-|gsync-|gradsync0|slurm|munge", str(name))]
            for kind, names in traces().items()}  # fmt: skip
    check(not any(left.values()), f"left over: {left}")


# --- cases --------------------------------------------------------------------------------------------


def case_nodes_have_names_gpus_and_shared_memory_of_their_own(folder):
    say = 'echo $(hostname) $CUDA_VISIBLE_DEVICES; touch "/dev/shm/from-$(hostname)"; ls /dev/shm'
    result = srun("-N3", "-n3", "--gpus-per-node=2", "bash", "-c", say).expect(0)
    check(sorted(result.out.split()) == sorted("n1 0,1 from-n1 n2 0,1 from-n2 n3 0,1 from-n3".split()), result)


def case_mpi_spans_nodes_and_keeps_to_its_link(folder):
    cluster("rate", "100mbit").expect(0)
    try:
        across = busbw_gb_per_s("-N2", "-n2")
        within = busbw_gb_per_s("-N1", "-n2")
    finally:
        cluster("rate", "none").expect(0)
    check(0 < across <= 0.0125 * 1.1, f"{across} GB/s over a link of 0.0125 GB/s")
    check(within > 0.0125 * 2, f"{within} GB/s within a node: its ranks use the link, too")


def case_a_second_cluster_is_refused(folder):
    cluster("start").expect(69, "one is running already", "cluster stop")


def case_the_cluster_of_another_checkout_is_left_alone(folder):
    owner = STATE / "owner"
    mine = owner.read_text()
    owner.write_text("/somewhere/else\n")
    try:
        cluster("stop").expect(69, "the one that runs is of /somewhere/else")
    finally:
        owner.write_text(mine)
    slurm("srun", "true").expect(0)


def case_wrong_words_are_refused(folder):
    cluster("on", "n7", "true").expect(64, "'n7' is no node: n1 n2 n3")
    cluster("rate").expect(64, "no such command")
    cluster("up").expect(64, "no such command")


def case_stop_leaves_nothing_even_when_the_controller_was_killed(folder):
    job = slurm("sbatch", "--parsable", "-N3", "-o", "/dev/null", "--wrap", "srun sleep 300").expect(0).out.strip()
    wait_until(lambda: "R" in slurm("squeue", "-h", "-o", "%t", "-j", job).out, "the job runs", 120)
    kill([(STATE / "slurmctld.pid").read_text()])
    cluster("stop").expect(0)
    check_nothing_left()
    cluster("stop").expect(0)
    cluster("start", "--nodes", 2).expect(0, "A cluster of 2 nodes")


def case_no_other_user_enters_the_cluster(folder):
    """Who reads munge's key signs as root, and Slurm runs what root signs."""
    check((STATE.stat().st_mode & 0o777, (STATE / "munge.key").stat().st_mode & 0o777) == (0o700, 0o600), "modes")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    slurm("munge", "--no-input", f"--socket={STATE}/munge.socket").expect(0)
    for command in (["ls", STATE], ["cat", STATE / "munge.key"], ["munge", "--no-input", f"--socket={STATE}/munge.socket"]):
        result = slurm(*nobody, *command)
        check(result.code != 0 and not result.out, f"{command}: {result.out}")


def case_a_start_that_fails_leaves_nothing(folder):
    cluster("stop").expect(0)
    subprocess.run(["ip", "netns", "add", "gradsync-n2"], check=True)
    try:
        cluster("start").expect(70, "there is a namespace gradsync-n2 already")
        # It is somebody's, with what runs in it.
        check("gradsync-n2" in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout, "a namespace of others was removed")
    finally:
        subprocess.run(["ip", "netns", "delete", "gradsync-n2"], check=True)
        check_nothing_left()
        cluster("start").expect(0)


def case_where_it_cannot_start_it_says_why(folder):
    """In a root without /sys, and where another one runs."""
    bare = ["unshare", "--mount", "sh", "-c", f"umount -l /sys; exec {CLUSTER} why-not"]
    result = harness.run(bare).expect(0)
    check(result.out.strip() == "no /sys in this root: mount -t sysfs sysfs /sys", result)
    cluster("why-not").expect(0, f"one is running already, of {ROOT}")
    cluster("stop").expect(0, "stopped: 3 nodes")
    cluster("stop").expect(0, "no cluster is running")
    check(cluster("why-not").out.strip() == "", "it can")
    skipped = harness.run(["unshare", "--mount", "sh", "-c", f"umount -l /sys; exec {sys.executable} {ROOT}/tests/slurm/check.py"]).expect(0)
    check(skipped.out == "SKIP slurm check: no Slurm cluster on this machine: no /sys in this root: mount -t sysfs sysfs /sys\n", skipped)
    cluster("start").expect(0)


def case_a_cluster_that_died_gives_way(folder):
    """As after a reboot, or from a checkout that is gone."""
    (STATE / "owner").write_text("/somewhere/else\n")
    for line in (STATE / "namespaces").read_text().split():
        kill(subprocess.run(["ip", "netns", "pids", line], capture_output=True, text=True).stdout.split())
    wait_until(lambda: not cluster("why-not").out.strip(), "its processes are gone", 20)
    cluster("start").expect(0)
    slurm("srun", "true").expect(0)


def case_a_start_that_is_killed_can_be_stopped(folder):
    cluster("stop").expect(0)
    with subprocess.Popen([CLUSTER, "start"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until((STATE / "n1").exists, "half of it is up", 30)
        process.send_signal(signal.SIGKILL)
    cluster("stop").expect(0)
    check_nothing_left()
    cluster("start").expect(0)


if __name__ == "__main__":
    sys.exit(run_on_cluster(globals()))
