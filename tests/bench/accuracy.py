"""Fashion-MNIST by three workers: how well, and how long after `submit`."""
import re
import time

from measure import Row, own_home, run


def rows(bench):
    with own_home() as env:
        env.pop("OMP_NUM_THREADS")
        start = time.perf_counter()
        output = run([bench.bin / "dtrain", "submit", "--workers=3", "--wait"], env=env)
        seconds = time.perf_counter() - start
    accuracy = float(re.findall(r"held-out accuracy ([\d.]+)", output)[-1])
    return [Row("Fashion-MNIST, 3 workers: held-out accuracy", "%", accuracy, more_is_better=True,
                target=88),
            Row("Fashion-MNIST, 3 workers: submit to the end", "s", seconds, target=15)]
