"""A job's GPUs are asked for errors before its ranks start, by a fake nvidia-smi, and measured by a
fake dtrain-trainer check-gpus."""
import pytest

from harness import EXIT_JOB_FAILED, PYTHON, until

SHOW = ("sh", "-c", "echo GPU $CUDA_VISIBLE_DEVICES")
WELL = "{}, NVIDIA H100, 580.159.04, 0, No, No, [N/A], GPU-{}"
ILL = "{}, NVIDIA H100, 580.159.04, 3, No, No, [N/A], GPU-{}"
FAULT = ("GPU {0} (NVIDIA H100): 3 uncorrectable ECC errors since the driver was loaded; reset it: "
         "nvidia-smi --gpu-reset -i {0}")


@pytest.fixture
def gpus(home):
    """Has three GPUs, of which those are ill from now on."""
    def become(*ill, run=""):
        lines = [(ILL if index in ill else WELL).format(index, index) for index in range(3)]
        home.script("nvidia-smi", f"""echo asked >>{home.folder}/asked; {run}
            case $* in
              *gpu_recovery_action*) echo 'Field "gpu_recovery_action" is not a valid field to query.'; exit 2 ;;
            esac\ncat <<'END'\n""" + "\n".join(lines) + "\nEND")
    home.env.update(DTRAIN_LOCAL_GPUS="3", PATH=f"{home.folder}:{home.env['PATH']}")
    become()
    return become


def seen(home, name, *flags, workers=2):
    home.submit(name, *SHOW, flags=[f"--workers={workers}", "--gpus=1", *flags])
    home.dtrain("wait", name)
    return {line for worker in range(workers) for line in home.lines(name, "-i", f"worker-{worker}")}


def test_another_takes_the_place_of_a_faulty_gpu(home, gpus):
    assert seen(home, "well") == {"GPU 0,1"}
    gpus(0)
    lines = seen(home, "ill")
    assert lines == {"GPU 2,1", f"dtrain: {FAULT.format(0)}; using GPU 2 instead"}
    assert seen(home, "alone", "--gpus-visible=rank") >= {"GPU 1", "GPU 2"}


def test_where_no_other_is_free_the_job_fails_and_says_which_and_what_to_do(home, gpus):
    gpus(0, 2)
    home.submit("ill", *SHOW, flags=["--workers=2", "--gpus=1"])
    assert home.dtrain("wait", "ill", expect=EXIT_JOB_FAILED)
    cause = home.get("ill")["cause"]["message"]
    assert cause == (f"{FAULT.format(0)}; {FAULT.format(2)}; no other GPU is free here "
                     "(--check-gpus=off skips the check)")
    assert seen(home, "any", "--check-gpus=off") == {"GPU 0,1"}  # Its own were given back before it failed.


def test_a_cause_that_a_restart_does_not_change_is_named_once(home, gpus):
    gpus(0, 1, 2)
    home.submit("ill", *SHOW, flags=["--gpus=1", "--max-restarts=2"])
    home.dtrain("wait", "ill", expect=EXIT_JOB_FAILED)
    assert home.get("ill")["cause"]["message"].count(FAULT.format(0)) == 1


def test_an_elastic_job_starts_without_workers_for_which_no_gpu_is_left(home, gpus):
    gpus(0)
    script = home.script("show", "echo GPU $CUDA_VISIBLE_DEVICES; echo of $WORLD_SIZE")
    elastic = ["--workers=3", "--gpus=1", "--min-workers=1"]
    home.submit("first", script, flags=elastic)
    home.dtrain("wait", "first")
    assert home.lines("first", "-i", "worker-0") == [
        f"dtrain: {FAULT.format(0)}; using GPU 2 instead; no other GPU is free here: started without worker-2",
        "GPU 2", "of 2"]
    assert home.lines("first", "-i", "worker-1") == ["GPU 1", "of 2"]
    gpus(1, 2)
    home.submit("last", script, flags=elastic)
    home.dtrain("wait", "last")
    assert sorted(home.lines("last")) == sorted([
        f"dtrain: {FAULT.format(2)}; {FAULT.format(1)}; "
        "no other GPU is free here: started without worker-1, worker-2", "GPU 0", "of 1"])
    home.submit("few", script, flags=["--workers=3", "--gpus=1", "--min-workers=2"])
    home.dtrain("wait", "few", expect=EXIT_JOB_FAILED)
    assert home.get("few")["cause"]["message"].startswith(f"{FAULT.format(1)}; ")


def test_an_elastic_job_that_starts_again_takes_the_gpus_that_are_well_then(home, gpus):
    home.script("nvidia-smi", f"""case $* in *gpu_recovery_action*) exit 2 ;; esac
        errors=3; [ ! -e {home.folder}/well ] || errors=0; touch {home.folder}/well
        printf '%s\\n' "{ILL.format(0, 0)}" "{WELL.format(1, 1)}" "{WELL.format(2, 2)}" |
          sed "/^1,/s/ 0, No/ $errors, No/" """)
    home.submit("again", *SHOW, flags=["--workers=3", "--gpus=1", "--min-workers=2", "--max-restarts=1"])
    home.dtrain("wait", "again")
    assert [home.lines("again", "-i", f"worker-{each}")[-1] for each in range(2)] == ["GPU 2", "GPU 1"]


def test_a_worker_added_to_a_running_job_takes_no_gpu_of_its_own(home, gpus):
    gpus(0)
    home.submit("scaled", home.script("hold", "echo GPU $CUDA_VISIBLE_DEVICES; exec sleep 1000"),
                flags=["--workers=2", "--gpus=1", "--min-workers=1", "--max-workers=3"])
    until(lambda: home.status("scaled") == "RUNNING", "it runs")
    home.dtrain("scale", "scaled", "--workers=3")
    until(lambda: "no other GPU is free here" in home.get("scaled")["reason"], "there is none for it")
    assert [each["name"] for each in home.get("scaled")["instances"]] == ["worker-0", "worker-1"]
    home.dtrain("delete", "scaled")


def test_workers_added_start_though_there_is_no_gpu_for_the_one_behind_them(home, gpus):
    gpus(2)
    home.submit("grows", "sleep", "1000", flags=["--workers=1", "--gpus=1", "--min-workers=1", "--max-workers=3"])
    until(lambda: home.status("grows") == "RUNNING", "it runs")
    home.dtrain("scale", "grows", "--workers=3")
    until(lambda: home.get("grows")["reason"].startswith(f"worker-2 was not started: {FAULT.format(2)}"),
          "there is none for it")
    assert [(each["name"], each["status"]) for each in home.get("grows")["instances"]] == [
        ("worker-0", "Running"), ("worker-1", "Running")]
    home.dtrain("delete", "grows")


def test_a_gpu_that_its_driver_wants_reset_is_left_out_though_it_counts_no_errors(home, gpus):
    home.script("nvidia-smi", f"""case $* in
        *gpu_recovery_action*) printf '%s\\n' '0, Reset' '1, None' '2, None' ;;
        *) printf '%s\\n' '{WELL.format(0, 0)}' '{WELL.format(1, 1)}' '{WELL.format(2, 2)}' ;;
        esac""")
    assert "GPU 2,1" in seen(home, "reset")


def test_a_gpu_that_fails_in_a_run_is_left_out_of_the_next(home, gpus):
    gpus()
    script = home.script("fail", f"""echo GPU $CUDA_VISIBLE_DEVICES
        [ $DTRAIN_RESTART_COUNT = 0 ] || exit 0
        sed -i '/^0,/s/ 0, No/ 3, No/' {home.folder}/nvidia-smi
        exit 1""")
    home.submit("again", script, flags=["--gpus=1", "--max-restarts=1"])
    home.dtrain("wait", "again")
    assert home.lines("again", "-i", "worker-0")[-1] == "GPU 1"
    assert home.lines("again", "-i", "worker-0", "--prev")[0] == "GPU 0"


def test_a_worker_of_an_elastic_job_comes_back_on_another_gpu(home, gpus):
    script = home.script("fail", f"""echo GPU $CUDA_VISIBLE_DEVICES
        [ $RANK = 0 ] && [ $DTRAIN_RESTART_COUNT = 0 ] && exec sleep 3
        [ $DTRAIN_RESTART_COUNT = 0 ] || exit 0
        sed -i '/^1,/s/ 0, No/ 3, No/' {home.folder}/nvidia-smi
        exit 1""")
    home.submit("elastic", script, flags=["--workers=2", "--gpus=1", "--min-workers=1", "--max-restarts=1"])
    home.dtrain("wait", "elastic")
    assert [line for line in home.lines("elastic", "-i", "worker-1") if line.startswith("GPU")] == [
        "GPU 1", "GPU 2"]


def test_nobody_asks_where_no_gpu_is_asked_for_and_submit_does_not_wait(home, gpus):
    home.submit("none", "true")
    home.dtrain("wait", "none")
    assert not (home.folder / "asked").exists()
    gpus(run=f"while [ -e {home.folder}/hold ]; do sleep 0.05; done")
    (home.folder / "hold").touch()
    home.submit("held", *SHOW, flags=["--gpus=1"])  # Returns while nvidia-smi has not answered.
    until((home.folder / "asked").exists, "nvidia-smi is asked")
    assert home.status("held") == "PENDING"
    (home.folder / "hold").unlink()
    home.dtrain("wait", "held")
    assert home.lines("held", "-i", "worker-0") == ["GPU 0"]


def test_a_driver_that_fails_is_named(home, gpus):
    home.script("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    home.submit("fails", *SHOW, flags=["--gpus=1"])
    home.dtrain("wait", "fails", expect=EXIT_JOB_FAILED)
    assert home.get("fails")["cause"]["message"].startswith(
        "nvidia-smi failed: Failed to initialize NVML: Driver/library version mismatch; no other GPU")


def test_a_job_is_deleted_while_its_driver_hangs(home, gpus):
    gpus(run="exec sleep 600")
    home.submit("hangs", *SHOW, flags=["--gpus=1"])
    until((home.folder / "asked").exists, "nvidia-smi is asked")
    home.dtrain("delete", "hangs")
    home.wait_for_no_processes()


SLOW = "GPU {} (NVIDIA H100): it is slow: 300 TFLOP/s"


@pytest.fixture
def measure(home, gpus):
    """Has check-gpus find these GPUs slow from now on; returns what was measured so far."""
    log = home.folder / "measured"

    def become(*slow, links=()):
        home.script("trainer", f"""
import json, os, sys
assert sys.argv[1:] == ["check-gpus", "--json"]
devices = os.environ["CUDA_VISIBLE_DEVICES"]
with open("{log}", "a") as file:
    print(devices, file=file)
slow = {[str(gpu) for gpu in slow]}
print(json.dumps({{"gpus": [
    {{"gpu": gpu, "type": "bf16", "flops": 3e14 if gpu in slow else 6e14,
      "fault": "{SLOW}".format(gpu) if gpu in slow else ""}} for gpu in devices.split(",")],
    "link_faults": {list(links)}}}))
sys.exit(1 if slow else 0)""", shebang=f"#!{PYTHON}")
        return log.read_text().split() if log.exists() else []
    home.env["DTRAIN_TRAINER"] = str(home.folder / "trainer")
    become()
    return become


def test_only_on_request_are_gpus_measured(home, measure):
    assert seen(home, "on") == seen(home, "off", "--check-gpus=off") == {"GPU 0,1"}
    assert measure() == []
    assert seen(home, "measured", "--check-gpus=measure") == {"GPU 0,1"}
    assert measure() == ["0,1"]


def test_another_takes_the_place_of_a_slow_gpu_and_is_measured_too(home, measure):
    measure(0)
    assert seen(home, "slow", "--check-gpus=measure") == {
        "GPU 2,1", f"dtrain: {SLOW.format(0)}; using GPU 2 instead"}
    assert measure(0, 1) == ["0,1", "2,1"]
    assert seen(home, "one", "--check-gpus=measure", workers=1) == {
        f"dtrain: {SLOW.format(0)}; using GPU 1 instead; {SLOW.format(1)}; using GPU 2 instead", "GPU 2"}
    home.submit("all", *SHOW, flags=["--workers=2", "--gpus=1", "--check-gpus=measure"])
    home.dtrain("wait", "all", expect=EXIT_JOB_FAILED)
    assert home.get("all")["cause"]["message"] == (
        f"{SLOW.format(1)}; {SLOW.format(0)}; no other GPU is free here (--check-gpus=off skips the check)")


def test_a_gpu_that_is_slow_at_a_restart_is_left_out(home, measure):
    measure(0)
    (home.folder / "trainer").rename(home.folder / "slow")
    measure()
    script = home.script("fail", f"""echo GPU $CUDA_VISIBLE_DEVICES
        [ $DTRAIN_RESTART_COUNT = 0 ] || exit 0
        mv {home.folder}/slow {home.folder}/trainer
        exit 1""")
    home.submit("again", script, flags=["--gpus=1", "--max-restarts=1", "--check-gpus=measure"])
    home.dtrain("wait", "again")
    assert home.lines("again", "-i", "worker-0")[-1] == "GPU 1"
    assert home.lines("again", "-i", "worker-0", "--prev")[0] == "GPU 0"


def test_a_faulty_link_is_named_and_the_job_starts(home, measure):
    measure(links=["GPU 0 to GPU 1: copies are slow"])
    assert seen(home, "linked", "--check-gpus=measure") == {"dtrain: GPU 0 to GPU 1: copies are slow", "GPU 0,1"}


def test_where_nothing_could_be_measured_that_is_said_and_the_job_starts(home, measure):
    home.script("trainer", "echo 'dtrain-trainer: check-gpus: no NVIDIA driver on this machine' >&2; exit 2")
    assert seen(home, "unmeasured", "--check-gpus=measure") == {
        "dtrain: the GPUs were not measured (--check-gpus=measure): dtrain-trainer: check-gpus: no NVIDIA driver "
        "on this machine", "GPU 0,1"}
    home.script("trainer", "echo no JSON")
    assert "GPU 0,1" in seen(home, "garbled", "--check-gpus=measure")


def test_check_measures_the_gpus_that_no_job_uses(home, measure):
    def speed():
        found = home.dtrain("check", "-o", "json", expect=None).json()
        return [(each["level"], each["found"]) for each in found if each["what"] == "GPU speed"]
    assert speed() == [("ok", "3 GPUs, 600 to 600 TFLOP/s of bf16")]
    measure(1, links=["GPU 0 to GPU 2: copies are slow"])
    assert speed() == [("warning", SLOW.format(1)), ("warning", "GPU 0 to GPU 2: copies are slow")]
    measure()
    home.submit("busy", "sleep", "1000", flags=["--gpus=2"])
    until(lambda: home.status("busy") == "RUNNING", "it runs")
    assert speed() == [("ok", "1 GPU, 600 TFLOP/s of bf16")]
    assert measure() == ["0,1,2", "0,1,2", "2"]
    home.dtrain("delete", "busy")
    home.script("trainer", "echo 'check-gpus: no CUDA plug-in' >&2; exit 2")
    assert speed() == [("note", "not measured: check-gpus: no CUDA plug-in")]
