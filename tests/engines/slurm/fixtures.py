"""A Slurm of the tests' own: `./cluster up` brings one up for each of pytest's workers, unless
DTRAIN_TEST_SLURM names the folder of one that is up already."""
import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from harness import Engine, bring

HERE = pathlib.Path(__file__).parent


class Slurm:
    def __init__(self, folder, port=17000):
        self.folder = folder
        self.port = port
        self.conf = f"{folder}/etc/slurm.conf"

    def run(self, *words, **env):
        bring(HERE / "cluster", *words, self.folder, env={"PORT": str(self.port), **env})

    def kill_controller(self):
        os.kill(int(pathlib.Path(self.folder, "run/slurmctld.pid").read_text()), signal.SIGKILL)

    def saved_at(self):
        return pathlib.Path(self.folder, "state/job_state").stat().st_mtime

    def start_controller(self):
        subprocess.run(["/usr/sbin/slurmctld", "-f", self.conf], check=True)

    def call(self, *words):
        """The stdout of a command of Slurm's."""
        return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE,
                              env={**os.environ, "SLURM_CONF": self.conf}).stdout


def free_slot():
    """A number that is nobody else's until the file is closed. Each of pytest's workers has a cluster
    of its own: what a test does to one is seen by no other."""
    for slot in range(64):
        try:
            lock = open(f"/tmp/dtrain-slurm-{slot}.lock", "w")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return slot, lock
        except OSError:  # Another's.
            pass
    raise RuntimeError("64 clusters are up already")


@contextlib.contextmanager
def cluster_up(**env):
    slot, lock = free_slot()
    cluster = Slurm(f"/tmp/dtrain-slurm-{slot}", 17000 + 100 * slot)
    cluster.run("down")  # of a session that was killed
    shutil.rmtree(f"{cluster.folder}/state", ignore_errors=True)  # It may be a later version's.
    try:
        cluster.run("up", **env)
        yield cluster
    finally:
        cluster.run("down")
        lock.close()


@pytest.fixture(scope="session")
def slurm_cluster():
    if kept := os.environ.get("DTRAIN_TEST_SLURM"):
        yield Slurm(kept)
        return
    with cluster_up() as cluster:
        yield cluster


@pytest.fixture
def slurm_home(home, slurm_cluster):
    """A home whose dtrain speaks to the cluster; its jobs are deleted at the end."""
    home.env.update(SLURM_CONF=slurm_cluster.conf, DTRAIN_BACKEND="slurm")
    home.run = functools.partial(home.run, seconds=180)  # A job that is queued anew waits for 16.
    yield home
    for job in home.dtrain("list", "-A", "-o", "json").json():
        home.dtrain("delete", job["name"], "-n", job["namespace"])


@pytest.fixture
def slurm(slurm_home):
    return Engine(slurm_home, ("--backend=slurm",))
