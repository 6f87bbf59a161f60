"""All-reduce of float32 on one host, beside gloo's and Open MPI's, and its halves beside it."""
import os

from measure import HERE, Row, json_lines, on_path, peer_program, run

PEERS = HERE / "peers"
GRADIENT = 101_770 * 4  # the MLP's
SIZES = {1 << 10: "1 KiB", GRADIENT: "407 KB", 1 << 20: "1 MiB", 16 << 20: "16 MiB",
         64 << 20: "64 MiB"}
OURS = {  # "registered" is memory of the communicator's own, where the trainer keeps gradients
    "shared memory, registered": ["--transport=shared-memory", "--buffer=registered"],
    "shared memory": ["--transport=shared-memory", "--buffer=ordinary"],
    "TCP": ["--transport=tcp", "--buffer=ordinary"],
}
MPI_TRANSPORTS = {
    "its choice": [],
    "shared memory": ["--mca", "btl", "self,vader"],
    "TCP": ["--mca", "btl", "self,tcp"],
}


# Whose halves are measured: beside those above, what mpirun starts, and hosts of two ranks each.
HALVES = {**OURS,
          "two hosts, registered": ["--transport=auto", "--buffer=registered", "--hosts=2"]}
HALVES_SIZE = 16 << 20


def best_times(command):
    """Bytes -> seconds."""
    return {line["bytes"]: line["best"]
            for line in json_lines(run(command, env=dict(os.environ, OMP_NUM_THREADS="1")))}


def least(results):
    """The best of several {bytes: seconds}."""
    return {size: min(result[size] for result in results) for size in SIZES}


def targets(name, ranks):
    """How many times faster than gloo, and than Open MPI by the transports that a row of ours has."""
    if name == "TCP":
        return (1.5, 1) if ranks == 2 else (2, 1.5)
    return (3, 2 if name == "shared memory" and ranks == 2 else 1)


def half_rows(bench, ranks, mpirun):
    """reduce_scatter and all_gather take at most half the time of the all_reduce."""
    commands = {name: [bench.bin / "bench-allreduce", f"--ranks={ranks}", *flags]
                for name, flags in HALVES.items() if ranks > 2 or "hosts" not in name}
    if mpirun:
        commands["MPI"] = [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", ranks,
                           bench.bin / "bench-allreduce", "--transport=mpi", "--buffer=ordinary"]
    ops = ("all_reduce", "reduce_scatter", "all_gather")
    times = bench.interleaved({
        (name, op): lambda command=command, op=op: best_times(
            [*command, f"--op={op}", str(HALVES_SIZE)])
        for name, command in commands.items() for op in ops})
    best = {key: min(result[HALVES_SIZE] for result in results) * 1000
            for key, results in times.items()}
    return [Row(f"{op} {SIZES[HALVES_SIZE]}, {ranks} ranks, {name}", "ms", best[name, op],
                "its all_reduce", best[name, "all_reduce"], target=2)
            for name in commands for op in ops[1:]]


def rows(bench):
    torchrun = bench.find("gloo (./dev peers torch)", peer_program("torch", "torchrun"))
    mpirun = bench.find("mpirun (Open MPI)", on_path("mpirun"))
    sizes = [str(size) for size in SIZES]
    found = []
    for ranks in (2, 4):
        measurements = {
            name: lambda flags=flags: best_times(
                [bench.bin / "bench-allreduce", f"--ranks={ranks}", *flags, *sizes])
            for name, flags in OURS.items()}
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
            best["Open MPI held to TCP"] = best["Open MPI, TCP"]
        for name in OURS:
            for size, words in SIZES.items():
                held = "Open MPI held to TCP" if name == "TCP" else "Open MPI's best transport"
                for peer, target in zip(("gloo", held), targets(name, ranks)):
                    theirs = best[peer][size] * 1000 if peer in best else None
                    found.append(Row(f"all-reduce {words}, {ranks} ranks, {name}", "ms",
                                     best[name][size] * 1000, peer, theirs, target=target,
                                     peer_found=peer in best))
        found += half_rows(bench, ranks, mpirun)
    return found
