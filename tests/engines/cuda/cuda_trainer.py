"""A trainer with --device=cuda, alone and as ranks."""
import trainer_process
from harness import held_ports


def start(program, data, *flags, **variables):
    return trainer_process.start(program, data, "--hidden=24", "--log-every=4", *flags, **variables)


def start_ranks(program, data, *flags, each=({}, {}), **variables):
    """Each is shown one GPU alone, as by a launcher that shares them out: its first."""
    port = str(held_ports(1)[0])
    return [start(program, data, *flags, *own.pop("flags", []), RANK=str(rank), LOCAL_RANK=str(rank),
                  WORLD_SIZE=str(len(each)), LOCAL_WORLD_SIZE=str(len(each)),
                  CUDA_VISIBLE_DEVICES="5", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                  DTRAIN_JOB_TOKEN="a" * 32, **{"DTRAIN_FAKE_GPUS": "1"} | variables | own)
            for rank, own in enumerate(map(dict, each))]
