"""BERT on tokens of a text: in every strategy, with ZeRO, resumed, and what is refused."""
import os
import subprocess

import pytest

from harness import EXIT_USAGE
from test_strategies import Job
from text_data import BERT as SHAPE
from trainer_process import losses

STEPS = ["--steps=30", "--log-every=10"]


def test_every_strategy_has_the_losses_of_one_process_dropout_and_masks_included(
        home, tokens, bert):
    alone = bert("--batch-size=16", *STEPS)
    assert alone[30] < alone[10] - 0.3
    for name, servers in (("workers", 0), ("served", 2)):
        job = Job(home, tokens, servers, 2, [*SHAPE, "--batch-size=8", *STEPS,
                                             f"--csv={home.folder / name}.csv"])
        try:
            job.wait()
        finally:
            job.end()
    found = {"accumulated": bert("--batch-size=4", "--accumulation-steps=4", *STEPS, name="four"),
             "mirrored": bert("--batch-size=8", "--devices=cpu:0,cpu:1", *STEPS, name="mirrored"),
             "multi-worker": losses(home.folder / "workers.csv"),
             "served": losses(home.folder / "served.csv")}
    for name, loss in found.items():
        assert loss == pytest.approx(alone, abs=2e-3), name


@pytest.mark.parametrize("model", ["bert", "gpt2"])
def test_every_stage_of_zero_and_what_lies_in_files_have_the_losses_of_stage_0(home, bert, model):
    files = [f"--offload-optimizer={home.folder}", f"--offload-param={home.folder}"]
    found = [bert(f"--model={model}", "--batch-size=8", "--devices=cpu:0,cpu:1", f"--zero-stage={stage}",
                  *offload, *STEPS, name=f"stage{stage}-{len(offload)}")
             for stage, offload in [*((stage, []) for stage in range(4)), (0, files[:1]), (2, files[:1]),
                                    (3, files)]]
    assert len(found[0]) == 3 and found[1:] == [found[0]] * 6


def test_a_run_that_is_resumed_goes_on_bit_for_bit(home, bert):
    flags = ["--batch-size=8", "--log-every=10", f"--checkpoint-dir={home.folder / 'saved'}"]
    whole = bert("--batch-size=8", *STEPS)
    bert(*flags, "--steps=20", name="first")
    assert bert(*flags, "--steps=30", "--resume", name="second") == {30: whole[30]}


def test_models_of_images_and_of_text_refuse_each_others_data(home, data, tokens):
    error = home.trainer(f"--data={tokens}", expect=EXIT_USAGE).err
    assert error == (f"dtrain-trainer: --model=mlp: trains on images, and {tokens} is text; use "
                     "--model=bert or gpt2\n")
    error = home.trainer(f"--data={data}", "--model=bert", expect=EXIT_USAGE).err
    assert error == ("dtrain-trainer: --model=bert: trains on text; give --data=DIR, a folder "
                     "that dtrain-trainer tokenize has written\n")
    error = home.trainer(f"--data={tokens}", "--layers=3", expect=EXIT_USAGE).err
    assert error == ("dtrain-trainer: --layers: only --model=bert, roberta and gpt2 have it, not "
                     "--model=mlp\n")
    error = home.trainer(f"--data={tokens}", "--model=bert", "--max-length=16",
                         expect=EXIT_USAGE).err
    assert error == "dtrain-trainer: --max-length=16: must be at least 32, the tokens of a row of the text\n"


def test_checkpointed_activations_take_less_memory_and_leave_the_losses_as_they_are(home, tokens):
    def learn(*flags):
        path = home.folder / f"{len(flags)}.csv"
        run = home.start([home.trainer_path, f"--data={tokens}", *SHAPE, "--layers=12", "--ff=256",
                          "--batch-size=192", "--steps=3", "--log-every=1", f"--csv={path}", *flags],
                         stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        assert run.returncode == 0
        return losses(path), usage.ru_maxrss

    (kept, most), (again, least) = learn(), learn("--checkpoint-activations")
    assert again == kept and len(kept) == 3
    assert least < 0.5 * most
