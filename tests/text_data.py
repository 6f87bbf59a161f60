"""A small text in tokens, and a BERT for it."""

BERT = ["--model=bert", "--layers=2", "--hidden=32", "--heads=2", "--ff=64", "--max-length=32",
        "--learning-rate=0.003"]
WORDS = "the quick brown fox jumps over the lazy dog and sleeps".split()


def write(home):
    """Rows of 32 tokens of a text whose words follow one another as its lines begin."""
    text = home.folder / "text.txt"
    text.write_text("".join(" ".join(WORDS[i % 7:]) + "\n" for i in range(900)))
    folder = home.folder / "tokens"
    home.trainer("tokenize", text, "-o", folder, "--vocabulary-size=60", "--length=32",
                 "--held-out=10")
    return folder
