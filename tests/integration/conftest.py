"""What the trainer's tests train on, and other programs that tests run."""
import csv
import os
import pathlib

import pytest

import idx_data
import text_data


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return idx_data.write(tmp_path_factory.mktemp("idx"))


@pytest.fixture
def train(home, data):
    """Runs dtrain-trainer as one process on the small data."""
    def run(*flags, **options):
        return home.trainer(f"--data={data}", *flags, **options)
    return run


@pytest.fixture
def tokens(home):
    return text_data.write(home)


@pytest.fixture
def bert(home, tokens):
    """Trains as one process; the losses by step."""
    def train(*flags, name="alone"):
        path = home.folder / f"{name}.csv"
        home.trainer(f"--data={tokens}", *text_data.BERT, *flags, f"--csv={path}")
        with open(path) as file:
            return {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}
    return train


@pytest.fixture
def peer():
    """The folder of a peer that `./dev peers NAME` brought."""
    def folder(name):
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        path = pathlib.Path(os.environ.get("DTRAIN_PEERS") or f"{cache}/dtrain/peers") / name
        if not (path / ".complete").exists():
            pytest.skip(f"{name} is not there: ./dev peers {name}")
        return path
    return folder
