"""Training speed of the MLP 784-128-10 and of the small CNN, in samples/s, beside PyTorch's and
TensorFlow's."""
import os
import re

from measure import HERE, Row, json_lines, own_home, peer_program, run

PEERS = HERE / "peers"
WINDOW_SECONDS = 1  # as long as a peer's


def trainer_speed(bench, batch, workers=1, model="mlp", *more):
    """Samples/s of dtrain-trainer's best window, on synthetic images as the peers' are."""
    flags = [f"--benchmark={WINDOW_SECONDS}", f"--batch-size={batch}", f"--model={model}",
             *more]
    with own_home() as env:
        command = [bench.bin / "dtrain-trainer", *flags]
        if workers > 1:
            command = [bench.bin / "dtrain", "submit", f"--workers={workers}", "--wait", "--",
                       *flags]
        return float(re.search(r"best (\d+) samples/s", run(command, env=env)).group(1))


def peer_speed(bench, name, command):
    result = json_lines(run(command, env=dict(os.environ, OMP_NUM_THREADS="1")))[0]
    bench.flushes_denormals[name] = result["flushes_denormals"]
    return max(result["samples_per_second"])


def compare(bench, what, ours, peers):
    """Rows of `ours` against each of {name: (command or None, target)}."""
    measurements = {"dtrain": ours}
    measurements |= {name: lambda name=name, command=command: peer_speed(bench, name, command)
                     for name, (command, _) in peers.items() if command}
    speeds = bench.interleaved(measurements)
    return [Row(what, "samples/s", max(speeds["dtrain"]), name,
                max(speeds.get(name, [0])) or None, more_is_better=True, target=target,
                peer_found=bool(command))
            for name, (command, target) in peers.items()]


def rows(bench):
    torch = bench.find("PyTorch (./dev peers torch)", peer_program("torch", "python"))
    torchrun = peer_program("torch", "torchrun")
    tensorflow = bench.find("TensorFlow (./dev peers tensorflow)",
                            peer_program("tensorflow", "python"))

    def torch_at(batch, *flags):
        return [torch, PEERS / "train_torch.py", f"--batch={batch}", *flags] if torch else None

    def tensorflow_at(batch):
        return [tensorflow, PEERS / "mlp_tensorflow.py", f"--batch={batch}"] if tensorflow else None

    found = compare(bench, "MLP, 1 core, batch 64", lambda: trainer_speed(bench, 64), {
        "PyTorch eager, fused Adam": (torch_at(64, "--fused"), 3),
        "TensorFlow, steps_per_execution=100": (tensorflow_at(64), 1.6)})
    found += compare(bench, "MLP, 1 core, batch 1024", lambda: trainer_speed(bench, 1024), {
        "PyTorch eager, fused Adam": (torch_at(1024, "--fused"), 1.6)})
    ddp = torchrun and [torchrun, "--nproc-per-node=2", PEERS / "train_torch.py", "--batch=64",
                        "--fused"]
    found += compare(bench, "MLP, 2 workers, batch 64 each", lambda: trainer_speed(bench, 64, 2), {
        "PyTorch DDP, gloo": (ddp, 8)})
    found += compare(bench, "CNN, 1 core, batch 64", lambda: trainer_speed(bench, 64, model="cnn"), {
        "PyTorch eager, channels last, fused Adam": (torch_at(64, "--model=cnn", "--fused"), 2)})
    return found
