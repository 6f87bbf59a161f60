"""All-reduce of float32 on one host, beside gloo's and Open MPI's."""
import os

from measure import HERE, Row, json_lines, on_path, own_home, peer_program, run

PEERS = HERE / "peers"
GRADIENT = 101_770 * 4  # the MLP's
SIZES = {1 << 10: "1 KiB", GRADIENT: "407 KB", 1 << 20: "1 MiB", 16 << 20: "16 MiB",
         64 << 20: "64 MiB"}
MPI_TRANSPORTS = {
    "its choice": [],
    "shared memory": ["--mca", "btl", "self,vader"],
    "TCP": ["--mca", "btl", "self,tcp"],
}


def best_times(command, env=None):
    """Bytes -> seconds."""
    return {line["bytes"]: line["best"]
            for line in json_lines(run(command, env=env or dict(os.environ, OMP_NUM_THREADS="1")))}


def least(results):
    """The best of several {bytes: seconds}."""
    return {size: min(result[size] for result in results) for size in SIZES}


def target_over_gloo(ranks, size):
    if ranks == 4:
        return 3
    return 3 if size <= 1 << 20 else 2


def rows(bench):
    torchrun = bench.find("gloo (./dev peers torch)", peer_program("torch", "torchrun"))
    mpirun = bench.find("mpirun (Open MPI)", on_path("mpirun"))
    sizes = [str(size) for size in SIZES]
    found = []
    for ranks in (2, 4):
        with own_home() as env:
            measurements = {
                transport: lambda transport=transport: best_times(
                    [bench.bin / "dtrain", "submit", f"--workers={ranks}", "--wait", "--",
                     bench.bin / "bench-allreduce", f"--transport={transport}", *sizes], env)
                for transport in ("shared-memory", "tcp")}
            if torchrun:
                measurements["gloo"] = lambda: best_times(
                    [torchrun, f"--nproc-per-node={ranks}", PEERS / "allreduce_gloo.py", *sizes])
            if mpirun:
                for name, flags in MPI_TRANSPORTS.items():
                    measurements[f"Open MPI, {name}"] = lambda flags=flags: best_times(
                        [mpirun, "--allow-run-as-root", "--oversubscribe", *flags, "-np", ranks,
                         PEERS / "allreduce_mpi.py", *sizes])
            times = bench.interleaved(measurements)
        best = {name: least(results) for name, results in times.items()}
        mpi = [best[name] for name in best if name.startswith("Open MPI")]
        if mpi:
            best["Open MPI's best transport"] = least(mpi)
        for ours, label in (("shared-memory", "shared memory"), ("tcp", "TCP")):
            for size, words in SIZES.items():
                for peer, target in (
                        ("gloo", target_over_gloo(ranks, size) if ours != "tcp" else 1.5),
                        ("Open MPI's best transport", 1)):
                    theirs = best[peer][size] * 1000 if peer in best else None
                    found.append(Row(f"all-reduce {words}, {ranks} ranks, {label}", "ms",
                                     best[ours][size] * 1000, peer, theirs, target=target,
                                     peer_found=peer in best))
    return found
