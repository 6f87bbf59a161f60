"""The Kubernetes backend against an API server that does what real ones do at the worst moment."""
import signal
import threading

import pytest
import yaml

from fake_cluster import CutOff, FakeCluster, status
from harness import EXIT_NOT_FOUND, EXIT_USAGE, EXIT_ENGINE

SUBMIT = ["submit", "--name=a", "--image=x"]


@pytest.fixture
def cluster(home):
    cluster = FakeCluster(home)
    yield cluster
    cluster.close()


def forbid(cluster, *paths):
    def answer(method, path):
        return status(403, "Forbidden", f"{path} is forbidden at the cluster scope") \
            if path in paths else None
    cluster.on_request = answer


def test_another_jobs_service_is_left_alone_and_a_deleted_jobs_is_replaced(cluster):
    labels = {"dtrain/job": "a-tensorboard"}
    other = cluster.put("Job", "a-tensorboard-worker", labels=labels)
    service = cluster.put("Service", "a-tensorboard", owner=other, labels=labels)
    words = [*SUBMIT, "--tensorboard", "--logdir=/logs", "--data=logs:/logs", "--", "true"]
    cluster.objects["/api/v1/namespaces/default/persistentvolumeclaims/logs"] = {"metadata": {}}
    result = cluster.dtrain(*words, expect=EXIT_USAGE)
    assert "Service a-tensorboard" in result.err and "job a-tensorboard's" in result.err
    path = "/api/v1/namespaces/default/services/a-tensorboard"
    assert cluster.objects[path] == service
    assert cluster.named("jobs") == ["a-tensorboard-worker"], "what was made is taken back"
    del cluster.objects["/apis/batch/v1/namespaces/default/jobs/a-tensorboard-worker"]
    cluster.dtrain(*words)
    assert cluster.objects[path]["metadata"]["labels"]["dtrain/job"] == "a"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_between_the_first_object_and_the_last_leaves_nothing(cluster, number):
    reached, told = threading.Event(), threading.Event()

    def answer(method, path):
        if method == "POST" and path.endswith("/configmaps"):
            reached.set()
            told.wait(60 * cluster.home.build.slowness)
    cluster.on_request = answer
    process = cluster.home.start([cluster.home.dtrain_path, *SUBMIT, "-b", "kubernetes", "--",
                                  "true"], env=cluster.env)
    assert reached.wait(60 * cluster.home.build.slowness)
    process.send_signal(number)
    told.set()
    _, err = process.communicate(timeout=20 * cluster.home.build.slowness)
    assert process.returncode == 128 + number, err
    assert cluster.objects == {}


def test_a_cleaning_up_that_fails_hides_no_error_and_says_what_is_left(cluster):
    def answer(method, path):
        if method == "POST" and path.endswith("/configmaps"):
            return status(403, "Forbidden", "no configmaps for you")
        if method == "DELETE":
            raise ConnectionError
        return None
    cluster.on_request = answer
    result = cluster.dtrain(*SUBMIT, "--", "true", expect=EXIT_ENGINE)
    assert "no configmaps for you" in result.err and "dtrain delete a" in result.err


def test_a_job_that_is_not_there_is_said_to_one_who_may_see_one_namespace(cluster):
    forbid(cluster, "/apis/batch/v1/jobs", "/api/v1/pods")
    for words in ["explain", "nosuch"], ["get", "nosuch"], ["delete", "nosuch"]:
        result = cluster.dtrain(*words, expect=None)
        assert "no job 'nosuch' in namespace 'default'" in result.err, result
        assert "forbidden" not in result.err
        assert words[0] == "delete" or result.code == EXIT_NOT_FOUND


def test_top_node_shows_what_may_be_seen_and_names_the_missing_right(cluster):
    cluster.put("Pod", "a-worker-0", spec={"nodeName": "n1", "containers": [
        {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]})
    cluster.objects["/api/v1/nodes/n1"] = {"metadata": {"name": "n1", "namespace": ""}, "status": {
        "allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready",
                                                                "status": "True"}]}}
    forbid(cluster, "/api/v1/pods")
    result = cluster.dtrain("top", "node")
    assert result.out.splitlines()[1].split()[-3:] == ["8", "2", "6"]
    assert "`list` on pods" in result.err and result.err.count("\n") == 1
    forbid(cluster, "/api/v1/pods", "/api/v1/nodes")
    result = cluster.dtrain("top", "node")
    assert result.out.splitlines()[1].split()[0] == "n1"
    assert "`list` on nodes" in result.err and result.err.count("\n") == 1


def test_scale_makes_the_job_from_its_own_templates_not_from_those_that_lie_here(cluster):
    home = cluster.home
    home.dtrain("template", "copy", "kubernetes/start", "mine")
    file = home.folder / "mine/kubernetes/start.sh"
    file.write_text(file.read_text().replace("\n", "\n: {{team}} was here\n", 1))
    cluster.dtrain(*SUBMIT, "--template=mine", "--set=team=vision", "--", "true")
    file.unlink()
    other = home.folder / "config/dtrain/templates/kubernetes/start.sh"
    other.parent.mkdir(parents=True)
    other.write_text("#!/bin/sh\n")
    cluster.dtrain("scale", "a", "--workers=3")
    data = cluster.objects["/api/v1/namespaces/default/configmaps/a"]["data"]
    assert "\n: 'vision' was here\n" in data["start.sh"]
    assert len(data["hostfile"].splitlines()) == 3
    assert cluster.objects["/apis/batch/v1/namespaces/default/jobs/a-worker"]["spec"][
        "completions"] == 3


def put_done(cluster):
    """A job whose one rank has succeeded."""
    put_ranks(cluster, [("node1", {"phase": "Succeeded", "containerStatuses": [
        {"name": "main", "state": {"terminated": {"exitCode": 0}}}]})])


# A runtime reads stdout and stderr side by side: what was read first may be written second.
UNSORTED = ["2026-01-01T00:00:00.9Z first\n", "2026-01-01T00:00:01.2Z second\n",
            "2026-01-01T00:00:01.1Z out of order\n", "2026-01-01T00:00:01.2Z fourth\n",
            "2026-01-01T00:00:01.15Z out of order\n", "2026-01-01T00:00:01.3Z last\n"]
UNSORTED_LINES = [line.split(" ", 1)[1].strip() for line in UNSORTED]


def test_a_line_whose_time_lies_before_that_of_the_line_above_is_shown(cluster):
    put_done(cluster)
    cluster.on_request = lambda method, path: \
        (200, "".join(UNSORTED).encode()) if path.endswith("/log") else None
    assert cluster.dtrain("logs", "a").out.splitlines() == UNSORTED_LINES


@pytest.mark.parametrize("came", range(0, len("".join(UNSORTED)), 15))
def test_a_log_that_breaks_off_goes_on_where_it_was(cluster, came):
    put_done(cluster)
    log = "".join(UNSORTED).encode()
    answers = []

    def answer(_, path):
        if not path.endswith("/log"):
            return None
        target = cluster.requests[-1][1]
        of_second = b"".join(line.encode() for line in UNSORTED if "00:00:01" in line)
        answers.append(of_second if "sinceTime=2026-01-01T00%3A00%3A01Z" in target else log)
        return 200, CutOff(log[:came]) if len(answers) == 1 else answers[-1]
    cluster.on_request = answer
    assert cluster.dtrain("logs", "a").out.splitlines() == UNSORTED_LINES
    assert len(answers) == 2


GONE = b"unable to retrieve container logs for containerd://cb60b593fd1e"


def test_what_a_kubelet_says_in_the_place_of_a_log_is_no_line_of_it(cluster):
    put_done(cluster)
    answers = []

    def answer(_, path):
        if path.endswith("/log"):
            answers.append(GONE if len(answers) < 2 else b"2026-01-01T00:00:01Z here\n")
            return 200, answers[-1]
        return None
    cluster.on_request = answer
    assert cluster.dtrain("logs", "a").out == "here\n"
    cluster.on_request = lambda method, path: (200, GONE) if path.endswith("/log") else None
    result = cluster.dtrain("logs", "a", expect=None)
    assert result.out == "" and GONE.decode() in result.err


def test_an_answer_that_stays_away_is_asked_for_once_more(cluster):
    put_done(cluster)
    slow = []

    def answer(method, path):
        if path.endswith("/jobs") and not slow:
            slow.append(path)
            told.wait(60 * cluster.home.build.slowness)
    told = threading.Event()
    cluster.on_request = answer
    try:
        assert "a" in cluster.dtrain("get", "a").out
    finally:
        told.set()
    assert slow


def test_a_logs_line_without_end_is_saved_to_the_byte(cluster):
    put_done(cluster)
    bar = "".join(f"\r{i} of 40000" for i in range(40000))
    log = f"2026-01-01T00:00:01Z first\n2026-01-01T00:00:02Z {bar}\n2026-01-01T00:00:03Z end\n"
    cluster.on_request = lambda method, path: \
        (200, log.encode()) if path.endswith("/log") else None
    cluster.dtrain("delete", "a", "--save-logs=saved")
    saved = cluster.home.folder / "saved/a/worker-0.log"
    assert saved.read_bytes() == f"first\n{bar}\nend\n".encode()


def put_ranks(cluster, pods):
    """A job whose ranks have these statuses and nodes."""
    labels = {"dtrain/job": "a"}
    job = cluster.put("Job", "a-worker", labels=labels, spec={"completions": len(pods)}, status={})
    job["metadata"]["annotations"] = {"dtrain/roles": f"worker={len(pods)}"}
    for rank, (node, status_) in enumerate(pods):
        pod = cluster.put("Pod", f"a-worker-{rank}", owner=job, status=status_, labels={
            **labels, "batch.kubernetes.io/job-completion-index": str(rank),
            "batch.kubernetes.io/controller-uid": job["metadata"]["uid"]})
        pod["spec"] = {"nodeName": node, "containers": [{"name": "main"}]}
        pod["metadata"]["annotations"] = {"dtrain/roles": f"worker={len(pods)}"}
    return job


def test_of_a_failed_ranks_log_no_more_is_fetched_than_is_shown(cluster):
    job = put_ranks(cluster, [("n1", {"phase": "Failed", "containerStatuses": [
        {"name": "main", "state": {"terminated": {"exitCode": 3}}}]})])
    job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    cluster.on_request = lambda method, path: \
        (200, b"cannot open the data\n") if path.endswith("/log") else None
    assert "cannot open the data" in cluster.dtrain("get", "a").out
    query, = [target.split("?")[1] for _, target in cluster.requests if "/log?" in target]
    assert {"tailLines=20", "limitBytes=262144"} <= set(query.split("&"))


@pytest.mark.parametrize("nodes, asked", [
    (1, ["/n1"]), (2, ["?limit=100"]), (3, ["?limit=100", "/n2"]), (4, [""])])
def test_a_silent_node_is_found_in_few_requests(cluster, nodes, asked):
    running = {"phase": "Running", "containerStatuses": [
        {"name": "main", "ready": True, "state": {"running": {}}}]}
    put_ranks(cluster, [(f"n{number + 1}", running) for number in range(nodes)])
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    items = [{"metadata": {"name": f"n{number + 1}", "namespace": "kube-node-lease"},
              "spec": {"renewTime": "2026-01-01T00:00:00.000000Z" if number == nodes - 1 else
                       "2200-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40}}
             for number in range(nodes)]
    for item in items:
        cluster.objects[f"{leases}/{item['metadata']['name']}"] = item
    if nodes == 3:  # A large cluster's first page may lack one.
        cluster.on_request = lambda method, path: (200, {
            "metadata": {"resourceVersion": "1"}, "items": [items[0], items[2]]}) \
            if path == leases else None
    assert f"node n{nodes} has not answered for " in cluster.dtrain("get", "a").out
    assert [target.removeprefix(leases) for _, target in cluster.requests
            if target.startswith(leases)] == asked


@pytest.mark.parametrize("flags", [[], ["--api=jobset"], ["--tensorboard", "--logdir=/l"]], ids=str)
def test_a_dry_run_is_one_stream_of_yaml_with_scripts_to_read(home, flags):
    result = home.dtrain("submit", "-b", "kubernetes", "--name=a", "--image=x", "--dry-run", *flags,
                         "--", "sh", "-c", "echo $RANK")
    kinds = [each["kind"] for each in yaml.safe_load_all(result.out)]
    assert kinds[0] in ("Job", "JobSet") and kinds[1:4] == ["Service", "ConfigMap", "Secret"]
    assert result.out.startswith("---\n# job")
    assert '\n  "start.sh": |\n    #!/bin/sh\n' in result.out
    secret = next(each for each in yaml.safe_load_all(result.out) if each["kind"] == "Secret")
    assert secret["stringData"]["token"] == "***" and "data" not in secret
    assert "==>" not in result.err


VOLCANO = {"preferredVersion": {"version": "v1beta1"}, "versions": [{"version": "v1beta1"}]}
TASKS = ["submit", "volcanojob", "--name=v", "--task-images=busybox,alpine,alpine",
         "--task-replicas=2", "--min-available=3"]


def test_a_volcanojob_is_its_tasks_jobs_and_a_group_for_volcano(cluster):
    error = cluster.dtrain(*TASKS, expect=EXIT_USAGE).err
    assert "volcanojob: the cluster has no Volcano" in error and error.count("\n") == 1 + error.count(
        "resolve") and cluster.objects == {}
    cluster.on_request = lambda method, path: \
        (200, VOLCANO) if path == "/apis/scheduling.volcano.sh" else None
    cluster.dtrain(*TASKS)
    group = cluster.objects["/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups/v"]
    assert group["spec"] == {"minMember": 3}
    jobs = [cluster.objects[f"/apis/batch/v1/namespaces/default/jobs/v-{name}"]
            for name in ("worker", "task-1")]
    assert [job["spec"]["completions"] for job in jobs] == [2, 4]
    for job in jobs:
        pod = job["spec"]["template"]
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "v"
        assert "command" not in pod["spec"]["containers"][0], "each image's own program"
    names = [each["name"] for each in
             yaml.safe_load(cluster.dtrain("get", "v", "-o", "yaml").out)["instances"]]
    assert names == [f"task-{task}-{index}" for task in range(3) for index in range(2)]
    complete = {"conditions": [{"type": "Complete", "status": "True"}],
                "completionTime": "2026-01-01T00:00:09Z"}
    jobs[0]["status"] = complete
    assert "SUCCEEDED" not in cluster.dtrain("list").out, "a task still runs"
    jobs[1]["status"] = complete
    assert "SUCCEEDED" in cluster.dtrain("list").out
    assert "each image's own program" in cluster.dtrain("get", "v", "-o", "wide").out
    cluster.dtrain("delete", "v")
    assert cluster.objects == {}


@pytest.mark.parametrize("words, why", [
    ([*TASKS, "--min-available=7"], "--min-available=7: the tasks have 6 instances"),
    (["submit", "tfjob", "--image=x", "--min-available=2"],
     "--min-available: is for a volcanojob, not for a tfjob")], ids=["too many", "a tfjob"])
def test_a_volcanojob_waits_for_no_more_instances_than_it_has(home, words, why):
    error = home.dtrain(*words, "-b", "kubernetes", "--dry-run", "--", "true", expect=EXIT_USAGE).err
    assert why in error


def test_a_volcanojob_with_a_command_runs_it_in_every_task_as_its_rank(cluster):
    out = cluster.dtrain(*TASKS, "--gang", "--queue=q", "--dry-run", "--", "echo", "hello").out
    objects = list(yaml.safe_load_all(out))
    group = next(each for each in objects if each["kind"] == "PodGroup")
    assert group["spec"] == {"minMember": 6, "queue": "q"}
    scripts = next(each for each in objects if each["kind"] == "ConfigMap")["data"]
    assert "export 'ROLE_NAME'=task-0" in scripts["start.sh"]
    assert "export 'ROLE_NAME'=task-2" in scripts["task-1.sh"]
    assert all("exec 'echo' 'hello'" in scripts[name] and "'WORLD_SIZE'='6'" in scripts[name]
               for name in ("start.sh", "task-1.sh"))


def test_get_shows_what_the_cluster_wrote_down_about_the_job_and_nothing_else(cluster):
    job = cluster.put("Job", "a-worker", labels={"dtrain/job": "a"}, spec={"completions": 1},
                      status={})
    job["metadata"]["annotations"] = {"dtrain/roles": "worker=1"}
    pod = cluster.put("Pod", "a-worker-0", owner=job, labels={
        "dtrain/job": "a", "batch.kubernetes.io/job-completion-index": "0",
        "batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}, status={
            "phase": "Pending"})
    pod["spec"] = {"containers": [{"name": "main"}], "initContainers": [{"name": "code"}]}
    pod["metadata"]["annotations"] = {"dtrain/roles": "worker=1"}

    def put_event(name, uid, kind, reason, at):
        cluster.objects[f"/api/v1/namespaces/default/events/{name}"] = {
            "metadata": {"name": name, "namespace": "default"}, "type": "Warning",
            "reason": reason, "message": "no room", "lastTimestamp": f"2026-01-01T00:00:{at}Z",
            "involvedObject": {"kind": kind, "name": "a-worker-0", "uid": uid}}
    put_event("e1", pod["metadata"]["uid"], "Pod", "FailedScheduling", "07")
    put_event("e2", job["metadata"]["uid"], "Job", "Created", "05")
    put_event("e3", "another's", "Pod", "Killing", "06")
    out = cluster.dtrain("get", "a", "-e", "-g").out
    events = out[out.index("Events:"):].splitlines()[3:]
    assert [line.split()[0] for line in events] == ["job/a-worker-0", "pod/a-worker-0"]
    assert events[1].endswith("[FailedScheduling] no room")
    assert "Allocated/Requested GPUs of Job: 0/0" in out
    data = yaml.safe_load(cluster.dtrain("get", "a", "-e", "-o", "yaml").out)
    assert [each["message"] for each in data["events"]] == [
        "[Created] no room", "[FailedScheduling] no room"]
    error = cluster.dtrain("logs", "a", "-c", "nosuch", expect=EXIT_NOT_FOUND).err
    assert "--container=nosuch: the job's Pods have main, code" in error


def test_the_claims_of_every_namespace_are_listed_where_that_is_asked(cluster):
    for namespace in ("default", "team-a"):
        cluster.objects[f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/c"] = {
            "metadata": {"name": "c", "namespace": namespace}, "status": {"phase": "Bound"}}
    assert cluster.dtrain("data", "list").out.count("the cluster's claim") == 1
    rows = [line.split() for line in cluster.dtrain("data", "list", "-A").out.splitlines()]
    claim = ["c", "the", "cluster's", "claim", "Bound"]
    assert rows[-2:] == [["default", *claim], ["team-a", *claim]]


def test_logs_of_another_container_are_asked_for_by_its_name(cluster):
    test_get_shows_what_the_cluster_wrote_down_about_the_job_and_nothing_else(cluster)
    pod = cluster.objects["/api/v1/namespaces/default/pods/a-worker-0"]
    pod["status"] = {"phase": "Pending", "initContainerStatuses": [
        {"name": "code", "state": {"terminated": {"exitCode": 0}}}]}
    cluster.on_request = lambda method, path: \
        (200, b"2026-01-01T00:00:01Z cloned\n") if path.endswith("/log") else None
    assert cluster.dtrain("logs", "a", "-c", "code").out == "cloned\n"
    assert any("container=code" in target for _, target in cluster.requests)
