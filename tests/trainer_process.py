"""dtrain-trainer started by hand, with an environment that says nothing of another job."""
import csv
import json
import os
import re
import subprocess

from harness import held_ports

NO_END = "--epochs=1000000"  # until it is ended


def start(program, data, *flags, **variables):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("DTRAIN_", "OMPI_", "SLURM_", "TF_CONFIG", "RANK", "WORLD_SIZE"))}
    return subprocess.Popen([program, f"--data={data}", "--no-progress", *flags],
                            env=env | variables, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def end(process, code=0):
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, out + err
    return out, err


def held_out(out):
    """The loss on held-out samples."""
    return float(re.search(r"held-out accuracy .* loss ([0-9.]+)", out)[1])


def losses(path):
    """Step -> loss, of a --csv file."""
    with open(path) as file:
        return {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}


def gang_env(rank, size, port):
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "DTRAIN_JOB_TOKEN": "one of these tests"}


def served_envs(workers):
    """That of a parameter server, and those of its workers."""
    ports = held_ports(1 + workers)
    cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{port}" for port in ports[1:]]}
    return [{"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}),
             "DTRAIN_JOB_TOKEN": "one of these tests"}
            for kind, count in (("ps", 1), ("worker", workers)) for index in range(count)]


def ending_when_told(home):
    """The words before the trainer's flags that have a job's first run go on until something ends
    it, and each later one end at the step that tell_end() sets, which it waits for."""
    return ["sh", "-c", 'if [ -e began.$RANK ]; then until [ -e end ]; do sleep 0.1; done; '
            'set -- "$@" --steps=$(cat end); fi; touch began.$RANK; exec "$0" "$@"',
            home.trainer_path]


def tell_end(home, step):
    (home.folder / "end.part").write_text(f"{step}\n")
    (home.folder / "end.part").rename(home.folder / "end")
    return step
