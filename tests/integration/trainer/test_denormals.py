"""What trains keeps no floats so small that the machine computes slowly with them."""
import struct

import pytest

import idx_data
from checkpoint_files import checkpoints, tensors

SMALLEST_NORMAL = 2.0 ** -126
STEPS = 1300  # 0.9^1300 is 1e-60: past the denormals, where no rounding holds what decays


def without_first_rows(folder):
    """The same images, with some pixels that were not zero before zero in all of them."""
    path = folder / idx_data.FILES["train"][0]
    raw = bytearray(path.read_bytes())
    for start in range(16, len(raw), idx_data.SIDE ** 2):
        raw[start:start + 100] = bytes(100)
    path.write_bytes(raw)


@pytest.mark.parametrize("how", ["one", "workers", "replicas"])
def test_moments_of_weights_without_gradients_decay_to_zero(home, how):
    data = idx_data.write(home.folder / "data", train=128, test=16)
    folder = home.folder / "run"
    flags = [f"--data={data}", "--hidden=16", "--batch-size=4", f"--checkpoint-dir={folder}",
             "--lr-schedule=constant", "--resume"]
    flags += ["--devices=cpu:0,cpu:1"] if how == "replicas" else []

    def train(steps):
        if how == "workers":
            home.dtrain("submit", f"--name=job-{steps}", "--workers=2", "--wait", "--", *flags,
                        f"--steps={steps}")
        else:
            home.trainer(*flags, f"--steps={steps}")
        raw = tensors(checkpoints(folder)[-1])["adam.m.hidden.weight"]
        return [abs(value) for value, in struct.iter_unpack("<f", raw)]

    assert sum(value > 0 for value in train(10)[:100]) > 50
    without_first_rows(data)
    moments = train(10 + STEPS)
    assert all(value == 0 for value in moments[:100])
    assert not [value for value in moments if 0 < value < SMALLEST_NORMAL]
