"""dtrain beside Slurm's own commands, on the tests' cluster: what it adds to sbatch and squeue."""
import contextlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from measure import HERE, Row, milliseconds, own_home, run

CLUSTER = HERE.parent / "engines" / "slurm" / "cluster"
MANY_JOBS = 5000
RUNS = 100


@contextlib.contextmanager
def cluster():
    """The configuration of one that nobody else uses, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="dtrain-bench-slurm-") as folder:
        env = dict(os.environ, PORT="18700")
        run([CLUSTER, "up", folder], env=env)
        try:
            yield f"{folder}/etc/slurm.conf"
        finally:
            run([CLUSTER, "down", folder], env=env)


def wall_ms(words, env):
    """Of one call, without what a fork of this process takes."""
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    began = time.monotonic()
    pid = os.posix_spawnp(words[0], [str(word) for word in words], env, file_actions=null)
    _, status = os.waitpid(pid, 0)
    took = (time.monotonic() - began) * 1000
    if status != 0:
        raise RuntimeError(f"{words} ended with status {status}")
    return took


def in_turn_ms(env, **commands):
    """The lower quartile of each command's times, called in turn: what else the machine does slows both
    sides, and single calls by tens of milliseconds."""
    times = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, command in commands.items():
            times[name].append(wall_ms(command(), env))
    return {name: statistics.quantiles(each, n=4)[0] for name, each in times.items()}


def submit_beside_sbatch(dtrain, env):
    """Held, so that no job of before runs beside the next. Both give Slurm the same script."""
    words = [dtrain, "submit", "--workers=3", "--sbatch-arg=--hold"]
    command = ["--", "sleep", "600"]
    script = pathlib.Path(env["HOME"], "script.sbatch")
    script.write_text(run([*words, "--name=same", "--dry-run", *command], env=env))
    numbers = itertools.count()
    times = in_turn_ms(env, submit=lambda: [*words, f"--name=s{next(numbers)}", *command],
                       sbatch=lambda: ["sbatch", "--parsable", script])
    return times["submit"], times["sbatch"]


def make_many_jobs(state, env):
    """So many held jobs of Slurm's, each with the record that a submission leaves."""
    jobs = pathlib.Path(state, "dtrain/slurm/many")
    numbers = subprocess.run(
        ["sh", "-c", f"for i in $(seq {MANY_JOBS}); do sbatch --parsable --hold --output=/dev/null "
                     "--wrap=true || exit; done"],
        env=env, check=True, capture_output=True, text=True).stdout.split()
    for i, number in enumerate(numbers):
        folder = jobs / f"job-{i:04}"
        folder.mkdir(parents=True)
        (folder / "job").write_text("job " + json.dumps({
            "created": time.time_ns(), "gpus": 0, "id": number,
            "instances": [[f"worker-{rank}", 0] for rank in range(3)], "labels": [],
            "maxRestarts": 0, "name": folder.name, "namespace": "many", "priority": "",
            "requeue": False, "trainer": "DTRAINJOB"}, separators=(",", ":")) + "\n")


def rows(bench):
    dtrain = bench.bin / "dtrain"
    with cluster() as conf, own_home() as home:
        env = dict(home, SLURM_CONF=conf, DTRAIN_BACKEND="slurm")
        run([dtrain, "submit", "--name=one", "--workers=3", "--", "sleep", "600"], env=env)
        number = json.loads(run([dtrain, "get", "one", "-o", "json"], env=env))["uuid"]
        times = in_turn_ms(env, get=lambda: [dtrain, "get", "one"],
                           squeue=lambda: ["squeue", f"--jobs={number}"])
        result = [Row("get", "ms", times["get"], "squeue", times["squeue"], target=1 / 1.5)]
        ours, theirs = submit_beside_sbatch(dtrain, env)
        result.append(Row("submit --workers=3", "ms", ours, "sbatch of the same", theirs,
                          target=1 / 1.3))
        make_many_jobs(home["XDG_STATE_HOME"], env)
        listed = run([dtrain, "list", "-n", "many", "-o", "name"], env=env).count("job/")
        if listed != MANY_JOBS:
            raise RuntimeError(f"list shows {listed} of {MANY_JOBS} jobs")
        result.append(Row(f"list of {MANY_JOBS:,} jobs", "ms",
                          milliseconds([dtrain, "list", "-n", "many"], 5, env), target=1000))
    return result
