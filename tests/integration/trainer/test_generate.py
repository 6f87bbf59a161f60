"""GPT-2: its tokens, its training, and `dtrain-trainer generate`."""
import json

import pytest

import text_data
from harness import EXIT_USAGE

SHAPE = ["--model=gpt2", "--layers=2", "--hidden=64", "--heads=2", "--max-length=48", "--dropout=0",
         "--learning-rate=0.005", "--batch-size=16"]


@pytest.fixture
def vocabulary(home):
    return text_data.write_gpt2_vocabulary(home.folder / "gpt2")


@pytest.fixture
def tokens(home, vocabulary):
    return text_data.write_gpt2(home, vocabulary, length=24)


def test_what_a_run_has_learned_goes_on_with_a_text(home, tokens):
    out = home.trainer(f"--data={tokens}", *SHAPE, "--steps=300",
                       f"--checkpoint-dir={home.folder / 'run'}", f"--export={home.folder / 'model'}").out
    assert "held-out" in out and "tokens" in out and "masked" not in out
    config = json.loads((home.folder / "model/config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"] and config["n_inner"] == 256
    end = json.loads((tokens / "vocab.json").read_text())["<|endoftext|>"]
    assert config["bos_token_id"] == config["eos_token_id"] == end

    def generate(*flags, folder="run", expect=0):
        return home.trainer("generate", f"--checkpoint={home.folder / folder}", *flags, expect=expect)
    begun = " winter is cold and summer"
    went_on = begun + " was warm but autumn leaves fell\n"
    assert generate(begun, "--tokens=6").out == went_on
    assert generate(begun, "--tokens=6", folder="model").out == went_on
    drawn = generate(begun, "--temperature=2", "--top=30", "--seed=4").out
    assert drawn == generate(begun, "--temperature=2", "--top=30", "--seed=4").out
    assert drawn != generate(begun, "--temperature=2", "--top=30", "--seed=5").out
    out = home.trainer(f"--data={tokens}", "--model=gpt2", "--steps=1", "--learning-rate=1e-30",
                       f"--initial-weights={home.folder / 'model'}", f"--export={home.folder / 'again'}").out
    assert generate(begun, "--tokens=6", folder="again").out == went_on, out

    said = generate("winter " * 60, expect=EXIT_USAGE).err
    assert "the model can continue at most 47" in said and said.count("\n") == 1
    said = home.trainer("fill", f"--checkpoint={home.folder / 'run'}", "a <mask>", expect=EXIT_USAGE).err
    assert "is of a gpt2" in said and "dtrain-trainer generate" in said and said.count("\n") == 1
    said = generate(b" winter \xff is", expect=EXIT_USAGE).err
    assert "the text is not UTF-8" in said and said.count("\n") == 1
    assert "--temperature=-1" in generate("a", "--temperature=-1", expect=EXIT_USAGE).err


def test_a_model_beside_tokenizer_json_alone_goes_on_alike(home, tokens):
    run = home.folder / "run"
    home.trainer(f"--data={tokens}", *SHAPE, "--steps=2", f"--checkpoint-dir={run}")
    flags = ("generate", f"--checkpoint={run}", " winter is cold", "--tokens=4")
    before = home.trainer(*flags).out
    merges = (run / "merges.txt").read_text().splitlines()[1:]
    vocabulary = json.loads((run / "vocab.json").read_text())
    (run / "vocab.json").unlink()
    (run / "merges.txt").unlink()
    for form in (merges, [merge.split() for merge in merges]):
        (run / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                              "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocabulary,
                      "merges": form}}))
        assert home.trainer(*flags).out == before


def test_a_text_of_which_nothing_is_held_out_says_so(home, vocabulary):
    (home.folder / "few.txt").write_text(" winter is cold and summer was warm\n" * 9)
    home.trainer("tokenize", home.folder / "few.txt", "-o", home.folder / "few",
                 f"--vocabulary={vocabulary}", "--length=16")
    out = home.trainer(f"--data={home.folder / 'few'}", *SHAPE, "--steps=2").out
    assert "held-out accuracy: not measured, no tokens are held out" in out and "nan" not in out


def test_gpt2s_tokens_have_no_ends_of_rows_and_no_mask(home, tokens):
    set_of = json.loads((tokens / "manifest.json").read_text())
    end = set_of["last"]
    assert set_of["mask"] == set_of["first"] == end
    rows = (tokens / "train-00000.tokens").read_bytes()[64:]
    ids = [int.from_bytes(rows[i:i + 2], "little") for i in range(0, len(rows), 2)]
    assert ids[:24].count(end) == 0 and ids.count(end) < 40, "between texts, and behind the last"
    said = home.trainer(f"--data={tokens}", "--model=bert", "--steps=1", expect=None)
    assert said.code == 1 and "--model=gpt2" in said.err and said.err.count("\n") == 1
    said = home.trainer(f"--data={tokens}", "--model=gpt2", "--mask-prob=0.2", expect=EXIT_USAGE).err
    assert "--mask-prob" in said and said.count("\n") == 1


@pytest.mark.parametrize("flags", [["--zero-stage=3"], ["--precision=bf16"], ["--checkpoint-activations"]],
                         ids=lambda flags: flags[0])
def test_gpt2_trains_on_several_ranks(home, tokens, flags):
    out = home.dtrain("submit", "--name=gpt", "--workers=2", "--wait", "--", f"--data={tokens}", *SHAPE,
                      "--steps=120", *flags, seconds=120).out
    assert float(out.rpartition("held-out accuracy")[2].split("%")[0].split()[-1]) > 60, out
