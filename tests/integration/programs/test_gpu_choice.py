"""The GPU that a rank's program takes, of devices that are not there: PyTorch, JAX and TensorFlow over a runtime
and a driver of CUDA's that show some and compute nothing. `./dev test peers` brings what runs."""
import getpass
import shutil

import pytest

import fake_cuda

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


# As JAX's own documentation starts several processes on one machine. The libraries have no versions to check.
JAX = """
import os
os.environ |= {"JAX_PLATFORMS": "cuda", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
import jax
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", int(os.environ["WORLD_SIZE"]),
                           int(os.environ["RANK"]), local_device_ids=[int(os.environ["LOCAL_RANK"])])
[device] = jax.local_devices()
print("chose", device.device_kind, "of", len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")),
      "in all", jax.device_count(), flush=True)
jax.distributed.shutdown()
os._exit(0)
"""

TENSORFLOW = """
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
print("chose", tf.config.experimental.get_device_details(gpus[0])["device_name"], "of", len(gpus), flush=True)
"""


# The libraries of frameworks that use CUDA's.
USES_CUDA = ["torch/lib/*.so", "jax_*/**/*.so", "tensorflow/libtensorflow*.so.2"]


@pytest.fixture(scope="module")
def cuda(tmp_path_factory):
    """CUDA's libraries for a framework, by its virtual environment: the variables that bring them."""
    made = {}

    def variables(venv):
        if venv not in made:
            folder = tmp_path_factory.mktemp("cuda")
            packages = next(venv.glob("lib/python3*/site-packages"))
            is_linked = (packages / "torch").is_dir()
            sonames = fake_cuda.LINKED if is_linked else fake_cuda.LOADED
            fake_cuda.build(folder, [library for where in USES_CUDA for library in packages.glob(where)], sonames)
            made[venv] = ([f"LD_PRELOAD={' '.join(str(folder / name) for name in sonames)}"] if is_linked else
                          [f"LD_PRELOAD={folder / 'libcuda.so.1'}", f"LD_LIBRARY_PATH={folder}"])
        return made[venv]
    return variables


@pytest.fixture
def chosen(home, peer, cuda):
    """What the ranks of a job of such a program chose, and of how many they were shown."""
    def run(name, program, *flags, workers=2, venv="torch", framework=None, shown=None):
        here = {"DTRAIN_LOCAL_GPUS": "4", **({"CUDA_VISIBLE_DEVICES": shown} if shown else {})}
        home.submit(name, "env", "DTRAIN_FAKE_GPUS=4", *cuda(peer(framework or venv)),
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
    assert chosen(venv, program, venv=venv, framework="torch",
                  shown="3,1") == ["fake GPU 3 of 2", "fake GPU 1 of 2"]


@pytest.mark.parametrize("shown, expected", [(None, (0, 1)), ("3,GPU-0101", (3, 1))])
def test_no_two_ranks_of_jax_take_the_same_gpu(chosen, shown, expected):
    assert chosen("jax", JAX, venv="jax", shown=shown) == [f"fake GPU {gpu} of 2 in all 2" for gpu in expected]


@pytest.mark.parametrize("shown, expected", [(None, (0, 1)), ("3,GPU-0101", (3, 1))])
def test_a_rank_of_tensorflows_takes_all_that_it_sees_which_is_its_own(chosen, shown, expected):
    assert chosen("tf", TENSORFLOW, "tfjob", venv="tensorflow",
                  shown=shown) == [f"fake GPU {gpu} of 1" for gpu in expected]
