"""What saving every 10 steps costs a run of 10^8 parameters, on one core beside a free one."""
import csv
import pathlib
import sys

from measure import HERE, Row, own_home, run

sys.path.append(str(HERE.parent))
import idx_data  # noqa: E402

STEPS = 41  # The step after the fourth checkpoint is in.
FIRST = 6   # Those before it warm up.


def seconds(bench, *more):
    """Of the steps from FIRST on."""
    with own_home() as env:
        home = pathlib.Path(env["HOME"])
        idx_data.write(home / "data", train=64 * STEPS, test=64)
        run([bench.bin / "dtrain-trainer", f"--data={home}/data", "--hidden=9216,9216", "--batch-size=64",
             f"--steps={STEPS}", "--learning-rate=1e-5", "--log-every=1", f"--csv={home}/steps.csv",
             *(word.format(home=home) for word in more)], env=env)
        with open(home / "steps.csv", encoding="utf-8") as file:
            return sum(64 / float(line["samples_per_second"]) for line in csv.DictReader(file)
                       if int(line["step"]) >= FIRST)


def rows(bench):
    found = bench.interleaved({
        "without": lambda: seconds(bench),
        "every 10 steps": lambda: seconds(bench, "--checkpoint-dir={home}/run", "--checkpoint-every=10", "--keep=1")})
    stall = min(found["every 10 steps"]) / min(found["without"]) - 1
    return [Row("checkpoint every 10 steps, 92 million parameters, 1 core: time lost", "%", 100 * stall, target=1)]
