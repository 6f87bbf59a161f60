"""A launcher runs in the batch script; what it starts, Slurm starts on the allocation's nodes."""
import pytest


@pytest.fixture
def slurm(slurm_home):
    slurm_home.env["PATH"] = f"{slurm_home.build.bin}:{slurm_home.env['PATH']}"
    return slurm_home


@pytest.fixture
def mpi_sums(slurm):
    if not (slurm.build.bin / "mpi-sums").exists():
        pytest.skip("not among the tarball's programs")
    return "mpi-sums"


SHOW = "echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $SLURMD_NODENAME: $CUDA_VISIBLE_DEVICES"


def test_mpirun_starts_through_slurm_on_every_node_with_its_gpus(slurm):
    slurm.submit("mpi", "sh", "-c", f"cat $DTRAIN_HOSTFILE; mpirun sh -c '{SHOW}'",
                 flags=["mpijob", "--workers=2", "--gpus=2", "--worker-cpu=8"])
    slurm.wait_for_end("mpi", 0)
    lines = slurm.lines("mpi", "-i", "launcher-0")
    assert [line.rpartition(" ")[2] for line in lines[:2]] == ["slots=2"] * 2
    assert sorted(lines[2:]) == [f"{rank} of 4 on node{1 + rank // 2}: 0,1" for rank in range(4)]
    job = slurm.get("mpi")
    assert [each["name"] for each in job["instances"]] == ["launcher-0", "worker-0", "worker-1"]
    assert [each["node"] for each in job["instances"][1:]] == ["node1", "node2"]


def test_an_mpi_program_sums_over_three_nodes(slurm, mpi_sums):
    slurm.submit("sums", "mpirun", mpi_sums, flags=["mpijob", "--workers=3", "--worker-cpu=8"])
    slurm.wait_for_end("sums", 0)
    lines = slurm.lines("sums", "-i", "launcher-0")
    assert len(lines) == 3 * len(set(lines)) > 0


def test_ranks_that_meet_by_pmix_wait_for_each_other(slurm):
    """As a tree, Slurm's own default, those of Slurm 22.05 do not: a rank that was ahead sent to one that
    was still in MPI_Init, which ended at a call through null, once in about 60 starts under load."""
    slurm.submit("fence", "sh", "-c", "echo $SLURM_PMIX_FENCE", flags=["--workers=2"])
    slurm.wait_for_end("fence", 0)
    assert [slurm.lines("fence", "-i", f"worker-{rank}") for rank in range(2)] == [["ring"]] * 2


def test_ranks_find_each_other_by_pmix_where_slurm_has_it(slurm, mpi_sums):
    slurm.submit("pmix", mpi_sums, flags=["--workers=3", "--worker-cpu=8", "--mpi=pmix"])
    slurm.wait_for_end("pmix", 0)
    lines = [slurm.lines("pmix", "-i", f"worker-{rank}") for rank in range(3)]
    assert lines[0] and lines[0] == lines[1] == lines[2]


def test_a_launcher_s_exit_code_is_the_job_s(slurm):
    slurm.submit("fails", "sh", "-c", "echo bad >&2; exit 3", flags=["etjob", "--workers=2"])
    slurm.wait_for_end("fails")
    cause = slurm.get("fails")["cause"]
    assert (cause["instance"], cause["exitCode"], cause["lastStderr"]) == ("launcher-0", 3, ["bad"])


def test_deepspeed_has_the_host_file_and_is_told_where_ssh_does_not_let_it_in(slurm):
    """A stand-in that shows what it is given, and nodes that nobody answers ssh on."""
    slurm.stand_in("deepspeed", 'echo "$@"')
    slurm.stand_in("ssh", "echo no way in >&2; exit 255")
    slurm.submit("ds", "deepspeed", "train.py", flags=["deepspeedjob", "--workers=2",
                                                       "--worker-cpu=8"])
    slurm.wait_for_end("ds", 0)
    ran, said = sorted(slurm.lines("ds", "-i", "launcher-0"))  # "--hostfile …", "dtrain: …"
    assert "no way in" in said and "--launcher=slurm" in said
    assert "--hostfile=" in ran and "--master_addr=" in ran and ran.endswith("train.py")
