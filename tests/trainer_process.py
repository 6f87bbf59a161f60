"""dtrain-trainer started by hand, with an environment that says nothing of another job."""
import os
import re
import subprocess


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
