"""The real trainer with --device=cuda: it loads the plug-in from beside itself, whose kernels run on
the CPU here (tests/cuda_on_cpu), over a runtime that has no GPU. `home.trainer` is the one in bin/,
beside which the real plug-in lies."""
import json
import re
import signal

import pytest

import text_data
import trainer_process
from cuda_trainer import start, start_ranks
from harness import held_ports
from trainer_process import end, held_out, served_envs

EXIT_ERROR = 1
EXIT_USAGE = 2


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


@pytest.mark.parametrize("flags", [["--device=cuda"], ["--devices=gpu:0,gpu:1"],
                                   ["--devices=gpu:0,gpu:1", "--zero-stage=2"]])
def test_an_overflow_on_gpus_is_skipped_and_its_tensor_named(on_cpu, data, flags):
    # Smaller products are not of fp16.
    out, _ = end(start(on_cpu, data, *flags, "--hidden=1024,512", "--steps=2", "--batch-size=96", "--precision=fp16",
                       "--initial-scale-power=26", "--hysteresis=1", DTRAIN_FAKE_BLAS="1"))
    found = re.findall(r"step (\d+): the gradient of (\S+) is no finite fp16; it is skipped, loss scale \S+ → ", out)
    assert found == [("1", "output.bias"), ("2", "output.bias")]


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
        tasks = [start(on_cpu, data, f"--device={device}", "--steps=6", "--batch-size=16",
                       f"--model={model}", **variables) for variables in served_envs(1)]
        outs = [end(task)[0] for task in tasks]
        return held_out(outs[1])
    # Adam makes the least rounding of what is near zero part of a step.
    assert run("cuda") == pytest.approx(run("cpu"), abs=1e-2)


def start_served(program, data, workers, *flags, **variables):
    """A server and its workers, each of which is shown a GPU of its own."""
    return [start(program, data, "--hidden=256,128", "--steps=6", "--batch-size=8", *flags,
                  CUDA_VISIBLE_DEVICES=str(max(0, task - 1)), DTRAIN_FAKE_GPUS="1", **own, **variables)
            for task, own in enumerate(served_envs(workers))]


def test_two_gpus_are_workers_of_a_server_however_they_share_and_however_late(on_cpu, data):
    def run(*flags, said="1 through shared memory", **variables):
        tasks = start_served(on_cpu, data, 2, *flags, **variables)
        outs = [end(task)[0] for task in tasks]
        assert said in outs[1]
        return held_out(outs[1])
    expected = run("--device=cuda")
    assert run("--device=cuda", "--transport=tcp", said="0 through shared memory") == expected
    assert run("--device=cuda", DTRAIN_FAKE_KERNEL_US="100", DTRAIN_FAKE_COPY_US="500") == expected
    assert run("--device=cuda", said="gpu:0 cannot pin memory that processes share",
               DTRAIN_FAKE_REGISTER="0") == expected
    assert expected == pytest.approx(run("--device=cpu"), abs=1e-2)
    run("--device=cuda", "--update=async", "--max-staleness=2")  # Whose updates are of no fixed order.


@pytest.mark.parametrize("flags, variables, said", [
    (["--devices=gpu:9"], {}, "--devices=gpu:9: there is no GPU 9 here, but 2, from 0 on"),
    (["--devices=gpu:1"], {"CUDA_VISIBLE_DEVICES": "0,GPU-none", "DTRAIN_FAKE_GPUS": "1"},
     "no GPU 1 here, but 1 of CUDA_VISIBLE_DEVICES=0,GPU-none, which CUDA reads up to the first"),
    (["--devices=gpu:0,cpu:0"], {}, "CPUs and GPUs in one process"),
    (["--device=cpu", "--devices=gpu:1"], {}, "--device=cpu and --devices=gpu:1 ask for both"),
    (["--device=cuda"], {"DTRAIN_FAKE_DRIVER": "0"}, "no NVIDIA driver"),
    (["--device=cuda", "--matmul-precision=high"], {},
     "--matmul-precision=high: TF32 needs a GPU of compute capability 8.0 or later, and cuBLASLt"),
    (["--device=cuda", "--matmul-precision=fp8", "--precision=bf16"], {},
     "--matmul-precision=fp8: FP8 needs a GPU of compute capability 8.9 or later, and cuBLASLt"),
    (["--device=cuda", "--matmul-precision=fp8", "--precision=bf16"],
     {"DTRAIN_FAKE_BLAS": "1", "DTRAIN_FAKE_COMPUTE": "8"},
     "--matmul-precision=fp8: FP8 needs a GPU of compute capability 8.9 or later, and cuBLASLt"),
    (["--device=gpu"], {"DTRAIN_FAKE_GPUS": "0", "CUDA_VISIBLE_DEVICES": ""},
     "--device=gpu: no CUDA-capable device is detected (CUDA_VISIBLE_DEVICES=); use --device=cpu"),
    (["--communication=nccl"], {}, "--communication=nccl: NCCL needs GPUs"),
    (["--cross-device-ops=nccl"], {}, "--cross-device-ops=nccl: NCCL needs GPUs"),
    (["--devices=gpu:0,gpu:1", "--cross-device-ops=nccl"], {"DTRAIN_FAKE_NCCL": "0"},
     "--cross-device-ops=nccl: rank 0 has none (libnccl.so.2: none in this test); or use auto"),
], ids=str)
def test_what_a_gpu_cannot_do_is_one_line(on_cpu, data, flags, variables, said):
    _, err = end(start(on_cpu, data, *flags, **variables), EXIT_USAGE)
    assert said in err and err.count("\n") == 1


def test_where_a_gpu_runs_out_of_memory_it_says_what_was_planned(on_cpu, data):
    flags = ["--device=cuda", "--hidden=4096,4096", "--batch-size=8"]
    plan, _ = end(start(on_cpu, data, *flags, "--plan-memory"))
    planned = float(re.search(r"^0 .* (\d+\.\d)", plan, re.MULTILINE).group(1)) * 1e6 / 2**30
    assert planned > 0.25  # GiB, which the fake GPU has.
    _, err = end(start(on_cpu, data, *flags), EXIT_ERROR)
    said = rf"gpu:0: no \d\.\d\d GiB more, .*; this rank is planned to take {planned:.2f}; lower --batch-size"
    assert re.search(said, err)


def test_a_fault_in_a_kernel_is_reported_under_its_name_where_each_is_waited_for(on_cpu, data):
    """Else by whoever waits next for the GPU, kernels later."""
    def fault(*flags, **variables):
        _, err = end(start(on_cpu, data, "--device=cuda", *flags, DTRAIN_FAKE_FAULT="40", **variables), EXIT_ERROR)
        return err.splitlines()[-1]
    named = (r"CUDA: gpu:0: (begin|gather|matmul|score|weight_gradients|adam|squares|sum|prepare): "
             "an illegal memory access")
    assert re.search(named, fault("--cuda-launch-blocking"))
    assert re.search(named, fault(CUDA_LAUNCH_BLOCKING="1"))
    unnamed = fault()
    assert "illegal memory access" in unnamed and "--cuda-launch-blocking" in unnamed
    assert re.search(r"CUDA: gpu:[01]: ", fault("--devices=gpu:0,gpu:1"))
    for error, said in ((214, "uncorrectable ECC error encountered; the GPU's memory is faulty: reset it"),
                        (46, "busy or unavailable; another process has the GPU to itself"),
                        (719, "unspecified launch failure; see dmesg for an Xid error of the GPU")):
        assert said in fault(DTRAIN_FAKE_ERROR=str(error))
