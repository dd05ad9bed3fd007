"""The command line as a person meets it: help, exit codes, errors with the fix, JSON figures."""

from __future__ import annotations

import ast
import errno
import json
import keyword
import logging
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import yaml

from robot_rl.cli import common, up
from robot_rl.cli.doctor import CHECKS, CheckResult, examine
from robot_rl.cli.main import VERBS, main
from robot_rl.cli.node import TEXTS
from robot_rl.config.registry import REGISTRY
from robot_rl.errors import ConfigError
from robot_rl.link.auth import keys_for
from robot_rl.run.experiment import Experiment
from tests.support.synthetic_run import write_run

CLI = Path(common.__file__).parent


@pytest.fixture(autouse=True)
def _quiet_logging() -> Iterator[None]:
    """`main` configures logging once per process; leave the root logger as it was."""
    before = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = before


def test_help_lists_every_verb_and_every_verb_is_a_module(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for verb in VERBS:
        assert f"  {verb} " in text
        if verb in TEXTS:
            continue
        module = f"{verb}_" if keyword.iskeyword(verb) else verb.replace("-", "_")
        assert (CLI / f"{module}.py").is_file()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_examples(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"usage: robot-rl {verb}" in text
    assert "examples:" in text
    assert f"  robot-rl {verb}" in text.partition("examples:")[2]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from robot_rl.cli.main import main; main(['train', '--help'])\n"
        "heavy = {'torch', 'mujoco', 'rclpy', 'hydra', 'numpy', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "did you mean 'train'"),
        (["train", "experiment=liftt"], "did you mean 'lift'"),
        (["train", "--jsn", "x"], "did you mean '--json'"),
        (["bench", "lerner"], "did you mean 'learner'"),
        (["eval", "nowhere"], "no run in 'nowhere'"),
        (["report", "nowhere"], "no run in 'nowhere'"),
        (["gate", "nowhere"], "no run in 'nowhere'"),
        (["eval"], "RUN"),
    ],
)
def test_wrong_usage_is_one_clear_error_and_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "expected:" in err
    assert "fix:" in err
    assert "Traceback" not in err


def test_traceback_appears_with_debug_only(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["train", "train.demoz=1", "--debug"]) == 2
    assert any(r.exc_info for r in caplog.records)
    caplog.clear()
    assert main(["train", "train.demoz=1"]) == 2
    assert not any(r.exc_info for r in caplog.records)


def test_unexpected_errors_are_said_and_end_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _engine(monkeypatch, "robot_rl.cli.report", run=lambda _: 1 / 0)
    assert main(["report", "x"]) == 1
    err = capsys.readouterr().err
    assert "unexpected error: ZeroDivisionError" in err
    assert "--debug" in err


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "Permission denied: /somewhere"),
        (errno.ENOSPC, "free some space"),
        (errno.ENOENT, "written right"),
    ],
)
def test_what_the_system_refuses_is_said_with_the_file_and_a_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, words: str
) -> None:
    def refused(_: object) -> int:
        raise OSError(number, os.strerror(number), "/somewhere")

    _engine(monkeypatch, "robot_rl.cli.report", run=refused)
    assert main(["report", "x"]) == 2
    err = capsys.readouterr().err
    assert words in err and "/somewhere" in err and "unexpected" not in err


def test_a_run_folder_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "x=1 ü#"
    words = ["runtime=lockstep", "train.demos=1", "train.max_env_steps=0", "learner.device=cpu"]
    assert main(["record", "experiment=reach", *words, f"run_dir={run}"]) == 0
    assert main(["doctor", str(run)]) == 0
    assert main(["eval", str(run)]) == 2
    assert "policy" in capsys.readouterr().err  # it has none yet, and is a run
    assert main(["camera", "show", str(run)]) == 2
    assert "the task has no cameras" in capsys.readouterr().err


def test_a_report_on_a_read_only_disk_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Experiment.compose(["experiment=reach", f"run_dir={tmp_path / 'run'}"]).save()
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert main(["report", str(run)]) == 2
    assert "copy it to a place of yours" in capsys.readouterr().err
    assert not (run / "report.html").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_although_it_names_no_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def full(_: object) -> int:
        raise OSError(number, os.strerror(number))

    _engine(monkeypatch, "robot_rl.cli.report", run=full)
    assert main(["report", "x"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {os.strerror(number)}\n") and "free some" in err


@pytest.mark.parametrize("port", ["99999", "-1", "eighty"])
def test_a_port_that_is_none_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "run", f"--port={port}"]) == 2
    assert f"expected a number up to 65535, got '{port}'" in capsys.readouterr().err


def test_a_folder_of_ones_own_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "experiment=reach", "--config-dir", "confgs"]) == 2
    assert "there is no folder confgs" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    _engine(monkeypatch, "robot_rl.cli.report", run=interrupted)
    assert main(["report", "x"]) == 130


def test_a_missing_package_names_its_extra() -> None:
    def broken() -> None:
        raise ModuleNotFoundError("No module named 'mujoco'", name="mujoco")

    module = types.ModuleType("robot_rl_absent")
    module.__getattr__ = lambda _: broken()  # type: ignore[method-assign]
    sys.modules["robot_rl_absent"] = module
    try:
        with pytest.raises(common.SetupError, match=r"robot-rl\[sim\]"):
            common.engine("robot_rl_absent:bench")
    finally:
        del sys.modules["robot_rl_absent"]


def test_config_prints_every_value_in_force_and_runs_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "experiment=reach", "train.demos=3", "--config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["train"]["demos"] == 3
    assert shown["train"]["eval_episodes"] == 100  # a default nobody wrote
    assert shown["task"]["name"] == "reach"
    assert not list(tmp_path.iterdir())


def test_check_explains_every_experiment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from robot_rl.config.compose import options

    assert main(["check", "--json", str(tmp_path / "c.json")]) == 0
    out = capsys.readouterr().out
    results = json.loads((tmp_path / "c.json").read_text())
    assert set(results) == set(options("experiment"))
    assert set(results.values()) == {"ok"}
    assert "demonstrations, then at most" in out


def test_check_fails_on_a_bad_experiment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "bad.yaml").write_text("# @package _global_\nname: bad\ntrain: {demoz: 3}\n")
    assert main(["check", "bad", "--config-dir", str(tmp_path)]) == 1
    assert "did you mean 'demos'" in capsys.readouterr().out


def _engine(monkeypatch: pytest.MonkeyPatch, name: str, **functions: object) -> None:
    module = types.ModuleType(name)
    for key, value in functions.items():
        setattr(module, key, value)
    monkeypatch.setitem(sys.modules, name, module)


RESULT = {
    "deterministic": {
        "successes": 96,
        "episodes": 100,
        "wilson_low": 0.902,
        "wilson_high": 0.984,
        "cycle_time_s_mean": 4.0,
    }
}


TRAINED: list[Any] = []  # the experiments that `_fake_training` was given


def _fake_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, successes: int) -> None:
    result = {
        "deterministic": RESULT["deterministic"] | {"successes": successes},
        "mastered": successes > 95,
    }
    TRAINED.clear()

    def train(experiment: object, watch: object) -> dict[str, object]:
        assert callable(watch)
        watch({"state": "practice", "episode/success": 1.0})
        TRAINED.append(experiment)
        write_run(experiment.run_dir)  # type: ignore[attr-defined]
        return result

    monkeypatch.chdir(tmp_path)
    _engine(monkeypatch, "robot_rl.run.train", train=train)


def test_train_prints_the_figures_writes_json_and_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _fake_training(monkeypatch, tmp_path, 40)
    assert main(["train", "experiment=reach", "run_dir=run", "--json", "out/r.json"]) == 0
    out = capsys.readouterr().out
    assert "40/100 episodes succeed (95 % interval 90.2 to 98.4 %), 4.0 s per cycle" in out
    assert json.loads((tmp_path / "out" / "r.json").read_text())["deterministic"]["successes"] == 40
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize("successes", [96, 94])
def test_demo_tells_the_story_and_that_it_fell_short_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    successes: int,
) -> None:
    _fake_training(monkeypatch, tmp_path, successes)
    monkeypatch.setattr("sys.argv", ["robot-rl", "demo", "train.max_minutes=6", "seed=4"])
    assert main(["demo", "run_dir=run"]) == 0
    out = capsys.readouterr().out
    assert "demonstrations" in out
    assert "report.html" in out
    assert "Take part" in out and "robot-rl review run" in out
    assert ("fell short of its target of 95 %:\n94 of 100" in out) == (successes == 94)
    again = "robot-rl demo seed=4 train.max_minutes=30 run_dir=run\n"
    assert (again in out) == (successes == 94)


def test_who_interrupts_a_run_reads_how_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(experiment: object, watch: object) -> dict[str, object]:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    _engine(monkeypatch, "robot_rl.run.train", train=train)
    words = ["train", "experiment=reach", "algo.hidden=[64,64]"]
    monkeypatch.setattr("sys.argv", ["robot-rl", *words])
    assert main(words) == 130
    out = capsys.readouterr().out
    assert (
        "to go on:  robot-rl train experiment=reach 'algo.hidden=[64,64]' run_dir=runs/reach/"
        in out
    )


def test_the_demo_is_a_run_that_takes_every_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _fake_training(monkeypatch, tmp_path, 96)
    words = ["seed=4", "algo.precision=float32", "train.demos=3", "train.max_minutes=2"]
    assert main(["demo", "run_dir=run", "--episodes", "7", *words]) == 0
    (demo,) = TRAINED
    assert (demo.seed, demo.train.demos, demo.train.max_minutes) == (4, 3, 2.0)
    assert (demo.name, demo.train.eval_episodes) == ("peg_insert", 7)
    assert demo.config["algo"]["precision"] == "float32" and demo.run_dir == Path("run")


@pytest.mark.parametrize(
    ("words", "name"),
    [((), "console"), (("operator=none",), "none"), (("runtime=lockstep",), "scripted")],
)
def test_a_person_is_asked_to_take_part_in_the_demo_where_one_can(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *words, "--config"]) == 0
    operator = yaml.safe_load(capsys.readouterr().out)["operator"]
    assert operator["name"] == name and operator.get("with_script", False) is (name == "console")


def test_bench_prints_and_writes_figures_with_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {"link": lambda seconds: {"steps_per_s": 1234.5 * seconds}}
    monkeypatch.setattr("robot_rl.cli.bench.BENCHES", figures)
    path = tmp_path / "b.json"
    assert main(["bench", "link", "--seconds", "2", "--json", str(path)]) == 0
    assert "2,469" in capsys.readouterr().out
    written = json.loads(path.read_text())
    assert written["figures"] == {"steps_per_s": 2469.0}
    assert written["machine"]["cores"]


def test_report_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run")
    assert main(["report", str(run)]) == 0
    assert Path(capsys.readouterr().out.strip()).is_file()


def test_up_shows_the_graph_without_ros(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "experiment=reach", "--print"]) == 0
    out = capsys.readouterr().out
    for node in ("sim", "gate", "watchdog", "operator", "actor"):
        assert f"python -P -m robot_rl.run.nodes {node}\n" in out


@pytest.mark.parametrize(("operator", "told"), [("console", 1), ("none", 0)])
def test_up_tells_how_to_get_the_page(
    operator: str,
    told: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(up, "engine", lambda _name: lambda *_: nullcontext())
    monkeypatch.setattr(up, "_supervise", lambda *_: 0)
    assert main(["up", "experiment=reach", f"operator={operator}", f"run_dir={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert f"learner: robot-rl learner {tmp_path}" in out
    assert out.count(f"robot-rl console {tmp_path}") == told


def test_node_verbs_list_their_parameters_without_ros(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--parameters"]) == 0
    assert "heartbeat_hz" in capsys.readouterr().out


def test_keys_are_secret_and_never_overwritten_unasked(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    assert main(["keys", str(folder), "--actors", "left", "right"]) == 0
    secrets = sorted(p.name for p in folder.glob("*.secret"))
    names = ["actor-left", "actor-right", "learner", "policy"]
    assert secrets == [f"{name}.secret" for name in names]
    assert all(p.stat().st_mode & 0o077 == 0 for p in folder.glob("*.secret"))
    before = (folder / "learner.secret").read_bytes()
    assert main(["keys", str(folder)]) == 2
    assert (folder / "learner.secret").read_bytes() == before


def test_a_fleet_of_actors_has_keys_that_the_actors_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "keys"
    assert main(["keys", str(folder), "--actors", "left"]) == 0
    assert "link.actor_key=actor-left" in capsys.readouterr().out
    words = [f"link.key_folder={folder}", "link.actor_key=actor-left"]
    link = Experiment.compose(words).link
    assert keys_for(link, tmp_path / "run", link.actor_key).name == "actor-left"
    with pytest.raises(ConfigError, match="needs the key_folder"):
        _ = Experiment.compose(["link.actor_key=actor-left"]).link


def test_eval_of_a_real_arms_run_is_no_simulation_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["experiment=reach", "runtime=ros", "ros=real", "operator=none", f"run_dir={run}"]
    Experiment.compose(words).save()
    assert main(["eval", str(run)]) == 2
    said = capsys.readouterr().err
    assert "was trained on a real arm" in said and "--simulated" in said
    assert main(["eval", str(run), "--simulated"]) == 2  # goes on, and finds no policy
    assert "no usable policy" in capsys.readouterr().err


def test_a_plugin_that_is_not_found_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROBOT_RL_PLUGINS", "no_such_lab")
    assert main(["train", "task.name=button", "--config"]) == 2
    said = capsys.readouterr().err
    assert "'no_such_lab', which is not found" in said and "PYTHONPATH=." in said


def test_doctor_reports_every_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "d.json"
    code = main(["doctor", "--json", str(path)])
    found = json.loads(path.read_text())
    assert set(found) == set(CHECKS)
    assert code == int(any(f["status"] == "fail" for f in found.values()))
    for finding in found.values():
        assert finding["status"] in ("ok", "warn", "fail")
        assert finding["fix"] or finding["status"] == "ok"


def test_doctor_finds_a_damaged_record_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["experiment=reach", "runtime=lockstep", "--demos", "1", f"run_dir={run}"]
    assert main(["record", *words]) == 0
    assert capsys.readouterr().out.split("\n")[0].split() == ["run", "folder", str(run)]
    assert main(["doctor", str(run)]) == 0
    out = capsys.readouterr().out
    assert "store.sqlite" in out
    assert "of 1 episodes, all intact" in out
    with sqlite3.connect(run / "store.sqlite") as raw:
        raw.execute("UPDATE frames SET observation=substr(observation, 1, 20) WHERE frame=0")
    raw.close()
    assert main(["doctor", str(run)]) == 1
    assert "fail  store.sqlite" in capsys.readouterr().out


def test_verify_reads_every_part_of_a_run_and_names_what_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["runtime=lockstep", "train.demos=1", "train.max_env_steps=60", "train.eval_episodes=1"]
    words += ["train.stochastic_eval_episodes=0", "train.video=false", "algo.hidden=[8]"]
    run = tmp_path / "run"
    assert main(["train", "experiment=reach", *words, f"run_dir={run}"]) == 0
    capsys.readouterr()
    assert main(["verify", str(run)]) == 0
    said = capsys.readouterr().out
    assert "all intact" in said and "checkpoints/" in said and "policy" in said
    manifest = sorted((run / "checkpoints").glob("*/manifest.json"))[-1]
    manifest.write_text(manifest.read_text().replace("facts", "fakts", 1))
    policy = run / "policy.safetensors"
    data = bytearray(policy.read_bytes())
    data[-1] ^= 1
    policy.write_bytes(data)
    report = tmp_path / "verify.json"
    assert main(["verify", str(run), "--json", str(report)]) == 1
    found = json.loads(report.read_text())
    assert {name for name, part in found.items() if part["status"] == "fail"} == {
        f"checkpoints/{manifest.parent.name}",
        "policy",
    }
    assert all(part["fix"] for part in found.values() if part["status"] == "fail")
    assert main(["verify", str(tmp_path / "none")]) == 2
    (run / "store.sqlite").unlink()
    policy.unlink()
    shutil.rmtree(run / "checkpoints")
    assert main(["verify", str(run), "--json", str(report)]) == 1
    found = json.loads(report.read_text())
    gone = {name for name, part in found.items() if part["status"] == "fail"}
    assert gone == {"store.sqlite", "policy", "checkpoints"}
    assert all(part["fix"] for name, part in found.items() if name in gone)


@pytest.mark.parametrize(("experiment", "name"), [("gym", "Pendulum-v1"), ("reach", "reach")])
def test_verify_calls_no_run_damaged_whose_package_is_not_imported_here(
    experiment: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Experiment.compose([f"experiment={experiment}"]).save(tmp_path)
    known: Any = gymnasium.registry if experiment == "gym" else REGISTRY["task"]
    monkeypatch.delitem(known, name)
    assert main(["verify", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"warn +configuration +cannot be checked here: unknown .*'{name}'", said)
    assert "ROBOT_RL_PLUGINS=" in said and "(none)" not in said
    assert " 0 damaged, 1 not checked" in said


def test_a_run_that_never_recorded_lacks_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    Experiment.compose(["experiment=reach"]).save(run)
    (run / "metrics.jsonl").touch()
    (run / "learner.jsonl").touch()
    assert main(["verify", str(run)]) == 0


def test_doctor_survives_a_check_that_breaks() -> None:
    def broken() -> tuple[str, str, str]:
        raise OSError("no such driver")

    finding = examine("gl", broken)
    assert finding == CheckResult("gl", "fail", "OSError: no such driver", "run make setup again")


def test_only_main_decides_about_exit() -> None:
    """`sys.exit` in a verb would end the program of someone who calls `main`."""
    for path in CLI.glob("*.py"):
        names = [
            n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)
        ]
        assert "exit" not in names, path.name
