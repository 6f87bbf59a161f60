"""What versions of Slurm say of the same jobs, as `record` has recorded it of real ones: by squeue, by sacct
where squeue has forgotten them, and by the file of jobcomp/filetxt where there is no accounting."""
import json
import pathlib

import pytest

RECORDED = pathlib.Path(__file__).parent / "recorded"
FORGOTTEN = "slurm_load_jobs error: Invalid job id specified"

# FATE: (status, words of its reason or cause) by squeue, and by what knows it later.
REPORTED_NOTHING = ("FAILED", "reported nothing on node1")
LATER = {
    "timeout": ("FAILED", "reached its time limit"),
    "completed": ("SUCCEEDED", "reported nothing"),
    "failed": ("FAILED", "exit code 5"),
    "killed": ("FAILED", "signal 9 (SIGKILL)"),
    "unstarted": REPORTED_NOTHING,
    "cancelled": ("FAILED", "cancelled in Slurm"),
    "unborn": ("FAILED", "cancelled in Slurm"),
    "fallen": ("FAILED", "a node of it failed"),
}
NOW = {
    **LATER,
    "failed": ("FAILED", "its script failed (NonZeroExitCode)"),  # squeue has no exit codes.
    "killed": REPORTED_NOTHING,
    "running": ("PENDING", "its ranks are starting"),
    "array": ("PENDING", "tasks: 4 waiting"),
    "held": ("SUSPENDED", "is held: dtrain resume"),
    "waiting": ("PENDING", "waits for nodes to become free (Resources)"),
}


@pytest.fixture(params=sorted(path.name for path in RECORDED.iterdir()))
def slurm(request, home):
    """A Slurm that says what was recorded, and a home with a record of each of its jobs."""
    home.recorded = RECORDED / request.param
    home.numbers = {}
    for line in (home.recorded / "jobs.txt").read_text().splitlines():
        number, fate = line.split()
        home.numbers[fate] = number
        folder = home.state / "dtrain/slurm/default" / fate
        folder.mkdir(parents=True)
        record = {"created": 1, "gpus": 0, "id": number, "instances": [["worker-0", 0]], "labels": [],
                  "maxRestarts": 0, "name": fate, "namespace": "default", "priority": "",
                  "requeue": False, "trainer": "DTRAINJOB"}
        if fate == "array":
            record.update(array="0-9:3%1", tasks=4)
        (folder / "job").write_text("job " + json.dumps(record, separators=(",", ":")) + "\n")
    (home.folder / "tools").mkdir()
    home.env.update(DTRAIN_BACKEND="slurm", TZ="UTC",
                    PATH=f"{home.folder / 'tools'}:{home.env['PATH']}")
    tell(home, "sacct", "sacct")
    home.script("tools/scontrol", f"echo 'JobCompLoc = {home.recorded / 'jobcomp.txt'}'\n"
                                  "echo 'JobCompType = jobcomp/filetxt'")
    return home


def tell(home, tool, file):
    """The tool says what was recorded of the jobs that it is asked for."""
    home.script(f"tools/{tool}", 'ids=; for word; do case $word in --jobs=*) ids=${word#*=} ;; esac; done\n'
                f'awk -F"[|_]" -v ids="$ids" \'BEGIN {{ n = split(ids, list, ","); for (i in list) of[list[i]] }} '
                f'!n || $1 in of\' {home.recorded / file}.txt')



def require(home, expected):
    for fate, (status, words) in expected.items():
        job = home.get(fate)
        said = f"{job['reason']} {job.get('cause', {}).get('message', '')}"
        assert (job["status"], words in said) == (status, True), (fate, job)
    listed = {job["name"]: job["status"] for job in home.dtrain("list", "-o", "json").json()}
    for fate, (status, _) in expected.items():
        assert listed[fate] == status, fate


def test_what_squeue_says_is_read(slurm):
    tell(slurm, "squeue", "squeue")
    require(slurm, NOW)
    assert slurm.get("fallen")["uuid"] == slurm.numbers["fallen"]
    ended = slurm.get("timeout")
    assert 60 <= ended["endTimestamp"] - ended["startTimestamp"] <= 120


def test_what_sacct_says_is_read(slurm):
    slurm.script("tools/squeue", f"case $* in *--jobs=*) echo '{FORGOTTEN}' >&2; exit 1 ;; esac")
    require(slurm, LATER)


def test_what_the_job_completion_file_says_is_read(slurm):
    slurm.script("tools/squeue", f"case $* in *--jobs=*) echo '{FORGOTTEN}' >&2; exit 1 ;; esac")
    slurm.script("tools/sacct", "echo Slurm accounting storage is disabled >&2; exit 1")
    require(slurm, LATER)
    ended = slurm.get("timeout")
    assert 60 <= ended["endTimestamp"] - ended["startTimestamp"] <= 120


def test_a_job_that_another_cluster_of_a_federation_runs_is_asked_of_that(slurm):
    slurm.script("tools/squeue", "case $* in *--federation*) state=RUNNING ;; *) state=REVOKED ;; esac; "
                 f"echo '{slurm.numbers['running']}|'$state'|None|1|2|3|far1|batch|'")
    require(slurm, {"running": NOW["running"]})
