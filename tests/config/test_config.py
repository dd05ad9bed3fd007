"""Configuration: shipped experiments load, a wrong word names the right one, runs keep theirs."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import yaml

from robot_rl.config.compose import compose, config_dir, groups, options
from robot_rl.config.registry import REGISTRY, build, register, resolve
from robot_rl.config.run_folder import ACTOR_STORE, LEARNER_STORE, RUN, STORE
from robot_rl.errors import ConfigError
from robot_rl.run.experiment import GROUPS, Experiment, TrainConfig

EXPERIMENTS = options("experiment")


class Colour(StrEnum):
    """For `build`."""

    RED = "red"
    GREEN = "green"


@dataclass(frozen=True, kw_only=True)
class Inner:
    """For `build`."""

    gain: float = 1.0

    def __post_init__(self) -> None:
        """Check the range."""
        if self.gain < 0:
            raise ValueError("gain must not be negative")


@dataclass(frozen=True, kw_only=True)
class Outer:
    """For `build`."""

    count: int
    names: tuple[str, ...] = ()
    box_m: tuple[float, float, float] = (0.0, 0.0, 0.0)
    colour: Colour = Colour.RED
    inner: Inner = field(default_factory=Inner)
    maybe: float | None = None
    size: int | tuple[int, int] = 0


def test_build_fills_in_defaults_and_converts() -> None:
    built = build(
        Outer, {"count": 1, "names": ["a"], "box_m": [1, 2, 3], "inner": {"gain": 2}, "maybe": 3}
    )
    assert built.names == ("a",)
    assert built.box_m == (1.0, 2.0, 3.0)
    assert built.inner.gain == 2.0
    assert built.maybe == 3.0
    assert [build(Outer, {"count": 1, "size": v}).size for v in (7, [7, 8])] == [7, (7, 8)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"count": 1, "colur": "red"}, "did you mean 'colour'"),
        ({"count": 1, "inner": {"gian": 1}}, "unknown config key 'inner.gian'"),
        ({"count": "one"}, "got:      'one' (a text)"),
        (
            {"count": 1, "inner": {"gain": float("nan")}},
            "config key 'inner.gain' is not a finite number",
        ),
        ({"count": 1, "inner": {"gain": float("inf")}}, "expected: a finite number"),
        ({"count": 1, "box_m": [1, 2, float("-inf")]}, "expected: a list of 3 numbers"),
        ({"count": True}, "got:      True (true or false)"),
        ({"count": 1, "box_m": [1, 2]}, "wrong type for config key 'box_m'"),
        ({"count": 1, "box_m": [1, 2]}, "expected: a list of 3 numbers"),
        ({"count": 1, "box_m": [1, 2]}, "fix:      write it like this: box_m=[0.5,0.5,0.5]"),
        ({"count": 1, "names": 3}, "expected: a list of texts"),
        ({"count": 1, "names": ["a", 3]}, "got:      ['a', 3] (a list)"),
        ({"count": 1, "inner": 3}, "fix:      write it like this: inner.KEY=VALUE"),
        ({"count": 1, "colour": "blue"}, "expected: one of red, green"),
        ({"count": 1, "inner": {"gain": -1}}, "gain must not be negative"),
        ({"count": 1, "size": [1, 2, 3]}, "expected: a whole number, or a list of 2 whole numbers"),
        ({}, "incomplete config 'Outer'"),
    ],
)
def test_build_says_what_is_wrong(data: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(Outer, data)
    assert message in str(caught.value)
    assert caught.value.expected
    assert caught.value.fix


def test_resolve_picks_by_name_and_hints_at_the_nearest() -> None:
    register("fruit", "apple")(Inner)
    try:
        assert resolve("fruit", {"name": "apple", "gain": 3}) == Inner(gain=3)
        with pytest.raises(ConfigError, match="did you mean 'apple'"):
            resolve("fruit", {"name": "aple"})
    finally:
        del REGISTRY["fruit"]


def test_what_is_registered_is_a_dataclass() -> None:
    with pytest.raises(ConfigError, match="Plain cannot be chosen as fruit=plain") as caught:
        register("fruit", "plain")(type("Plain", (), {}))
    assert "@dataclass" in caught.value.fix


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_loads_and_every_key_in_it_is_known(name: str) -> None:
    experiment = Experiment.compose([f"experiment={name}"])
    experiment.check()
    assert experiment.name == name


ONLY_YOU_KNOW = {
    ("task", "described"): "incomplete config 'task'",  # your table
    ("link", "remote"): "needs link.host=ADDRESS",  # the learner's machine
}


def test_every_yaml_of_a_group_says_which_dataclass_it_fills() -> None:
    for group in set(groups()) - {"experiment"}:
        for name in options(group):
            data = yaml.safe_load((config_dir() / group / f"{name}.yaml").read_text())
            part = "driver" if "driver" in data else group  # a profile; a robot has its limits
            own = data[part] if group == "robot" else data
            assert own.get("title" if part == "driver" else "name"), f"{group}/{name}.yaml"
            resolved = Experiment.compose([f"{group}={name}"])
            if (group, name) in ONLY_YOU_KNOW:
                with pytest.raises(ConfigError, match=ONLY_YOU_KNOW[group, name]):
                    resolved.section(group)
            else:
                resolved.section(group)


def test_a_value_can_be_set_whether_or_not_a_yaml_names_it() -> None:
    experiment = Experiment.compose(["experiment=reach", "train.exam_failures=7", "seed=5"])
    assert experiment.train.exam_failures == 7
    assert experiment.train.demos == TrainConfig(demos=5).demos
    assert experiment.seed == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["experiment=peg_insrt"], "did you mean 'peg_insert'"),
        (["task=peginsert"], "did you mean 'peg_insert'"),
        (["train.demo=3"], "did you mean 'demos'"),
        (["train.demos=many"], "expected: a whole number"),
        (["train.target_success=2"], "target_success in (0, 1)"),
        (["trian.demos=3"], "did you mean 'train'"),
        (["operator.skil=1"], "did you mean 'skill'"),
        (["algo.gama=0.9"], "did you mean 'gamma'"),
        (["learner.nonsense=1"], "unknown config key 'learner.nonsense'"),
        (["runtime=rose"], "did you mean 'ros'"),
        (["seed=-1"], "seed must not be negative"),
        ([f"seed={2**63}"], "seed must be below 2^63"),
        (["learner.utd=inf"], "'learner.utd' is not a finite number"),
        (["seed=1,2,3"], "one value per key"),
        (["task.images=[wrist]", "cameras.wrst.name=uvc"], "did you mean 'wrist'"),
        (["task.images=[wrist]", "cameras.wrist.name=topc"], "did you mean 'topic'"),
        (["task.images=[wrist]", "cameras.wrist.tpic=x"], "did you mean 'topic'"),
        (["task.images=[wrist]", "cameras.wrist=uvc"], "cameras.wrist.name=uvc"),
        (["task.images=[wrist]", "cameras.wrist.crop=[200,0,480,480]"], "leaves the picture"),
        (["cameras=3"], "cameras is not a section"),
        (["just-a-word"], "cannot read 'just-a-word'"),
        (["task._target_=os.system"], "unknown config key 'task._target_'"),
    ],
)
def test_a_wrong_override_names_the_right_one(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Experiment.compose(words).check()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "jörg",
        "a#1",
        "it's",
        "a=b",
        "(x)",
        "a+b~c@d",
        "名前",
        "a\\b",
        "a\\",
        "[a",
        '"q"',
        "50%",
    ],
)
def test_a_folder_may_have_any_name(name: str) -> None:
    assert Experiment.compose([f"run_dir=runs/{name}"]).run_dir == Path(f"runs/{name}")


def test_a_home_folder_is_found_by_its_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/jörg")
    assert Experiment.compose(["run_dir=~/runs/x"]).run_dir == Path("/data/jörg/runs/x")


@pytest.mark.parametrize("word", ["run_dir=(x)", "task.images=[wrist", "task={a", "run_dir='a"])
def test_brackets_and_quotes_that_do_not_close_are_an_error(word: str) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        Experiment.compose([word])


def test_a_task_without_pictures_has_no_cameras_whatever_those_of_the_robot_are() -> None:
    assert Experiment.compose(["task.images=[]", "cameras.wrist.name=uvc"]).cameras == {}


def test_a_camera_that_is_not_named_is_a_topic() -> None:
    words = ["task.images=[wrist,front]", "cameras.front.topic=/top/rgb", "cameras.front.width=320"]
    plain = Experiment.compose(words).plain_section("cameras")
    assert [plain[c]["name"] for c in ("wrist", "front")] == ["topic", "topic"]
    assert (plain["front"]["topic"], plain["front"]["width"]) == ("/top/rgb", 320)
    assert (plain["wrist"]["topic"], plain["wrist"]["crop"]) == ("", None)


def test_own_yaml_files_add_to_the_shipped_ones(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /task: reach\nname: mine\nseed: 9\n"
    )
    experiment = Experiment.compose(["experiment=mine"], tmp_path)
    assert (experiment.name, experiment.seed, experiment.task.name) == ("mine", 9, "reach")
    with pytest.raises(ConfigError):
        Experiment.compose(["experiment=mine"])


def test_a_file_that_changes_is_read_again_and_nobody_changes_what_another_one_gets(
    tmp_path: Path,
) -> None:
    """What the files say is composed once; a change of their text is seen at once."""
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    (tmp_path / "experiment" / ".#mine.yaml").symlink_to("an-editor-is-open")

    def composed(*words: str) -> dict[str, Any]:
        return compose(["experiment=mine", *words], tmp_path)

    for number in (3, 4):
        file.write_text(f"# @package _global_\nname: mine\ntrain: {{demos: {number}}}\n")
        first = composed()
        assert first["train"] == {"demos": number}
        first["train"]["demos"] = 99
        assert composed("train.exam_failures=2")["train"] == {"demos": number, "exam_failures": 2}
        assert composed("train.demos=${seed}", "seed=8")["train"] == {"demos": 8}
        assert composed()["train"] == {"demos": number}
    file.unlink()
    with pytest.raises(ConfigError, match="unknown experiment 'mine'"):
        composed()


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["train.demos=3", "~train.demos", "train.exams=1"], {"exams": 1}),  # their order counts
        (["train={demos: 3}", "train.demos=4"], {"demos": 4}),
        (["+train.demos=3"], {"demos": 3}),
        (["train.demos=3", "train=null"], None),
    ],
)
def test_words_are_carried_out_in_their_order(words: list[str], left: object) -> None:
    assert compose(words)["train"] == left


def test_threads_compose_side_by_side() -> None:
    def of(number: int) -> tuple[str, int]:
        found = compose([f"task={('reach', 'lift')[number % 2]}", f"seed={number}"])
        return found["task"]["name"], found["seed"]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(of, range(12)))
    assert found == [(("reach", "lift")[n % 2], n) for n in range(12)]


def test_an_override_beats_the_experiment_and_the_experiment_beats_the_base() -> None:
    assert compose([])["seed"] == 0
    assert compose(["experiment=reach"])["name"] == "reach"
    assert compose(["experiment=reach", "name=other"])["name"] == "other"


def _saved(tmp_path: Path, *words: str) -> Experiment:
    experiment = Experiment.compose(["experiment=reach", f"run_dir={tmp_path / 'run'}", *words])
    experiment.save()
    return experiment


def test_a_saved_experiment_loads_equal_with_every_default_written_down(tmp_path: Path) -> None:
    experiment = _saved(tmp_path, "train.max_minutes=1.5", "operator.skill=0.7")
    loaded = Experiment.load(tmp_path / "run")
    assert loaded.resolved() == experiment.resolved()
    assert loaded.hash == experiment.hash
    assert loaded.limits == experiment.limits
    assert loaded.task.spec.hash == experiment.task.spec.hash
    assert loaded.run_dir == experiment.run_dir
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["train"]["eval_episodes"] == TrainConfig().eval_episodes
    assert set(GROUPS) <= set(config)


def test_run_folder_records_where_it_came_from(tmp_path: Path) -> None:
    _saved(tmp_path)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert {"config_hash", "created", "command", "git", "versions", "machine"} <= set(record)
    assert record["versions"]["numpy"]
    limits = yaml.safe_load((tmp_path / "run" / "limits.yaml").read_text())
    assert limits["name"] == "fr3"


def test_a_run_whose_limits_were_edited_is_refused(tmp_path: Path) -> None:
    _saved(tmp_path)
    path = tmp_path / "run" / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["safety"]["max_speed_m_s"] *= 2
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match="was changed after the run began"):
        Experiment.load(tmp_path / "run")


def test_a_run_folder_takes_the_same_experiment_again_and_no_other(tmp_path: Path) -> None:
    _saved(tmp_path)
    _saved(tmp_path)  # going on is fine
    with pytest.raises(ConfigError, match="belongs to another experiment"):
        _saved(tmp_path, "seed=4")


@pytest.mark.parametrize("store", [STORE, ACTOR_STORE, LEARNER_STORE])
def test_a_copy_of_a_run_without_its_facts_is_not_taken_for_a_new_folder(
    tmp_path: Path, store: str
) -> None:
    folder = Experiment.compose(["experiment=reach", f"run_dir={tmp_path}/run"]).save()
    (folder / store).write_bytes(b"rows")
    (folder / RUN).unlink()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for words in (["experiment=reach"], ["experiment=lift"]):
        with pytest.raises(ConfigError, match=r"run\.json is missing"):
            Experiment.compose([*words, f"run_dir={folder}"]).save()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_first_save_that_was_cut_short_is_repeated(tmp_path: Path) -> None:
    experiment = Experiment.compose(["experiment=reach", f"run_dir={tmp_path}/run"])
    (experiment.save() / RUN).unlink()  # it is written last, and a store is made after it
    assert (experiment.save() / RUN).is_file()


def test_loading_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run folder"):
        Experiment.load(tmp_path)


@pytest.mark.parametrize(
    "values", [{"demos": -1}, {"max_env_steps": -5}, {"max_minutes": 0.0}, {"target_success": 1.5}]
)
def test_train_config_refuses_nonsense(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        build(TrainConfig, values)
