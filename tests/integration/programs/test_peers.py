"""Programs of PyTorch, TensorFlow and DeepSpeed as jobs, unchanged. `./dev test peers` brings them."""
import getpass
import os
import shutil

import pytest

pytestmark = pytest.mark.peer

TORCH = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
model(torch.ones(4, 2) * (dist.get_rank() + 1)).sum().backward()
total = torch.ones(1) * dist.get_rank()
dist.all_reduce(total)
print("sum", int(total), "grad", model.module.weight.grad.tolist()[0][0])
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # At Python's own end a thread of PyTorch's that still runs may abort it.
"""

TENSORFLOW = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
index = strategy.cluster_resolver.task_id
@tf.function
def total():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce(
        tf.distribute.ReduceOp.SUM, tf.constant(float(index + 1))))
print("replicas", strategy.num_replicas_in_sync, "sum", float(total()), flush=True)
"""

DEEPSPEED = """
import deepspeed, torch
deepspeed.init_distributed("gloo")
total = torch.ones(1)
deepspeed.comm.all_reduce(total)
print("sum", int(total))
torch.distributed.destroy_process_group()
"""

# In one write: the ranks of one launcher share its pipe.
SAY_RANK = """import os, sys
sys.stdout.write(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n")
"""


def test_a_pytorch_ddp_program_runs_unchanged(home, peer):
    home.submit("ddp", f"{peer('torch')}/bin/python", "-c", TORCH, flags=["--workers=3"])
    home.dtrain("wait", "ddp", seconds=120)
    assert home.lines("ddp", "-i", "worker-2") == ["sum 3 grad 8.0"]
    # PyTorch's own temporary folder.
    shutil.rmtree(home.scratch / f"torchinductor_{getpass.getuser()}", ignore_errors=True)


def test_a_real_torchrun_takes_the_gang_as_its_nodes(home, peer):
    script = home.folder / "train.py"
    script.write_text(SAY_RANK)
    home.dtrain("submit", "pytorchjob", "--name=real", "--workers=2", "--nproc-per-node=2", "--",
                f"{peer('torch')}/bin/torchrun", script, env={"TMPDIR": str(home.folder)})
    home.dtrain("wait", "real", seconds=300)
    text = home.dtrain("logs", "real").out
    assert all(f"rank {rank} of 4" in text for rank in range(4))


def test_a_tensorflow_multi_worker_program_runs_unchanged(home, peer):
    home.submit("mwms", f"{peer('tensorflow')}/bin/python", "-c", TENSORFLOW, flags=["--workers=2"])
    home.dtrain("wait", "mwms", seconds=180)
    assert "replicas 2 sum 3.0" in home.lines("mwms", "-i", "worker-1")


def test_a_deepspeed_program_runs_unchanged(home, peer):
    folder = peer("deepspeed")
    home.submit("ds", f"{folder}/bin/python", "-c", DEEPSPEED, flags=["--workers=2"],
                env={"DS_ACCELERATOR": "cpu",
                     "TORCH_EXTENSIONS_DIR": f"{folder}/extensions",  # compiled when it was set up
                     "PATH": f"{folder}/bin:{home.env['PATH']}"})
    home.dtrain("wait", "ds", seconds=180)
    assert "sum 2" in home.lines("ds", "-i", "worker-0")


def test_a_real_deepspeed_trains_on_the_slots(home, peer):
    script = home.folder / "train.py"
    script.write_text(SAY_RANK)
    home.dtrain("submit", "deepspeedjob", "--name=real", "--workers=2", f"deepspeed {script}",
                env={"PATH": f"{peer('deepspeed')}/bin:{os.environ['PATH']}",
                     "DTRAIN_LOCAL_GPUS": "0"})
    home.dtrain("wait", "real", seconds=300)
    text = home.dtrain("logs", "real").out
    assert "rank 0 of 2" in text and "rank 1 of 2" in text
