"""The services of `simulation_interfaces`, at a running graph."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: pip install 'robot-rl[ros]'")

from robot_rl.ros import topics
from robot_rl.ros.endpoints import message_type
from robot_rl.ros.graph import SimGraphConfig, sim_graph
from robot_rl.ros.topics import Service
from tests.support.ros import World, missing_vendor_types, wait_for, write_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.alone,
    pytest.mark.waits,
    pytest.mark.skipif(bool(missing_vendor_types()), reason=missing_vendor_types() or "-"),
]
OK, NOT_FOUND, FAILED, UNSUPPORTED = 1, 2, 4, 0
PLAYING, PAUSED, STOPPED = 1, 2, 0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Sim, gate, watchdog and operator, with a cube."""
    run = write_run(tmp_path_factory.mktemp("simulation"), task={"name": "lift"})
    world = World(sim_graph(SimGraphConfig(with_actor=False, unattended=True), str(run)), run)
    try:
        world.probe.wait_state()
        yield world
    finally:
        world.close()


@pytest.fixture(autouse=True)
def playing(world: World) -> Iterator[None]:
    """Time goes on before and after each test."""
    yield
    call(world, topics.SIMULATION_SET_STATE, state__state=PLAYING)


def call(world: World, service: Service, timeout_s: float = 10.0, **fields: Any) -> Any:
    """Call a service and wait for the answer; `a__b` is the field b of a."""
    kind = message_type(service.type)
    client = world.probe.node.create_client(kind, service.name)
    wait_for(client.service_is_ready, 10.0, f"{service.name} is served")
    request = kind.Request()
    for path, value in fields.items():
        *way, last = path.split("__")
        within = request
        for word in way:
            within = getattr(within, word)
        setattr(within, last, value)
    future = client.call_async(request)
    wait_for(future.done, timeout_s, f"{service.name} answers")
    world.probe.node.destroy_client(client)
    return future.result()


def cube_m(world: World) -> list[float]:
    """Where the cube is."""
    where = call(world, topics.ENTITY_GET, entity="cube").state.pose.position
    return [where.x, where.y, where.z]


def test_it_says_what_it_can_do_and_serves_all_of_it(world: World) -> None:
    features = message_type("simulation_interfaces/msg/SimulatorFeatures")
    has = set(call(world, topics.SIMULATION_FEATURES).features.features)
    assert features.STEP_SIMULATION_MULTIPLE in has and features.ENTITY_STATE_SETTING in has
    assert features.SPAWNING not in has and features.SIMULATION_RESET_TIME not in has
    served = {name for name, _ in world.probe.node.get_service_names_and_types()}
    assert {f"/{service.name}" for service in topics.SIMULATION} <= served


def test_entities_are_the_arm_and_the_objects(world: World) -> None:
    assert list(call(world, topics.ENTITIES).entities) == ["fr3", "cube"]
    assert list(call(world, topics.ENTITIES, filters__filter="^c").entities) == ["cube"]
    found = call(world, topics.ENTITIES_STATES)
    assert list(found.entities) == ["fr3", "cube"] and found.result.result == OK
    assert found.states[1].header.frame_id == "base"
    assert found.states[1].pose.position.z == pytest.approx(0.02, abs=0.001)
    assert call(world, topics.ENTITIES, filters__filter="(").result.result == FAILED
    refused = call(world, topics.ENTITIES, filters__tags__tags=["red"])
    assert refused.result.result == UNSUPPORTED and not refused.entities
    nobody = call(world, topics.ENTITY_GET, entity="cup").result
    assert nobody.result == NOT_FOUND and "known: fr3, cube" in nobody.error_message


def set_cube(world: World, z_m: float, **more: Any) -> Any:
    """Put the cube beside the arm, `z_m` high."""
    state = message_type("simulation_interfaces/msg/EntityState")()
    state.pose.position.x, state.pose.position.y, state.pose.position.z = 0.45, 0.2, z_m
    state.pose.orientation.w = more.pop("w", 1.0)
    state.twist.linear.x, state.header.frame_id = more.pop("speed", 0.0), more.pop("frame", "")
    words = {"entity": "cube", "state": state, "set_pose": True} | more
    return call(world, topics.ENTITY_SET, **words).result


def test_time_stands_while_paused_and_goes_on_step_by_step(world: World) -> None:
    assert call(world, topics.SIMULATION_STEP, steps=1).result.result == FAILED  # not paused
    assert call(world, topics.SIMULATION_SET_STATE, state__state=PAUSED).result.result == OK
    assert call(world, topics.SIMULATION_GET_STATE).state.state == PAUSED
    assert call(world, topics.SIMULATION_SET_STATE, state__state=PAUSED).result.result == 101
    wait_for(lambda: world.probe.heard["/clock"], 5.0, "the clock is still told")
    time.sleep(0.2)  # its last word may still be on its way
    before_s = world.probe.now_s()
    time.sleep(0.5)
    assert world.probe.now_s() == before_s
    assert set_cube(world, 0.3, set_twist=True, speed=0.5).result == OK
    for steps in (1, 4):
        assert call(world, topics.SIMULATION_STEP, steps=steps).result.result == OK
    wait_for(lambda: world.probe.now_s() >= before_s + 0.099, 5.0, "the clock tells of it")
    assert world.probe.now_s() == pytest.approx(before_s + 0.1, abs=1e-6)
    x_m, _, z_m = cube_m(world)
    assert z_m == pytest.approx(0.3 - 9.81 * 0.1**2 / 2, abs=0.002)  # it has fallen for 0.1 s
    assert x_m == pytest.approx(0.45 + 0.5 * 0.1, abs=0.002)
    twist = call(world, topics.ENTITY_GET, entity="cube").state.twist.linear
    assert (twist.x, twist.z) == pytest.approx((0.5, -0.981), abs=0.03)
    assert call(world, topics.SIMULATION_SET_STATE, state__state=PLAYING).result.result == OK
    wait_for(lambda: world.probe.now_s() > before_s + 0.5, 5.0, "time goes on")
    assert world.probe.report().mode == "hold"  # nobody armed, nothing broke


def test_a_long_step_keeps_nobody_waiting_and_ends_when_told(world: World) -> None:
    assert call(world, topics.SIMULATION_SET_STATE, state__state=PAUSED).result.result == OK
    began_s = time.monotonic()
    assert call(world, topics.SIMULATION_STEP, steps=1).result.result == OK
    assert time.monotonic() - began_s < 1.0
    kind = message_type(topics.SIMULATION_STEP.type)
    client = world.probe.node.create_client(kind, topics.SIMULATION_STEP.name)
    wait_for(client.service_is_ready, 10.0, "steps are served")
    future = client.call_async(kind.Request(steps=10_000_000))
    before_s = world.probe.now_s()
    wait_for(lambda: world.probe.now_s() > before_s + 0.5, 10.0, "time goes on")
    assert call(world, topics.SIMULATION_GET_STATE, timeout_s=1.0).state.state == PAUSED
    assert world.probe.call(topics.CONTROLLER_STOP).success
    assert world.probe.call(topics.CONTROLLER_RESUME).success
    assert call(world, topics.SIMULATION_SET_STATE, state__state=PAUSED).result.result == OK
    wait_for(future.done, 5.0, "the step is answered")
    assert future.result().result.result == FAILED
    time.sleep(0.2)  # the last word of the clock may still be on its way
    before_s = world.probe.now_s()
    time.sleep(0.3)
    assert world.probe.now_s() == before_s


def test_what_cannot_be_set_is_refused_with_the_reason(world: World) -> None:
    arm = set_cube(world, 0.1, entity="fr3")
    assert arm.result == FAILED and "through the gate" in arm.error_message
    assert set_cube(world, 0.1, entity="cup").result == NOT_FOUND
    assert set_cube(world, 0.1, w=0.3).result == 101  # no unit quaternion
    assert set_cube(world, float("nan")).result == 101
    assert set_cube(world, 0.1, frame="camera").result == 101
    assert set_cube(world, 0.1, set_twist=True, speed=float("inf")).result == FAILED
    assert set_cube(world, 0.02, frame="world").result == OK


def test_a_reset_puts_arm_and_objects_back_and_time_never_goes_back(world: World) -> None:
    first = call(world, topics.SIMULATION_RESET, scope=2)
    assert first.result.result == OK
    start_m = cube_m(world)
    assert set_cube(world, 0.02).result == OK
    before_s = world.probe.now_s()
    whole = call(world, topics.SIMULATION_RESET, scope=0).result
    assert whole.result == UNSUPPORTED and "SCOPE_STATE" in whole.error_message
    assert cube_m(world) != pytest.approx(start_m, abs=0.01)
    assert call(world, topics.SIMULATION_SET_STATE, state__state=STOPPED).result.result == OK
    assert cube_m(world) == pytest.approx(start_m, abs=0.001)
    assert world.probe.now_s() >= before_s
    assert call(world, topics.SIMULATION_SET_STATE, state__state=3).result.result == UNSUPPORTED


def test_a_drive_goes_on_after_a_pause(world: World) -> None:
    """Nobody takes a pause for silence: time stood for everybody."""
    call(world, topics.SIMULATION_SET_STATE, state__state=PLAYING)
    probe = world.probe
    probe.settle()
    assert probe.arm("mover").granted
    assert call(world, topics.SIMULATION_SET_STATE, state__state=PAUSED).result.result == OK
    time.sleep(1.0)
    assert probe.report().mode == "run"
    assert call(world, topics.SIMULATION_SET_STATE, state__state=PLAYING).result.result == OK
    probe.wait_mode("pause")  # no command came
