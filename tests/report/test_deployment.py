"""The part of the report about a policy at work, from figures of episodes that nobody drove."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from robot_rl.cli.deploy import run as deploy
from robot_rl.report.report import write_report
from tests.support.synthetic_run import write_deployment, write_run


def test_episodes_that_were_all_aborted_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path)
    (write_run(run / "deploy") / "eval.json").unlink()
    figures = write_deployment(run / "deploy", "xx")
    module = types.SimpleNamespace(figures_of=lambda _folder: figures)
    monkeypatch.setitem(sys.modules, "robot_rl.run.deploy", module)
    assert deploy([str(run), "--report"]) == 0
    page = run / "deploy" / "report.html"
    assert f"report      {page}" in capsys.readouterr().out
    assert "2 &times; stop pressed" in page.read_text()
    assert "2 &times; stop pressed" in write_report(run).read_text()


def test_success_by_the_hour_is_in_order_after_the_clock_was_set_back(tmp_path: Path) -> None:
    write_deployment(tmp_path, "+-+", hours=[8, 9, 2])
    page = write_report(tmp_path).read_text()
    begun = re.search(r"success by the hour \(UTC, from ([^)]*)\)", page)
    write_deployment(tmp_path, "++-", hours=[2, 8, 9])
    assert begun is not None and begun[0] in write_report(tmp_path).read_text()
    lines = re.findall(r'<line class="whisker" x1="([-\d.]+)"', page)
    assert [float(x) for x in lines] == sorted(float(x) for x in lines) and len(lines) == 3
    assert float(lines[0]) > 0.0 and float(lines[-1]) < 1040.0
