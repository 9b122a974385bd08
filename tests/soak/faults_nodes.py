# SPDX-License-Identifier: BSD-3-Clause
"""Faults on several nodes: srun and mpirun over the nodes of the test cluster, their links, and the loss of one."""
import pathlib
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "slurm"))
import slurm_harness  # noqa: E402
from faults_job import Job  # noqa: E402
from harness import MPIRUN, ROOT, Failure, kill  # noqa: E402
from slurm_harness import CLUSTER, SLURM, STATE, slurm, wait_until  # noqa: E402

NODES = ("n1", "n2")
# Of Open MPI's connections between nodes: a lost node is noticed in 5 + 3 · 2 s, not in 8 minutes.
KEEPALIVE = {"oob_tcp_keepalive_time": 5, "oob_tcp_keepalive_intvl": 2, "oob_tcp_keepalive_probes": 3}
BACK_WITHIN_S = 90
PULLED_S = 2  # before a link is put back
SLOW_RATE, SLOW_S = "5mbit", 5


def network() -> str:
    address = re.search(r"NodeName=n1 NodeAddr=(\S+)", (STATE / "slurm.conf").read_text()).group(1)
    return address.rsplit(".", 1)[0] + ".0/24"


def srun(ranks: int) -> list:
    return ["env", *(f"{name}={value}" for name, value in SLURM.items()), "srun", "--mpi=pmix", "--kill-on-bad-exit=1",
            "-N2", "-n", ranks, "--distribution=cyclic"]  # fmt: skip


def mpirun_over_nodes(ranks: int) -> list:
    """By mpirun's own daemons, started as it does where it knows no batch system."""
    settings = KEEPALIVE | {"plm": "rsh", "plm_rsh_agent": ROOT / "tests/soak/node_shell", "oob_tcp_if_include": network(),
                            "btl_tcp_if_include": network()}  # fmt: skip
    options = [part for name, value in settings.items() for part in ("--mca", name, value)]
    slots = -(-ranks // len(NODES))
    return [MPIRUN, "-n", ranks, "--host", ",".join(f"{node}:{slots}" for node in NODES), "--bind-to", "none", *options]


def second_half(ranks: int) -> set:
    """The ranks on n2."""
    return set(range(-(-ranks // len(NODES)), ranks))


def cable(state: str) -> None:
    subprocess.run([CLUSTER, "link", NODES[1], state], check=True)


def forget_neighbors() -> None:
    """A kernel that has sought a lost node in vain refuses connections to it for a while."""
    for words in ([], *(["ip", "netns", "exec", f"gradsync-{node}"] for node in NODES)):
        subprocess.run([*words, "ip", "neigh", "flush", "all"], check=False, capture_output=True)


def rate(value: str) -> None:
    subprocess.run([CLUSTER, "rate", value], check=True)


def processes_on(node: str) -> list:
    """Of a job: not the daemons of Slurm."""
    pids = subprocess.run(["ip", "netns", "pids", f"gradsync-{node}"], capture_output=True, text=True, check=True).stdout.split()
    found = []
    for pid in pids:
        try:
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        if name.startswith(("gradsync", "orted", "mpirun")):
            found.append((int(pid), name))
    return found


class Cluster:
    """Started when the first injection needs it. One job at a time: its links are everybody's."""

    def __init__(self):
        self.lock = threading.Lock()
        self.started = False
        self.reason = None

    def why_not(self) -> str:
        if self.reason is None and not self.started:
            self.reason = slurm_harness.reason_to_skip()
            if not self.reason:
                slurm_harness.cluster("start", "--nodes", str(len(NODES))).expect(0)
                self.started = True
        return self.reason or ""

    def stop(self) -> None:
        if self.started:
            subprocess.run([CLUSTER, "stop"], check=False)

    def strike(self, fault: str, job: Job) -> None:
        """Does it, and undoes what is to pass."""
        job.mark_struck()
        if fault == "slow link":
            rate(SLOW_RATE)
            time.sleep(SLOW_S)
            rate("none")
            return
        cable("down")
        if fault == "node lost":
            job.signal(9, [pid for pid, _ in processes_on(NODES[1])])
        if fault == "link down then up":
            time.sleep(PULLED_S)
            cable("up")

    def ranks_that_stay(self, within_s: float) -> list:
        """Ranks that have not ended in this time though a node is lost. Their launcher may wait for the node as long as TCP does."""
        ranks = lambda: [f"rank {pid} on {node}" for node in NODES for pid, name in processes_on(node) if name.startswith("gradsync")]  # noqa: E731
        try:
            wait_until(lambda: not ranks(), "no rank is left on a node", within_s)
        except Failure:
            pass
        return ranks()

    def recover(self, fault: str) -> list:
        """Puts the cable back; returns what is left on the nodes, and removes it. A lost node is started again without memory."""
        cable("up")
        forget_neighbors()
        left = []
        try:
            wait_until(lambda: not any(processes_on(node) for node in NODES), "no rank is left on a node", 20)
            idle = lambda: slurm("sinfo", "-h", "-N", "-o", "%t").out.split().count("idle") == len(NODES)  # noqa: E731
            wait_until(idle, "all nodes are idle", BACK_WITHIN_S)
        except Failure as failure:
            left.append(f"{failure}"[:200])
        for node in NODES:
            for pid, name in processes_on(node):
                left.append(f"process {name} on {node}")
                kill([pid])
            shared = [f"/dev/shm/{name}" for name in slurm_harness.cluster("on", node, "ls", "/dev/shm").out.split()]
            if shared:
                slurm_harness.cluster("on", node, "rm", "-f", *shared)
            if fault != "node lost" or node != NODES[1]:
                left += [f"{name} on {node}" for name in shared]
        return left
