"""Adam over 10^8 parameters: beside PyTorch's fused one, and beside what the memory streams."""
from measure import HERE, Row, json_lines, peer_program, run

PEER = HERE / "peers" / "adam_torch.py"


def rows(bench):
    python = bench.find("PyTorch (./dev peers torch)", peer_program("torch", "python"))
    found = []
    for threads in (1, 2):
        measured = {"dtrain": lambda threads=threads:
                    json_lines(run([bench.bin / "bench-adam", threads]))[0]}
        if python:
            measured["PyTorch"] = lambda threads=threads: json_lines(
                run([python, PEER, threads]))[0]
        results = bench.interleaved(measured)
        what = f"Adam, 10^8 parameters, {threads} core{'s' if threads > 1 else ''}"
        ours = min(one["milliseconds"] for one in results["dtrain"])
        theirs = min((one["milliseconds"] for one in results.get("PyTorch", [])), default=None)
        found.append(Row(what, "ms", ours, "PyTorch, fused", theirs, target=1,
                         peer_found=bool(python)))
        share = max(one["adam_gb_s"] / one["stream_gb_s"] for one in results["dtrain"])
        found.append(Row(f"{what}: its bandwidth / STREAM's", "×", share, more_is_better=True,
                         target=0.85))
    return found
