"""What all tests of GPUs that are not there start from."""
import pathlib

import pytest

import idx_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return idx_data.write(tmp_path_factory.mktemp("idx"), train=192, test=64)


@pytest.fixture
def on_cpu(request):
    return pathlib.Path(request.config.getoption("--build")).absolute() / "on-cpu/dtrain-trainer"
