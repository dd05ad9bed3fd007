"""A demonstration waits for the person: whoever reads the page is not recorded as a failure."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from robot_rl.store.store import Store
from tests.support.ros import new_domain, wait_for

pytestmark = [pytest.mark.ros, pytest.mark.alone, pytest.mark.waits]


def test_nobody_drives_and_nothing_is_stored_and_the_run_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["experiment=reach", "runtime=ros", "operator=console", f"run_dir={run}"]
    tool = Path(sys.executable).with_name("robot-rl")
    more = ["--demos", "1", f"ros.domain_id={new_domain()}"]
    process = subprocess.Popen([str(tool), "record", *words, *more])
    try:
        log = run / "logs" / "actor.log"
        wait_for(lambda: log.is_file() and "/actor up" in log.read_text(), 60.0, "the actor is up")
        wait_for((run / "actor.sqlite").is_file, 30.0, "it has a store")
        time.sleep(4.0)  # an episode of `reach` lasts 5 s of a time that runs many times as fast
        assert process.poll() is None
        with Store(run / "actor.sqlite") as store:
            assert list(store.episode_summaries()) == []
        assert "demo 0" not in log.read_text()
    finally:
        process.terminate()  # SIGINT would be ignored where the tests run in the background
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert "keep failing" not in log.read_text()
