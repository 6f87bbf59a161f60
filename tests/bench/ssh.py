"""Jobs on hosts beside ssh, pdsh and Open MPI, on the tests' hosts: sshds of this machine's own."""
import contextlib
import json
import os
import pathlib
import re
import statistics
import tempfile
import time

from allreduce import PEERS
from measure import HERE, Row, json_lines, on_path, own_home, run

CLUSTER = HERE.parent / "engines" / "ssh" / "cluster"
RUNS = 15
MANY = 64
RANKS = 1000
MIB_16 = 16 << 20


@contextlib.contextmanager
def cluster(**settings):
    """The folder of hosts that nobody else uses, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="dtrain-bench-ssh-") as parent:
        folder = f"{parent}/hosts"
        env = dict(os.environ, NET="10.78.0", BRIDGE="dtbench0", PORT="2610", **settings)
        try:
            run([CLUSTER, "up", folder], env=env)
            yield folder
        finally:
            run([CLUSTER, "down", folder], env=env)


def access(home, folder, count):
    return dict(home, PATH=f"{folder}/bin:{os.environ['PATH']}", DTRAIN_BACKEND="ssh",
                DTRAIN_SSH_HOSTS=f"host[1-{count}]")


def median_ms(command, env, runs=RUNS):
    times = []
    for _ in range(runs):
        began = time.monotonic()
        run(command, env=env)
        times.append((time.monotonic() - began) * 1000)
    return statistics.median(times)


def no_op_row(bench, env):
    commands = {"dtrain": [bench.bin / "dtrain", "submit", "--workers=3", "--wait", "--", "true"],
                "ssh": ["ssh", "host1", "true"]}
    times = bench.interleaved({name: lambda command=command: median_ms(command, env)
                               for name, command in commands.items()})
    return Row("3-host no-op, submit to finished", "ms", min(times["dtrain"]), "one ssh true",
               min(times["ssh"]), target=1 / 3)


def all_reduce_row(bench, env):
    def ours():
        name = f"sum-{time.monotonic_ns()}"
        run([bench.bin / "dtrain", "submit", f"--name={name}", "--workers=3", "--wait", "--",
             bench.bin / "bench-allreduce", "--transport=tcp", "--buffer=ordinary", MIB_16], env=env)
        return json_lines(run([bench.bin / "dtrain", "logs", name, "-i", "worker-0"], env=env))

    def theirs():
        addresses = ",".join(f"10.78.0.1{number}" for number in (1, 2, 3))
        return json_lines(run(["ssh", "host1", "mpirun", "--allow-run-as-root", "--host", addresses,
                               "--mca", "btl", "self,tcp", "-x", "OMP_NUM_THREADS=1", "-np", "3",
                               PEERS / "allreduce_mpi.py", MIB_16], env=env))

    measured = {"dtrain": ours}
    if bench.find("mpirun (Open MPI)", on_path("mpirun")):
        measured["mpi"] = theirs
    times = {name: min(line["best"] for lines in found for line in lines) * 1000
             for name, found in bench.interleaved(measured).items()}
    return Row("all-reduce 16 MiB, 3 hosts, TCP", "ms", times["dtrain"], "Open MPI, TCP",
               times.get("mpi"), target=1.5, peer_found="mpi" in times)


def many_row(bench, env):
    hosts = env["DTRAIN_SSH_HOSTS"]
    dtrain = [bench.bin / "dtrain", "submit", f"--workers={MANY}", "--", "true"]
    measured = {"dtrain": lambda: median_ms(dtrain, env, 3)}
    if bench.find("pdsh", on_path("pdsh")):
        measured["pdsh"] = lambda: median_ms(["pdsh", "-R", "ssh", "-f", "32", "-w", hosts, "true"],
                                             env, 3)
    times = {name: min(found) for name, found in bench.interleaved(measured).items()}
    return Row(f"{MANY} hosts checked and started", "ms", times["dtrain"], "pdsh, true on them",
               times.get("pdsh"), target=1 / 5, peer_found="pdsh" in times)


def memory_row(bench, env):
    """Once all ranks have printed a line, which the supervisor has written."""
    dtrain = bench.bin / "dtrain"
    run([dtrain, "submit", "--name=thousand", f"--workers={RANKS}", "--grace-period=1s", "--", "sh", "-c",
         "echo here; exec sleep 3600"], env=env)
    try:
        job = pathlib.Path(env["XDG_STATE_HOME"], "dtrain/jobs/ssh/default/thousand")
        while sum(b"here" in log.read_bytes() for log in (job / "logs").iterdir()) < RANKS:
            time.sleep(1)
        supervisor = json.loads((job / "status.json").read_text())["supervisor_pid"]
        status = pathlib.Path(f"/proc/{supervisor}/status").read_text()
        resident = int(re.search(r"VmRSS:\s*(\d+) kB", status)[1]) / 1024
    finally:
        run([dtrain, "delete", "thousand"], env=env)
    return Row(f"{RANKS:,} ranks on {MANY} hosts, supervisor's memory", "MiB", resident, target=50)


def rows(bench):
    with cluster() as folder, own_home() as home:
        yield no_op_row(bench, access(home, folder, 3))
        if "MODE=netns" in open(f"{folder}/conf").read():
            yield all_reduce_row(bench, access(home, folder, 3))
    with cluster(HOSTS=str(MANY)) as folder, own_home() as home:
        env = access(home, folder, MANY)
        yield many_row(bench, env)
        yield memory_row(bench, env)
