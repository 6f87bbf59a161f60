"""The GPU that a rank's program takes, of devices that are not there: PyTorch over a runtime of CUDA's that
shows some and computes nothing. `./dev test peers` brings what runs."""
import getpass
import shutil

import pytest

import fake_cudart

pytestmark = pytest.mark.peer

# What our manual tells programs to do, and torchrun's own examples.
TORCH = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
model(torch.ones(4, 2) * (dist.get_rank() + 1)).sum().backward()
print("chose", torch.cuda.get_device_name(), "of", torch.cuda.device_count(),
      "grad", model.module.weight.grad.tolist()[0][0])
dist.barrier()
os._exit(0)  # At Python's own end a thread of PyTorch's that still runs may abort it.
"""

ACCELERATE = """
import os, torch
from accelerate import Accelerator, InitProcessGroupKwargs
accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
print("chose", torch.cuda.get_device_name(accelerator.device), "of", torch.cuda.device_count(), flush=True)
torch.distributed.barrier()  # The first has the store that the others begin by.
os._exit(0)
"""

LIGHTNING = """
import os, torch, lightning
from lightning.pytorch.strategies import DDPStrategy
trainer = lightning.Trainer(accelerator="gpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
                            num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), logger=False,
                            enable_checkpointing=False, strategy=DDPStrategy(process_group_backend="gloo"))
trainer.strategy.setup_environment()
print("chose", torch.cuda.get_device_name(trainer.strategy.root_device), "of", torch.cuda.device_count(), flush=True)
torch.distributed.barrier()
os._exit(0)
"""


@pytest.fixture(scope="module")
def cudart(tmp_path_factory):
    """The runtime for a PyTorch, by its virtual environment."""
    made = {}

    def library(torch):
        if torch not in made:
            made[torch] = fake_cudart.build(torch, tmp_path_factory.mktemp("cudart"))
        return made[torch]
    return library


@pytest.fixture
def chosen(home, peer, cudart):
    """What the ranks of a job of such a program chose, and of how many they were shown."""
    def run(name, program, *flags, workers=2, venv="torch", shown=None):
        here = {"DTRAIN_LOCAL_GPUS": "4", **({"CUDA_VISIBLE_DEVICES": shown} if shown else {})}
        home.submit(name, "env", "DTRAIN_FAKE_GPUS=4", f"LD_PRELOAD={cudart(peer('torch'))}",
                    f"{peer(venv)}/bin/python", "-c", program,
                    flags=[f"--workers={workers}", "--gpus=1", *flags], env=here)
        home.dtrain("wait", name, seconds=300)
        shutil.rmtree(home.scratch / f"torchinductor_{getpass.getuser()}", ignore_errors=True)
        lines = [line for worker in range(workers) for line in home.lines(name, "-i", f"worker-{worker}")
                 if line.startswith("chose ")]
        return [line.removeprefix("chose ") for line in lines]
    return run


@pytest.mark.parametrize("flags, shown, expected", [
    ([], None, ["fake GPU 0 of 2", "fake GPU 1 of 2"]),
    ([], "3,GPU-0101", ["fake GPU 3 of 2", "fake GPU 1 of 2"]),
    (["--gpus-visible=rank"], "2,0", ["fake GPU 2 of 1", "fake GPU 0 of 1"]),
])
def test_no_two_ranks_of_pytorch_take_the_same_gpu(chosen, flags, shown, expected):
    assert [text.removesuffix(" grad 6.0") for text in chosen("ddp", TORCH, *flags, shown=shown)] == expected


@pytest.mark.parametrize("venv, program", [("accelerate", ACCELERATE), ("lightning", LIGHTNING)])
def test_no_two_ranks_of_a_library_on_it_take_the_same_gpu(chosen, venv, program):
    assert chosen(venv, program, venv=venv, shown="3,1") == ["fake GPU 3 of 2", "fake GPU 1 of 2"]
