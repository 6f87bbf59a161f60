"""`dtrain-trainer fill`, and the folders in Hugging Face's form that it and training read and write."""
import json
import math
import os
import shutil
import signal
import struct

import pytest

from checkpoint_files import tensors
from harness import EXIT_USAGE, until
from trainer_process import end, start

# Three of these words before a blank say which one it is.
WORDS = "winter is cold and summer was warm but autumn leaves fell over quiet garden walls".split()
SHAPE = ["--model=bert", "--layers=2", "--hidden=64", "--heads=2", "--ff=64", "--max-length=32",
         "--dropout=0", "--learning-rate=0.005", "--batch-size=32"]


@pytest.fixture
def tokens(home):
    text = home.folder / "text.txt"
    text.write_text("".join(" ".join(WORDS[(i + j) % len(WORDS)] for j in range(10)) + "\n"
                            for i in range(600)))
    home.trainer("tokenize", text, "-o", home.folder / "tokens", "--vocabulary-size=200",
                 "--length=16", "--lines", "--held-out=5")
    return home.folder / "tokens"


@pytest.fixture
def fill(home):
    """Rows (blank, word, probability) of what it prints."""
    def run(folder, text, *flags, **options):
        result = home.trainer("fill", f"--checkpoint={folder}", text, *flags, **options)
        if options:
            return result
        rows = [line.split() for line in result.out.splitlines()]
        assert rows[0] == ["BLANK", "WORD", "PROBABILITY"]
        return [(int(blank), word, float(probability)) for blank, word, probability in rows[1:]]
    return run


def test_what_a_run_has_learned_fills_each_blank_of_a_text(home, tokens, fill):
    home.trainer(f"--data={tokens}", *SHAPE, "--layers=1", "--steps=1000",
                 f"--checkpoint-dir={home.folder / 'run'}", f"--export={home.folder / 'model'}")
    text = "winter is [MASK] and summer was warm [MASK] autumn leaves"
    found = fill(home.folder / "run", text, "--top=3")
    assert [blank for blank, _, _ in found] == [1, 1, 1, 2, 2, 2]
    assert [found[0][1], found[3][1]] == ["cold", "but"]
    assert found[0][2] > 0.5 and found[0][2] >= found[1][2] >= found[2][2]
    assert fill(home.folder / "model", text, "--top=3") == found
    # Alike from where another run ended.
    out = home.trainer(f"--data={tokens}", "--model=bert", f"--initial-weights={home.folder / 'model'}",
                       "--steps=1", "--learning-rate=1e-30", f"--export={home.folder / 'again'}").out
    assert "bert" in (home.folder / "again/config.json").read_text() and "loss" in out
    for name in ("config.json", "vocab.txt"):
        assert (home.folder / "model" / name).read_text() == (home.folder / "run" / name).read_text()
    assert fill(home.folder / "again", text, "--top=3") == found


def test_weights_are_exported_with_their_configuration_though_the_data_was_removed_meanwhile(home, tokens):
    csv = home.folder / "steps.csv"
    run = start(home.trainer_path, tokens, *SHAPE, "--steps=300", f"--csv={csv}",
                f"--export={home.folder / 'model'}")
    until(lambda: csv.exists() and len(csv.read_text().splitlines()) > 1, "a step",
          longest_pause=0.02)
    run.send_signal(signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(run.pid, os.WUNTRACED)[1])
    shutil.rmtree(tokens)
    run.send_signal(signal.SIGCONT)
    end(run)
    config = json.loads((home.folder / "model/config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"] and "pad_token_id" in config
    assert sorted(path.name for path in (home.folder / "model").iterdir()) == ["config.json",
                                                                             "model.safetensors"]


def test_what_cannot_be_filled_is_named_in_one_line(home, tokens, fill):
    run = home.folder / "run"
    home.trainer(f"--data={tokens}", *SHAPE, "--steps=1", f"--checkpoint-dir={run}")

    def said(text="a [MASK]", folder=run, expect=1, flags=()):
        error = fill(folder, text, *flags, expect=expect).err
        assert error.count("\n") == 1
        return error

    assert "the text has no [MASK]" in said("winter is cold", expect=EXIT_USAGE)
    assert "the text is not UTF-8" in said(b"winter \xff is [MASK]", expect=EXIT_USAGE)
    assert "the text is not UTF-8" in said(b"[MASK] \xe2\x82", expect=EXIT_USAGE)  # Cut off.
    assert "has 36 tokens, and the model reads at most 32" in said("[MASK] " * 34, expect=EXIT_USAGE)
    assert "config.json: there is none" in said(folder=tokens)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    assert "no tensor bert.encoder.layer.2." in said()
    (run / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    assert "has a tensor bert.encoder.layer.1." in said()
    (run / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    assert ".dense.weight has shape [64, 64] where the model's is [64, 48]" in said()
    (run / "config.json").write_text(json.dumps(config))
    (run / "vocab.txt").unlink()
    assert "vocab.txt" in said()


def test_weights_that_are_not_finite_are_named_instead_of_filling_a_blank(home, tokens, fill):
    model = home.folder / "model"
    home.trainer(f"--data={tokens}", *SHAPE, "--steps=1", f"--export={model}")
    weights = bytearray((model / "model.safetensors").read_bytes())
    header = int.from_bytes(weights[:8], "little")
    name = "bert.encoder.layer.1.output.dense.bias"
    at = 8 + header + json.loads(weights[8:8 + header])[name]["data_offsets"][0]
    weights[at:at + 4] = b"\x00\x00\xc0\x7f"
    (model / "model.safetensors").write_bytes(weights)
    result = fill(model, "a [MASK]", expect=1)
    assert f"model.safetensors: {name} holds what is no finite number" in result.err
    assert result.err.count("\n") == 1 and not result.out


def test_a_run_that_begins_with_weights_takes_their_shape_and_refuses_another(home, tokens):
    run = home.folder / "run"
    home.trainer(f"--data={tokens}", *SHAPE, "--steps=1", f"--checkpoint-dir={run}")
    weights = f"--initial-weights={run}"

    def said(*flags, expect):
        error = home.trainer(f"--data={tokens}", "--steps=1", *flags, expect=expect).err
        assert error.count("\n") == 1
        return error

    assert "are of a bert" in said("--model=roberta", weights, expect=EXIT_USAGE)
    assert "drop it" in said("--model=bert", "--preset=base", weights, expect=EXIT_USAGE)
    assert "has shape [64, 64]" in said("--model=bert", "--ff=48", weights, expect=1)
    assert "neither a whole checkpoint" in said("--model=bert", f"--initial-weights={tokens}", expect=1)


def pad_vocabulary(folder, rows):
    """Gives a model in Hugging Face's form rows of a quarter behind those of its tokens."""
    config = json.loads((folder / "config.json").read_text())
    raw = (folder / "model.safetensors").read_bytes()
    length, = struct.unpack_from("<Q", raw)
    header, body, padded, count = json.loads(raw[8:8 + length]), b"", {}, 0
    for name, entry in header.items():
        if name == "__metadata__":
            padded[name] = entry
            continue
        values, shape = raw[8 + length:][slice(*entry["data_offsets"])], entry["shape"]
        if shape[0] == config["vocab_size"]:
            values += struct.pack("<f", 0.25) * (rows * math.prod(shape[1:]))
            shape, count = [shape[0] + rows, *shape[1:]], count + 1
        padded[name] = {**entry, "shape": shape, "data_offsets": [len(body), len(body) + len(values)]}
        body += values
    assert count == 2  # Of the embedding and the decoder's bias.
    text = json.dumps(padded).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": config["vocab_size"] + rows}))


@pytest.mark.parametrize("flags", [[], ["--precision=bf16"]], ids=["fp32", "bf16"])
def test_rows_that_pad_a_vocabulary_are_kept_and_written_back(home, tokens, fill, flags):
    model, again = home.folder / "model", home.folder / "again"
    home.trainer(f"--data={tokens}", *SHAPE, "--steps=1", f"--export={model}")
    before = fill(model, "winter is [MASK]")
    pad_vocabulary(model, 5)
    assert fill(model, "winter is [MASK]") == before
    begin = [f"--data={tokens}", "--model=bert", f"--initial-weights={model}", "--steps=1", *flags]
    out = home.trainer(*begin, "--learning-rate=1e-30", f"--export={again}").out
    count = json.loads((model / "config.json").read_text())["vocab_size"]
    assert (f"has rows for {count} tokens, and the vocabulary has {count - 5}; the other 5 are kept, "
            "as padding\n") in out
    assert tensors(again / "model.safetensors") == tensors(model / "model.safetensors")
    assert json.loads((again / "config.json").read_text())["vocab_size"] == count
    assert fill(again, "winter is [MASK]") == before
    # But not where they are the words of another vocabulary than the text's.
    with open(model / "vocab.txt", "a") as vocabulary:
        vocabulary.write("spring\n")
    error = home.trainer(*begin, expect=1).err
    assert f"its vocabulary has {count - 4} tokens, and that of --data={tokens} has {count - 5}" in error
    assert error.count("\n") == 1


# Makes a random model beside a vocabulary, as Hugging Face saves it.
MAKE = """
import sys, torch
from transformers import (BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM)
folder, name, words = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(5)
shape = dict(vocab_size=words, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
             intermediate_size=64, initializer_range=0.3)
model = BertForMaskedLM(BertConfig(max_position_embeddings=32, **shape)) if name == "bert" else (
    RobertaForMaskedLM(RobertaConfig(max_position_embeddings=34, type_vocab_size=1, pad_token_id=1,
                                     layer_norm_eps=1e-5, **shape)))
with torch.no_grad():
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
model.save_pretrained(folder)
"""

# What Hugging Face's program makes of a folder and a row of tokens; and the bits of its tensors.
READ = """
import hashlib, json, sys, torch
from transformers import AutoModelForMaskedLM
folder, ids, mask, top = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
model.eval()
found = torch.softmax(model(input_ids=torch.tensor([ids])).logits[0], -1)
guesses = [[(int(i), float(found[at, i])) for i in found[at].topk(top).indices]
           for at, token in enumerate(ids) if token == mask]
digest = {name: hashlib.sha256(value.numpy().tobytes()).hexdigest()
          for name, value in model.state_dict().items()}
print(json.dumps([guesses, digest]))
"""


@pytest.mark.peer
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_folder_of_hugging_faces_is_read_and_written_as_its_own_program_does(
        home, tokens, fill, peer, name):
    python = peer("transformers") / "bin/python"
    where = {"TMPDIR": str(home.folder), "HOME": str(home.folder)}

    def run(script, *words):
        return home.run([python, "-c", script, *map(str, words)], seconds=300, env=where).out

    given, exported = home.folder / "given", home.folder / "exported"
    vocabulary = (tokens / "vocab.txt").read_text().split("\n")[:-1]
    run(MAKE, given, name, len(vocabulary))
    for file in ("vocab.txt", "tokenizer_config.json"):
        (given / file).write_text((tokens / file).read_text())
    text = "winter is [MASK] and summer [MASK]"
    ids = [vocabulary.index(word) for word in f"[CLS] {text} [SEP]".split()]
    mask = vocabulary.index("[MASK]")
    guesses, digest = json.loads(run(READ, given, json.dumps(ids), mask, 4).splitlines()[-1])
    expected = [(blank + 1, vocabulary[token], probability)
                for blank, row in enumerate(guesses) for token, probability in row]
    found = fill(given, text, "--top=4")
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected], abs=1e-3)
    # A step so small that it changes no bit.
    home.trainer(f"--data={tokens}", f"--model={name}", f"--initial-weights={given}", "--steps=1",
                 "--learning-rate=1e-30", f"--export={exported}")
    assert json.loads(run(READ, exported, json.dumps(ids), mask, 4).splitlines()[-1]) == [guesses, digest]
