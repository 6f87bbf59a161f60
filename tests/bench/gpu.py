"""Training speed of the MLP and of the CNN on a GPU, in samples/s, beside PyTorch's with CUDA graphs.
The trainer is that of build/cuda, which ./dev builds for it."""
import json
import os
import re

from measure import HERE, peer_program, run
from mlp import compare

FLAGS = ["--benchmark=1", "--device=cuda"]


def rows(bench):
    if not os.path.exists("/dev/nvidiactl"):
        raise SystemExit("bench gpu: no NVIDIA GPU on this machine")
    trainer = bench.bin.parents[1] / "cuda/bin/dtrain-trainer"
    torch = bench.find("PyTorch (./dev peers torch)", peer_program("torch", "python"))
    if torch and not json.loads(run([torch, "-c", "import torch, json; "
                                     "print(json.dumps(torch.cuda.is_available()))"])):
        torch = bench.find("PyTorch with CUDA", None)

    def ours(model, batch):
        words = [trainer, *FLAGS, f"--model={model}", f"--batch-size={batch}"]
        return float(re.search(r"best (\d+) samples/s", run(words)).group(1))

    found = []
    for model, batch, target in (("mlp", 64, 3), ("mlp", 1024, 1), ("cnn", 64, 1), ("cnn", 1024, 1)):
        peer = torch and [torch, HERE / "peers/train_torch.py", "--device=cuda", "--fused",
                          f"--model={model}", f"--batch={batch}"]
        found += compare(bench, f"{model.upper()}, 1 GPU, batch {batch}",
                         lambda model=model, batch=batch: ours(model, batch),
                         {"PyTorch, CUDA graph, fused Adam": (peer, target)})
    return found
