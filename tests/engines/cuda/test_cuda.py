"""The real trainer with --device=cuda: it loads the plug-in from beside itself, whose kernels run on
the CPU here (tests/cuda_on_cpu), over a runtime that has no GPU. `home.trainer` is the one in bin/,
beside which the real plug-in lies."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

import idx_data

EXIT_USAGE = 2


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return idx_data.write(tmp_path_factory.mktemp("idx"), train=192, test=64)


@pytest.fixture
def on_cpu(request):
    return pathlib.Path(request.config.getoption("--build")).absolute() / "on-cpu/dtrain-trainer"


def start(program, data, *flags, **variables):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("DTRAIN_", "OMPI_", "SLURM_", "TF_CONFIG", "RANK", "WORLD_SIZE"))}
    return subprocess.Popen(
        [program, f"--data={data}", "--no-progress", "--hidden=24", "--log-every=4", *flags],
        env=env | variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end(process, code=0):
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, out + err
    return out, err


def held_out(out):
    return float(re.search(r"held-out accuracy .* loss ([0-9.]+)", out)[1])


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def test_a_gpu_trains_as_the_cpu_does(on_cpu, data):
    flags = ["--steps=8", "--batch-size=32", "--clip-norm=1"]
    out, _ = end(start(on_cpu, data, "--device=cuda", *flags))
    assert "gpu:0, a CPU in a GPU's place" in out
    expected, _ = end(start(on_cpu, data, "--device=cpu", *flags))
    assert held_out(out) == pytest.approx(held_out(expected), abs=2e-3)
    assert len(re.findall(r"^step ", out, re.M)) == 2


def test_a_checkpoint_of_a_gpu_is_continued_on_a_cpu_and_the_other_way(on_cpu, data, tmp_path):
    def run(folder, *devices):
        for steps, device in zip((4, 8), devices):
            out, _ = end(start(on_cpu, data, f"--device={device}", f"--steps={steps}", "--resume",
                               "--lr-schedule=constant", f"--checkpoint-dir={tmp_path / folder}"))
        return held_out(out)
    expected = run("a", "cpu", "cpu")
    assert run("b", "cuda", "cpu") == pytest.approx(expected, abs=2e-3)
    assert run("c", "cpu", "cuda") == pytest.approx(expected, abs=2e-3)


def test_two_gpus_of_one_process_and_of_two_workers_learn_the_same(on_cpu, data):
    mirrored, _ = end(start(on_cpu, data, "--devices=gpu:0,gpu:1", "--steps=6", "--batch-size=16"))
    port = str(free_ports(1)[0])
    # Each is shown one GPU alone, as by a launcher that shares them out: its first.
    ranks = [start(on_cpu, data, "--device=cuda", "--steps=6", "--batch-size=16", RANK=str(rank),
                   LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                   CUDA_VISIBLE_DEVICES="5", DTRAIN_FAKE_GPUS="1", MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=port, DTRAIN_JOB_TOKEN="a" * 32)
             for rank in range(2)]
    outs = [end(rank)[0] for rank in ranks]
    assert "copied to and from the device" in outs[0] and "this build has none" in outs[0]
    assert held_out(outs[0]) == pytest.approx(held_out(mirrored), abs=2e-3)


def test_a_worker_of_parameter_servers_computes_on_a_gpu(on_cpu, data):
    def run(device):
        ports = free_ports(2)
        cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
        tasks = [start(on_cpu, data, f"--device={device}", "--steps=6", DTRAIN_JOB_TOKEN="a" * 32,
                       TF_CONFIG=json.dumps({"cluster": cluster,
                                             "task": {"type": kind, "index": 0}}))
                 for kind in ("ps", "worker")]
        outs = [end(task)[0] for task in tasks]
        return held_out(outs[1])
    assert run("cuda") == pytest.approx(run("cpu"), abs=2e-3)


@pytest.mark.parametrize("flags, variables, said", [
    (["--devices=gpu:9"], {}, "--devices=gpu:9: there is no GPU 9 here, but 2"),
    (["--devices=gpu:0,cpu:0"], {}, "CPUs and GPUs in one process"),
    (["--device=cuda"], {"DTRAIN_FAKE_PLUGIN_VERSION": "7"}, "a plug-in of another version"),
    (["--device=cuda"], {"DTRAIN_FAKE_DRIVER": "0"}, "no NVIDIA driver"),
    (["--device=cuda"], {"DTRAIN_FAKE_GPUS": "0"}, "no CUDA-capable device"),
    (["--device=cuda", "--model=cnn"], {}, "--model=cnn: computes on CPUs"),
    (["--communication=nccl"], {}, "--communication=nccl: "),
], ids=str)
def test_what_a_gpu_cannot_do_is_one_line(on_cpu, data, flags, variables, said):
    _, err = end(start(on_cpu, data, *flags, **variables), EXIT_USAGE)
    assert said in err and err.count("\n") == 1


def test_without_its_plug_in_the_trainer_starts_and_says_what_it_lacks(on_cpu, data, tmp_path):
    alone = shutil.copy(on_cpu, tmp_path / "dtrain-trainer")
    end(start(alone, data, "--steps=1"))
    _, err = end(start(alone, data, "--device=cuda"), EXIT_USAGE)
    assert f"no CUDA plug-in {tmp_path}/libdtrain_cuda.so" in err
    (tmp_path / "libdtrain_cuda.so").write_text("no library")
    _, err = end(start(alone, data, "--device=cuda"), EXIT_USAGE)
    assert "libdtrain_cuda.so" in err and err.count("\n") == 1


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a GPU")
def test_the_real_plug_in_loads_where_there_is_no_driver(build, data):
    _, err = end(start(build.bin / "dtrain-trainer", data, "--device=cuda"), EXIT_USAGE)
    assert "no NVIDIA driver on this machine" in err
