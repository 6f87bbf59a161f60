"""Profiles: what commands use where flags and environment say nothing."""
import pytest
import yaml

from harness import EXIT_USAGE

# Key of a profile: its flag, what the job file calls it, what it is where nobody says.
KEYS = {
    "backend": ("--backend", "backend", "local"),
    "namespace": ("--namespace", "namespace", "default"),
    "image": ("--image", "image", None),
    "hosts": ("--node-list", "nodeList", None),
}


def value(key, layer):
    if key == "backend":
        return "kubernetes"
    if key == "hosts":
        return f"{layer}-1,{layer}-2"
    return f"of-{layer}"


def as_job(key, text):
    return text.split(",") if key == "hosts" else text


@pytest.fixture
def job(home):
    def job(*flags, env=None):
        words = ["submit", "--name=p", *flags, "--dry-run", "-o", "yaml", "--", "true"]
        return yaml.safe_load(home.dtrain(*words, env=env).out)
    return job


@pytest.mark.parametrize("key", KEYS)
def test_flag_over_environment_over_profile_over_default(home, job, key):
    flag, name, default = KEYS[key]
    # What needs a cluster is asked of one: a backend that takes image and hosts.
    home.dtrain("config", "set", "backend", "kubernetes")
    if key != "image":
        home.dtrain("config", "set", "image", "x")
    variable = f"DTRAIN_{key.upper()}"
    if key == "backend":
        home.dtrain("config", "set", "backend", "")
    if key in ("backend", "namespace"):
        assert job().get(name) == default
    home.dtrain("config", "set", key, value(key, "profile"))
    assert home.dtrain("config", "get", key).out == value(key, "profile") + "\n"
    assert job()[name] == as_job(key, value(key, "profile"))
    env = {variable: value(key, "env") if key != "backend" else "local"}
    assert job(env=env)[name] == as_job(key, env[variable])
    assert f"${variable}" in home.dtrain("config", "view", env=env).out
    assert job(f"{flag}={value(key, 'flag')}", env=env)[name] == as_job(key, value(key, "flag"))


def test_the_profile_is_chosen_by_flag_over_environment_over_use(home, job):
    for name in ("a", "b", "c"):
        home.dtrain("config", "set", f"--profile={name}", "namespace", f"of-{name}")
    home.dtrain("config", "use", "a")
    assert job()["namespace"] == "of-a"
    assert job(env={"DTRAIN_PROFILE": "b"})["namespace"] == "of-b"
    assert job("--profile=c", env={"DTRAIN_PROFILE": "b"})["namespace"] == "of-c"
    listed = home.dtrain("config", "list").out.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [["a", "*"], ["b", "of-b"], ["c", "of-c"]]


def test_image_and_hosts_of_a_profile_are_not_for_this_machine(home, job):
    home.dtrain("config", "set", "image", "x")
    home.dtrain("config", "set", "hosts", "n1,n2")
    local = job()
    assert "image" not in local and "nodeList" not in local


def test_hosts_of_a_profile_are_for_its_own_backend(home, job):
    home.dtrain("config", "set", "--profile=lab", "backend", "ssh")
    home.dtrain("config", "set", "--profile=lab", "hosts", "h1,h2")
    home.dtrain("config", "set", "--profile=site", "backend", "slurm")
    home.dtrain("config", "set", "--profile=site", "hosts", "n1,n2")
    assert "nodeList" not in job("--profile=lab", "--backend=slurm")
    assert job("--profile=site")["nodeList"] == ["n1", "n2"]


def test_a_profiles_own_data_comes_before_what_all_have(home, job):
    home.dtrain("config", "set", "--profile=lab", "namespace", "lab")
    home.dtrain("config", "set", "--profile=home", "namespace", "home")
    for folder in ("common", "own"):
        (home.folder / folder).mkdir()
    home.dtrain("data", "add", "set", "--path=common")
    home.dtrain("data", "add", "set", "--path=own", "--profile=lab", "--read-only")
    home.dtrain("data", "add", "set", "--path=own", "--profile=lab", expect=EXIT_USAGE)
    assert job("--profile=home", "--data=set:/d")["dataDirs"] == [f"{home.folder}/common:/d"]
    assert job("--profile=lab", "--data=set:/d")["dataDirs"] == [f"{home.folder}/own:/d:ro"]
    assert "profile lab" in home.dtrain("data", "list").out
    assert "own" in home.dtrain("data", "get", "set", "--profile=lab").out
    home.dtrain("data", "delete", "set", "--profile=lab")
    assert "common" in home.dtrain("data", "get", "set", "--profile=lab").out


@pytest.mark.parametrize("text, line, words", [
    ("profiles:\n  a:\n    imgae: x\n", 3, ["imgae", "image"]),
    ("profiles:\n  a:\n    backend: local\n    gpus: 3\n", 4, ["gpus", "known"]),
    ("data:\n  d:\n    path: /x\n    mode: ro\n", 4, ["mode"]),
    ("current-profle: a\n", 1, ["current-profile"]),
    ("profiles:\n  a:\n    image: [x]\n", 3, ["image"]),
    ("profiles:\n  a: {\n", 3, []),
])
def test_a_mistake_in_the_settings_is_one_line_with_its_place(home, text, line, words):
    path = home.folder / "config" / "dtrain" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    for command in (["list"], ["submit", "--dry-run", "--", "true"], ["config", "get", "image"]):
        result = home.dtrain(*command, expect=EXIT_USAGE)
        assert result.err.count("\n") == 1 and f"{path}:{line}: " in result.err, result.err
        assert all(word in result.err for word in words)
