# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts on this machine: network namespaces with host names of their own, joined by one link of a given rate."""
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import time

from bench import LONGEST_S, MPIRUN, Unavailable, run

NETWORK = "10.231.78"
INTERFACE = "wire"
# As much as a router would queue: 50 ms; less makes TCP stall at high rates, more hides the rate.
QUEUE = "50ms"


def address(number: int) -> str:
    return f"{NETWORK}.{number + 1}"


class Link:
    """Made on entry, gone on exit. Both ends are limited: rate_mbit each way."""

    def __init__(self, rate_mbit: int):
        self.rate_mbit = rate_mbit
        self.names = [f"gsbench{os.getpid()}-{number}" for number in (0, 1)]

    def __enter__(self) -> "Link":
        if os.geteuid() != 0 or not shutil.which("tc"):
            raise Unavailable("two hosts on one machine need root and iproute2 (network namespaces)")
        try:
            self.make()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise Unavailable(f"no network namespaces here: {error.stderr.strip()[-120:]}") from None
        self.agent = pathlib.Path(tempfile.mkdtemp()) / "agent"
        self.agent.write_text("#!/bin/sh\nshift  # the host\nexec " + self.entering(1, 'eval "$*"') + ' sh "$@"\n')
        self.agent.chmod(0o755)
        return self

    def make(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
        ip("-n", self.names[0], "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", self.names[1])
        for number, name in enumerate(self.names):
            ip("-n", name, "addr", "add", f"{address(number)}/24", "dev", INTERFACE)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", INTERFACE, "up")
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", INTERFACE, "root", "tbf", "rate", f"{self.rate_mbit}mbit",
                            "burst", "256kb", "latency", QUEUE], check=True, capture_output=True, text=True)  # fmt: skip
        # The kernel calls an interface running up to a second after it has come up.
        until = time.monotonic() + 10
        while not all(self.is_running(name) for name in self.names) and time.monotonic() < until:
            time.sleep(0.05)

    @staticmethod
    def is_running(name: str) -> bool:
        shown = subprocess.run(["ip", "-n", name, "link", "show", INTERFACE], check=True, capture_output=True, text=True)
        return "state UP" in shown.stdout

    def __exit__(self, *_) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        if hasattr(self, "agent"):
            shutil.rmtree(self.agent.parent)

    def entering(self, number: int, command: str) -> str:
        name = self.names[number]
        return f"nsenter --net=/run/netns/{name} unshare --uts sh -c {shlex.quote(f'hostname {name}; {command}')}"

    def mpirun(self, command: list, ranks_per_host: int = 1, dealt: bool = False, timeout: float = LONGEST_S) -> str:
        """`ranks_per_host` ranks on each side, each rank on a core of its own where there are enough; dealt: neighbors are on
        different hosts."""
        words = shlex.join(map(str, command))
        hosts = ",".join(f"{address(number)}:{ranks_per_host}" for number in (0, 1))
        launch = (f"exec {MPIRUN} -q --host {hosts} -n {2 * ranks_per_host} --bind-to none --map-by {'node' if dealt else 'slot'} --mca plm_rsh_agent {self.agent} --mca plm rsh "
                  f"--mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include {NETWORK}.0/24 --mca oob_tcp_if_include {NETWORK}.0/24 "
                  f"{BIND if ranks_per_host == 1 else ''} {words}")  # fmt: skip
        return run(["sh", "-c", self.entering(0, launch)], timeout=timeout)

    def pair(self, commands: list[list]) -> list[str]:
        """A command on each side, at the same time; what they print."""
        started = [subprocess.Popen(["sh", "-c", self.entering(number, "exec " + shlex.join(map(str, command)))],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for number, command in enumerate(commands)]  # fmt: skip
        outputs = [one.communicate(timeout=LONGEST_S) for one in started]
        for one, (_, errors) in zip(started, outputs):
            if one.returncode != 0:
                raise RuntimeError(f"ended with {one.returncode}: {errors[-800:]}")
        return [out for out, _ in outputs]


# mpirun takes two names of one machine for two, and would put both ranks on its first core.
BIND = str(pathlib.Path(__file__).absolute().parent / "bound")


def ip(*words) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
