"""What the trainer's tests train on."""
import pytest

import idx_data


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return idx_data.write(tmp_path_factory.mktemp("idx"))


@pytest.fixture
def train(home, data):
    """Runs dtrain-trainer as one process on the small data."""
    def run(*flags, **options):
        return home.trainer(f"--data={data}", *flags, **options)
    return run
