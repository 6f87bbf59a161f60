"""Training speed of GPT-2 in tokens/s, without dropout: of a small one on a core, beside PyTorch's and llm.c's;
of 124M on a GPU, beside both."""
import sys

from bert import compare
from measure import HERE, Row, peer_program, peers_folder

TRAINER = ["--model=gpt2", "--batch-size=8", "--dropout=0"]
SMALL = ["--layers=4", "--hidden=256", "--heads=4"]


def rows(bench):
    same = [*SMALL, "--length=128", "--batch=8"]
    torch = bench.find("PyTorch (./dev peers torch)", peer_program("torch", "python"))
    llmc = bench.find("llm.c (./dev peers llmc)", peer_program("llmc", "python"))
    return compare(
        bench, "GPT-2 4 × 256, 8 × 128, 1 core",
        [bench.bin / "dtrain-trainer", *TRAINER, *SMALL, "--ff=1024", "--max-length=128", "--benchmark=3"],
        {"PyTorch eager, fused AdamW": (torch and [torch, HERE / "peers/gpt2_torch.py", "--device=cpu", *same], 1.3),
         "llm.c on CPUs": (llmc and [llmc, HERE / "peers/gpt2_llmc.py", peers_folder() / "llmc/source", *same], 2)})


def gpu_rows(bench, trainer, torch):
    def peer(*flags):
        return torch and [torch, HERE / "peers/gpt2_torch.py", "--seconds=1", *flags]
    program = bench.find("llm.c for GPUs (./dev peers llmc-gpu)", peer_program("llmc-gpu", "train_gpt2cu"))
    llmc = program and [sys.executable, HERE / "peers/gpt2_llmc_gpu.py", program,
                        torch or sys.executable]
    found = compare(bench, "GPT-2 124M in bf16, 8 × 1024, 1 GPU",
                    [trainer, *TRAINER, "--benchmark=1", "--device=cuda", "--precision=bf16"],
                    {"PyTorch eager, bf16 autocast": (peer(), 1),
                     "PyTorch compiled, bf16 autocast": (peer("--compile"), 1.05),
                     "llm.c, cuDNN": (llmc, 1.05)})
    return [*found, Row(found[0].what, "tokens/s", found[0].ours, more_is_better=True, target=500_000)]
