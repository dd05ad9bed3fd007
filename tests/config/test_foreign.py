"""Configurations of somebody else: what they may not do, as the attack that did it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from robot_rl.config.api_key import FOLDER, VARIABLE, api_key
from robot_rl.config.provenance import command
from robot_rl.config.run_folder import config_hash
from robot_rl.config.yaml_file import MAX_BYTES, parse_yaml, read_yaml
from robot_rl.errors import ConfigError
from robot_rl.report.rundata import read_run
from robot_rl.run.deploy_setup import experiment_on
from robot_rl.run.experiment import Experiment
from robot_rl.run.raised import is_own_run
from robot_rl.system.files import user_folder

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def config_folder(tmp_path: Path, text: str, group: str = "experiment") -> Path:
    """A folder as for --config-dir, with one file of a stranger."""
    folder = tmp_path / "conf"
    (folder / group).mkdir(parents=True)
    (folder / group / "theirs.yaml").write_text(text)
    return folder


@pytest.mark.parametrize("name", ["jürgen", "robot (copy)", "x=1", "a,b", "it's", "a b [1] {2}"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    config_folder(folder, HEAD + "seed: 7\n")
    assert Experiment.compose(["experiment=theirs"], folder / "conf").seed == 7


def test_what_lies_behind_a_link_to_a_folder_is_looked_at_and_seen_to_change(
    tmp_path: Path,
) -> None:
    hidden = config_folder(tmp_path, HEAD + "seed: 1\n") / "experiment"
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "experiment").symlink_to(hidden)
    assert Experiment.compose(["experiment=theirs"], shown).seed == 1
    (hidden / "theirs.yaml").write_text(HEAD + "seed: 23\n")
    assert Experiment.compose(["experiment=theirs"], shown).seed == 23
    (hidden / "more.yaml").write_text("reward: {task: '${oc.env:HOME}'}\n")
    with pytest.raises(ConfigError, match="would have something computed"):
        Experiment.compose(["experiment=theirs"], shown)
    (hidden / "more.yaml").unlink()
    (hidden / "around").symlink_to(shown)  # without end
    assert Experiment.compose(["experiment=theirs"], shown).seed == 23
    (shown / "everything").symlink_to("/")
    with pytest.raises(ConfigError, match="more than configurations"):
        Experiment.compose(["experiment=theirs"], shown)


HEAD = "# @package _global_\ndefaults:\n  - override /task: reach\n  - _self_\nname: theirs\n"


@pytest.mark.parametrize(
    "text",
    [
        "reward: {task: '${oc.env:SECRET}'}",
        "reward: {task: '${oc.env:SECRET,nothing}'}",
        "reward: {task: '${ oc.env:SECRET }'}",
        "reward: {task: '${oc.decode:\"1\"}'}",
        "reward: {task: '${oc.create:${x}}'}",
        "reward: {task: '${${x}:SECRET}'}",
        "reward: {task: 'a ${task.name} ${oc.env:SECRET}'}",
        "reward: {'${oc.env:SECRET}': 1}",
        "reward: {task: '${hydra:runtime.cwd}'}",
    ],
)
def test_no_resolver_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SECRET", "swordfish")
    folder = config_folder(tmp_path, HEAD + text)
    with pytest.raises(ConfigError, match="would have something computed") as error:
        Experiment.compose(["experiment=theirs"], folder)
    assert "swordfish" not in str(error.value)


def test_no_resolver_chooses_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "lift")
    text = "# @package _global_\ndefaults:\n  - override /task: ${oc.env:SECRET}\n  - _self_\n"
    with pytest.raises(ConfigError, match="would have something computed"):
        Experiment.compose(["experiment=theirs"], config_folder(tmp_path, text))


def test_a_word_runs_no_resolver_and_may_repeat_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "swordfish")
    with pytest.raises(ConfigError, match="would have something computed"):
        Experiment.compose(["experiment=reach", "name=${oc.env:SECRET}"])
    found = Experiment.compose(["experiment=reach", "reward.task=${name}"])
    assert found.config["reward"]["task"] == "reach"


@pytest.mark.parametrize(
    ("text", "got"),
    [
        (ALIASES, "written out"),
        ("a: &a [*a]", "contains itself"),
        ("a: &a {b: *a}", "contains itself"),
        ("[" * 60 + "]" * 60, "levels"),
        ("[" * 100_000, "levels"),
        ("{a: " * 5_000 + "1" + "}" * 5_000, "levels"),
        ("x" * (MAX_BYTES + 1), "bytes"),
    ],
)
def test_yaml_that_explodes_is_refused_at_once(tmp_path: Path, text: str, got: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(ConfigError, match="too large") as error:
        parse_yaml(text, "theirs.yaml")
    assert got in error.value.got
    with pytest.raises(ConfigError, match="too large"):
        Experiment.compose(["experiment=theirs"], config_folder(tmp_path, text))
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(text)
    (run / "run.json").write_text('{"config_hash": "0"}')
    for read in (Experiment.load, read_run):
        with pytest.raises(ConfigError, match="too large"):
            read(run)
    assert time.monotonic() - began_s < 20.0


def test_yaml_names_no_type_of_python(tmp_path: Path) -> None:
    path = tmp_path / "theirs.yaml"
    path.write_text("a: !!python/object/apply:os.system ['true']")
    with pytest.raises(yaml.YAMLError):
        read_yaml(path)


RAISED = {
    "max_speed_m_s": 1.5,
    "max_force_n": 200.0,
    "workspace_max_m": [0.8, 0.4, 2.0],
    "joint_margin_rad": 0.0,
    "operator_timeout_s": 0.5,
    "collision_arm": "",
    "obstacles": {"table": None},
    "control_hz": 1.0,
}


@pytest.mark.parametrize("name", RAISED)
def test_a_file_does_not_raise_a_limit_and_a_person_does(tmp_path: Path, name: str) -> None:
    folder = config_folder(tmp_path, HEAD + yaml.safe_dump({"safety": {name: RAISED[name]}}))
    with pytest.raises(ConfigError, match=f"safety.{name} is above") as error:
        Experiment.compose(["experiment=theirs"], folder)
    assert f"safety.{name}=" in error.value.fix
    if name == "max_speed_m_s":
        word = f"safety.{name}=1.5"
        raised = Experiment.compose(["experiment=theirs", word], folder)
        assert raised.limits.max_speed_m_s == 1.5
        with pytest.raises(ConfigError, match="is above"):  # another word is not this one
            Experiment.compose(["experiment=theirs", "safety.max_step_m=0.04"], folder)


def test_a_robot_file_of_a_stranger_does_not_raise_the_limits_of_a_known_arm(
    tmp_path: Path,
) -> None:
    text = "# @package _global_\nrobot: {name: fr3}\nsafety: {name: fr3, max_speed_m_s: 1.5}\n"
    with pytest.raises(ConfigError, match="max_speed_m_s is above"):
        Experiment.compose(["robot=theirs"], config_folder(tmp_path, text, "robot"))


REAL = ("experiment=reach", "robot=fr3_crisp", "double=true")


def test_a_run_from_elsewhere_does_not_raise_a_limit_of_a_real_arm(tmp_path: Path) -> None:
    fast = Experiment.compose([*REAL, "safety.max_speed_m_s=1.5", f"run_dir={tmp_path / 'run'}"])
    run = fast.save()
    assert is_own_run(run) and Experiment.load(run).limits.max_speed_m_s == 1.5  # said here
    record = json.loads((run / "run.json").read_text())
    for mark in ("0" * 64, None, 7, "é"):
        (run / "run.json").write_text(json.dumps(record | {"made_here": mark}))
        with pytest.raises(ConfigError, match="max_speed_m_s is above"):
            Experiment.load(run)
        with pytest.raises(ConfigError, match="max_speed_m_s is above"):
            experiment_on(run, [], tmp_path / "out")
    word = "safety.max_speed_m_s=0.5"
    assert experiment_on(run, [word], tmp_path / "out").limits.max_speed_m_s == 0.5


def test_the_mark_of_a_run_is_no_mark_of_an_edited_one(tmp_path: Path) -> None:
    run = Experiment.compose([*REAL, f"run_dir={tmp_path / 'run'}"]).save()
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["safety"]["max_speed_m_s"] = 1.5
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    record = json.loads((run / "run.json").read_text())
    record["config_hash"] = config_hash(config)
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="max_speed_m_s is above"):
        Experiment.load(run)


@pytest.mark.parametrize("text", ["[]", "7", "null", "{}", '{"config_hash": []}', "[" * 100_000])
def test_an_odd_run_json_is_one_error(tmp_path: Path, text: str) -> None:
    run = Experiment.compose(["experiment=reach", f"run_dir={tmp_path / 'run'}"]).save()
    (run / "run.json").write_text(text)
    with pytest.raises(ConfigError):
        Experiment.load(run)


def key_file(line: str, mode: int = 0o600, name: str = "lab") -> Path:
    """A key of this machine."""
    path = user_folder() / FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line)
    path.chmod(mode)
    return path


def test_a_key_goes_to_its_own_host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    key_file("api.example.com sk-secret\n")
    assert api_key("lab", "API.example.com") == "sk-secret"
    monkeypatch.setenv(VARIABLE + "OTHER", "10.0.0.5 sk-secret")
    assert api_key("other", "10.0.0.5") == "sk-secret"
    assert api_key("", "evil.example") == ""
    for name in ("lab", "other"):
        with pytest.raises(ConfigError, match="no key") as error:
            api_key(name, "evil.example")
        assert "secret" not in str(error.value) and "another host" in error.value.got


@pytest.mark.parametrize(
    ("line", "mode", "got"),
    [
        ("evil.example sk-secret", 0o644, "others may read"),
        ("", 0o600, "no host and key"),
        ("sk-secret", 0o600, "no host and key"),
        ("evil.example sk secret", 0o600, "no host and key"),
        ("evil.example sk-\nroot:x:0:0:secret", 0o600, "no host and key"),
        ("evil.example sk-sécret", 0o600, "no host and key"),
    ],
)
def test_a_key_that_cannot_be_used_is_not_shown(line: str, mode: int, got: str) -> None:
    key_file(line, mode)
    with pytest.raises(ConfigError, match="no key") as error:
        api_key("lab", "evil.example")
    assert got in error.value.got and "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["../../.ssh/id_rsa", "/etc/passwd", "..", "HOME", "a" * 40, "é"])
def test_a_name_of_a_key_is_no_path(name: str, home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text("evil.example secret")
    with pytest.raises(ConfigError, match="no key") as error:
        api_key(name, "evil.example")
    assert "other characters" in error.value.got


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ({"reward": {"name": "vlm", "server": {"key_file": "/etc/passwd"}}}, "key_file"),
        ({"reward": {"name": "vlm", "server": {"key_env": "HOME"}}}, "key_env"),
        ({"base": {"name": "openpi", "api_key": "sk-secret"}}, "api_key"),
        ({"base": {"name": "groot", "api_token": "sk-secret"}}, "api_token"),
    ],
)
def test_no_configuration_holds_a_key_or_names_a_file_with_one(
    words: dict[str, dict[str, object]], where: str
) -> None:
    ((group, section),) = words.items()
    found = Experiment.compose(["experiment=reach"])
    experiment = Experiment.from_dict({**found.config, group: section})
    with pytest.raises(ConfigError, match=f"{where} is no longer read") as error:
        experiment.section(group)
    assert "secret" not in str(error.value)


def test_runs_from_before_named_keys_still_load() -> None:
    found = Experiment.compose(["experiment=reach"])
    old = {"name": "vlm", "server": {"model": "m", "key_file": "", "key_env": ""}}
    before = Experiment.from_dict({**found.config, "reward": old})
    assert before.section("reward").server.key == ""


def test_a_pairing_string_is_not_kept_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["robot-rl", "learner", "--pair", "rrl1:AAEV3fEKRKBl", "--pair=rrl2:secret", "seed=1"]
    monkeypatch.setattr("sys.argv", words)
    assert command() == "robot-rl learner --pair rrl1:... --pair=rrl1:... seed=1"
