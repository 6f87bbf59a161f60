"""How long the command line takes, beside kubectl's and the launchers'."""
import os
import pathlib
import subprocess
import sys
import time

from measure import HERE, Row, milliseconds, on_path, own_home, peer_program, run

RUNS = 15
FINISHED_JOBS = 10_000
MANY_WORKERS = 3000
GIGABYTE = 1_000_000_000


def first_log_line(dtrain, env):
    """From `submit` to the first line of a job that only says it, in ms."""
    start = time.perf_counter()
    with subprocess.Popen([dtrain, "submit", "--wait", "--", "echo", "here"], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as submit:
        for line in submit.stdout:
            if b"here" in line:
                elapsed = time.perf_counter() - start
                submit.stdout.read()
                return elapsed * 1000
    raise RuntimeError("submit --wait did not stream the job's output")


def fill_with_finished_jobs(dtrain, env):
    """Ten thousand jobs that ended: one that ran, its record copied under other names."""
    run([dtrain, "submit", "--name=job-00000", "--wait", "--", "true"], env=env)
    jobs = pathlib.Path(env["XDG_STATE_HOME"], "dtrain", "jobs")
    original = next(path for path in jobs.rglob("*job-00000*") if path.is_dir())
    texts = {path.relative_to(original): path.read_bytes()
             for path in original.rglob("*") if path.is_file()}
    for number in range(1, FINISHED_JOBS):
        name = f"job-{number:05}"
        folder = original.with_name(original.name.replace("job-00000", name))
        for relative, text in texts.items():
            path = folder / relative
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(text.replace(b"job-00000", name.encode()))


def log_rows(bench, dtrain, env):
    """A gigabyte of lines of a training loop; of one worker, of three at once, and one line of all."""
    line = "step {:6d} loss 0.3288 accuracy 88.4% images/s 113,049 waiting 60% grad 1.23e-4 lr 0.003 x\\n"
    lines = (f"import sys; b = ''.join('{line}'.format(i) for i in range(100000)).encode(); "
             "n = int(sys.argv[1]); w = sys.stdout.buffer\n"
             "while n > 0: w.write(b[:n]); n -= len(b)")
    one_line = "import sys\nfor i in range(1000): sys.stdout.write('x' * 1000000)"
    jobs = {"1 worker": (1, lines), "3 workers": (3, lines), "one line": (1, one_line)}
    result = []
    for what, (workers, program) in jobs.items():
        name = what.replace(" ", "-")
        run([dtrain, "submit", "--name", name, f"--workers={workers}", "--wait", "-o", "name", "--",
             sys.executable, "-c", program, str(GIGABYTE // workers)], env=env)
        ours = milliseconds([dtrain, "logs", name], 5, env)
        result.append(Row(f"logs of 1 GB, {what}", "MB/s", GIGABYTE / 1e3 / ours,
                          more_is_better=True, target=500))
        run([dtrain, "delete", name], env=env)
    return result


def rows(bench):
    dtrain = bench.bin / "dtrain"
    result = []
    with own_home() as env:
        env.update(SKYPILOT_DISABLE_USAGE_COLLECTION="1", DS_ACCELERATOR="cpu")
        run([dtrain, "submit", "--name=some-job", "--wait", "--", "true"], env=env)

        # Start-up.
        starts = {"dtrain version": [dtrain, "version"],
                  "dtrain --help": [dtrain, "--help"],
                  "dtrain completion": [dtrain, "__complete", "bash", "get", "so"]}
        kubectl = bench.find("kubectl", on_path("kubectl"))
        commands = dict(starts)
        if kubectl:
            commands["kubectl"] = [kubectl, "version", "--client"]
        times = bench.interleaved({name: lambda command=command: milliseconds(command, RUNS, env)
                                   for name, command in commands.items()})
        for name in starts:
            result.append(Row(name, "ms", min(times[name]), "kubectl version --client",
                              min(times.get("kubectl", [0])) or None, target=8,
                              peer_found=bool(kubectl)))

        # Turn-around of a job that does nothing.
        job = {"dtrain": [dtrain, "submit", "--workers=3", "--wait", "--", "true"]}
        mpirun = bench.find("mpirun (Open MPI)", on_path("mpirun"))
        torchx = bench.find("TorchX (./dev peers torchx)", peer_program("torchx", "torchx"))
        deepspeed = bench.find("DeepSpeed's launcher (./dev peers deepspeed)",
                               peer_program("deepspeed", "deepspeed"))
        noop = HERE / "peers" / "noop_gloo.py"
        if mpirun:
            job["mpirun -np 3 true"] = [mpirun, "--allow-run-as-root", "--oversubscribe",
                                        "-np", "3", "true"]
        if torchx:
            job["torchx run -s local_cwd --wait"] = [
                torchx, "run", "--workspace=", "-s", "local_cwd", "--wait", "utils.sh",
                "--num_replicas", "3", "true"]
        if deepspeed:
            job["deepspeed, 3 × no-op over gloo"] = [deepspeed, "--num_accelerators", "3", noop]
        runs = {name: RUNS if name in ("dtrain", "mpirun -np 3 true") else 1 for name in job}
        times = bench.interleaved({name: lambda name=name: milliseconds(job[name], runs[name], env)
                                   for name in job})
        peers = [name for name in job if name != "dtrain"] or ["mpirun -np 3 true"]
        for name in peers:
            result.append(Row("submit --workers=3 --wait -- true", "ms", min(times["dtrain"]), name,
                              min(times.get(name, [0])) or None,
                              target=4 if name.startswith("mpirun") else None,
                              peer_found=name in job))

        latencies = sorted(first_log_line(dtrain, env) for _ in range(RUNS))
        result.append(Row("submit to a job's first line", "ms", latencies[RUNS // 2], target=100))

    with own_home() as env:
        fill_with_finished_jobs(dtrain, env)
        start = time.perf_counter()
        listed = run([dtrain, "list"], env=env).count("job-")
        first = (time.perf_counter() - start) * 1000
        if listed != FINISHED_JOBS:
            raise RuntimeError(f"list shows {listed} of {FINISHED_JOBS} jobs")
        result.append(Row("list of 10,000 jobs, none listed before", "ms", first))
        result.append(Row("list of 10,000 jobs, some just come", "ms",
                          milliseconds([dtrain, "list"], RUNS, env)))
        time.sleep(3)
        result.append(Row("list of 10,000 jobs", "ms",
                          milliseconds([dtrain, "list"], RUNS, env), target=50))
    with own_home() as env:
        start = time.perf_counter()
        run([dtrain, "submit", f"--workers={MANY_WORKERS}", "--wait", "--", "true"], env=env)
        result.append(Row(f"submit --workers={MANY_WORKERS:,} --wait -- true", "s",
                          time.perf_counter() - start, target=15))
        result += log_rows(bench, dtrain, env)
    os.sync()
    return result
