"""The plug-in for GPUs: found or missed, of this build or another, and what it brings and needs."""
import os
import pathlib
import re
import shutil
import subprocess
import zipfile

import pytest

from cuda_trainer import start
from harness import PYTHON
from trainer_process import end

EXIT_USAGE = 2
CANNOT = 77


def test_without_its_plug_in_the_trainer_starts_and_says_what_it_lacks(on_cpu, data, tmp_path):
    alone = shutil.copy(on_cpu, tmp_path / "dtrain-trainer")
    end(start(alone, data, "--steps=1"))
    _, err = end(start(alone, data, "--device=cuda"), EXIT_USAGE)
    assert f"no CUDA plug-in {tmp_path}/libdtrain_cuda.so" in err
    (tmp_path / "libdtrain_cuda.so").write_text("no library")
    _, err = end(start(alone, data, "--device=cuda"), EXIT_USAGE)
    assert "libdtrain_cuda.so" in err and err.count("\n") == 1


@pytest.mark.parametrize("old, new", [(b", plug-in ", b", plug_in "),
                                      (b"dtrain_cuda_device\0", b"dtrain_cuda_devicE\0")],
                         ids=("build", "function"))
def test_a_plug_in_of_another_build_is_refused_before_anything_is_asked_of_it(on_cpu, data, tmp_path, old, new):
    alone = shutil.copy(on_cpu, tmp_path / "dtrain-trainer")
    plug_in = (on_cpu.parent / "libdtrain_cuda.so").read_bytes()
    assert plug_in.count(old) >= 1
    (tmp_path / "libdtrain_cuda.so").write_bytes(plug_in.replace(old, new))
    _, err = end(start(alone, data, "--device=cuda"), EXIT_USAGE)
    assert f"{tmp_path}/libdtrain_cuda.so is a plug-in of another version" in err and err.count("\n") == 1


def test_the_plug_in_exports_one_function_and_needs_nothing_that_a_bare_machine_lacks(build):
    plug_in = build.bin / "libdtrain_cuda.so"
    exported = subprocess.run(["nm", "-D", "--defined-only", plug_in], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in exported.stdout.splitlines()] == ["dtrain_cuda_device"]
    needed = subprocess.run(["readelf", "-d", plug_in], capture_output=True, text=True, check=True)
    assert not re.search(r"NEEDED.*(stdc|gcc|cuda|nccl|cublas)", needed.stdout)


def test_a_wheel_whose_hash_differs_is_refused_and_nothing_left(tmp_path):
    """Wheels of the right names and versions, but of other contents."""
    cmake = pathlib.Path(__file__).parents[3] / "cmake"
    for line in (cmake / "cuda-requirements.txt").read_text().splitlines():
        name, version = line.split()[0].split("==")
        info = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(tmp_path / f"{info}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{info}.dist-info/METADATA",
                           f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{info}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{info}.dist-info/RECORD", "")
    folder = tmp_path / "cuda"
    result = subprocess.run([cmake / "cuda-toolkit.sh", folder], capture_output=True, text=True,
                            env=os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)})
    assert result.returncode == 1 and not result.stdout and not folder.exists()
    assert "DO NOT MATCH THE HASHES" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("cuda-toolkit.sh: no CUDA as ")


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a GPU")
def test_the_real_plug_in_loads_where_there_is_no_driver(build, data):
    _, err = end(start(build.bin / "dtrain-trainer", data, "--device=cuda"), EXIT_USAGE)
    assert "no NVIDIA driver on this machine" in err


def test_a_bundle_for_a_machine_with_a_gpu_runs_wherever_it_is_copied(build, on_cpu, tmp_path):
    made, there = tmp_path / "made", tmp_path / "there"
    bundle = pathlib.Path(__file__).parents[1] / "gpu/bundle"
    subprocess.run([bundle, build.folder, made, PYTHON], check=True, timeout=120)
    made.rename(there)
    run = {name: value for name, value in os.environ.items() if not name.startswith("DTRAIN_")}
    if not os.path.exists("/dev/nvidiactl"):
        for what in ("test", "bench"):
            none = subprocess.run([there / "run", what], env=run, capture_output=True, text=True)
            assert none.returncode == CANNOT
            assert none.stderr == "no NVIDIA GPU on this machine; ./dev test cuda does without\n"
    shutil.copy(on_cpu.parent / "libdtrain_cuda.so", there / "bin")
    fake = run | {"DTRAIN_FAKE_GPUS": "1", "PYTHON": PYTHON, "HOME": str(tmp_path)}
    tests = subprocess.run([there / "run", "test", "-k", "parameter or two_ranks and ring"], env=fake,
                           cwd=tmp_path, capture_output=True, text=True)
    assert "3 passed" in tests.stdout, tests.stdout + tests.stderr
    shutil.rmtree(there / "bin")
    broken = subprocess.run([there / "run", "test", "-k", "parameter"], env=fake, cwd=tmp_path,
                            capture_output=True)
    assert broken.returncode == 1  # Its programs are the folder's own, and no other.
