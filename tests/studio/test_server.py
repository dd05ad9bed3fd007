"""The studio's server: what it tells, whom it lets in, what it starts, finishes and puts away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from robot_rl.config.registry import build
from robot_rl.console.remembered import Role
from robot_rl.control.session import TrainConfig
from robot_rl.errors import ConfigError
from robot_rl.run.at_work import at_work as working
from robot_rl.run.experiment import Experiment
from robot_rl.studio.figures import Figures
from robot_rl.studio.form import comments
from robot_rl.studio.studio import Studio
from robot_rl.system.presence import own_process, process_of, runs_still
from tests.support.served import until
from tests.support.studio import ServedStudio, at_work, line, made_run, write_eval

FIRST, SECOND = "reach/20260101-120000-s0", "reach/20260101-130000-s1"
SOON = ("train.demos=1", "train.max_env_steps=60", "train.video=false")


@pytest.fixture
def page(studio: ServedStudio) -> Iterator[httpx.Client]:
    """A page that is let in."""
    with studio.page() as client:
        yield client


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with code 130 at SIGINT, as a run does."""
    program = "import signal,sys,time\nsignal.signal(2,lambda *_:sys.exit(130))\n"
    program += "print('up',flush=True)\ntime.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.wait()


def rows(studio: ServedStudio | Studio) -> dict[str, dict[str, Any]]:
    """Row of each run, from the start."""
    told = (studio.studio if isinstance(studio, ServedStudio) else studio).runs(0)
    return {row["id"]: row for row in told["rows"]}


def error(answer: httpx.Response) -> str:
    """What a refusal says."""
    assert answer.status_code == 409, answer.text
    return str(answer.json()["error"])


# --- the list -----------------------------------------------------------------------------------


def test_a_row_tells_what_a_run_has_come_to(runs: Path) -> None:
    write_eval(runs / FIRST, 18, 20)
    row = rows(Studio(runs))[FIRST]
    assert (row["experiment"], row["task"], row["algo"]) == ("reach", "reach", "hil_serl")
    assert row["steps"] == 600 and row["human"] == 0.25
    assert row["worked_s"] == pytest.approx(29 * 6.0)
    assert row["success"]["successes"] == 18 and row["success"]["wilson_low"] > 0.6
    assert row["state"] == "ended" and row["bytes"] > 0
    assert row["curve"][-1] == [600, 1.0] and row["curve"][0] == [20, 0.0]


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ({"ended": "done"}, "ended"),
        ({"ended": "stopped"}, "stopped"),
        ({"ended": "the demonstrations keep failing"}, "failed"),
        ({"process": "gone"}, "killed"),
        ({"process": "here"}, "running"),
    ],
)
def test_the_state_of_a_run_is_that_of_its_process(
    runs: Path, told: dict[str, str], state: str
) -> None:
    here = own_process()
    names = {
        "here": here,
        "gone": here.rpartition(" ")[0] + " 1",
    }  # its number, begun at another time
    at_work(runs / FIRST, "train", **{k: names.get(v, v) for k, v in told.items()})
    row = rows(Studio(runs))[FIRST]
    assert row["state"] == state
    assert row["why"] == (told["ended"] if state == "failed" else "")


def test_a_process_says_itself_that_it_works_and_how_it_ended(runs: Path) -> None:
    studio, run = Studio(runs), runs / FIRST
    with working(run, "train"):
        assert studio.catalogue.run(FIRST).state == "running"
    assert studio.catalogue.run(FIRST).state == "ended"
    with pytest.raises(ConfigError), working(run, "train"):
        raise ConfigError("a bad value", fix="mend it")
    assert studio.catalogue.run(FIRST).why.startswith("a bad value")
    with pytest.raises(KeyboardInterrupt), working(run, "train"):
        raise KeyboardInterrupt
    assert studio.catalogue.run(FIRST).state == "stopped"


def test_a_line_is_read_once_however_often_one_looks(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[float] = []
    add = Figures.add

    def counted(self: Figures, said: Any) -> None:
        read.append(said["env_steps"])
        add(self, said)

    monkeypatch.setattr(Figures, "add", counted)
    studio = Studio(runs)
    version = studio.runs(0)["version"]
    assert len(read) == 42
    time.sleep(0.6)
    assert studio.runs(version)["rows"] == [] and len(read) == 42
    with (runs / FIRST / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line(30, True)) + "\n" + '{"torn": ')
    time.sleep(0.6)
    told = studio.runs(version)
    assert [row["id"] for row in told["rows"]] == [FIRST] and read[42:] == [620]
    assert "names" not in told  # the list has the same runs


def test_the_list_learns_what_another_view_has_read_first(runs: Path) -> None:
    studio = Studio(runs)
    version = studio.runs(0)["version"]
    at_work(runs / FIRST, "train", ended="stopped")
    assert studio.run(FIRST)["state"] == "stopped"
    time.sleep(0.6)
    assert [row["state"] for row in studio.runs(version)["rows"]] == ["stopped"]


def test_a_line_of_another_program_costs_only_itself() -> None:
    figures = Figures()
    for said in ({}, {"time_s": "x", "env_steps": 1}, {"time_s": 1.0, "env_steps": 1e400}):
        figures.add(said)
    figures.add({"time_s": 1.0, "env_steps": 5, "episode/success": "yes", "state": 7})
    figures.add(line(0, True, **{"episode/length": None}))
    assert figures.env_steps == 20 and figures.human_share is None


def test_an_aborted_practice_episode_is_no_failure() -> None:
    figures = Figures()
    for index in range(10):
        figures.add(line(index, index % 2 == 0, **{"episode/aborted": float(index % 2)}))
    assert figures.recent == 1.0 and len(figures.success) == 5
    assert figures.episodes == 10 and figures.practice_steps == 200.0


def test_an_exam_is_told_as_it_goes() -> None:
    figures = Figures()
    for index in range(25):
        figures.add(line(index, True, **{"episode/intervention_rate": 0.0}))
    assert figures.mastery(0.95, 1)["alone"] == 1.0
    for success in (1.0, 1.0, 0.0):
        exam = {"eval_episode/success": success, "state": "exam", "time_s": 1.8e9, "env_steps": 500}
        figures.add(exam)
    told = figures.mastery(0.95, 1)
    assert (told["won"], told["failed"], told["needed"]) == (2, 1, 109)
    assert told["in_exam"]


def test_practice_ends_at_the_pace_of_the_last_episodes() -> None:
    figures = Figures()
    for index in range(25):  # a hundredth of the budget in 6 s
        assert (figures.work.left_s is None) == (index < 5)
        figures.add(line(index, True))
    assert figures.work.left_s == pytest.approx(75 * 6.0)
    figures.add(line(25, True, time_left_s=100.0))
    assert figures.work.left_s == 100.0  # no longer than it may take


def test_a_stop_is_no_time_at_work_and_not_part_of_the_pace(runs: Path) -> None:
    """However short it was; the process that goes on says when it began, its line or its file."""
    run = runs / FIRST  # 30 episodes of 6 s, 70 are left
    here, began_s = own_process(), line(29, True)["time_s"] + 290.0
    at_work(run, "train", process=here, began_s=began_s)
    later = [line(i, True) for i in range(30, 36)]
    later = [x | {"time_s": x["time_s"] + 300.0} for x in later]
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(x) + "\n" for x in later)
    row = rows(Studio(runs))[FIRST]
    assert row["worked_s"] == pytest.approx((29 + 5) * 6.0)
    assert row["left_s"] == pytest.approx(64 * 6.0)
    at_work(run, "train", process=here, began_s=began_s + 9e3)  # the next process
    later[0]["began_s"] = began_s
    last = line(36, True, began_s=began_s + 9e3)
    last["time_s"] = began_s + 9e3 + 20.0
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps(x) + "\n" for x in [*(line(i, True) for i in range(30)), *later, last])
    )
    assert rows(Studio(runs))[FIRST]["worked_s"] == pytest.approx((29 + 5) * 6.0)


def test_a_config_that_cannot_be_read_is_said_and_no_limit_is_invented(
    page: httpx.Client, runs: Path
) -> None:
    told = page.get("/api/run", params={"id": FIRST}).json()
    assert (told["unfit"], told["demos"], told["max_minutes"]) == ("", [3, 5], 15.0)
    config = runs / FIRST / "config.yaml"
    for text, says in (
        ("train: {demos: [", "config.yaml"),
        ("\0\0", "no section train"),
        ("train:\n  dmos: 3\n", "did you mean 'demos'"),
    ):
        config.write_text(text)
        told = page.get("/api/run", params={"id": FIRST}).json()
        assert says in told["unfit"]
        assert told["demos"] == [3, None] and told["mastery"] is None
        assert told["max_steps"] is told["max_minutes"] is None
    config.write_text((runs / SECOND / "config.yaml").read_text())
    told = page.get("/api/run", params={"id": FIRST}).json()
    assert told["unfit"] == "" and told["demos"] == [3, 5]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_config_that_may_be_read_again_is(runs: Path) -> None:
    studio, config = Studio(runs), runs / FIRST / "config.yaml"
    config.chmod(0)
    assert "Permission denied" in studio.run(FIRST)["unfit"]
    config.chmod(0o600)
    assert studio.run(FIRST)["unfit"] == ""


def test_a_name_that_is_refused_is_told_which_are_not(page: httpx.Client) -> None:
    for name in ("x" * 81, "a/b", "über-uns.2"):
        words = ["experiment=reach", f"name={name}"]
        answer = page.post("/api/plan", json={"verb": "train", "words": words})
        if name == "über-uns.2":
            assert answer.json()["run"].startswith(f"{name}/")
        else:
            assert "of 1 to 80 characters" in error(answer) and "such as ü" in error(answer)


def test_runs_inside_runs_links_and_hidden_folders_are_not_listed(
    runs: Path, saved: Path, tmp_path: Path
) -> None:
    made_run(runs, saved, f"{FIRST}/deploy")
    made_run(runs, saved, ".hidden/one")
    (runs / "link").symlink_to(made_run(tmp_path / "elsewhere", saved, "run").parent)
    assert set(rows(Studio(runs))) == {FIRST, SECOND}


# --- the doors ----------------------------------------------------------------------------------


def test_nobody_without_a_link_learns_anything(studio: ServedStudio) -> None:
    with httpx.Client(base_url=studio.url) as stranger:
        for path in ("/api/runs", f"/api/run?id={FIRST}", "/api/bin", "/api/experiments"):
            assert stranger.get(path).status_code == 401
        assert "link" in stranger.get("/").text
        assert stranger.get("/enter?token=wrong").status_code == 403


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"x-robot-rl-page": "wrong"}, 401),
        ({"origin": "http://evil.example"}, 403),
        ({"host": "evil.example"}, 403),
        ({"user-agent": "another browser"}, 401),
    ],
)
def test_what_acts_needs_secret_origin_host_and_the_same_browser(
    page: httpx.Client, runs: Path, changed: dict[str, str], status: int
) -> None:
    answer = page.post("/api/put_away", json={"run": FIRST}, headers=changed)
    assert answer.status_code == status
    assert (runs / FIRST).is_dir()


def test_who_may_look_may_not_act(studio: ServedStudio, runs: Path) -> None:
    with studio.page(Role.OBSERVER) as observer:
        assert observer.get("/api/runs").status_code == 200
        assert observer.get("/api/run", params={"id": FIRST}).json()["log"]["lines"] == []
        for path in ("form", "plan", "start", "finish", "put_away", "restore", "console"):
            assert observer.post(f"/api/{path}", json={"run": FIRST}).status_code == 403
    assert (runs / FIRST).is_dir()


def test_a_log_is_for_who_may_act(studio: ServedStudio, page: httpx.Client, runs: Path) -> None:
    (runs / FIRST / "logs").mkdir()
    (runs / FIRST / "logs" / "actor.log").write_text("WARNING a.b: the console is open: link\n")
    told = page.get("/api/run", params={"id": FIRST}).json()["log"]["lines"]
    assert told == [{"level": "warning", "text": "the console is open: link"}]
    with studio.page(Role.OBSERVER) as observer:
        assert observer.get("/api/run", params={"id": FIRST}).json()["log"]["lines"] == []


def test_a_link_works_once(studio: ServedStudio) -> None:
    link = studio.invite()
    with httpx.Client() as first, httpx.Client() as second:
        assert first.get(link).status_code == 303
        assert second.get(link).status_code == 403


@pytest.mark.parametrize(
    "name",
    [
        "../runs/" + FIRST,
        f"/{FIRST}",
        "..",
        ".",
        "",
        f"{FIRST}/",
        ".bin/x/run",
        f"{FIRST}/../{SECOND}",
    ],
)
def test_a_name_is_looked_up_and_never_a_path(page: httpx.Client, runs: Path, name: str) -> None:
    assert page.get("/api/run", params={"id": name}).status_code == 409
    assert page.get("/api/report", params={"id": name}).status_code == 409
    for path in ("put_away", "finish", "console"):
        assert page.post(f"/api/{path}", json={"run": name, "verb": "train"}).status_code in (
            409,
            422,
        )
    assert page.post("/api/restore", json={"id": name}).status_code in (409, 422)
    assert {p.name for p in (runs / "reach").iterdir()} == {Path(FIRST).name, Path(SECOND).name}


def test_a_report_that_is_a_link_elsewhere_is_not_given(page: httpx.Client, runs: Path) -> None:
    (runs / FIRST / "report.html").write_text("<p>mine</p>")
    given = page.get("/api/report", params={"id": FIRST})
    assert given.text == "<p>mine</p>" and "attachment" in given.headers["content-disposition"]
    (runs / SECOND / "report.html").symlink_to("/etc/hostname")
    assert page.get("/api/report", params={"id": SECOND}).status_code == 404


def test_bodies_are_maps_and_short(page: httpx.Client) -> None:
    assert page.post("/api/finish", json=["x"]).status_code == 422
    assert page.post("/api/finish", json={"run": 7}).status_code == 422
    assert page.post("/api/plan", json={"verb": "train", "words": "x" * 20_000}).status_code == 413


# --- a new run ----------------------------------------------------------------------------------


def test_the_form_has_names_defaults_and_what_the_source_says(page: httpx.Client) -> None:
    form = page.post("/api/form", json={"words": ["experiment=reach"]}).json()
    fields = {f["key"]: f for s in form["sections"] for f in s["fields"]}
    assert fields["train.demos"]["value"] == 5  # the experiment's, not the class's
    assert fields["train.max_minutes"]["value"] == TrainConfig().max_minutes
    assert fields["train.min_env_steps"]["about"] == "no exam before"
    assert fields["algo.encoder.latent"]["kind"] == "int"
    (operator,) = (s for s in form["sections"] if s["name"] == "operator")
    assert operator["choice"]["value"] == "scripted" and "none" in operator["choice"]["options"]


def test_every_field_of_a_section_is_a_key_that_the_composer_knows() -> None:
    said = comments(TrainConfig)
    assert set(said) <= set(TrainConfig.__dataclass_fields__)
    assert build(TrainConfig, dict.fromkeys(["demos"], 1)).demos == 1
    assert said["demos"] == "HIL-SERL records about 20 per task; 0 = learn without"


def test_the_plan_is_the_command_line_and_nothing_runs(page: httpx.Client, runs: Path) -> None:
    words = ["experiment=reach", "train.demos=3", "seed=4"]
    plan = page.post("/api/plan", json={"verb": "train", "words": words}).json()
    assert plan["run"].startswith("reach/") and plan["run"].endswith("-s4")
    start = "robot-rl train experiment=reach train.demos=3 seed=4 run_dir="
    assert plan["command"] == f"{start}{runs / plan['run']}"
    assert not (runs / plan["run"]).exists()


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("train.dmos=3", "did you mean 'demos'?"),
        ("trian.demos=3", "did you mean 'train'?"),
        ("experiment=raech", "did you mean 'reach'?"),
        ("train.demos=many", "wrong type"),
        ("train.target_success=2", "bad value"),
        ("seed=1,2", "several values"),
        ("run_dir=/tmp/x", "not said here"),
        ("hydra.searchpath=[file:///tmp]", "not said here"),
        ("hydra/launcher=x", "not said here"),
        ("task.instruction=${oc.env:HOME}", "computed"),
        ("--json=x", "not key=value"),
        ("--debug", "not key=value"),
        ("name=../x", "no name of a folder"),
        ("train.demos=3\nx", "not key=value"),
        ("train.dataset=" + "x" * 500, "not key=value"),
    ],
)
def test_what_the_composer_refuses_is_not_started(
    page: httpx.Client, runs: Path, word: str, says: str
) -> None:
    words = [word] if word.startswith("experiment") else ["experiment=reach", word]
    body = {"verb": "train", "words": words}
    assert says in error(page.post("/api/plan", json=body))
    assert says in error(page.post("/api/start", json=body))
    assert not (runs / ".studio").exists()


@pytest.mark.parametrize("verb", ["bench", "pair", "keys", "", "train --json x", "up"])
def test_only_the_verbs_of_the_table_run(page: httpx.Client, runs: Path, verb: str) -> None:
    words = ["experiment=reach"]
    for body in ({"verb": verb, "words": words}, {"verb": verb, "run": FIRST}):
        assert error(page.post("/api/start", json=body))
    assert not (runs / ".studio").exists()


def test_a_started_run_is_the_command_that_was_shown(
    studio: ServedStudio, page: httpx.Client, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROBOT_RL_DISK_RESERVE_BYTES", "0")
    words = ["experiment=reach", *SOON, "train.eval_episodes=1", "train.stochastic_eval_episodes=0"]
    plan = page.post("/api/plan", json={"verb": "train", "words": words}).json()
    time.sleep(1.1)  # a name of now would be another
    body = {"verb": "train", "words": words, "name": plan["run"]}
    job = page.post("/api/start", json=body).json()
    assert job["run"] == plan["run"] and job["command"] == plan["command"]
    assert os.getsid(int(studio.studio.jobs.of(job["run"])[0].process.split()[2])) != os.getsid(0)
    assert [w["run"] for w in page.get("/api/runs").json()["waiting"]] == [job["run"]]
    until(lambda: rows(studio).get(job["run"], {}).get("state") == "ended", 90.0)
    record = json.loads((runs / job["run"] / "run.json").read_text())
    assert record["command"] == plan["command"]
    told = page.get("/api/run", params={"id": job["run"]}).json()
    assert any("episodes succeed" in x["text"] for x in told["log"]["lines"])
    again = until(lambda: Studio(runs).jobs.of(job["run"]))  # another studio finds it
    assert again[0].words == ("train", *words, f"run_dir={runs / job['run']}")
    assert "same name" not in error(page.post("/api/start", json=body))


@pytest.mark.parametrize(
    "name", ["reach/../../x", "reach/20260101-120000-s0", "x/20260101-120000-s0"]
)
def test_a_run_is_not_named_otherwise_or_twice(page: httpx.Client, runs: Path, name: str) -> None:
    body = {"verb": "train", "words": ["experiment=reach"], "name": name}
    assert "name" in error(page.post("/api/start", json=body)) or "called" in name
    assert not (runs / ".studio").exists()


def test_a_real_arm_is_told_before_it_moves(page: httpx.Client) -> None:
    words = ["experiment=reach", "robot=ur5e_fzi", "operator=console", "runtime=ros"]
    body = {"verb": "train", "words": words}
    assert "moves a real arm" in page.post("/api/plan", json=body).json()["warning"]
    body["words"] = [*words, "double=true"]
    assert page.post("/api/plan", json=body).json()["warning"] == ""


# --- a run that is there ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ({"verb": "export", "to": "mcap"}, "export {run} --to mcap --out {run}/exports/mcap"),
        ({"verb": "report"}, "report {run}"),
        ({"verb": "eval", "episodes": 30}, "eval {run} --episodes 30"),
        ({"verb": "eval", "episodes": 3, "video": False}, "eval {run} --episodes 3 --no-video"),
        (
            {"verb": "deploy", "words": ["runtime=lockstep"], "episodes": 5},
            "deploy {run} runtime=lockstep --episodes 5 --stop-after 3",
        ),
    ],
)
def test_each_action_shows_its_command(
    page: httpx.Client, runs: Path, said: dict[str, Any], command: str
) -> None:
    (runs / FIRST / "policy.safetensors").touch()
    plan = page.post("/api/plan", json={"run": FIRST, **said}).json()
    assert plan["command"] == "robot-rl " + command.format(run=runs / FIRST)


@pytest.mark.parametrize(
    "said",
    [
        {"verb": "eval", "episodes": "30"},
        {"verb": "eval", "episodes": True},
        {"verb": "eval", "episodes": 10**9},
        {"verb": "export", "to": "x; rm -r /"},
        {"verb": "export", "to": ["mcap"]},
        {"verb": "deploy", "words": ["robot=ur5"]},
        {"verb": "deploy", "words": ["task=lift"]},
        {"verb": "deploy", "words": ["--out=/tmp/x"]},
        {"verb": "deploy", "words": ["run_dir=/tmp/x"]},
        {"verb": "deploy", "words": [7]},
    ],
)
def test_a_value_of_an_action_is_checked(
    page: httpx.Client, runs: Path, said: dict[str, Any]
) -> None:
    (runs / FIRST / "policy.safetensors").touch()
    assert error(page.post("/api/plan", json={"run": FIRST, **said}))


def test_a_policy_that_is_not_there_is_not_evaluated(page: httpx.Client) -> None:
    assert "no policy yet" in error(page.post("/api/start", json={"run": FIRST, "verb": "eval"}))


def test_finish_reaches_the_process_that_is_known_and_no_other(
    page: httpx.Client, runs: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    name = process_of(sleeper.pid)
    body = {"run": FIRST, "verb": "train"}
    assert "to finish" in error(page.post("/api/finish", json=body))  # nobody works there
    at_work(runs / FIRST, "train", process=name.rpartition(" ")[0] + " 1")  # its number, reused
    assert "to finish" in error(page.post("/api/finish", json=body))
    at_work(runs / FIRST, "train", process="another-machine " + name.partition(" ")[2])
    assert "to finish" in error(page.post("/api/finish", json=body))
    time.sleep(0.2)
    assert sleeper.poll() is None
    at_work(runs / FIRST, "train", process=name)
    assert "to finish" in error(page.post("/api/finish", json={"run": FIRST, "verb": "eval"}))
    assert page.post("/api/finish", json=body).status_code == 200
    assert sleeper.wait(timeout=5) == 130
    assert not runs_still(name)


def test_a_run_goes_on_with_the_command_that_began_it(page: httpx.Client, runs: Path) -> None:
    record = json.loads((runs / FIRST / "run.json").read_text())
    record["command"] = "robot-rl train experiment=reach --json result.json"
    (runs / FIRST / "run.json").write_text(json.dumps(record))
    plan = page.post("/api/plan", json={"run": FIRST, "verb": "train", "again": True}).json()
    assert plan["command"] == f"robot-rl train experiment=reach run_dir={runs / FIRST}"
    record["command"] = "robot-rl train experiment=reach train.demos=7"  # is not how it was begun
    (runs / FIRST / "run.json").write_text(json.dumps(record))
    time.sleep(0.6)
    page.get("/api/runs")
    body = {"run": FIRST, "verb": "train", "again": True}
    assert "not known exactly" in error(page.post("/api/plan", json=body))


def test_a_run_goes_on_with_the_budget_that_a_terminal_gave_it(
    page: httpx.Client, runs: Path, studio: ServedStudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimpleNamespace(verb="train", words=("train", "experiment=reach"))
    monkeypatch.setattr(studio.studio.jobs, "of", lambda name: [job])
    record = json.loads((runs / FIRST / "run.json").read_text())
    record["command"] = "robot-rl train experiment=reach 'name=two words' train.demos=7"
    words = ["experiment=reach", "name=two words", "train.demos=7"]
    record["config_hash"] = Experiment.compose(words).hash
    (runs / FIRST / "run.json").write_text(json.dumps(record))
    time.sleep(0.6)
    page.get("/api/runs")
    body = {"run": FIRST, "verb": "train", "again": True}
    plan = page.post("/api/plan", json=body).json()
    assert "train.demos=7" in plan["command"] and "'name=two words'" in plan["command"]
    record["command"] += " 'no shell takes this"
    (runs / FIRST / "run.json").write_text(json.dumps(record))
    time.sleep(0.6)
    page.get("/api/runs")
    assert "not known exactly" in error(page.post("/api/plan", json=body))


def test_put_away_and_back(page: httpx.Client, runs: Path, studio: ServedStudio) -> None:
    before = sorted(p.name for p in (runs / FIRST).iterdir())
    id_ = page.post("/api/put_away", json={"run": FIRST}).json()["id"]
    assert set(rows(studio)) == {SECOND} and not (runs / FIRST).exists()
    (item,) = page.get("/api/bin").json()
    assert (item["id"], item["name"]) == (id_, FIRST) and item["bytes"] > 0
    (runs / FIRST).mkdir()
    assert "cannot go back" in error(page.post("/api/restore", json={"id": id_}))
    (runs / FIRST).rmdir()
    assert page.post("/api/restore", json={"id": id_}).json()["run"] == FIRST
    assert sorted(p.name for p in (runs / FIRST).iterdir()) == before
    assert page.get("/api/bin").json() == [] and set(rows(studio)) == {FIRST, SECOND}


def test_a_place_in_the_bin_that_leads_outside_is_not_restored(
    page: httpx.Client, runs: Path
) -> None:
    id_ = page.post("/api/put_away", json={"run": FIRST}).json()["id"]
    facts = runs / ".bin" / id_ / "bin.json"
    facts.write_text(json.dumps({"name": "../../escaped", "away_s": 1.0}))
    assert "cannot go back" in error(page.post("/api/restore", json={"id": id_}))
    assert not (runs.parent.parent / "escaped").exists()


@pytest.mark.parametrize("verb", ["train", "eval"])
def test_nobody_puts_away_a_run_that_is_worked_on(
    page: httpx.Client, runs: Path, verb: str, sleeper: subprocess.Popen[bytes]
) -> None:
    at_work(runs / FIRST, verb, process=process_of(sleeper.pid))
    assert f"{verb} runs" in error(page.post("/api/put_away", json={"run": FIRST}))
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()
    assert page.post("/api/put_away", json={"run": FIRST}).status_code == 200


def test_runs_beside_each_other(page: httpx.Client, runs: Path) -> None:
    write_eval(runs / FIRST, 18, 20)
    config = runs / SECOND / "config.yaml"
    config.write_text(config.read_text().replace("utd: 4.0", "utd: 8.0"))
    time.sleep(0.6)
    told = page.get("/api/compare", params={"id": [FIRST, SECOND]}).json()
    first, second = told["runs"]
    assert first["success"]["kind"] == "evaluation" and second["success"]["kind"] == "practice"
    assert (first["takeovers"], second["takeovers"]) == (30, 12)
    assert told["differ"] == [{"key": "learner.utd", "values": ["4.0", "8.0"]}]
    for names in ([FIRST], [FIRST, FIRST], [FIRST, "no-such"]):
        assert error(page.get("/api/compare", params={"id": names}))


def test_pictures_of_a_film(page: httpx.Client, runs: Path) -> None:
    import numpy as np

    from robot_rl.data.video import VideoWriter, decode_still

    assert page.get("/api/film", params={"id": FIRST}).json() == {"pictures": 0}
    writer = VideoWriter(48, 64, 10, "h264", 23)
    for shade in (0, 120, 250):
        writer.add(np.full((48, 64, 3), shade, np.uint8))
    (runs / FIRST / "eval.mp4").write_bytes(writer.close())
    assert page.get("/api/film", params={"id": FIRST}).json() == {"pictures": 3}
    shades = []
    for at in (-1, 0.5, 1, 7):
        answer = page.get("/api/film/picture", params={"id": FIRST, "at": at})
        shades.append(int(decode_still(answer.content).mean()))
    assert shades == pytest.approx([0, 120, 250, 250], abs=15)
    (runs / SECOND / "eval.mp4").write_bytes(b"no video")
    assert "damaged" in error(page.get("/api/film", params={"id": SECOND}))
