"""`robot-rl serve-policy`: the base policy of a run, for other processes and machines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robot_rl.errors import ConfigError
from robot_rl.link.auth import load_keys, require_key_folder
from robot_rl.link.config import LinkConfig
from robot_rl.policy.base.own import base_of_run
from robot_rl.policy.base.served import BatchPolicy, PolicyServer, key_folder, serve
from robot_rl.run.experiment import Experiment


def serve_run(
    run: Path,
    *,
    host: str,
    port: int,
    keys: Path | None,
    stop: threading.Event,
    started: Callable[[str], None] = lambda _where: None,
    overrides: Sequence[str] = (),
) -> None:
    """Serve until `stop`: the chunk policy of a run of ours, or what `base=...` names.

    With overrides, `run` is a folder for the keys, and the overrides say which task the policy is
    for.

    Raises:
        ConfigError: a run without such a policy, a base that cannot be served, or a wildcard host.
        CheckpointError: the run has no usable policy.
        LinkError: a network address without keys of its own, or the port is taken.
    """
    try:
        where = LinkConfig(host=host, port=port, key_folder=str(keys) if keys else None)
    except ValueError as error:
        raise ConfigError(
            "cannot listen there",
            expected="one address of this machine, and a port in 0..65535",
            got=str(error),
            fix="--host 127.0.0.1, or the address of one network",
        ) from error
    require_key_folder(where)
    if overrides:
        experiment = Experiment.compose([*overrides, f"run_dir={run}"])
        run.mkdir(parents=True, exist_ok=True)
    else:
        experiment = Experiment.load(run)
    base = experiment.base if overrides else base_of_run(run)
    if base is None:
        raise ConfigError(
            "there is no policy to serve",
            expected="base=flow, base=act, base=lerobot",
            got="base=none",
            fix="add base=lerobot base.path=FOLDER, or give a run of algo=bc_flow and no overrides",
        )
    policy: Any = base.open(experiment.task.spec, experiment.seed)
    if not isinstance(policy, BatchPolicy):
        raise ConfigError(
            "this base cannot be served once more",
            expected="base=flow, base=act, base=lerobot",
            got=f"base={experiment.config['base']['name']}",
            fix="let the actor ask its server itself",
        )
    pair = load_keys(keys.expanduser() if keys else key_folder(run), "policy")
    with PolicyServer(policy, experiment.task.spec, pair, where) as server:
        started(f"{host}:{server.port}")
        serve(server, stop)
