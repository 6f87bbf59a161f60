"""DeepSpeed's configuration file, as the trainer takes it: --config."""
import json

import pytest

from harness import EXIT_USAGE

CONFIG = {"train_batch_size": 64, "gradient_accumulation_steps": 2,
          "optimizer": {"type": "AdamW", "params": {"lr": 0.002, "betas": [0.8, 0.9], "eps": 1e-7}},
          "scheduler": {"type": "WarmupDecayLR",
                        "params": {"warmup_num_steps": 3, "total_num_steps": 8,
                                   "warmup_max_lr": 0.004}},
          "gradient_clipping": 0.5, "wall_clock_breakdown": True,
          "fp16": {"enabled": False, "initial_scale_power": 12}}


@pytest.fixture
def config(home):
    def write(**changes):
        path = home.folder / "ds_config.json"
        path.write_text(json.dumps({**CONFIG, **changes}))
        return f"--config={path}"
    return write


def test_a_configuration_says_how_a_run_trains_and_where_its_batch_comes_from(home, train, config):
    result = train(config(), "--steps=8")
    assert "AdamW 0.004, warmup-decay" in result.out and "8 steps of 1 × 64 samples" in result.out
    assert ("a step has 64 samples (train_batch_size): 32 per pass and rank (inferred) × 2 passes "
            "(gradient_accumulation_steps) × 1 rank") in result.err
    assert "ds_config.json: has no effect here: wall_clock_breakdown\n" in result.err
    assert "fp16" not in result.err


def test_a_run_by_flags_is_the_run_by_the_configuration_that_says_the_same(home, train, config):
    by_file = train(config(), "--steps=8", "--log-every=1").out
    by_flags = train("--global-batch-size=64", "--accumulation-steps=2", "--optimizer=adamw",
                     "--learning-rate=0.004", "--beta1=0.8", "--beta2=0.9", "--epsilon=1e-7",
                     "--lr-schedule=warmup-decay", "--warmup-steps=3", "--clip-norm=0.5",
                     "--steps=8", "--log-every=1").out
    losses = [[line.split()[5] for line in out.splitlines() if line.startswith("step")]
              for out in (by_file, by_flags)]
    assert len(losses[0]) == 8 and losses[0] == losses[1]


def test_flags_go_before_the_configuration(home, train, config):
    result = train(config(), "--steps=2", "--optimizer=sgd", "--batch-size=16",
                   "--accumulation-steps=4")
    assert "SGD 0.004" in result.out
    assert "16 per pass and rank (--batch-size) × 4 passes (--accumulation-steps)" in result.err


@pytest.mark.parametrize("flags, counts", [([], 1), (["--precision=fp16"], 0)])
def test_a_loss_scale_acts_where_fp16_is_on_and_is_named_elsewhere(home, train, config, flags,
                                                                   counts):
    result = train(config(fp16={"loss_scale": 128}), "--steps=1", *flags)
    assert result.err.count("fp16.loss_scale") == counts


def test_only_the_first_rank_says_it(home, data, config):
    home.dtrain("submit", "--name=two", "--workers=2", "--wait", "--", f"--data={data}", config(),
                "--steps=2")
    for worker, count in (("worker-0", 1), ("worker-1", 0)):
        lines = home.lines("two", "-i", worker)
        assert sum("a step has 64 samples" in line and "× 2 ranks" in line
                   for line in lines) == count
        assert sum("has no effect" in line for line in lines) == count


@pytest.mark.parametrize("changes, flags, said", [
    ({"train_micro_batch_size_per_gpu": 8}, [],
     "train_batch_size=64: is not train_micro_batch_size_per_gpu=8 × gradient_accumulation_steps=2 × "
     "1 rank = 16; drop one of them"),
    ({}, ["--accumulation-steps=3"],
     "train_batch_size=64: is not a multiple of --accumulation-steps=3 × 1 rank"),
    ({"zero_optimisation": {"stage": 2}}, [],
     "DeepSpeed has no key zero_optimisation; did you mean zero_optimization?"),
    ({"zero_optimization.stage": 2}, [], 'did you mean {"zero_optimization":{"stage":2}}?'),
    ({"train_batch_size": "auto", "gradient_clipping": "auto"}, [],
     '"auto" is filled in only by Hugging Face\'s Trainer; give a value for, or remove: '
     "gradient_clipping, train_batch_size"),
])
def test_a_configuration_that_contradicts_itself_or_is_misspelt_is_one_line(home, train, config,
                                                                          changes, flags, said):
    result = train(config(**changes), "--steps=2", *flags, expect=EXIT_USAGE)
    assert said in result.err and result.err.count("\n") == 1
