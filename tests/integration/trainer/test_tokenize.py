"""`dtrain-trainer tokenize`: what it makes of texts, and what it says of those it can't take."""
import json
import os
import re

import pexpect
import pytest

from harness import EXIT_USAGE

WORDS = "the quick brown fox jumps over the lazy dog and the dog sleeps".split()


@pytest.fixture
def text(home):
    path = home.folder / "text.txt"
    path.write_text("".join(" ".join(WORDS[i % 7:]) + "\n" for i in range(300)))
    return path


@pytest.fixture
def tokenize(home):
    def run(*arguments, **options):
        return home.trainer("tokenize", *arguments, **options)
    return run


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_a_text_becomes_a_vocabulary_and_packed_rows_of_which_some_are_held_out(home, text, tokenize):
    folder = home.folder / "tokens"
    out = tokenize(text, "-o", folder, "--vocabulary-size=60", "--length=32", "--held-out=10").out
    vocabulary = (folder / "vocab.txt").read_text().split("\n")[:-1]
    assert vocabulary[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(vocabulary) <= 60
    made = manifest(folder)
    rows = {half: sum(shard["rows"] for shard in made[half]) for half in ("train", "held-out")}
    assert f"{sum(rows.values())} of 32, packed; {rows['held-out']} of them held out" in out
    assert rows["held-out"] == sum(rows.values()) // 10
    tokens = int(re.search(r"tokens +([\d,]+) in", out).group(1).replace(",", ""))
    assert sum(rows.values()) == -(-tokens // 30)  # all but [CLS] and [SEP] of a row
    shard = (folder / "train-00000.tokens").read_bytes()
    assert shard[:8] == b"dttokens" and len(shard) == 64 + rows["train"] * 32 * 2


def test_lines_get_padded_rows_of_their_own_and_long_ones_several(home, tokenize):
    path = home.folder / "lines.txt"
    path.write_text("a b\n\n" + "c " * 20 + "\nd")
    folder = home.folder / "tokens"
    tokenize(path, "-o", folder, "--vocabulary-size=16", "--length=8", "--lines", "--held-out=0")
    vocabulary = (folder / "vocab.txt").read_text().split("\n")
    shard = memoryview((folder / "train-00000.tokens").read_bytes())[64:].cast("H")
    rows = [" ".join(vocabulary[token] for token in shard[i:i + 8]) for i in range(0, len(shard), 8)]
    assert rows[0] == "[CLS] a b [SEP] [PAD] [PAD] [PAD] [PAD]"
    assert rows[1:4] == ["[CLS] c c c c c c [SEP]"] * 3
    assert rows[4:] == ["[CLS] c c [SEP] [PAD] [PAD] [PAD] [PAD]", "[CLS] d [SEP]" + " [PAD]" * 5]


def test_documents_follow_each_other_in_packed_rows_with_a_mark_between(home, tokenize):
    one, two = home.folder / "1.txt", home.folder / "2.txt"
    one.write_text("a b\nc\n\n\nd")
    two.write_text("a")
    folder = home.folder / "tokens"
    tokenize(one, two, "-o", folder, "--vocabulary-size=16", "--length=12", "--held-out=0")
    vocabulary = (folder / "vocab.txt").read_text().split("\n")
    shard = memoryview((folder / "train-00000.tokens").read_bytes())[64:].cast("H")
    assert " ".join(vocabulary[token] for token in shard) == (
        "[CLS] a b c [SEP] d [SEP] a [SEP] [PAD] [PAD] [PAD]")


def test_the_same_text_gives_the_same_bytes_also_through_a_pipe(home, text, tokenize):
    tokenize(text, "-o", home.folder / "a", "--vocabulary-size=100")
    tokenize("-", "-o", home.folder / "b", "--vocabulary-size=100", stdin=text.read_text())
    for name in os.listdir(home.folder / "a"):
        assert (home.folder / "a" / name).read_bytes() == (home.folder / "b" / name).read_bytes()


def test_a_vocabulary_that_is_there_is_taken_and_kept_beside_the_tokens(home, text, tokenize):
    tokenize(text, "-o", home.folder / "a", "--vocabulary-size=100", "--cased")
    out = tokenize(text, "-o", home.folder / "b", "--vocabulary", home.folder / "a").out
    assert "WordPiece" in out
    assert json.loads((home.folder / "b/tokenizer_config.json").read_text())["do_lower_case"] is False
    assert manifest(home.folder / "a") == manifest(home.folder / "b")


def test_tokens_that_are_cased_say_so_whatever_the_vocabulary_said(home, text, tokenize):
    tokenize(text, "-o", home.folder / "a", "--vocabulary-size=100")
    config = json.loads((home.folder / "a/tokenizer_config.json").read_text())
    assert config["do_lower_case"] is True
    for name, vocabulary in (("b", "a"), ("c", "a/vocab.txt")):
        tokenize(text, "-o", home.folder / name, "--vocabulary", home.folder / vocabulary, "--cased")
        made = json.loads((home.folder / name / "tokenizer_config.json").read_text())
        assert made == {**config, "do_lower_case": False}
        assert (home.folder / name / "vocab.txt").read_text() == (home.folder / "a/vocab.txt").read_text()
    (home.folder / "a/tokenizer_config.json").unlink()
    tokenize(text, "-o", home.folder / "d", "--vocabulary", home.folder / "a/vocab.txt", "--cased")
    assert json.loads((home.folder / "d/tokenizer_config.json").read_text())["do_lower_case"] is False


def whole(vocabulary, **normalizer):
    """tokenizer.json of BERT's, as `tokenizers` writes it."""
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, "content": token, "special": True}
                             for i, token in enumerate(vocabulary[:5])],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                           "strip_accents": None, "lowercase": True, **normalizer},
            "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None,
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100,
                      "vocab": {token: i for i, token in enumerate(vocabulary)}}}


def test_a_folder_with_tokenizer_json_alone_gives_the_tokens_of_the_older_files(home, text, tokenize):
    text.write_text(text.read_text().replace("fox", "Fox"))
    tokenize(text, "-o", home.folder / "a", "--vocabulary-size=100", "--cased")
    vocabulary = (home.folder / "a/vocab.txt").read_text().split("\n")[:-1]
    model = home.folder / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text(json.dumps(whole(vocabulary, lowercase=False)))
    for name, path in (("b", model), ("c", model / "tokenizer.json")):
        assert "WordPiece" in tokenize(text, "-o", home.folder / name, "--vocabulary", path).out
        assert manifest(home.folder / name) == manifest(home.folder / "a")
        rows = [(home.folder / made / "train-00000.tokens").read_bytes() for made in (name, "a")]
        assert rows[0] == rows[1]
    assert (home.folder / "b/tokenizer.json").read_text() == (model / "tokenizer.json").read_text()
    # Into a folder whose older vocabulary would be read first.
    tokenize(text, "-o", home.folder / "a", "--vocabulary", model)
    assert not (home.folder / "a/vocab.txt").exists()
    out = tokenize(text, "-o", home.folder / "d", "--vocabulary", home.folder / "a").out
    assert manifest(home.folder / "d") == manifest(home.folder / "b"), out


def test_a_vocabulary_that_is_made_anew_leaves_none_of_another_kind_beside_it(home, text, tokenize):
    folder = home.folder / "tokens"
    folder.mkdir()
    older = ("tokenizer.json", "vocab.json", "merges.txt")
    for name in older:
        (folder / name).write_text("{}")
    tokenize(text, "-o", folder, "--vocabulary-size=100")
    assert not [name for name in older if (folder / name).exists()]
    out = tokenize(text, "-o", home.folder / "b", "--vocabulary", folder).out
    assert "WordPiece" in out and manifest(home.folder / "b") == manifest(folder)


def test_cased_tokens_keep_the_tokens_that_were_added_to_the_vocabulary(home, text, tokenize):
    tokenize(text, "-o", home.folder / "a", "--vocabulary-size=100")
    vocabulary = (home.folder / "a/vocab.txt").read_text().split("\n")[:-1]
    model = home.folder / "model"
    model.mkdir()
    described = whole(vocabulary)
    described["added_tokens"].append({"id": len(vocabulary), "content": "Lazy Dog"})
    (model / "tokenizer.json").write_text(json.dumps(described))
    text.write_text("the Lazy Dog\n" * 50)
    tokenize(text, "-o", home.folder / "b", "--vocabulary", model, "--cased", "--lines", "--held-out=0")
    kept = json.loads((home.folder / "b/tokenizer.json").read_text())
    assert kept["normalizer"]["lowercase"] is False
    assert kept["added_tokens"] == described["added_tokens"]
    shard = memoryview((home.folder / "b/train-00000.tokens").read_bytes())[64:].cast("H")
    assert [(vocabulary + ["Lazy Dog"])[token] for token in shard[:4]] == ["[CLS]", "the", "Lazy Dog", "[SEP]"]


@pytest.mark.parametrize("content, said", [
    (b"", "text.txt: is empty; there is nothing to train on"),
    (b" \n\t\n", "text.txt: has no words"),
    (b"good\nbad \xff\n", "text.txt, line 2: the byte 0xff is not UTF-8; convert the text first"),
    (b"cut \xe4\xb8", "text.txt, line 1: the byte 0xe4 is not UTF-8"),
])
def test_a_text_that_cannot_be_trained_on_is_named_in_one_line(home, tokenize, content, said):
    path = home.folder / "text.txt"
    path.write_bytes(content)
    result = tokenize(path, "-o", home.folder / "tokens", expect=1)
    assert said in result.err and result.err.count("\n") == 1
    assert not (home.folder / "tokens/manifest.json").exists()


def test_a_vocabulary_without_a_mask_and_one_too_small_are_one_line_each(home, text, tokenize):
    (home.folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    said = tokenize(text, "-o", home.folder / "t", "--vocabulary", home.folder, expect=1).err
    assert "vocab.txt: has no [MASK] among its 5 tokens" in said and said.count("\n") == 1
    said = tokenize(text, "-o", home.folder / "t", "--vocabulary-size=16", expect=EXIT_USAGE).err
    assert "--vocabulary-size=16: must be at least" in said
    assert "TEXT" in tokenize(expect=EXIT_USAGE).err
    said = tokenize(home.folder / "none", "-o", home.folder / "t", expect=1).err
    assert "none: cannot read this text" in said


@pytest.mark.parametrize("flag", ["--vocabulary-size=50", "--min-frequency=50", "--vocabulary-type=bpe"])
def test_options_of_a_vocabulary_to_make_are_refused_beside_one_to_take(home, text, tokenize, flag):
    tokenize(text, "-o", home.folder / "a", "--vocabulary-size=100")
    said = tokenize(text, "-o", home.folder / "b", "--vocabulary", home.folder / "a", flag,
                    expect=EXIT_USAGE).err
    assert f"{flag.partition('=')[0]}: is for a vocabulary that is made" in said and said.count("\n") == 1


def test_a_byte_level_bpe_of_a_text_trains_a_gpt2_that_goes_on_with_it(home, text, tokenize):
    folder = home.folder / "tokens"
    tokenize(text, "-o", folder, "--vocabulary-size=100")
    out = tokenize(text, "-o", folder, "--vocabulary-type=bpe", "--vocabulary-size=280", "--length=16").out
    assert "280 tokens, byte-level BPE, made of" in out
    assert not (folder / "vocab.txt").exists()
    vocabulary = json.loads((folder / "vocab.json").read_text())
    merges = (folder / "merges.txt").read_text().split("\n")[:-1]
    assert list(vocabulary.values()) == list(range(280)) and vocabulary["<|endoftext|>"] == 0
    assert merges[0] == "#version: 0.2"
    assert [merge.replace(" ", "") for merge in merges[1:]] == list(vocabulary)[257:]
    set_of = manifest(folder)
    assert set_of["last"] == set_of["mask"] == 0
    tokens = list(vocabulary)
    row = memoryview((folder / "train-00000.tokens").read_bytes())[64:].cast("H")[:16]
    assert "".join(tokens[token] for token in row).startswith("theĠquickĠbrownĠ")
    again = tokenize(text, "-o", home.folder / "again", "--vocabulary", folder, "--length=16").out
    assert "byte-level BPE" in again and manifest(home.folder / "again") == set_of
    run = home.folder / "run"
    home.trainer(f"--data={folder}", "--model=gpt2", "--layers=1", "--hidden=16", "--heads=2", "--max-length=32",
                 "--batch-size=4", "--steps=2", f"--checkpoint-dir={run}")
    said = home.trainer("generate", f"--checkpoint={run}", "the quick Brown", "--tokens=2").out
    assert said.startswith("the quick Brown")


def test_a_byte_level_bpe_like_robertas_has_a_mask_to_fill_in(home, text, tokenize):
    folder = home.folder / "tokens"
    out = tokenize(text, "-o", folder, "--vocabulary-type=roberta", "--vocabulary-size=280", "--length=16").out
    assert "280 tokens, byte-level BPE, made of" in out
    tokens = list(json.loads((folder / "vocab.json").read_text()))
    assert tokens[:5] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    row = memoryview((folder / "train-00000.tokens").read_bytes())[64:].cast("H")[:16]
    words = [tokens[token] for token in row]
    assert words[0] == "<s>" and "".join(words[1:]).startswith("theĠquickĠbrown")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "RobertaTokenizer" and config["mask_token"] == "<mask>"
    run = home.folder / "run"
    home.trainer(f"--data={folder}", "--model=roberta", "--layers=1", "--hidden=16", "--heads=2", "--ff=16",
                 "--batch-size=4", "--steps=2", f"--checkpoint-dir={run}")
    assert home.trainer("fill", f"--checkpoint={run}", "the quick <mask>").out.count("\n1 ") == 5
    refused = tokenize(text, "-o", home.folder / "a", "--vocabulary-type=roberta", "--vocabulary-size=260",
                       expect=EXIT_USAGE).err
    assert "must be at least 261 with --vocabulary-type=roberta: the 256 bytes and <s>, <pad>" in refused


@pytest.mark.parametrize("flags, said", [
    (["--cased"], "--cased: is for WordPiece; a byte-level BPE always keeps capital letters and accents; drop it"),
    (["--vocabulary-size=256"], "--vocabulary-size=256: must be at least 257 with --vocabulary-type=bpe"),
])
def test_what_a_byte_level_bpe_cannot_be_is_refused_before_anything_is_written(home, text, tokenize, flags, said):
    err = tokenize(text, "-o", home.folder / "a", "--vocabulary-type=bpe", *flags, expect=EXIT_USAGE).err
    assert said in err and err.count("\n") == 1
    assert not (home.folder / "a").exists()


def test_blank_lines_make_no_byte_level_bpe(home, text, tokenize):
    text.write_text("\n\n")
    err = tokenize(text, "-o", home.folder / "a", "--vocabulary-type=bpe", expect=1).err
    assert "text.txt: has no words to make a vocabulary of" in err and err.count("\n") == 1
    assert not (home.folder / "a").exists()


def test_help_and_a_commands_name_show_that_commands_help(home):
    assert home.trainer("help", "tokenize").out == home.trainer("tokenize", "--help").out
    assert home.trainer("help").out == home.trainer("--help").out
    assert "'none'" in home.trainer("help", "none", expect=EXIT_USAGE).err


def test_progress_is_shown_on_a_terminal_and_nowhere_else(home, text, tokenize):
    words = [str(text), "-o", str(home.folder / "a"), "--vocabulary-size=100"]
    assert "%" not in tokenize(*words).err
    child = pexpect.spawn(home.trainer_path, ["tokenize", *words], env=home.env, encoding="utf-8",
                          timeout=60 * home.build.slowness)
    child.expect(r"\d+ %  KiB read \d+/\d+")
    child.expect(pexpect.EOF)
