"""The trainer's tokenizers beside the real `tokenizers`. `./dev test peers` brings it."""
import json
import random
import subprocess
import unicodedata

import pytest

pytestmark = pytest.mark.peer

# Called with the lines to cut on standard input: makes the vocabulary that a tokenizer's options
# want, and prints the numbers that it gives.
REAL = r"""
import json, sys
from tokenizers import AddedToken, BertWordPieceTokenizer, ByteLevelBPETokenizer, Tokenizer
what, folder, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
lines = sys.stdin.buffer.read().decode().split("\n")[:-1]
if what == "wordpiece":
    tokenizer = BertWordPieceTokenizer(f"{folder}/vocab.txt", **options)
elif what == "train-wordpiece":
    size = options.pop("size", 3000)
    tokenizer = BertWordPieceTokenizer(**options)
    tokenizer.train_from_iterator(lines, vocab_size=size, show_progress=False)
    tokenizer.save_model(folder)
elif what == "train-gpt2":
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(lines, show_progress=False, special_tokens=["<|endoftext|>"], **options)
    tokenizer.save_model(folder)
elif what == "whole":
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.add_tokens([AddedToken(**token) for token in options["added"]])
    tokenizer.save(f"{folder}/tokenizer.json")
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
else:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(lines, show_progress=False, special_tokens=[*special, "<mask>"],
                                  **{"vocab_size": 3000, **options})
    tokenizer.save_model(folder)
    tokenizer = ByteLevelBPETokenizer(f"{folder}/vocab.json", f"{folder}/merges.txt")
    tokenizer.add_special_tokens([*special, AddedToken("<mask>", lstrip=True)])
if what.startswith("train"):
    tokenizer.save(f"{folder}/tokenizer.json")
for encoding in tokenizer.encode_batch(lines, add_special_tokens=False):
    print(*encoding.ids)
"""

TEXTS = ["The quick brown fox's jumps, over the LAZY dog - isn't it? We'll see: they've 1,234.5 of 'em!",
         "Ça a été très naïf: l'élève à l'œuvre, où Noël coûte 12 €.", "ÀÉÎÕÜ àéîõü ẞß ĲÐÞ İIiı ŁłĦħ",
         "Зарегистрируйтесь сейчас на Десятую Международную Ёлку, ещё раз!", "Ελλάδα: ΣΊΣΥΦΟΣ ὀδυσσεύς ᾲ ΐ",
         "我能吞下玻璃而不伤身体。𠀀𪜀𫝀 北京市海淀区", "東京タワーへ行きましょう。ﾊﾝｶｸ ガ が", "나는 유리를 먹을 수 있어요. 한글 각",
         "मुझे हिन्दी आती है। क्षत्रिय", "أنا قادر على أكل الزجاج، وَهٰذَا لَا يُؤْلِمُنِي ٢٠٢٤", "אני יכול לאכול זְכוּכִית",
         "Tiếng Việt: tôi ăn thủy tinh được; Thức ăn ở Huế", "ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ", "👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 a\u0308\u0323 \ufb01n\u200bal\u00adly\ufeff",
         "[MASK] un[MASK]ing [CLS][SEP] [PAD] [mask] [UNK", "a <mask> b  <mask>c <s></s> <pad><unk> <mask",
         "tabs\tand\x0bother\x0c \x1c spaces\u00a0here\u2003and\u3000there\x85\u2028end\r", "x" * 101 + " " + "y" * 100,
         "for (int i=0;i<10;++i){printf(\"%d\\n\",a[i]);} // C++ $x_y~`^|", "  two  spaces   three\t\tend  ", ""]


def is_settled(character):
    """Unicode has long had it, and as what it is now."""
    return unicodedata.category(character) == unicodedata.ucd_3_2_0.category(character)


def multilingual(seed, count):
    """Lines of real words and of random characters, the same for a seed."""
    chosen = random.Random(seed)
    letters = [c for c in range(1, 0x30000) if c != 0x0A and is_settled(chr(c)) and
               unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    blocks = [[c for c in letters if c < 0x80], [c for c in letters if c < 0x500],
              [c for c in letters if c < 0x3000], letters]
    words = " ".join(TEXTS).split(" ")
    lines = list(TEXTS)
    for _ in range(count):
        parts = []
        for _ in range(chosen.randrange(1, 12)):
            if chosen.random() < 0.5:
                parts.append(chosen.choice(words))
            else:
                block = chosen.choice(blocks)
                parts.append("".join(chr(chosen.choice(block)) for _ in range(chosen.randrange(1, 9))))
        lines.append(chosen.choice([" ", "", "  ", " "]).join(parts).replace("\n", " "))
    return lines


@pytest.fixture
def both(home, build, peer):
    """Numbers of the real library's and of dtrain's tokens, line by line."""
    def cut(what, folder, lines, options, words):
        text = "".join(line + "\n" for line in lines).encode()
        real = subprocess.run([f"{peer('tokenizers')}/bin/python", "-c", REAL, what, folder,
                               json.dumps(options)], input=text, capture_output=True, check=True)
        own = subprocess.run([f"{build.bin}/bench-tokens", "ids", folder, *words], input=text,
                             capture_output=True, check=True)
        return real.stdout.decode().splitlines(), own.stdout.decode().splitlines()
    return cut


CASES = {"uncased": ({}, []),
         "cased": ({"lowercase": False}, ["cased"]),
         "accents": ({"strip_accents": False}, ["keep-accents"]),
         "cased-no-accents": ({"lowercase": False, "strip_accents": True}, ["cased", "strip-accents"]),
         "not-cleaned": ({"clean_text": False}, ["dirty"]),
         "cjk-unsplit": ({"handle_chinese_chars": False}, ["whole-cjk"])}


@pytest.mark.parametrize("case", CASES)
def test_word_piece_cuts_text_of_many_scripts_as_tokenizers_does(home, both, case):
    options, words = CASES[case]
    lines = multilingual(seed=18, count=3000)
    real, own = both("train-wordpiece", home.folder, lines, options, words or ["as-it-is"])
    assert len(own) == len(lines)
    differing = [(line, a, b) for line, a, b in zip(lines, real, own) if a != b]
    assert not differing, f"{len(differing)} of {len(lines)}, as {differing[:3]}"


def test_word_piece_knows_every_character_that_tokenizers_does(home, both):
    characters = [chr(c) for c in range(1, 0x110000)
                  if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and c != 0x0A and
                  (c < 0x3400 or 0xA000 <= c < 0xAC00 or 0xF900 <= c < 0x11000 or c % 16 == 0)]
    tokens = dict.fromkeys(form for c in characters for form in (c, "##" + c)
                           if c.strip() == c and c.isprintable())
    (home.folder / "vocab.txt").write_text(
        "".join(token + "\n" for token in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *tokens]))
    lines = [f"a{c}b {c}" for c in characters]
    real, own = both("wordpiece", home.folder, lines, {}, ["as-it-is"])
    differing = {c for c, a, b in zip(characters, real, own) if a != b}
    # Its tables of marks and punctuation are of an older Unicode than utf8proc's.
    assert not [c for c in differing if is_settled(c)]
    assert len(characters) > 20_000 and len(differing) < len(characters) / 50


def test_byte_level_bpe_cuts_text_of_many_scripts_as_tokenizers_does(home, both):
    lines = multilingual(seed=19, count=3000)
    real, own = both("train-bpe", home.folder, lines, {}, [])
    assert len(own) == len(lines)
    differing = [(line, a, b) for line, a, b in zip(lines, real, own) if a != b]
    assert not differing, f"{len(differing)} of {len(lines)}, as {differing[:3]}"


# With each flag and without, in many scripts, some the start of others, some of white space.
ADDED = [dict(zip(("content", "single_word", "lstrip", "rstrip", "normalized", "special"), token)) for token in (
    ("New York", False, False, False, True, False), ("New", True, False, False, True, False),
    ("<x>", False, True, True, False, True), ("<x>y", True, False, False, False, False),
    ("\u00c9t\u00e9", False, False, False, True, False), ("\u00c9l", False, True, False, False, False),
    ("fox", True, True, False, True, False), ("dog", False, False, True, False, False),
    ("\u4eac", False, False, False, True, False), ("\u6771\u4eac", False, False, True, False, False),
    ("[MASKED]", False, False, False, True, True), ("'s", True, False, False, False, False),
    ("  ", False, False, False, False, False), ("-", True, True, True, False, False))]


@pytest.mark.parametrize("kind", ["train-wordpiece", "train-bpe"])
def test_added_tokens_are_found_as_tokenizers_finds_them(home, both, kind):
    chosen = random.Random(20)
    words = [token["content"] for token in ADDED] + ["NEW YORK", "new\tyork", "\u00e9t\u00e9", "FOX", "[masked]"]
    beside = [" ", "  ", "", "\t", "\u3000", "\u00a0", "a", "_", "2", "\u0301", "\u00e9", ".", "\u4e2d", "\u24d0", "\u200d"]
    lines = multilingual(seed=20, count=500)
    for _ in range(3000):
        parts = []
        for _ in range(chosen.randrange(1, 8)):
            parts += [chosen.choice(words), *chosen.choices(beside, k=chosen.randrange(3))]
        lines.append("".join(parts))
    both(kind, home.folder, lines, {}, [])
    for older in ("vocab.txt", "vocab.json", "merges.txt"):
        (home.folder / older).unlink(missing_ok=True)
    real, own = both("whole", home.folder, lines, {"added": ADDED}, [])
    assert len(own) == len(lines)
    differing = [(line, a, b) for line, a, b in zip(lines, real, own) if a != b]
    assert not differing, f"{len(differing)} of {len(lines)}, as {differing[:3]}"


@pytest.mark.parametrize("kind, what, size, least", [
    ("bpe", "train-gpt2", 3000, 2), ("bpe", "train-gpt2", 20000, 1), ("roberta", "train-bpe", 3000, 2)])
def test_a_byte_level_bpe_made_of_a_text_is_the_one_that_tokenizers_makes(home, both, kind, what, size, least):
    lines = multilingual(seed=21, count=3000)
    (home.folder / "text.txt").write_text("".join(line + "\n" for line in lines), newline="")
    own = home.folder / "own"
    home.trainer("tokenize", home.folder / "text.txt", "-o", own, f"--vocabulary-type={kind}", "--lines",
                 f"--vocabulary-size={size}", f"--min-frequency={least}")
    real, ids = both(what, home.folder, lines, {"vocab_size": size, "min_frequency": least}, [])
    assert real == ids
    for name in ("vocab.json", "merges.txt"):
        assert (own / name).read_text() == (home.folder / name).read_text()


def test_a_vocabulary_made_of_a_text_is_the_one_that_tokenizers_makes_but_for_ties(home, build, both):
    words = sorted({word for text in TEXTS for word in text.split()})
    lines = [" ".join([word] * (2 + 61 * i % 997)) for i, word in enumerate(words)]
    both("train-wordpiece", home.folder, lines, {"size": 600}, ["as-it-is"])
    real = set((home.folder / "vocab.txt").read_text().split("\n")[:-1])
    own = subprocess.run([f"{build.bin}/bench-tokens", "train", "600"], check=True,
                         input="".join(line + "\n" for line in lines).encode(), capture_output=True)
    tokens = own.stderr.decode().split("\n")[:-1]
    assert tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(tokens) == 600 == len(set(tokens)) == len(real)
    # Runs of the library's own differ in some, too: it numbers the ##x by chance, and ties go by that.
    assert len(real & set(tokens)) > 540
    theirs = both("wordpiece", home.folder, lines, {}, ["as-it-is"])[1]
    (home.folder / "vocab.txt").write_text("".join(token + "\n" for token in tokens))
    ours = both("wordpiece", home.folder, lines, {}, ["as-it-is"])[1]
    count, real_count = (sum(len(line.split()) for line in lines) for lines in (ours, theirs))
    assert abs(count - real_count) < real_count / 100
