"""On a GPU: how fast memory is moved and matrices are multiplied, beside PyTorch's; training speed of the
MLP and of the CNN, in samples/s, beside PyTorch's with CUDA graphs; of BERT and GPT-2 in tokens/s, in FP8
beside bf16 too where the GPU has it.
The trainer is that of build/cuda, which ./dev builds for it, or of a bundle."""
import re
import shutil
import subprocess
import sys
import tempfile

import bert
import gpt2
from measure import HERE, Row, json_lines, peer_program, run
from mlp import compare

FLAGS = ["--benchmark=1", "--device=cuda"]


def torch_python():
    """A Python whose PyTorch sees the GPU: that of ./dev peers torch, or the machine's own; or None."""
    sees = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    found = (peer_program("torch", "python"), sys.executable, shutil.which("python3"))
    return next((python for python in found if python and
                 subprocess.run([python, "-c", sees], capture_output=True).returncode == 0), None)


def machine():
    """The first card and the versions beside it, for the heading of what is recorded."""
    words = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card = run(words).splitlines()[0] if shutil.which(words[0]) else "no nvidia-smi, "
    name, driver = card.split(", ")
    python = torch_python()
    torch = python and run([python, "-c", "import torch; print(torch.__version__)"]).strip()
    return f"{name}, driver {driver}" + (f", PyTorch {torch}" if torch else "")


def large_rows(bench, trainer, torch):
    """BERT-large in bf16 beside PyTorch's, and the share that it makes of the dense peak of an H100's or
    H200's data sheet."""
    peak = 989.4e3  # GFLOP/s
    ours = [trainer, *bert.LARGE, *FLAGS, "--precision=bf16"]
    peer = torch and [torch, bert.PEER, "--device=cuda", "--large", "--bf16", "--batch=32", "--seconds=1"]
    name = "BERT-large in bf16, 32 × 512, 1 GPU"
    yield from bert.compare(bench, name, ours, {
        "PyTorch eager, bf16 autocast": (peer, 1.2),
        "PyTorch compiled, bf16 autocast": (peer and [*peer, "--compile"], 1.2)})
    yield Row(f"{name}: model FLOPs / 989 TFLOP/s", "%", 100 * bert.gflops_of(*ours) / peak, more_is_better=True,
              target=57)


def fp8_rows(bench, trainer):
    """Of the same trainer in FP8 and in bf16, where the GPU has both."""
    bf16 = [*FLAGS, "--precision=bf16"]
    fp8 = [*bf16, "--matmul-precision=fp8"]
    if subprocess.run([trainer, "--model=mlp", *fp8], capture_output=True).returncode != 0:
        return
    for what, flags in (("GPT-2 124M, 8 × 1024", gpt2.TRAINER), ("BERT-large, 32 × 512", bert.LARGE)):
        speeds = bench.interleaved({how: lambda command=(trainer, *flags, *more): bert.speed_of(*command)
                                    for how, more in (("bf16", bf16), ("FP8", fp8))})
        yield Row(f"{what}, in FP8, 1 GPU", "tokens/s", max(speeds["FP8"]), "bf16", max(speeds["bf16"]),
                  more_is_better=True, target=1.2)


def offload_rows(bench, trainer):
    """What a step of the same trainer takes with some of its state elsewhere, against one without."""
    with tempfile.TemporaryDirectory() as folder:
        on_host = ["--offload-optimizer=cpu"]
        places = {"the optimizer's states on the host": on_host,
                  "the same, updated beside backward": [*on_host, "--no-check-grad-overflow"],
                  "parameters too": [*on_host, "--zero-stage=3", "--offload-param=cpu"],
                  "both in files": [f"--offload-optimizer={folder}", "--zero-stage=3",
                                    f"--offload-param={folder}"]}
        speeds = bench.interleaved({
            how: lambda flags=flags: bert.speed_of(trainer, *bert.LARGE, *FLAGS, "--precision=bf16", *flags)
            for how, flags in {"all on the GPU": [], **places}.items()})
    for how in places:
        yield Row(f"BERT-large, 32 × 512, bf16, {how}: a step / one with all on the GPU", "×",
                  max(speeds["all on the GPU"]) / max(speeds[how]), target=1.5)


def rows(bench):
    trainer = bench.bin / "dtrain-trainer"
    if not (bench.bin / "libdtrain_cuda.so").exists():
        trainer = bench.bin.parents[1] / "cuda/bin/dtrain-trainer"
    torch = bench.find("PyTorch with CUDA", torch_python())

    def ours(model, batch, *more):
        words = [trainer, *FLAGS, f"--model={model}", f"--batch-size={batch}", *more]
        return float(re.search(r"best (\d+) samples/s", run(words)).group(1))

    kernels = json_lines(run([bench.bin / "bench-kernels"]))[0]
    theirs = json_lines(run([torch, HERE / "peers/kernels_torch.py"]))[0] if torch else {}
    yield from kernel_rows(kernels, theirs)
    yield from gpt2.gpu_rows(bench, trainer, torch)
    yield from large_rows(bench, trainer, torch)
    yield from fp8_rows(bench, trainer)
    yield from offload_rows(bench, trainer)
    for model, batch, target, in_tf32 in (("mlp", 64, 3, False), ("mlp", 1024, 1, False), ("cnn", 64, 1, False),
                                          ("cnn", 1024, 1, False), ("cnn", 1024, 1, True)):
        flags = ["--matmul-precision=high"] if in_tf32 else []
        peer = torch and [torch, HERE / "peers/train_torch.py", "--device=cuda", "--fused",
                          f"--model={model}", f"--batch={batch}", *(["--tf32"] if in_tf32 else [])]
        found = compare(bench, f"{model.upper()}, 1 GPU, batch {batch}{', TF32' if in_tf32 else ''}",
                        lambda model=model, batch=batch, flags=flags: ours(model, batch, *flags),
                        {"PyTorch, CUDA graph, fused Adam": (peer, target)})
        yield from found
        if (model, batch) == ("mlp", 64):
            yield Row(f"{found[0].what}: a step", "µs", 1e6 * batch / found[0].ours, target=15)
    yield from bert.compare(bench, "BERT 4 × 256, 1 GPU", [trainer, *bert.SHAPE, *FLAGS],
                            {"PyTorch eager, fused Adam": (
                                torch and [torch, bert.PEER, "--device=cuda", "--seconds=1"], 1)})


def kernel_rows(ours, theirs):
    """`ours`, `theirs`: what bench-kernels and its peer have printed."""
    flat = ("adam", "sgd", "lamb", "squares", "blend", "bytes_to_floats", "narrow", "widen", "drop_and_add",
            "norm", "norm_backward", "gelu_backward")
    copy = ours["copy, GB/s"]
    found = [Row(f"{name}: its bandwidth / a copy's {copy:.0f} GB/s", "×", ours[f"{name}, GB/s"] / copy,
                 more_is_better=True, target=0.85) for name in flat]
    same = {"adam, GB/s": "adam, GB/s"}
    for kind, name in (("", "float32"), ("TF32 ", "TF32"), ("bf16 ", "bf16")):
        same |= {f"{kind}product 4096 x 4096 x 4096, TFLOP/s": f"{name} 4096 x 4096 x 4096, TFLOP/s",
                 f"{kind}down 8192 x 768 x 3072, TFLOP/s": f"{name} 8192 x 768 x 3072, TFLOP/s"}
    found += [Row(*mine.rsplit(", ", 1), ours[mine], "PyTorch", theirs.get(its), more_is_better=True,
                  target=0.95, peer_found=bool(theirs)) for mine, its in same.items()]
    for shape in ("32 x 128 x 12 x 64", "8 x 1024 x 12 x 64", "4 x 2048 x 12 x 64", "8 x 1024 x 24 x 32",
                  "8 x 1024 x 6 x 128"):
        name = f"attention {shape}{'' if ' 128 x 12' in shape else ', causal'}"
        forward, backward = (ours[f"bf16 attention {shape}{which}, ms"] for which in ("", " backward"))
        found += [Row(f"bf16 {name}{what}", "ms", mine, "PyTorch",
                      theirs.get(f"attention {shape}, torch.bfloat16{its}, ms"), target=1,
                      peer_found=bool(theirs))
                  for what, mine, its in (("", forward, ""),
                                          (", forward and backward", forward + backward, ", both"))]
    return found

