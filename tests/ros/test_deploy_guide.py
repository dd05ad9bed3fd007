"""docs/deploy.md, typed as it stands: what runs without a person here, the rest on a double."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from robot_rl.run.experiment import Experiment
from tests.ros.test_guide import REPO, environment, types
from tests.support.deployed import trained
from tests.support.rehearsal import Teacher
from tests.support.ros import new_domain

pytestmark = pytest.mark.ros


def commands() -> list[list[str]]:
    """What the guide has its reader type, in words."""
    guide = (REPO / "docs" / "deploy.md").read_text()
    blocks = re.findall(r"```\n(.*?)```", guide, re.S)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def looked_after(words: list[str], domain_id: int, give_up_s: float = 280.0) -> str:
    """The reader types this, and looks after the double at a device instead of the page."""
    words = [w if w != "operator=console" else "operator=twist" for w in words]
    process = subprocess.Popen(
        [*words, f"ros.domain_id={domain_id}"], env=environment(), stdout=subprocess.PIPE, text=True
    )
    remaps = Experiment.compose(["robot=ur5e_fzi"]).driver.topics
    teacher = Teacher(domain_id, remaps=remaps, steers=False)
    end_s = time.monotonic() + give_up_s
    try:
        while process.poll() is None and time.monotonic() < end_s:
            teacher.turn()
            time.sleep(0.02)
        assert process.poll() == 0
        assert process.stdout is not None
        return process.stdout.read()
    finally:
        process.terminate()
        process.wait(30.0)
        teacher.probe.close()


def test_without_a_robot(desk: Path) -> None:
    train, deploy, report, *_ = commands()
    assert "episodes succeed" in types(train)
    assert "of 30 succeeded" in types(deploy)
    assert "report" in types(report)
    assert (desk / "runs/reach/first/deploy/report.html").is_file()


@pytest.mark.slow
@pytest.mark.alone
def test_on_the_double(desk: Path) -> None:
    train, _, _, double, compare = commands()
    types(train)
    trained(Path("runs/reach/second"), "robot=ur5e", good=False)
    said = looked_after([*double, "--episodes", "3"], new_domain())
    assert "3 episodes" in said
    shorter = [word if word != "20" else "3" for word in compare]
    said = looked_after(shorter, new_domain(), 400.0)
    (found,) = (desk / "runs/reach/first").glob("compare-*/comparison.json")
    result = json.loads(found.read_text())
    good, bad = result["policies"]
    assert good["successes"] == 3 and bad["successes"] == 0 and result["commitment_holds"]
    assert "A - B" in said and "runs/reach/first" in said
