"""Hosts of the tests' own: `./cluster up` brings three up for the session, unless DTRAIN_TEST_SSH
names the folder of some that are up already."""
import contextlib
import os
import pathlib
import subprocess

import pytest

from harness import Engine, alone, bring

HERE = pathlib.Path(__file__).parent


class Hosts:
    names = ["host1", "host2", "host3"]

    def __init__(self, folder):
        self.folder = folder

    @property
    def apart(self):
        """False where the hosts are sshds of this machine, and share all it has."""
        return "MODE=netns" in pathlib.Path(self.folder, "conf").read_text()

    def run(self, verb, *words, env=None):
        bring(HERE / "cluster", verb, self.folder, *words, env=env)

    @contextlib.contextmanager
    def root(self, host, root):
        """The host is one of another release: what is installed there is what that folder has."""
        number = host.removeprefix("host")
        self.run("stop", number)
        try:
            self.run("start", number, env={"ROOT": str(root)})
            yield
        finally:
            self.run("stop", number)
            self.run("start", number)

    def on(self, host, script):
        """What a script printed there."""
        return subprocess.run([f"{self.folder}/bin/ssh", host, script], check=True, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout

    @property
    def gives_terminals(self):
        return subprocess.run([f"{self.folder}/bin/ssh", "-tt", self.names[0], "true"],
                              stdin=subprocess.DEVNULL, capture_output=True).returncode == 0

    def of_jobs(self, host):
        """The processes there that belong to ranks, agents, and the folders of jobs."""
        return self.on(host, "grep -lsF DTRAIN_PROCESS= /proc/[0-9]*/environ;"
                             " ls -d ~/.local/state/dtrain/hosts/*; ps -eo args | grep '[s]cript=$(dd'; true")

    def count(self, host):
        """How many processes of ranks run there."""
        return int(self.on(host, "grep -lsF DTRAIN_PROCESS= /proc/[0-9]*/environ | wc -l"))

    def network(self, host):
        return f"dtbr0-h{host.removeprefix('host')}"

    def _iptables(self, host, way, other):
        for chain, end in ("INPUT", "-s"), ("OUTPUT", "-d"):
            subprocess.run(["ip", "netns", "exec", self.network(host), "iptables", way, chain,
                            *([end, self.address(other)] if other else []), "-j", "DROP"], check=True)

    @contextlib.contextmanager
    def cut(self, host, other=None):
        """Not a packet comes in or out any more; or none from and to one other host."""
        self._iptables(host, "-A", other)
        try:
            yield
        finally:
            self._iptables(host, "-D", other)

    @staticmethod
    def address(host):
        return f"10.77.0.1{host.removeprefix('host')}"

    @contextlib.contextmanager
    def tool(self, host, name, script):
        """A program of that name, which the host finds before all others."""
        path = pathlib.Path(self.folder, f"own{host.removeprefix('host')}", name)
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        try:
            yield path
        finally:
            path.unlink()

    @contextlib.contextmanager
    def mounts(self, host, script, undo):
        self.on(host, script)
        try:
            yield
        finally:
            self.on(host, undo)

    def inside(self, host):
        """How many processes of ranks run there, seen from outside."""
        network = os.stat(f"/run/netns/{self.network(host)}").st_ino
        count = 0
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                count += (os.stat(process / "ns/net").st_ino == network
                          and b"DTRAIN_PROCESS=" in (process / "environ").read_bytes())
            except OSError:
                pass
        return count


@pytest.fixture(scope="session")
def ssh_hosts():
    if kept := os.environ.get("DTRAIN_TEST_SSH"):
        yield Hosts(kept)
        return
    hosts = Hosts("/tmp/dtrain-ssh")
    with alone("ssh"):
        hosts.run("down")  # of a session that was killed
        try:
            hosts.run("up")
            yield hosts
        finally:
            hosts.run("down")


@pytest.fixture
def apart(ssh_hosts):
    """Hosts with a network and processes of their own."""
    if not ssh_hosts.apart:
        pytest.skip("this machine lets us have no network namespaces: the hosts are its own sshds")


@pytest.fixture
def ssh_home(home, ssh_hosts):
    """A home whose ssh knows the hosts; its jobs are deleted at the end."""
    home.env.update(PATH=f"{ssh_hosts.folder}/bin:{home.env['PATH']}", DTRAIN_BACKEND="ssh",
                    DTRAIN_SSH_HOSTS=",".join(ssh_hosts.names), DTRAIN_SSH_HOST_TIMEOUT="10s")
    yield home
    for job in home.dtrain("list", "-A", "-o", "json").json():
        home.dtrain("delete", job["name"], "-n", job["namespace"])


@pytest.fixture
def ssh(ssh_home):
    return Engine(ssh_home, ("--backend=ssh",))
