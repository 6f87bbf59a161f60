"""Small texts in tokens, and a BERT for one of them."""
import json

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


# Of GPT-2's text, which goes round, so that each word says the next.
ROUND = "winter is cold and summer was warm but autumn leaves fell over quiet garden walls".split()


def byte_letters():
    """GPT-2's: a letter that shows for each byte."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, more = {byte: chr(byte) for byte in shown}, 256
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(more)
            more += 1
    return letters


def write_gpt2_vocabulary(folder):
    """Bytes, words with the space before them, and the end of a text."""
    folder.mkdir()
    letters = byte_letters()
    tokens, merges = [letters[byte] for byte in range(256)], []
    for word in ROUND:
        made = letters[ord(" ")]
        for letter in word:
            if made + letter not in tokens:
                merges.append(f"{made} {letter}")
                tokens.append(made + letter)
            made += letter
    tokens.append("<|endoftext|>")
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    return folder


def write_gpt2(home, vocabulary, length):
    """Rows of so many tokens of the text that goes round."""
    (home.folder / "text.txt").write_text(
        "".join(" " + ROUND[i % len(ROUND)] for i in range(3000)) + "\n\n a text of its own\n")
    home.trainer("tokenize", home.folder / "text.txt", "-o", home.folder / "tokens",
                 f"--vocabulary={vocabulary}", f"--length={length}", "--held-out=5")
    return home.folder / "tokens"
