"""What a rank is told, and that the field's own programs understand it unchanged."""
import json
import pathlib
import shutil

import pytest

from harness import EXIT_ENGINE, EXIT_USAGE, PYTHON

WRITE_ENVIRONMENT = ("import json, os; "
                     "print(json.dumps(dict(os.environ)))")


def environments(home, name, *flags, workers=3, env=None):
    home.submit(name, PYTHON, "-c", WRITE_ENVIRONMENT, flags=[f"--workers={workers}", *flags],
                env=env)
    home.dtrain("wait", name)
    return [json.loads(home.lines(name, "-i", f"worker-{rank}")[0]) for rank in range(workers)]


def test_every_rank_gets_the_contract(home):
    ranks = environments(home, "contract")
    for rank, env in enumerate(ranks):
        assert env["RANK"] == env["LOCAL_RANK"] == str(rank)
        assert env["WORLD_SIZE"] == env["LOCAL_WORLD_SIZE"] == "3"
        assert env["NODE_RANK"] == "0"
        assert env["MASTER_ADDR"] == ranks[0]["MASTER_ADDR"]
        assert env["MASTER_PORT"] == ranks[0]["MASTER_PORT"]
        assert 0 < int(env["MASTER_PORT"]) < 65536
        assert env["DTRAIN_JOB_NAME"] == "contract"
        assert env["DTRAIN_JOB_UID"] == ranks[0]["DTRAIN_JOB_UID"] != ""


def test_tf_config_names_every_worker_once_and_this_one(home):
    ranks = environments(home, "tf")
    clusters = [json.loads(env["TF_CONFIG"]) for env in ranks]
    for rank, config in enumerate(clusters):
        assert config["cluster"] == clusters[0]["cluster"]
        assert config["task"] == {"type": "worker", "index": rank}
    addresses = clusters[0]["cluster"]["worker"]
    assert len(set(addresses)) == 3
    assert ranks[0]["MASTER_PORT"] not in {address.rpartition(":")[2] for address in addresses}


def test_the_host_file_is_deepspeeds_and_open_mpis(home):
    for env in environments(home, "hosts"):
        paths = {env[name] for name in ("OMPI_MCA_orte_default_hostfile", "DLTS_HOSTFILE")
                 if name in env}
        assert len(paths) == 1, "one host file, named by Open MPI's and DeepSpeed's variables"
        lines = pathlib.Path(paths.pop()).read_text().splitlines()
        assert len(lines) == 1 and lines[0].endswith(" slots=3")


def test_a_rank_keeps_the_users_environment_and_folder(home):
    folder = home.folder / "with space"
    folder.mkdir()
    home.submit("kept", "sh", "-c", 'pwd; echo "$MINE"', env={"MINE": "a b"},
                flags=[f"--working-dir={folder}"])
    home.dtrain("wait", "kept")
    assert home.lines("kept", "-i", "worker-0") == [str(folder), "a b"]


def test_a_variable_of_the_user_wins(home):
    env = environments(home, "wins", "--env=MASTER_ADDR=somewhere", workers=1)[0]
    assert env["MASTER_ADDR"] == "somewhere"


def test_what_an_outer_job_said_is_not_passed_on(home):
    """submit from within a rank of another job, or under mpirun."""
    outer = {"RANK": "7", "WORLD_SIZE": "9", "TF_CONFIG": "{}", "OMPI_COMM_WORLD_RANK": "7",
             "MASTER_PORT": "1"}
    env = environments(home, "inner", workers=1, env=outer)[0]
    assert (env["RANK"], env["WORLD_SIZE"]) == ("0", "1")
    assert env["MASTER_PORT"] != "1"


@pytest.mark.parametrize("mask, flags, expected", [
    # LOCAL_RANK picks its own of all that the job has …
    ("0,1,2", [], [("0", "0,1"), ("1", "0,1")]),
    ("5,GPU-8a9b,3", [], [("0", "5,GPU-8a9b"), ("1", "5,GPU-8a9b")]),
    # … or it sees its own alone: where that is several, parts of a GPU, or somebody knows better.
    ("5,GPU-8a9b,3,7", ["--gpus=2"], [("0", "5,GPU-8a9b"), ("0", "3,7")]),
    ("MIG-a,MIG-GPU-b/1/0", [], [("0", "MIG-a"), ("0", "MIG-GPU-b/1/0")]),
    ("4,6", ["--gpus-visible=rank"], [("0", "4"), ("0", "6")]),
    ("4,6", ["--max-workers=2"], [("0", "4"), ("0", "6")]),
])
def test_local_rank_indexes_the_devices_of_the_inherited_ones(home, mask, flags, expected):
    ranks = environments(home, "gpus", "--gpus=1", *flags, workers=2,
                         env={"CUDA_VISIBLE_DEVICES": mask})
    assert [(env["LOCAL_RANK"], env["CUDA_VISIBLE_DEVICES"]) for env in ranks] == expected
    alone = expected[1][0] == "0"
    assert {env["LOCAL_WORLD_SIZE"] for env in ranks} == {"1" if alone else "2"}
    assert [env["NODE_RANK"] for env in ranks] == (["0", "1"] if alone else ["0", "0"])


@pytest.mark.parametrize("said, devices", [
    ({"DTRAIN_LOCAL_GPUS": "2"}, "0,1"),
    # Of those that are shown, the first so many, and never more.
    ({"DTRAIN_LOCAL_GPUS": "2", "CUDA_VISIBLE_DEVICES": "7,GPU-a,5"}, "7,GPU-a"),
    ({"DTRAIN_LOCAL_GPUS": "9", "CUDA_VISIBLE_DEVICES": "7, 5"}, "7,5"),
    ({"CUDA_VISIBLE_DEVICES": "7,5,none,4"}, "7,5"),
])
def test_the_devices_that_are_shown_are_those_given_out(home, said, devices):
    ranks = environments(home, "shown", "--gpus=1", workers=2, env=said)
    assert [env["CUDA_VISIBLE_DEVICES"] for env in ranks] == [devices] * 2


@pytest.mark.parametrize("shown", ["", "-1", "NoDevFiles"])
def test_where_devices_are_hidden_there_are_none(home, shown):
    result = home.submit("hidden", "true", flags=["--gpus=1", "--require-gpus"], expect=EXIT_ENGINE,
                         env={"CUDA_VISIBLE_DEVICES": shown, "DTRAIN_LOCAL_GPUS": "4"})
    assert "the job asks for 1 GPU (1 per worker), and this machine has 0" in result.err and result.err.count("\n") == 1


def test_a_count_of_gpus_that_is_no_number_is_named(home):
    result = home.submit("two", "true", flags=["--gpus=1"], env={"DTRAIN_LOCAL_GPUS": "two"},
                         expect=EXIT_USAGE)
    assert "DTRAIN_LOCAL_GPUS=two: must be a number of GPUs" in result.err


def test_a_launcher_sees_the_gpus_of_all_its_workers(home):
    home.dtrain("submit", "mpijob", "--name=all", "--workers=2", "--gpus=2", "--",
                "sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"', env={"CUDA_VISIBLE_DEVICES": "1,2,5,GPU-a,7"})
    home.dtrain("wait", "all")
    assert home.lines("all", "-i", "launcher-0") == ["[1,2,5,GPU-a]"]


def test_a_server_without_gpus_sees_none_and_tensorflow_s_tasks_see_their_own(home):
    home.dtrain("submit", "tfjob", "--name=roles", "--workers=2", "--gpus=1", "--ps=1", "--evaluator",
                "--", "sh", "-c", 'echo "${LOCAL_RANK-none} [$CUDA_VISIBLE_DEVICES]"',
                env={"CUDA_VISIBLE_DEVICES": "1,2,3"})
    home.dtrain("wait", "roles")
    assert [home.lines("roles", "-i", instance)[0] for instance in
            ("worker-0", "worker-1", "ps-0", "evaluator-0")] == ["0 [1]", "0 [2]", "none []", "none [3]"]


@pytest.mark.parametrize("flags, why", [
    (["--gpus=2"], "LOCAL_RANK picks one GPU, and a worker has 2"),
    (["--gpus=1", "--max-workers=4"], "workers of an elastic job come and go"),
    ([], "add --gpus=N"),
])
def test_a_view_that_local_rank_cannot_index_is_refused(home, flags, why):
    result = home.submit("no", "true", flags=["--gpus-visible=node", *flags], expect=EXIT_USAGE)
    assert why in result.err and result.err.count("\n") == 1


def test_ranks_that_would_see_several_parts_of_gpus_are_refused(home):
    parts = {"CUDA_VISIBLE_DEVICES": "MIG-a,MIG-b"}
    result = home.submit("parts", "true", flags=["--gpus-visible=node", "--gpus=1", "--workers=2"], env=parts,
                         expect=EXIT_USAGE)
    assert "--gpus-visible=node: of parts of GPUs (MIG), CUDA shows a process only one" in result.err
    assert result.err.count("\n") == 1
    assert environments(home, "alone", "--gpus=1", "--gpus-visible=node", workers=1,
                        env=parts)[0]["CUDA_VISIBLE_DEVICES"] == "MIG-a"


def test_too_few_gpus_is_one_warning_and_the_cpu(home):
    result = home.submit("few", "sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"',
                         flags=["--gpus=4", "--workers=2"], env={"DTRAIN_LOCAL_GPUS": "0"})
    assert len([line for line in result.err.splitlines() if "the job asks for" in line]) == 1
    home.dtrain("wait", "few")
    assert home.lines("few", "-i", "worker-1") == ["[]"]


def test_too_few_gpus_is_an_error_where_they_are_required(home):
    result = home.submit("required", "true", flags=["--gpus=1", "--require-gpus"],
                         env={"DTRAIN_LOCAL_GPUS": "0"}, expect=None)
    assert result.code != 0
    assert result.err.count("\n") == 1 and "GPU" in result.err
    assert home.dtrain("list", "-o", "name").out == ""


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
def test_mpirun_reads_the_host_file_from_its_variable(home):
    """mpirun inside a rank, unchanged: as many processes as the host file has slots."""
    home.submit("mpi", "sh", "-c",
                "[ $RANK = 0 ] || exit 0; mpirun --allow-run-as-root --map-by slot "
                "sh -c 'echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE'",
                flags=["--workers=3"])
    home.dtrain("wait", "mpi")
    assert sorted(home.lines("mpi", "-i", "worker-0")) == ["0 of 3", "1 of 3", "2 of 3"]
