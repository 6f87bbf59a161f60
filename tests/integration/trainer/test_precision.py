"""Training in 16 bits: its losses, ranks that share, overflows, and going on from a checkpoint."""
import json
import re

import pytest

from checkpoint_files import last_of
from harness import EXIT_USAGE
from trainer_process import losses

OVERFLOW = re.compile(r"step (\d+): the gradient of (\S+) is no finite fp16 on (.*); it is skipped, "
                      r"loss scale (\S+) → (\S+)")
# A scale that the first gradients overflow, until it has been halved some times.
HIGH = ["--precision=fp16", "--initial-scale-power=26", "--hysteresis=1"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bits_learn_nearly_what_float32_learns(home, train, precision):
    def learn(name, *flags):
        path = home.folder / f"{name}.csv"
        out = train("--batch-size=16", "--steps=60", "--log-every=20", "--seed=1", f"--csv={path}",
                    *flags).out
        assert ("over float32" in out) == (name != "fp32")
        return losses(path)

    whole, half = learn("fp32"), learn(precision, f"--precision={precision}", "--loss-scale=64"
                                       if precision == "fp16" else "--clip-norm=1e9")
    assert half == pytest.approx(whole, rel=0.05) and half != whole
    assert half[60] < half[20]


def test_bert_learns_in_16_bits(bert):
    found = {precision: bert("--batch-size=16", "--steps=30", "--log-every=10",
                             f"--precision={precision}", name=precision)
             for precision in ("fp32", "bf16", "fp16")}
    for precision in ("bf16", "fp16"):
        assert found[precision] == pytest.approx(found["fp32"], rel=0.05)
        assert found[precision] != found["fp32"]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_tensorboard_shows_the_learning_rate_and_in_16_bits_the_loss_scale(home, train, precision):
    train("--steps=4", "--log-every=2", f"--precision={precision}", f"--logdir={home.folder}/logs")
    [events] = (home.folder / "logs").iterdir()
    tags = events.read_bytes()
    assert tags.count(b"train/learning_rate") == 2
    assert tags.count(b"train/loss_scale") == (2 if precision == "fp16" else 0)


@pytest.mark.parametrize("flags", [["--precision=bf16"], HIGH])
def test_ranks_that_share_have_the_bits_of_those_that_do_not(home, train, flags):
    def learned(stage):
        folder = home.folder / f"stage-{stage}"
        train("--batch-size=16", "--steps=40", "--clip-norm=1", f"--zero-stage={stage}", *flags,
              "--devices=cpu:0,cpu:1,cpu:2", f"--checkpoint-dir={folder}")
        return last_of(folder)

    whole = learned(0)
    assert (int(whole[0]["skipped"]) > 0) == (flags == HIGH)
    for stage in (1, 2, 3):
        assert learned(stage) == whole


def test_an_overflow_is_named_skipped_by_all_ranks_alike_and_halves_the_scale(home, data):
    folder = home.folder / "run"
    home.dtrain("submit", "--name=over", "--workers=2", "--wait", "--", f"--data={data}",
                "--batch-size=16", "--steps=40", *HIGH, f"--checkpoint-dir={folder}")
    lines = home.lines("over", "-i", "worker-0")
    found = [match.groups() for match in map(OVERFLOW.search, lines) if match]
    assert found and not any(OVERFLOW.search(line) for line in home.lines("over", "-i", "worker-1"))
    steps = [int(step) for step, *_ in found]
    assert steps[0] == 1 and steps == sorted(set(steps))
    for halvings, (_, tensor, rank, before, after) in enumerate(found):
        assert re.fullmatch(r"(hidden|output)\.(weight|bias)", tensor) and rank.startswith("rank ")
        # Six digits of it are printed.
        assert float(before) == pytest.approx(2.0 ** (26 - halvings), rel=1e-5)
        assert float(after) == pytest.approx(2.0 ** (25 - halvings), rel=1e-5)
    said = last_of(folder)[0]
    assert int(said["skipped"]) == len(found) < 40 and int(said["step"]) == 40
    assert float(said["loss_scale"]) == 2.0 ** (26 - len(found))


def test_a_run_goes_on_bit_for_bit_from_among_its_overflows(home, train):
    def run(folder, *flags):
        return train("--batch-size=16", *HIGH, "--loss-scale-window=5", "--lr-schedule=warmup",
                     f"--checkpoint-dir={home.folder / folder}", *flags).out

    run("whole", "--steps=30")
    assert OVERFLOW.search(run("parts", "--steps=3"))
    assert OVERFLOW.search(run("parts", "--steps=30", "--resume"))
    assert last_of(home.folder / "parts") == last_of(home.folder / "whole")


def test_bf16_that_is_not_checked_for_overflow_learns_the_same_and_ends_when_its_loss_is_no_number(home, train):
    def learned(name, *flags):
        folder = home.folder / name
        train("--precision=bf16", "--batch-size=16", "--steps=20", "--devices=cpu:0,cpu:1", *flags,
              f"--checkpoint-dir={folder}")
        return last_of(folder)[1]  # Tensors: the state of the loss scale counts what is checked.

    unchecked = "--no-check-grad-overflow"
    checked = learned("checked")
    assert learned("unchecked", unchecked) == learned("stage-2", unchecked, "--zero-stage=2") == checked
    wild = train("--precision=bf16", unchecked, "--learning-rate=1e37", expect=1).err
    assert "became NaN or infinite at step" in wild
    for flags in (["--clip-norm=1", "--precision=bf16"], ["--precision=fp16"]):
        error = train(unchecked, *flags, expect=EXIT_USAGE).err
        assert "needs --precision=bf16, and no --clip-norm" in error
    config = home.folder / "ds.json"
    config.write_text('{"bf16": {"enabled": true, "check_grad_overflow": false}, "gradient_clipping": 0}')
    train(f"--config={config}", "--steps=1")
    error = train(f"--config={config}", "--clip-norm=1", expect=EXIT_USAGE).err
    assert "(or bf16.check_grad_overflow false in --config) needs --precision=bf16" in error


def test_an_overflow_at_the_least_loss_scale_ends_the_run(train):
    error = train(*HIGH, f"--min-loss-scale={2 ** 26}", "--steps=5", expect=1).err
    assert re.search(r"step 1: the gradient of \S+ is no finite fp16 on .*, at the least loss scale, "
                     r"6.71089e\+07; try --precision=bf16", error)


def test_deepspeeds_configuration_says_the_precision(home, train):
    def run(expect=0, **config):
        path = home.folder / "ds.json"
        path.write_text(json.dumps(config))
        return train(f"--config={path}", "--steps=12", expect=expect)

    fp16 = {"enabled": True, "initial_scale_power": 26, "hysteresis": 1, "loss_scale_window": 500}
    result = run(fp16=fp16)
    assert "fp16 over float32" in result.out and OVERFLOW.search(result.out)
    assert "has no effect" not in result.err
    assert "bf16 over float32" in run(bf16={"enabled": True}).out
    assert "over float32" not in run(fp16={**fp16, "enabled": False}).out
    assert "enables both bf16 and fp16" in run(fp16=fp16, bf16={"enabled": True}, expect=EXIT_USAGE).err
    assert "did you mean fp16.hysteresis?" in run(fp16={"hysteresys": 1}, expect=EXIT_USAGE).err
    assert "a whole number from 0 to 120" in run(fp16={"initial_scale_power": 3.5},
                                                 expect=EXIT_USAGE).err


@pytest.mark.parametrize("how, needs", [("high", "TF32 needs a GPU of compute capability 8.0"),
                                        ("fp8", "FP8 needs a GPU of compute capability 8.9")])
def test_tf32_and_fp8_are_refused_on_a_cpu(train, how, needs):
    for flags in ([], ["--benchmark=0.1"]):
        error = train(f"--matmul-precision={how}", "--precision=bf16", "--device=cpu", *flags,
                      expect=EXIT_USAGE).err
        assert f"--matmul-precision={how}: {needs} or later, and cuBLASLt; drop it for cpu" in error


@pytest.mark.parametrize("flags", [[], ["--precision=fp16"]])
def test_fp8_goes_with_bf16_alone(train, flags):
    error = train("--matmul-precision=fp8", *flags, expect=EXIT_USAGE).err
    assert "--matmul-precision=fp8 needs --precision=bf16" in error


def test_a_loss_scale_without_fp16_is_refused(train):
    assert "need --precision=fp16" in train("--loss-scale=8", expect=EXIT_USAGE).err
