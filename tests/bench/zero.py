"""The MLP at each stage of ZeRO, beside DeepSpeed on a CPU."""
import os

from measure import HERE, Row, json_lines, peer_program, peers_folder, run
from mlp import trainer_speed

PEER = HERE / "peers" / "mlp_deepspeed.py"


def peer_speed(command):
    folder = peers_folder() / "deepspeed"
    env = dict(os.environ, OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu",
               PATH=f"{folder}/bin:{os.environ['PATH']}", TORCH_EXTENSIONS_DIR=f"{folder}/extensions")
    return max(json_lines(run(command, env=env))[0]["samples_per_second"])


def rows(bench):
    python = bench.find("DeepSpeed (./dev peers deepspeed)", peer_program("deepspeed", "python"))
    found = []
    for workers in (1, 2):
        start = [python, *(["-m", "torch.distributed.run", "--nproc-per-node=2"]
                           if workers > 1 else []), PEER]
        for stage in range(4):
            measured = {"dtrain": lambda workers=workers, stage=stage:
                        trainer_speed(bench, 64, workers, "mlp", f"--zero-stage={stage}")}
            if python:
                measured["DeepSpeed"] = lambda start=start, stage=stage: peer_speed(
                    [*start, str(stage)])
            speeds = bench.interleaved(measured)
            found.append(Row(f"MLP, batch 64, {workers} process{'es' if workers > 1 else ''}, "
                             f"ZeRO {stage}", "samples/s", max(speeds["dtrain"]), "DeepSpeed, gloo",
                             max(speeds.get("DeepSpeed", [0])) or None, more_is_better=True,
                             target=8, peer_found=bool(python)))
    return found
