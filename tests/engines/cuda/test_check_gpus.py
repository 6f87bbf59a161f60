"""`dtrain-trainer check-gpus` on GPUs that are not there, good ones and bad ones."""
import json
import os
import re
import subprocess

import pytest

EXIT_ERROR = 1
EXIT_USAGE = 2


def check_gpus(program, *flags, code=0, **variables):
    """Of three GPUs, whose kernels and copies take the same time unless `variables` says otherwise."""
    times = {"DTRAIN_FAKE_GPUS": "3", "DTRAIN_FAKE_BLAS": "1", "DTRAIN_FAKE_STEADY": "1",
             "DTRAIN_FAKE_KERNEL_US": "2000,2000,2000", "DTRAIN_FAKE_COPY_US": "2000,2000,2000"}
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("DTRAIN_", "CUDA_VISIBLE_DEVICES"))}
    result = subprocess.run([program, "check-gpus", "--size=64", "--seconds=0.1", *flags],
                            env=env | times | variables, capture_output=True, text=True, timeout=300)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout, result.stderr


def faults(program, *flags, **variables):
    out, err = check_gpus(program, "--json", *flags, code=EXIT_ERROR, **variables)
    found = json.loads(out)
    assert re.fullmatch(r"dtrain-trainer: found \d faults?; see above\n", err)
    return {gpu["gpu"]: gpu["fault"] for gpu in found["gpus"] if gpu["fault"]}, found["link_faults"]


def test_good_gpus_are_measured_and_no_fault_is_found(on_cpu):
    out, err = check_gpus(on_cpu)
    assert not err
    for gpu in range(3):
        assert re.search(rf"^GPU {gpu} \(a CPU in a GPU's place\): [\d.e-]+ TFLOP/s of bf16, [\d.e-]+ % of its "
                         r"peak of 12.29; memory [\d.]+ GB/s; \d+ products compared$", out, re.M), out
    assert re.search(r"^GB/s from GPU \(row\) to GPU \(column\):\n +0 +1 +2\n0 +- +[\d.e-]+ +[\d.e-]+$", out, re.M)
    assert "copied from GPU to GPU\n" in out
    out, _ = check_gpus(on_cpu, "--json", "--devices=gpu:0,gpu:2", DTRAIN_FAKE_PEERS="0",
                        CUDA_VISIBLE_DEVICES="4,GPU-b,6")
    found = json.loads(out)
    assert [gpu["gpu"] for gpu in found["gpus"]] == ["4", "6"]
    assert {link["kind"] for link in found["links"]} == {"through host memory"}
    assert found["gpus"][0]["digest"] == found["gpus"][1]["digest"]
    assert all(link["bytes_per_second"] > 0 for link in found["links"])


def test_without_tensor_cores_float32_is_measured(on_cpu):
    out, _ = check_gpus(on_cpu, "--devices=gpu:1", "--seconds=0", DTRAIN_FAKE_COMPUTE="7", DTRAIN_FAKE_GPUS="2")
    assert re.search(r"GPU 1 .* TFLOP/s of float32; memory", out)


def test_a_gpu_that_multiplies_slowly_is_named(on_cpu):
    gpus, links = faults(on_cpu, DTRAIN_FAKE_KERNEL_US="2000,2000,6000")
    assert list(gpus) == ["2"] and not links
    assert "GPU 2 (a CPU in a GPU's place): it is slow: " in gpus["2"]


@pytest.mark.parametrize("first, said", [("1", "other bits than that of 2 GPUs of its model"),
                                         ("3", "repetitions of a matrix product gave other bits")])
def test_a_gpu_whose_products_have_a_wrong_bit_is_named(on_cpu, first, said):
    gpus, links = faults(on_cpu, DTRAIN_FAKE_FLIP="1", DTRAIN_FAKE_FLIP_FROM=first)
    assert list(gpus) == ["1"] and said in gpus["1"] and not links


def test_a_gpu_that_does_not_compute_is_named_by_comparison_with_the_cpu(on_cpu):
    gpus, _ = faults(on_cpu, "--devices=gpu:0", DTRAIN_FAKE_IDLE="1")
    assert "64 of 64 entries of a matrix product differ from the CPU's" in gpus["0"]


def test_a_gpu_whose_copies_are_slow_is_named(on_cpu):
    gpus, links = faults(on_cpu, DTRAIN_FAKE_COPY_US="2000,20000,2000")
    assert list(gpus) == ["1"] and "copies to and from it are slow" in gpus["1"] and not links


def test_a_gpu_that_raises_an_error_is_named_with_it(on_cpu):
    gpus, _ = faults(on_cpu, "--devices=gpu:1", DTRAIN_FAKE_FAULT="5", DTRAIN_FAKE_ERROR="719")
    assert gpus["1"].startswith("GPU 1 (a CPU in a GPU's place): CUDA: ")
    assert gpus["1"].endswith("; see dmesg for an Xid error of the GPU")


@pytest.mark.parametrize("flags, variables, said", [
    ([], {"DTRAIN_FAKE_DRIVER": "0"}, "check-gpus: no NVIDIA driver on this machine"),
    (["--devices=gpu:9"], {}, "check-gpus: there is no GPU 9 here, but 3, from 0 on"),
    (["--devices=cpu:0"], {}, "--devices=cpu:0: check-gpus measures GPUs; use gpu:0,gpu:1"),
], ids=str)
def test_where_no_gpu_can_be_measured_one_line_says_why(on_cpu, flags, variables, said):
    _, err = check_gpus(on_cpu, *flags, code=EXIT_USAGE, **variables)
    assert err == f"dtrain-trainer: {said}\n"
