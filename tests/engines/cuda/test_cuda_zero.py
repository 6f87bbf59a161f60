"""What ZeRO's stages and offload do with GPUs, of the trainer of test_cuda.py, and the plan of their
memory."""
import re

import pytest

import text_data
import trainer_process
from cuda_trainer import start, start_ranks
from trainer_process import end, held_out


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
