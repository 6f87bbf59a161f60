"""The real trainer with --device=cuda: it loads the plug-in from beside itself, whose kernels run on
the CPU here (tests/cuda_on_cpu), over a runtime that has no GPU. `home.trainer` is the one in bin/,
beside which the real plug-in lies."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import zipfile

import pytest

import idx_data
import text_data
import trainer_process
from harness import PYTHON, held_ports
from trainer_process import end, held_out

EXIT_ERROR = 1
EXIT_USAGE = 2
CANNOT = 77


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return idx_data.write(tmp_path_factory.mktemp("idx"), train=192, test=64)


@pytest.fixture
def on_cpu(request):
    return pathlib.Path(request.config.getoption("--build")).absolute() / "on-cpu/dtrain-trainer"


def start(program, data, *flags, **variables):
    return trainer_process.start(program, data, "--hidden=24", "--log-every=4", *flags, **variables)


def test_a_gpu_trains_as_the_cpu_does(on_cpu, data):
    flags = ["--steps=8", "--batch-size=32", "--clip-norm=1"]
    out, _ = end(start(on_cpu, data, "--device=cuda", *flags))
    assert "gpu:0, a CPU in a GPU's place" in out
    assert "; kept in the GPU's memory" in out
    assert re.search(r"samples/s a device, .* TFLOP/s, .* % of its 0.768 of float32; 0.0\d GiB", out)
    expected, _ = end(start(on_cpu, data, "--device=cpu", *flags))
    assert held_out(out) == pytest.approx(held_out(expected), abs=2e-3)
    assert len(re.findall(r"^step ", out, re.M)) == 2


def test_products_in_tf32_are_said_and_learn_nearly_what_float32_learns(on_cpu, data):
    flags = ["--device=cuda", "--steps=8", "--batch-size=32"]
    whole, _ = end(start(on_cpu, data, *flags, DTRAIN_FAKE_BLAS="1"))
    out, _ = end(start(on_cpu, data, *flags, "--matmul-precision=high", DTRAIN_FAKE_BLAS="1"))
    assert ", products in TF32, seed" in out and "TF32" not in whole
    assert re.search(r" % of its 6.14 of TF32; ", out)
    assert held_out(out) == pytest.approx(held_out(whole), abs=0.05)
    ranks = start_ranks(on_cpu, data, *flags, each=({}, {"flags": ["--matmul-precision=high"]}),
                        DTRAIN_FAKE_BLAS="1")
    for rank in ranks:
        _, err = end(rank, EXIT_USAGE)
        assert "--matmul-precision is high and highest" in err.splitlines()[-1]


def test_fp8_is_said_repeats_itself_and_learns_nearly_what_bf16_learns(on_cpu, home):
    tokens = text_data.write(home)

    def run(*flags):
        out, _ = end(trainer_process.start(
            on_cpu, tokens, *text_data.BERT, "--device=cuda", "--steps=4", "--batch-size=8", "--precision=bf16",
            "--lr-schedule=constant", *flags, DTRAIN_FAKE_BLAS="1"))
        return out
    expected = run()
    out = run("--matmul-precision=fp8")
    assert ", bf16 over float32, multiplied by tensor cores, in fully connected layers as FP8, seed" in out
    assert re.search(r" % of its 24.6 of FP8; ", out)
    assert "FP8" not in expected and held_out(out) != held_out(expected)
    assert held_out(out) == pytest.approx(held_out(expected), abs=0.05)
    assert held_out(run("--matmul-precision=fp8")) == held_out(out)


def test_a_gpu_trains_the_cnn_alone_and_as_two_ranks(on_cpu, data):
    def run(*flags):
        out, _ = end(start(on_cpu, data, "--model=cnn", "--steps=3", "--lr-schedule=constant",
                           "--optimizer=sgd", *flags))
        return held_out(out)
    expected = run("--device=cpu", "--batch-size=16")
    assert run("--device=cuda", "--batch-size=16") == pytest.approx(expected, abs=2e-3)
    assert run("--devices=gpu:0,gpu:1", "--batch-size=8") == pytest.approx(expected, abs=2e-3)


def test_a_checkpoint_of_a_gpu_is_continued_on_a_cpu_and_the_other_way(on_cpu, data, tmp_path):
    def run(folder, *devices):
        for steps, device in zip((4, 8), devices):
            out, _ = end(start(on_cpu, data, f"--device={device}", f"--steps={steps}", "--resume",
                               "--lr-schedule=constant", f"--checkpoint-dir={tmp_path / folder}"))
        return held_out(out)
    expected = run("a", "cpu", "cpu")
    assert run("b", "cuda", "cpu") == pytest.approx(expected, abs=2e-3)
    assert run("c", "cpu", "cuda") == pytest.approx(expected, abs=2e-3)


def test_a_gpu_trains_bert_alone_and_as_two_ranks_and_continues_what_a_cpu_began(
        on_cpu, home, tmp_path):
    tokens = text_data.write(home)

    def run(*flags, steps=4):
        out, _ = end(trainer_process.start(on_cpu, tokens, *text_data.BERT, f"--steps={steps}",
                                           "--lr-schedule=constant", *flags))
        if "--device=cuda" in flags:
            assert re.match(r"[\d,]+ tokens/s a device, ", out.splitlines()[-1]), out
        return held_out(out)
    expected = run("--device=cpu", "--batch-size=8")
    assert run("--device=cuda", "--batch-size=8") == pytest.approx(expected, abs=2e-3)
    assert run("--devices=gpu:0,gpu:1", "--batch-size=4") == pytest.approx(expected, abs=2e-3)
    for first, then in (("cpu", "cuda"), ("cuda", "cpu")):
        saved = f"--checkpoint-dir={tmp_path / first}"
        run(f"--device={first}", "--batch-size=8", saved, steps=2)
        assert run(f"--device={then}", "--batch-size=8", saved,
                   "--resume") == pytest.approx(expected, abs=2e-3)


def test_what_a_gpu_has_no_room_for_is_sent_to_it_with_the_same_result(on_cpu, data, tmp_path):
    def run(folder, steps, **variables):
        out, _ = end(start(on_cpu, data, "--device=cuda", f"--steps={steps}", "--batch-size=40",
                           "--lr-schedule=constant", "--resume",
                           f"--checkpoint-dir={tmp_path / folder}", **variables))
        assert ("kept in the GPU's memory" in out) == (not variables)
        return held_out(out)
    expected = run("kept", 12)
    assert run("sent", 12, DTRAIN_FAKE_FREE="4096") == expected
    run("both", 6)  # In the middle of an epoch.
    assert run("both", 12, DTRAIN_FAKE_FREE="4096") == expected


def start_ranks(program, data, *flags, each=({}, {}), **variables):
    """Each is shown one GPU alone, as by a launcher that shares them out: its first."""
    port = str(held_ports(1)[0])
    return [start(program, data, *flags, *own.pop("flags", []), RANK=str(rank), LOCAL_RANK=str(rank),
                  WORLD_SIZE=str(len(each)), LOCAL_WORLD_SIZE=str(len(each)),
                  CUDA_VISIBLE_DEVICES="5", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                  DTRAIN_JOB_TOKEN="a" * 32, **{"DTRAIN_FAKE_GPUS": "1"} | variables | own)
            for rank, own in enumerate(map(dict, each))]


@pytest.mark.parametrize("how, said", [
    ("auto", "NCCL 2.30.7, 2 ranks; NCCL_ALGO=Ring"),
    ("ring", "shared memory, 2 ranks; copied to and from the device")])
def test_two_gpus_of_one_process_and_of_two_workers_learn_the_same(on_cpu, data, how, said):
    flags = ["--steps=6", "--batch-size=16", f"--communication={how}"]
    mirrored, _ = end(start(on_cpu, data, "--devices=gpu:0,gpu:1", *flags))
    outs = [end(rank)[0]
            for rank in start_ranks(on_cpu, data, "--device=cuda", *flags, NCCL_ALGO="Ring")]
    assert said in outs[0] and "not NCCL" not in outs[0]
    assert ("NCCL 2.30.7, 2 ranks" in mirrored) == (how == "auto")
    assert held_out(outs[0]) == pytest.approx(held_out(mirrored), abs=2e-3)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_gpus_of_unlike_speeds_sum_the_same_buckets(on_cpu, data, seed):
    flags = ["--devices=gpu:0,gpu:1", "--hidden=512,256", "--steps=4", "--batch-size=4",
             "--communication=ring"]
    expected, _ = end(start(on_cpu, data, *flags))
    out, _ = end(start(on_cpu, data, *flags, DTRAIN_FAKE_KERNEL_US="1500,50",
                       DTRAIN_FAKE_SEED=str(seed)))
    assert held_out(out) == held_out(expected)


@pytest.mark.parametrize("how", ["ring", "auto"])
def test_a_slow_gpu_is_named_and_gets_a_smaller_share_on_request(on_cpu, data, how):
    flags = ["--devices=gpu:0,gpu:1", "--steps=12", "--batch-size=16", "--log-every=3",
             f"--communication={how}"]
    out, _ = end(start(on_cpu, data, *flags, DTRAIN_FAKE_KERNEL_US="20,20000"))
    assert re.search(r"replica 1 is slow: .*; --batch-split=speed", out)
    out, _ = end(start(on_cpu, data, *flags, "--batch-split=speed", DTRAIN_FAKE_KERNEL_US="20,20000"))
    [(fast, slow)] = re.findall(r"shares of the 32 samples .*: (\d+), (\d+)", out)
    assert int(fast) + int(slow) == 32 and int(slow) < 13


def test_hierarchical_copy_goes_from_gpu_to_gpu_where_they_reach_each_other(on_cpu, data):
    flags = ["--devices=gpu:0,gpu:1,gpu:2", "--cross-device-ops=hierarchical-copy", "--steps=6",
             "--batch-size=8"]
    by_peers, _ = end(start(on_cpu, data, *flags, DTRAIN_FAKE_GPUS="3"))
    assert "3 replicas, hierarchical copy from GPU to GPU" in by_peers
    by_host, _ = end(start(on_cpu, data, *flags, DTRAIN_FAKE_GPUS="3", DTRAIN_FAKE_PEERS="0"))
    assert ("3 replicas, hierarchical copy; gpu:0 cannot read the memory of gpu:1; "
            "copied to and from the device") in by_host
    assert held_out(by_peers) == held_out(by_host)


def test_a_timeline_of_a_gpu_shows_when_it_computes_and_waits(on_cpu, data, tmp_path):
    path = tmp_path / "trace.json"
    end(start(on_cpu, data, "--devices=gpu:0,gpu:1", "--steps=6", "--batch-size=8",
              "--communication=ring", f"--timeline={path}", DTRAIN_FAKE_KERNEL_US="20,4000"))
    spans = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]

    def seconds(rank, name):
        found = [e["dur"] / 1e6 for e in spans if (e["pid"], e["name"]) == (rank, name)]
        assert len(found) >= 6
        return sum(found)
    assert seconds(1, "forward and backward") > 1.5 * seconds(0, "forward and backward")
    assert seconds(0, "wait") > seconds(1, "wait")


@pytest.mark.parametrize("how", ["auto", "ring"])
def test_every_zero_stage_learns_on_gpus_what_stage_0_learns(on_cpu, data, tmp_path, how):
    def run(steps, stage, *flags):
        name = "".join([str(stage), *flags]).replace("/", "_")
        ranks = start_ranks(on_cpu, data, "--device=cuda", f"--steps={steps}", "--batch-size=16",
                            f"--communication={how}", f"--zero-stage={stage}", *flags,
                            f"--checkpoint-dir={tmp_path / name}", "--resume",
                            "--lr-schedule=constant", DTRAIN_FAKE_PAGE="4096")
        return held_out([end(rank)[0] for rank in ranks][0])
    expected = run(6, 0)
    on_host, in_file = "--offload-param=cpu", f"--offload-param={tmp_path}"
    for which in ([1], [2], [3], [3, on_host], [3, on_host, "--offload-optimizer=cpu"],
                  [2, f"--offload-optimizer={tmp_path}"],
                  [3, on_host, f"--offload-optimizer={tmp_path}"], [3, in_file],
                  [3, in_file, "--offload-optimizer=cpu"],
                  [3, in_file, f"--offload-optimizer={tmp_path}"]):
        run(3, *which)
        assert run(6, *which) == expected


def test_one_gpu_learns_with_its_parameters_elsewhere_what_it_learns_without(on_cpu, data, tmp_path):
    def run(name, steps, *flags):
        out, _ = end(start(on_cpu, data, "--device=cuda", f"--steps={steps}", "--batch-size=16",
                           "--clip-norm=1", f"--checkpoint-dir={tmp_path / name}", "--resume",
                           "--lr-schedule=constant", *flags, DTRAIN_FAKE_PAGE="4096"))
        path, = (tmp_path / name).glob(f"step-*{steps}.safetensors")
        return out, (held_out(out), path.read_bytes())
    _, expected = run("whole", 6)
    on_host, in_file = "--offload-param=cpu", f"--offload-param={tmp_path}"
    for flags in ([on_host], [on_host, f"--offload-optimizer={tmp_path}"], [in_file],
                  [in_file, f"--offload-optimizer={tmp_path}"]):
        name = "".join(flags).replace("/", "_")
        run(name, 3, "--zero-stage=3", *flags)
        out, found = run(name, 6, "--zero-stage=3", *flags)
        place = f"in {tmp_path}" if in_file in flags else "in the host's memory"
        assert f", ZeRO stage 3, parameters {place}" in out
        assert found == expected


def test_the_memory_of_a_gpu_is_planned_by_stage(on_cpu, home):
    tokens = text_data.write(home)

    def plan(**variables):
        out, _ = end(trainer_process.start(
            on_cpu, tokens, "--model=bert", "--layers=6", "--hidden=128", "--heads=2", "--ff=512",
            "--max-length=32", "--batch-size=1", "--device=cuda", "--plan-memory", "--plan=4",
            **variables))
        assert "MB that each of 4 ranks takes of its GPU's memory" in out
        return out, {int(stage): float(most) for stage, most in
                     re.findall(r"^(\d) .* ([\d.]+)(?: \(\d\))?$", out, re.M)}
    _, most = plan(DTRAIN_FAKE_PAGE="4096")
    assert most[0] > most[1] > most[2] > most[3]
    out, most = plan(DTRAIN_FAKE_PAGE="0")
    assert "stages 2 and 3 free nothing, as the driver cannot unmap memory" in out
    assert most[1] == most[2] == most[3]


def test_two_workers_of_two_gpus_each_are_one_communicator_of_nccls(on_cpu, data):
    flags = ["--devices=gpu:0,gpu:1", "--steps=6", "--batch-size=8", "--communication=nccl"]
    outs = [end(rank)[0] for rank in start_ranks(on_cpu, data, *flags, DTRAIN_FAKE_GPUS="2")]
    assert "NCCL 2.30.7, 4 ranks" in outs[0]
    alone, _ = end(start(on_cpu, data, "--device=cpu", "--steps=6", "--batch-size=32"))
    assert held_out(outs[0]) == pytest.approx(held_out(alone), abs=2e-3)


@pytest.mark.parametrize("each, said", [
    (({}, {"DTRAIN_FAKE_NCCL": "22809"}), "rank 0 .* has NCCL 2.30.7, rank 1 .* has 2.28.9"),
    (({}, {"DTRAIN_FAKE_NCCL": "0"}), "rank 1 .* has none"),
    (({"DTRAIN_FAKE_NCCL": "22808"},) * 2, "rank 0 .* has NCCL 2.28.8, and 2.28.9 or later is needed"),
    (({"DTRAIN_FAKE_UUID": "one"},) * 2, "rank 0 .* and rank 1 .* are on one GPU"),
    (({}, {"DTRAIN_TEST_FLAG": "--device=cpu"}), "1 of 2 workers compute on a GPU"),
], ids=("versions", "missing", "old", "one GPU", "one on a CPU"))
def test_where_nccl_cannot_be_it_is_said_and_the_ring_used_or_refused(on_cpu, data, each, said):
    each = [dict(own) for own in each]
    mixed = [own.pop("DTRAIN_TEST_FLAG", "--device=cuda") for own in each]
    for how, code in (("auto", 0), ("nccl", EXIT_USAGE)):
        if how == "nccl" and "--device=cpu" in mixed:
            continue  # Which is refused before they meet.
        port = str(held_ports(1)[0])
        ranks = [start(on_cpu, data, device, "--steps=2", "--batch-split=equal",
                       f"--communication={how}", RANK=str(rank), WORLD_SIZE="2",
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=port, DTRAIN_JOB_TOKEN="a" * 32,
                       CUDA_VISIBLE_DEVICES="5", DTRAIN_FAKE_GPUS="1", **own)
                 for rank, (device, own) in enumerate(zip(mixed, each))]
        if "--device=cpu" in mixed:
            code = EXIT_USAGE  # Their kernels round otherwise, which is said of both.
        outs, errs = zip(*(end(rank, code) for rank in ranks))
        if code == 0:
            assert re.search(f"shared memory, 2 ranks; not NCCL: {said}", outs[0])
        elif how == "nccl":
            assert all(re.search(f"--communication=nccl: {said}", err) for err in errs)
        else:
            assert all("the kind of device" in err for err in errs)


def test_gpus_of_unlike_models_are_not_mixed(on_cpu, data):
    ranks = start_ranks(on_cpu, data, "--device=cuda", "--steps=2",
                        each=({}, {"DTRAIN_FAKE_COMPUTE": "8"}))
    for rank in ranks:
        _, err = end(rank, EXIT_USAGE)
        assert "is cuda 8.0 and cuda 9.0" in err.splitlines()[-1]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=("killed", "stopped"))
def test_a_rank_that_is_lost_is_named_and_nccl_ended(on_cpu, data, how):
    ranks = start_ranks(on_cpu, data, "--device=cuda", "--steps=100000", "--log-every=1",
                        "--communication=nccl", "--peer-timeout=5")
    lost = ranks[1]
    while not ranks[0].stdout.readline().startswith("step "):
        assert ranks[0].poll() is None
    lost.send_signal(how)
    _, err = end(ranks[0], EXIT_ERROR)
    lost.kill()
    lost.communicate()
    assert re.search(rf"rank 1 \(.*pid {lost.pid}\)", err.splitlines()[-1])


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_a_worker_of_parameter_servers_computes_on_a_gpu(on_cpu, data, model):
    def run(device):
        ports = held_ports(2)
        cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
        tasks = [start(on_cpu, data, f"--device={device}", "--steps=6", "--batch-size=16",
                       f"--model={model}", DTRAIN_JOB_TOKEN="a" * 32,
                       TF_CONFIG=json.dumps({"cluster": cluster,
                                             "task": {"type": kind, "index": 0}}))
                 for kind in ("ps", "worker")]
        outs = [end(task)[0] for task in tasks]
        return held_out(outs[1])
    # Adam makes the least rounding of what is near zero part of a step.
    assert run("cuda") == pytest.approx(run("cpu"), abs=1e-2)


@pytest.mark.parametrize("flags, variables, said", [
    (["--devices=gpu:9"], {}, "--devices=gpu:9: there is no GPU 9 here, but 2, from 0 on"),
    (["--devices=gpu:1"], {"CUDA_VISIBLE_DEVICES": "0,GPU-none", "DTRAIN_FAKE_GPUS": "1"},
     "no GPU 1 here, but 1 of CUDA_VISIBLE_DEVICES=0,GPU-none, which CUDA reads up to the first"),
    (["--devices=gpu:0,cpu:0"], {}, "CPUs and GPUs in one process"),
    (["--device=cuda"], {"DTRAIN_FAKE_DRIVER": "0"}, "no NVIDIA driver"),
    (["--device=cuda", "--matmul-precision=high"], {},
     "--matmul-precision=high: TF32 needs a GPU of compute capability 8.0 or later, and cuBLASLt"),
    (["--device=cuda", "--matmul-precision=fp8", "--precision=bf16"], {},
     "--matmul-precision=fp8: FP8 needs a GPU of compute capability 8.9 or later, and cuBLASLt"),
    (["--device=cuda", "--matmul-precision=fp8", "--precision=bf16"],
     {"DTRAIN_FAKE_BLAS": "1", "DTRAIN_FAKE_COMPUTE": "8"},
     "--matmul-precision=fp8: FP8 needs a GPU of compute capability 8.9 or later, and cuBLASLt"),
    (["--device=cuda"], {"DTRAIN_FAKE_GPUS": "0"}, "no CUDA-capable device"),
    (["--communication=nccl"], {}, "--communication=nccl: NCCL needs GPUs"),
    (["--cross-device-ops=nccl"], {}, "--cross-device-ops=nccl: NCCL needs GPUs"),
    (["--devices=gpu:0,gpu:1", "--cross-device-ops=nccl"], {"DTRAIN_FAKE_NCCL": "0"},
     "--cross-device-ops=nccl: rank 0 has none (libnccl.so.2: none in this test); or use auto"),
], ids=str)
def test_what_a_gpu_cannot_do_is_one_line(on_cpu, data, flags, variables, said):
    _, err = end(start(on_cpu, data, *flags, **variables), EXIT_USAGE)
    assert said in err and err.count("\n") == 1


def test_a_fault_in_a_kernel_is_reported_under_its_name_where_each_is_waited_for(on_cpu, data):
    """Else by whoever waits next for the GPU, kernels later."""
    def fault(*flags, **variables):
        _, err = end(start(on_cpu, data, "--device=cuda", *flags, DTRAIN_FAKE_FAULT="40", **variables), EXIT_ERROR)
        return err.splitlines()[-1]
    named = r"CUDA: (begin|gather|matmul|score|weight_gradients|adam|squares|sum|prepare): an illegal memory access"
    assert re.search(named, fault("--cuda-launch-blocking"))
    assert re.search(named, fault(CUDA_LAUNCH_BLOCKING="1"))
    unnamed = fault()
    assert "illegal memory access" in unnamed and "--cuda-launch-blocking" in unnamed
    for error, said in ((214, "uncorrectable ECC error encountered; the GPU's memory is faulty: reset it"),
                        (46, "busy or unavailable; another process has the GPU to itself"),
                        (719, "unspecified launch failure; see dmesg for an Xid error of the GPU")):
        assert said in fault(DTRAIN_FAKE_ERROR=str(error))


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
    tests = subprocess.run([there / "run", "test", "-k", "parameter or ring"], env=fake,
                           cwd=tmp_path, capture_output=True, text=True)
    assert "2 passed" in tests.stdout, tests.stdout + tests.stderr
    shutil.rmtree(there / "bin")
    broken = subprocess.run([there / "run", "test", "-k", "parameter"], env=fake, cwd=tmp_path,
                            capture_output=True)
    assert broken.returncode == 1  # Its programs are the folder's own, and no other.
