"""Bad input of the bundled trainer: clusters, data sets and flags, each refused in one line."""
import json
import struct

import pytest

import idx_data
from harness import EXIT_JOB_FAILED, EXIT_USAGE


def tf_config(cluster, task):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


BAD_CLUSTERS = {
    "an address twice": (tf_config({"worker": ["a:1", "a:1"]}, {"type": "worker", "index": 0}),
                         ["TF_CONFIG", "a:1"]),
    "an index out of range": (tf_config({"worker": ["a:1"]}, {"type": "worker", "index": 1}),
                              ["TF_CONFIG", "index", "1"]),
    "a negative index": (tf_config({"worker": ["a:1"]}, {"type": "worker", "index": -1}),
                         ["TF_CONFIG", "index"]),
    "a task of no job": (tf_config({"worker": ["a:1"]}, {"type": "chief", "index": 0}),
                         ["TF_CONFIG", "chief"]),
    "two chiefs": (tf_config({"chief": ["a:1", "b:1"]}, {"type": "chief", "index": 0}),
                   ["TF_CONFIG", "chief"]),
    "no port": (tf_config({"worker": ["a"]}, {"type": "worker", "index": 0}), ["TF_CONFIG", "a"]),
    "no task": ({"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}}'}, ["TF_CONFIG", "task"]),
    "not JSON": ({"TF_CONFIG": "{cluster"}, ["TF_CONFIG"]),
    "a list": ({"TF_CONFIG": "[1]"}, ["TF_CONFIG"]),
    "deep": ({"TF_CONFIG": "[" * 50_000}, ["TF_CONFIG"]),
    "a rank out of range": ({"RANK": "3", "WORLD_SIZE": "3"}, ["RANK", "3"]),
    "a rank of words": ({"RANK": "first", "WORLD_SIZE": "3"}, ["RANK", "first"]),
    "a rank without a world": ({"RANK": "1"}, ["WORLD_SIZE"]),
    "a world without an address": ({"RANK": "0", "WORLD_SIZE": "2"}, ["MASTER_ADDR"]),
    "a port of words": ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a",
                         "MASTER_PORT": "http"}, ["MASTER_PORT", "http"]),
}


@pytest.mark.parametrize("case", BAD_CLUSTERS)
def test_a_cluster_that_makes_no_sense_is_one_line(train, case):
    env, named = BAD_CLUSTERS[case]
    result = train(env=env, expect=EXIT_USAGE)
    assert result.out == "" and result.err.count("\n") == 1, result
    assert all(word in result.err for word in named), result


def spoil(folder, name, change):
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


TRAIN_IMAGES, TRAIN_LABELS = idx_data.FILES["train"]
BAD_DATA = {
    "truncated images": (TRAIN_IMAGES, lambda raw: raw[:-1]),
    "images too long": (TRAIN_IMAGES, lambda raw: raw + b"x"),
    "a header cut short": (TRAIN_IMAGES, lambda raw: raw[:7]),
    "no bytes at all": (TRAIN_IMAGES, lambda raw: b""),
    "wrong magic": (TRAIN_IMAGES, lambda raw: b"\x89PNG" + raw[4:]),
    "labels for images": (TRAIN_IMAGES, lambda raw: struct.pack(">II", 2049, 4) + b"abcd"),
    "sizes that overflow": (TRAIN_IMAGES, lambda raw: raw[:4] + b"\xff" * 12 + raw[16:]),
    "fewer labels than images": (TRAIN_LABELS, lambda raw: idx_data.labels_file([1, 2, 3])),
    "a label of no class": (TRAIN_LABELS, lambda raw: raw[:8] + b"\xff" + raw[9:]),
    "a label below 0": (TRAIN_LABELS, lambda raw: idx_data.labels_file([-1] * 64, 0x0B)),
    "wide labels cut short": (TRAIN_LABELS, lambda raw: idx_data.labels_file([1] * 64, 0x0C)[:-1]),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_a_damaged_idx_file_is_named_with_what_is_wrong(home, case):
    name, change = BAD_DATA[case]
    folder = idx_data.write(home.folder / "data", train=64, test=64)
    spoil(folder, name, change)
    result = home.trainer(f"--data={folder}", expect=None)
    assert result.code in (1, 2)
    assert result.err.count("\n") == 1 and name in result.err, result


def test_held_out_images_of_other_sides_than_those_to_train_on_are_refused(home):
    folder = idx_data.write(home.folder / "data", train=64, test=64)
    # As many pixels as 28 × 28.
    spoil(folder, "t10k-images-idx3-ubyte",
          lambda raw: raw[:8] + struct.pack(">II", 14, 56) + raw[16:])
    result = home.trainer(f"--data={folder}", expect=None)
    assert result.code == 1 and result.err.count("\n") == 1
    assert "28 × 28" in result.err and "14 × 56" in result.err


def test_a_truncated_gz_file_is_named(home):
    folder = idx_data.write(home.folder / "data", train=64, test=64, compress=True)
    spoil(folder, f"{TRAIN_IMAGES}.gz", lambda raw: raw[:len(raw) // 2])
    result = home.trainer(f"--data={folder}", expect=None)
    assert result.code in (1, 2) and result.err.count("\n") == 1 and TRAIN_IMAGES in result.err


def test_data_that_is_a_text_is_one_line_that_says_how_to_tokenize_it(home):
    (home.folder / "text.txt").write_text("a text\n")
    result = home.trainer(f"--data={home.folder}/text.txt", "--model=bert", expect=2)
    assert f"dtrain-trainer tokenize {home.folder}/text.txt --output=DIR" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("make", [None, lambda path: path.mkdir()], ids=["absent", "empty"])
def test_data_that_is_not_there_is_one_line_that_says_how_to_get_some(home, make):
    folder = home.folder / "nowhere"
    if make:
        make(folder)
    result = home.trainer(f"--data={folder}", expect=None)
    assert result.code in (1, 2) and result.err.count("\n") == 1
    assert str(folder) in result.err


def test_a_damaged_data_set_fails_the_job_once_with_its_cause(home):
    folder = idx_data.write(home.folder / "data", train=64, test=64)
    spoil(folder, TRAIN_IMAGES, lambda raw: raw[:-1])
    result = home.dtrain("submit", "--name=bad", "--workers=3", "--wait", "--", f"--data={folder}",
                         expect=EXIT_JOB_FAILED)
    assert TRAIN_IMAGES in result.out
    assert any(TRAIN_IMAGES in line for line in home.get("bad")["cause"]["lastStderr"])


@pytest.mark.parametrize("flags, named", [
    (["--batch-size=0"], "--batch-size"), (["--epochs=-1"], "--epochs"),
    (["--learning-rate=fast"], "--learning-rate"), (["--lr-schedule=up"], "--lr-schedule"),
    (["--epcohs=2"], "--epochs"), (["--device=cuda"], "cuda"),
    (["--transport=pigeon"], "--transport"), (["--data=mnits"], "mnist"),
    (["--warmup-steps=10"], "--lr-schedule=warmup"), (["--warmup-type=linear"], "--lr-schedule=warmup"),
    (["--momentum=0.5"], "--optimizer=adam does not have it"),
    (["--optimizer=sgd", "--beta2=0.5"], "--beta2: --optimizer=sgd does not have it"),
    (["--classes=2147483647"], "--classes: "), (["--hidden=65536" + 99 * ",65536"], "--hidden: "),
    (["--global-batch-size=1073741824"], "--global-batch-size=1073741824: "),
    (["--warmup-steps=1e300", "--lr-schedule=warmup"], "must be between 0 and "),
    (["--learning-rate=inf"], "--learning-rate=inf: must be a finite number"),
    (["--resume"], "--checkpoint-dir"), (["surprise"], "surprise")],
    ids=lambda value: value[0] if isinstance(value, list) else "")
def test_a_bad_flag_is_one_line(train, flags, named):
    result = train(*flags, expect=None)
    assert result.code in (1, 2)
    assert result.err.count("\n") == 1 and named in result.err, result
