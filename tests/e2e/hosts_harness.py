# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts on this machine, for end-to-end tests: network namespaces with a host name each, joined by a pair of interfaces."""
import json
import os
import pathlib
import shutil
import subprocess

from harness import MPIRUN, Skip, require_open_mpi_4

NETWORK = "10.231.77"


def ip(*words) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class TwoHosts:
    """`addresses` of the wire's ends, with their prefix; `before` and `after` the wire is there, further commands of ip on each
    host."""

    def __init__(self, folder: pathlib.Path, addresses=(f"{NETWORK}.1/24", f"{NETWORK}.2/24"), before=(), after=()):
        # Not "gradsync-": tests/slurm/cluster, which may run beside, kills and removes all namespaces of that prefix.
        self.names = [f"two-hosts-{os.getpid()}-{side}" for side in "ab"]
        self.addresses, self.before, self.after = addresses, before, after
        self.agent = folder / "agent"
        self.made: list = []

    def __enter__(self) -> "TwoHosts":
        require_open_mpi_4("ranks on both hosts are started by")
        if os.geteuid() != 0:
            raise Skip("network namespaces need root")
        if not shutil.which("ip") or not shutil.which("nsenter"):
            raise Skip("needs ip and nsenter (iproute2, util-linux)")
        try:
            self.make()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            raise Skip(f"no network namespaces here: {error.stderr.strip()[-120:]}") from None
        self.agent.write_text("#!/bin/sh\nshift  # the host\nexec " + self.entering(1, 'eval "$*"') + ' sh "$@"\n')
        self.agent.chmod(0o755)
        return self

    def make(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
            self.made.append(name)
            for command in self.before:
                ip("-n", name, *command.split())
        ip("-n", self.names[0], "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", self.names[1])
        for name, address in zip(self.names, self.addresses):
            ip("-n", name, "addr", "add", address, "dev", "wire")
            ip("-n", name, "link", "set", "wire", "up")
            ip("-n", name, "link", "set", "lo", "up")
            for command in self.after:
                ip("-n", name, *command.split())

    def __exit__(self, *_) -> None:
        for name in self.made:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def host(self, number: int) -> str:
        return self.addresses[number].split("/")[0]

    def entering(self, number: int, command: str) -> str:
        name = self.names[number]
        return f"nsenter --net=/run/netns/{name} unshare --uts sh -c 'hostname {name}; {command}'"

    def mpirun(self, command: list, ranks=(1, 1), settings: str = "") -> list:
        """The command, of words without quotes, on so many ranks of each host; `settings` are further options of mpirun."""
        hosts = ",".join(f"{self.host(number)}:{count}" for number, count in enumerate(ranks))
        launch = (f"exec {MPIRUN} -q --host {hosts} -n {sum(ranks)} --bind-to none --mca plm_rsh_agent {self.agent} --mca plm rsh "
                  f"--mca pml ob1 --mca btl tcp,vader,self --mca oob_tcp_if_include {self.networks()} {settings} "
                  + " ".join(str(word) for word in command))  # fmt: skip
        return ["sh", "-c", self.entering(0, launch)]

    def networks(self) -> str:
        return ",".join(dict.fromkeys(address.rsplit(".", 1)[0] + ".0/24" for address in self.addresses))

    def on_the_wire(self) -> str:
        """Options that keep MPI, and a ring, to the wire."""
        return f"--mca btl_tcp_if_include {self.networks()}"

    def pids(self, number: int, program: str) -> list:
        """Processes of a program on one host."""
        return processes_in(self.names[number], program)

    def counters(self) -> dict:
        """Of the first host's end of the wire."""
        return json.loads(ip("-n", self.names[0], "-s", "-j", "link", "show", "dev", "wire"))[0]["stats64"]


def processes_in(namespace: str, program: str) -> list:
    """Process ids of a program in a network namespace."""
    return [pid for pid in ip("netns", "pids", namespace).split() if program.encode() in first_word(pid)]


def first_word(pid: str) -> bytes:
    """Of the command line; empty if the process has ended meanwhile."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return b""
