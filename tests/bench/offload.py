"""What a step takes where the optimizer's states, and parameters too, lie in files: of 10^8 parameters, as
checkpoint.py's run."""
from checkpoint import seconds
from measure import Row

ALL = ["--offload-optimizer={home}", "--offload-param={home}"]
SHARED = ["--devices=cpu:0,cpu:1", "--zero-stage=3"]


def rows(bench):
    found = {name: min(times) for name, times in bench.interleaved({
        "in memory": lambda: seconds(bench),
        "in files": lambda: seconds(bench, "--offload-optimizer={home}"),
        "all in files": lambda: seconds(bench, "--zero-stage=3", *ALL),
        "shared, in memory": lambda: seconds(bench, *SHARED),
        "shared, in files": lambda: seconds(bench, *SHARED, *ALL)}).items()}
    return [Row("92 million parameters, the optimizer's states in files: a step / one in memory", "×",
                found["in files"] / found["in memory"], target=1.5),
            Row("the same, parameters in files too", "×", found["all in files"] / found["in memory"], target=1.5),
            Row("the same of 2 ranks, ZeRO 3, parameters in files too", "×",
                found["shared, in files"] / found["shared, in memory"], target=1.5)]
