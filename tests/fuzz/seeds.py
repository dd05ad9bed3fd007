"""Makes the seeds of all targets from real messages and files: `python -m tests.fuzz.seeds`.

Inputs that once found a defect are beside them as `found-...`; this script leaves those alone.
"""

# ruff: noqa: E501, PLR0915 (files as they are, and many of them)
from __future__ import annotations

import base64
import io
import json
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgpack
import numpy as np

from tests.fuzz.mutate import PART
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


def as_json(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def packed(value: object) -> bytes:
    """msgpack."""
    return bytes(msgpack.packb(value) or b"")


def link() -> Iterable[tuple[str, str, bytes]]:
    """Messages of the link, records and rows of the store."""
    from robot_rl.bench.faults.messages import EXAMPLES, FLATS, framed
    from robot_rl.bench.samples import sample_observation, sample_spec
    from robot_rl.link.frames import HEADER, encode
    from robot_rl.link.invitation import new_invitation
    from robot_rl.store.codec import encode_tensors

    for message in EXAMPLES:
        name, frame = type(message).__name__.lower(), encode(message, 3)
        if len(frame) > 4000:
            continue
        yield "link_frame", name, frame
        body = frame[6:7] + frame[HEADER.size :]
        yield "link_body", name, body
        yield "link_answer", name, body
        yield "codec_value", name, body[1:]
        yield "msgpack", name, body[1:]
    yield "link_frame", "other_version", framed(1, b"\x90", protocol=9)
    for flat in FLATS[:3]:
        row = packed([[[int(flat.kind), list(flat.values)]]])
        yield "store_row", flat.kind.name.lower(), row
    rng = np.random.default_rng(0)
    seen = sample_observation(sample_spec(images=1, state_size=3, image_size=4), rng)
    for name, tensors in {
        "observation": seen,
        "empty": {},
        "bool": {"b": np.ones(3, bool)},
    }.items():
        record = encode_tensors(tensors)
        head, body = struct.unpack_from("<II", record, 4)
        yield "codec_record", name, record
        yield "codec_body", name, body.to_bytes(2, "little") + record[16 : 16 + head]
    found = new_invitation("192.168.1.5", 5599, "ab" * 8, _z85_key())
    yield "pairing_string", "string", found.encode().encode()
    text = found.encode().removeprefix("rrl1:")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    yield "pairing_string", "inside", b"\0" + raw[:-4]


def _z85_key() -> bytes:
    from zmq.utils import z85

    return z85.encode(bytes(range(32)))


def page() -> Iterable[tuple[str, str, bytes]]:
    """What the page and devices send."""
    axes = [0.5, 0, 0, 0, 0, -1.0]
    keys = {"axes": axes, "held": ["drive", "slow"], "at": 1234.5}
    hand = {"axes": [0] * 6, "held": ["drive"], "hand": [0.1, 0, 0.3, 0, 0, 0, 1], "trigger": 0.5}
    for name, said in {"keys": keys, "hand": hand}.items():
        yield "console_input", name, as_json(said)
        yield "console_clock", name, as_json(said | {"at": 900.0})
    for name, said in {
        "picture": {"want": "picture", "camera": "wrist", "after": 3},
        "telemetry": {"want": "telemetry"},
        "command": {"want": "command", "verb": "stop"},
    }.items():
        yield "console_line", name, packed(said)
    yield "console_head", "post", b"Host: a\nContent-Length: 20\nContent-Type: application/json"
    yield "console_head", "chunked", b"Transfer-Encoding: chunked\nHost: a"
    for name, said in {
        "success": {"kind": "success", "value": 1},
        "step": {"kind": "reward", "value": 0.5, "step": 1, "episode": 0, "run": "run",
                 "actor": "actor"},
        "last": {"kind": "shows", "value": 1, "last_s": 0.2},
        "undo": {"kind": "undo", "value": 0},
    }.items():  # fmt: skip
        yield "console_label", name, as_json(said)
    yield "console_crop", "crop", b"[10, 20, 300, 200]"
    yield "console_crop", "whole", b"null"
    for name, data in {
        "translation": b"\x01" + struct.pack("<3h", 1, -2, 350),
        "both": b"\x01" + struct.pack("<6h", 1, -2, 350, 4, 5, 6),
        "rotation": b"\x02" + struct.pack("<3h", 1, -2, 350),
        "buttons": b"\x03\x05\x00",
    }.items():
        yield "spacemouse", name, data


def servers() -> Iterable[tuple[str, str, bytes]]:
    """Answers of servers of policies and of models."""
    from robot_rl.policy.base import groot, openpi, openvla
    from robot_rl.spec import PROTOCOL_VERSION
    from robot_rl.store.codec import encode_tensors
    from tests.fuzz.messages import _spec

    chunk = np.zeros((4, 7), np.float32)
    yield "base_openpi", "chunk", openpi.packed({"actions": chunk, "server_timing": {"ms": 3.0}})
    yield "base_openpi", "scalar", openpi.packed({"policy": "pi0", "n": np.float32(1.0)})
    yield "base_openpi", "lists", openpi.packed({"actions": chunk.tolist()})
    yield "base_groot", "chunk", groot.packed([{"arm": chunk[None]}, {}])
    yield "base_groot", "columns", groot.packed([{"arm": np.asfortranarray(chunk)[None]}, {}])
    yield "base_groot", "error", groot.packed({"error": "no such key"})
    array = json.dumps([0.0] * 7).encode()
    yield "base_openvla", "list", array
    array_text = json.dumps(chunk[0], default=openvla._as_json)
    yield "base_openvla", "array", array_text.encode()
    yield "base_openvla", "twice", json.dumps(array_text).encode()
    said = {"protocol": PROTOCOL_VERSION, "spec": _spec().as_dict(), "chunk": 4,
            "action_size": 7, "noise_shape": [2, 3]}  # fmt: skip
    yield "base_served", "describe", as_json(said)
    yield "base_served", "chunk", encode_tensors({"chunk": chunk[None]})
    for word in ("yes", "0.5", "+20%", "A"):
        top = [{"token": word, "logprob": -0.1}, {"token": "no", "logprob": -2.5}]
        first = {"token": word, "logprob": -0.1, "top_logprobs": top}
        choice = {"message": {"content": word}, "logprobs": {"content": [first]}}
        reply = {"choices": [choice], "usage": {"total_tokens": 512}}
        yield "vlm_chat", f"word-{word[:1].strip('+') or 'sign'}", as_json(reply)
        yield "vlm_client", f"word-{word[:1].strip('+') or 'sign'}", as_json(reply)
    yield (
        "vlm_chat",
        "refusal",
        as_json(
            {"choices": [{"message": {"content": None, "refusal": "no"}, "finish_reason": "stop"}]}
        ),
    )
    yield "vlm_client", "wait", b"30"
    heads = {"outputs_progress": {"progress_pred": [[0.1, 0.7]]},
             "outputs_success": {"success_probs": [[0.1, 0.7]]},
             "outputs_preference": {"prediction_probs": [0.7], "preference_labels": [1.0]}}  # fmt: skip
    yield "vlm_heads", "all", as_json(heads)


def graph() -> Iterable[tuple[str, str, bytes]]:
    """Messages of the ROS graph."""
    from robot_rl.geometry import pose
    from robot_rl.ports import ResetPlan
    from robot_rl.ros import wire
    from robot_rl.ros.readiness import STATUSES, Item
    from robot_rl.ros.release import LIMITS_S
    from robot_rl.types import Command, Driver, Outcome, Verdict

    here = pose((0.4, 0.0, 0.2))
    command = Command(sequence=3, stamp_s=1.5, driver=Driver.POLICY, lease="l",
                      tcp_target_in_base=here, gripper_width_m=0.04)  # fmt: skip
    joints = Command(sequence=3, stamp_s=1.5, driver=list(Driver)[-1], lease="l",
                     tcp_target_in_base=here, gripper_width_m=None,
                     joint_target_rad=np.zeros(7))  # fmt: skip
    verdict = Verdict(sequence=3, outcome=next(iter(Outcome)), reason="", command=command,
                      stamp_s=1.6)  # fmt: skip
    item = Item("camera wrist", STATUSES[0], "30 Hz", "", "")
    plan = ResetPlan(tcp_in_base=here, objects={"peg": here}, gripper_width_m=0.0, held_in_tcp=here)
    texts = {
        "request": {
            "move": wire.encode_request(command),
            "joints": wire.encode_request(joints),
            "arm": wire.encode_request(wire.ArmRequest("l", 1.0)),
        },
        "answer": {
            "verdict": wire.encode_answer(verdict),
            "arm": wire.encode_answer(wire.ArmAnswer("l", True, "")),
        },
        "report": {"state": wire.encode_report(wire.GateReport("run", "", "l", 1.0, 0, "person"))},
        "readiness": {"items": wire.encode_readiness(wire.ReadinessReport((item,), ("force",)))},
        "pace": {"pace": wire.encode_pace(wire.ClockPace(1.0, dict.fromkeys(LIMITS_S, 0.1), ""))},
        "episode": {"call": wire.encode_episode(wire.EpisodeCall(1, 2, "train", True))},
        "plan": {"plan": wire.encode_plan(plan), "seed": '{"seed": 3}'},
    }
    for kind, named in texts.items():
        for name, text in named.items():
            yield f"ros_{kind}", name, text.encode()
    faults = {"drop": ["wrench"], "slow_hz": {"wrench": 5.0}, "skew_s": {"wrench": 0.1},
              "payload_kg": 0.5, "gripper_ends": [0.0, 0.08], "push_n": [1.0, 0.0, 0.0],
              "ready": {"a": 1}, "frozen_cameras": True}  # fmt: skip
    yield "ros_fault", "faults", as_json(faults)
    for name, code, wide in (("rgb", 0, 3), ("mono", 4, 1), ("yuyv", 8, 2)):
        size = struct.pack("<BIBIB", code, 4 << 8, 8, 4 << 8, 8) + struct.pack("<IB", 4 * wide, 0)
        yield "ros_image", name, size + b"\0" + bytes(range(4 * wide * 4 % 256))
    floats = struct.pack("<14d", *(0.0, 0.5) * 7)
    for kind in range(7):
        yield "ros_joints", f"kind{kind}", bytes([kind, 3, 0, 1, 2, 3]) + floats
    yield (
        "ros_joints",
        "joy",
        b"\x01\x06" + struct.pack("<6i", 1, 0, 0, 1, 5, 0) + b"\x07" + bytes(28),
    )


def pictures() -> Iterable[tuple[str, str, bytes]]:
    """JPEG, PNG and mp4."""
    from robot_rl.data.video import VideoWriter, encode_still

    image = np.arange(16 * 12 * 3, dtype=np.uint8).reshape(12, 16, 3)
    for kind in ("jpeg", "png"):
        data = encode_still(image, kind)
        yield "still", kind, data
        yield "ros_compressed", kind, data
    import cv2

    for name, options in {"progressive": [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]}.items():
        data = cv2.imencode(".jpg", image, options)[1].tobytes()
        yield "still", name, data
        yield "ros_compressed", name, data
    grey = cv2.imencode(".png", image[..., 0])[1].tobytes()
    yield "ros_compressed", "grey", grey
    for codec in ("h264", "av1"):
        writer = VideoWriter(8, 8, 10, codec) if codec == "h264" else VideoWriter(64, 64, 10, codec)
        for _ in range(3):
            size = (8, 8, 3) if codec == "h264" else (64, 64, 3)
            writer.add(np.zeros(size, np.uint8))
        yield "video", codec, writer.close()


def configs() -> Iterable[tuple[str, str, bytes]]:
    """YAML and JSON of configurations, keys and certificates."""
    from robot_rl.config.registry import PROVIDERS, REGISTRY
    from robot_rl.console import certificate
    from robot_rl.link.auth import make_keys
    from robot_rl.reward.vlm.questions import PROMPTS
    from robot_rl.run.experiment import Experiment
    from robot_rl.spec import BoxActionSpec, Spec, TensorSpec
    from tests.fuzz.messages import _spec

    yield (
        "yaml",
        "plain",
        b"a: 1\nb: [1, 2.5, yes, null, ~]\nc: {d: 'x', e: \"y\"}\nf:\n  - g\n  - h: 2026-01-02\n",
    )
    yield "yaml", "alias", b"a: &x {k: [1, 2]}\nb: *x\nc:\n  <<: *x\n  k: !!str 5\n"
    yield (
        "yaml",
        "types",
        b"- !!binary aGk=\n- !!timestamp 2026-01-02T03:04:05Z\n- !!int 0x1f\n- !!float 1:30.5\n- !!set {a, b}\n- !!omap [a: 1]\n- !!pairs [a: 1]\n- !!bool yes\n- |\n  text\n- >-\n  more\n- ? k\n  : v\n",
    )
    yield (
        "config_edit",
        "plain",
        b"# mine\ncameras:\n  wrist:\n    width: 320  # pixels\n    height: 240\nother: 1\n",
    )
    yield "config_edit", "flow", b"cameras: {wrist: {width: 320}}\n"
    yield "config_edit", "empty", b"# nothing\n"
    experiment = Experiment.compose(["task=reach", "runtime=lockstep"])
    whole = json.loads(json.dumps(experiment.resolved()))
    yield "run_config", "reach", as_json(whole)
    for modules in PROVIDERS.values():
        for module in modules:
            __import__(module)
    names = sorted((group, name) for group, known in REGISTRY.items() for name in known)
    for index, (group, name) in enumerate(names):
        given = whole.get(group) if (whole.get(group) or {}).get("name") == name else {}
        values = {k: v for k, v in (given or {}).items() if k != "name"}
        yield "config_section", f"{group}-{name}", index.to_bytes(2, "little") + as_json(values)
    yield "spec", "arm", as_json(_spec().as_dict())
    box = Spec("gym", 20.0, {"state": TensorSpec((3,), "float32")}, BoxActionSpec((-1.0,), (1.0,)))
    yield "spec", "box", as_json(box.as_dict())
    joints = {"joints": ["a", "b"], "joint_rad": 0.05, "hand": _spec().as_dict()["action"]}
    yield "spec", "joints", as_json(_spec().as_dict() | {"action": joints})
    yield (
        "rest_position",
        "pad",
        b"X: {centre: 0.01, noise: 0.002}\nY: {centre: -0.02, noise: 0.0}\n",
    )
    yield (
        "leader_map",
        "gello",
        b"zero_rad: [0.1, 0.2, 0.3]\nsigns: [1, -1, 1]\ntrigger_rad: [0.0, 0.7]\n",
    )
    yield (
        "task_poses",
        "poses",
        b"starts: [[0.4, 0, 0.2], [0.4, 0.1, 0.2, 0.5]]\ngoal: [0.4, 0, 0.1, 1, 0, 0, 0]\ncorners: [[0.3, -0.1, 0.0], [0.5, 0.1, 0.3]]\n",
    )
    yield "prompt", "success", (PROMPTS / "success.yaml").read_bytes()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_keys(folder / "keys", ("actor", "learner"))
        files = [folder / "keys" / f for f in ("actor.secret", "actor.public", "learner.public")]
        yield "key_folder", "keys", PART.join(path.read_bytes() for path in files)
        certificate.make(folder / "page", ["robot-pc.local"])
        names_of = (certificate.CA, certificate.PAGE, certificate.KEY)
        yield "certificate", "page", PART.join((folder / "page" / n).read_bytes() for n in names_of)


def runs() -> Iterable[tuple[str, str, bytes]]:
    """Stores, policies, checkpoints, models, metrics, archives."""
    import hashlib
    import tarfile

    import safetensors.torch
    import torch

    from robot_rl.bench.samples import episode_rows, sample_spec
    from robot_rl.learn.checkpoint import Checkpoint, CheckpointFolder
    from robot_rl.nets.encoder import EncoderConfig
    from robot_rl.policy.runtime import save_policy
    from robot_rl.report.tally import Tally
    from robot_rl.reward.success.model import SuccessModel
    from robot_rl.run import on_ray
    from robot_rl.store.store import Store
    from robot_rl.types import EpisodeId, Label, Weights

    like = {"a": torch.zeros(3), "b": torch.zeros(2, 2)}
    image = safetensors.torch.save(like)
    yield "weights", "good", image
    yield "weights", "half", safetensors.torch.save({"a": torch.zeros(3, dtype=torch.bfloat16)})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec, tiny = sample_spec(), sample_spec(images=1, state_size=2, image_size=4)
        id_ = EpisodeId("run", "actor", 0)
        with Store(folder / "s.sqlite", spec=tiny, reserve_bytes=0) as store:
            store.append(episode_rows(tiny, id_, 2))
            store.append([Label(id_, 0, None, "success", 1.0, "person", "ada", 6)])
        with sqlite3.connect(folder / "s.sqlite") as db:
            db.execute("PRAGMA journal_mode=DELETE")
            db.execute("PRAGMA page_size=512")
            db.execute("VACUUM")
        yield "store_file", "episode", (folder / "s.sqlite").read_bytes()
        facts = [tiny.as_dict(), 2, 0, 0, [["run", "actor", 0]], "learner"]
        yield "store_facts", "all", PART.join(map(as_json, facts))
        found = [{"name": "camera wrist", "status": "ok", "text": "30 Hz", "fix": ""}]
        facts = [{"kind": "deploy", "episodes": 3}, found, {"config_hash": "ab" * 8, "run": "s0"}]
        yield "run_facts", "three", PART.join(map(as_json, facts))
        secret = base64.b85encode(as_json({"secret": "ab" * 32}))
        yield "sealed_order", "good", secret + PART + as_json({})
        told = hashlib.sha256(b"ab" * 32).hexdigest()
        yield "sealed_order", "told", secret + PART + as_json({"commitment": told})
        yield "api_key", "good", b"example.org sk-0123456789abcdef\n"
        save_policy(folder, Weights(3, hashlib.sha256(image).hexdigest(), image), spec)
        files = [folder / f"policy.{kind}" for kind in ("json", "safetensors")]
        yield "policy_file", "good", PART.join(path.read_bytes() for path in files)
        facts = {"updates": 5, "random": [1, 2], "plain_spec": "ab"}
        path = CheckpointFolder(folder / "c").save(Checkpoint(like, facts, "ab" * 8, 0.5))
        files = [path / "manifest.json", path / "tensors.safetensors"]
        data = PART.join(file.read_bytes() for file in files)
        yield "checkpoint", "good", data
        yield "checkpoint", "sealed", b"\0" + data
        seen = sample_spec(images=1, image_size=16)
        encoder = EncoderConfig(channels=(2,), embeddings=1, latent=2)
        net = SuccessModel.make_net(seen, encoder, (4,))
        tensors = net.init(torch.Generator().manual_seed(0))
        SuccessModel(net, tensors, {"accuracy": 0.9}, ("run",)).save(folder / "m")
        files = [folder / "m" / f"success.{kind}" for kind in ("json", "safetensors")]
        yield "reward_model", "good", PART.join(path.read_bytes() for path in files)
        goal = safetensors.torch.save({"goal": torch.ones(2), "baseline": torch.ones(2)})
        told = {"format": 1, "sha256": hashlib.sha256(goal).hexdigest(),
                "clip": {"where": "x", "revision": "y", "sha256": {"a": "b"}},
                "inputs": {"image/0": [16, 16, 3]}, "task": "t", "baseline": "b", "alpha": 0.5,
                "low": 0.0, "high": 1.0, "source": ["run"], "figures": {"a": 1.0}}  # fmt: skip
        yield "clip_model", "good", as_json(told) + PART + goal
        (folder / "tree" / "keys").mkdir(parents=True)
        (folder / "tree" / "config.yaml").write_text("seed: 0\n")
        (folder / "tree" / "keys" / "a.public").write_text("k" * 40)
        yield "ray_archive", "run", on_ray.packed(folder / "tree")
    for name, kind in (
        ("link", tarfile.SYMTYPE),
        ("hard", tarfile.LNKTYPE),
        ("pipe", tarfile.FIFOTYPE),
    ):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            member = tarfile.TarInfo("a")
            member.type, member.linkname = kind, "b"
            member.pax_headers = {"comment": "x"}
            archive.addfile(member)
        yield "ray_archive", name, buffer.getvalue()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:  # GNU.sparse.* in a pax header
        member = tarfile.TarInfo("a")
        member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
                              "GNU.sparse.realsize": "100000000", "GNU.sparse.name": "a"}  # fmt: skip
        member.size = 512
        archive.addfile(member, io.BytesIO(b"1\n0\n1\n".ljust(512, b"\0")))
    yield "ray_archive", "sparse", buffer.getvalue()
    poses = np.array([0, 5] + [0] * 24, np.float32)
    row = struct.pack("<ii", 3, 5) + poses[: 3 + 1 + 7 * 2].tobytes()
    yield "scenes", "two", as_json({"joints": 3, "objects": ["peg"]}) + b"\n" + row * 2
    line = {"time_s": 1.5, "env_steps": 20, "episode/success": 1.0, "learner/utd": 0.5,
            "diagnostics/q": 1, "diagnostics/q/what": "w", "diagnostics/q/fix": "f"}  # fmt: skip
    state = {"state": "evaluation", "eval_episode/success": True, "eval_episode/duration_s": 3.0}
    lines = as_json(line) + b"\n" + as_json(line | state | {"time_s": 2.0}) + b"\n"
    result = {"deterministic": {"successes": 3, "episodes": 5, "cycle_time_s_mean": 4.0}}
    record = {"config_hash": "ab", "created": "2026-01-02", "git": {"commit": "c"}}
    yield "metric_lines", "run", lines + PART + as_json(result) + PART + as_json(record)
    config = as_json({"name": "x", "task": {"name": "reach"}})
    figures = Tally(episodes=3, successes=2, failures=1, since_ns=10**18, until_ns=10**18 + 10**12,
                    hours={"2001-09-09T01": [2, 3]}).figures()  # fmt: skip
    whole = [lines, as_json(result), as_json(record), config]
    yield "report_page", "run", PART.join([*whole, b"{}"])
    yield "report_page", "deployment", PART.join([*whole, as_json(figures)])
    yield "export_identity", "same", as_json({"episodes": 3})
    yield "export_identity", "other", as_json({"episodes": 4, "source": {"run": "x"}})
    yield "vlm_budget", "two", b"999999990.000 3\n999999995.000 12.5\n"


def datasets() -> Iterable[tuple[str, str, bytes]]:
    """Datasets and policies of LeRobot."""
    from tests.fuzz.files import _dataset

    with tempfile.TemporaryDirectory() as name:
        root = _dataset(Path(name))
        yield "lerobot_info", "ours", (root / "meta" / "info.json").read_bytes()
        (episodes,) = (root / "meta" / "episodes").glob("*/*.parquet")
        import pyarrow.parquet as pq

        table = pq.read_table(episodes)
        kept = [n for n in table.column_names if not n.startswith("stats/")]
        pq.write_table(table.select(kept), Path(name) / "small.parquet", compression="none")
        yield "lerobot_table", "ours", (Path(name) / "small.parquet").read_bytes()
    steps = {"steps": [{"registry_name": "normalizer_processor", "config": {"eps": 1e-8},
                        "state_file": "step_1.safetensors"}]}  # fmt: skip
    config = {"type": "act", "n_obs_steps": 1, "chunk_size": 8}
    yield "lerobot_policy", "act", PART.join((as_json(config), as_json(steps), as_json(steps)))


def robots() -> Iterable[tuple[str, str, bytes]]:
    """URDFs and meshes."""
    urdfs = Path(__file__).parents[1] / "robots" / "urdf"
    arm = _small(urdfs / "ur5e.urdf")
    yield "urdf_arm", "ur5e", arm
    yield "urdf_arm", "fr3", _small(urdfs / "fr3.urdf")
    yield "urdf", "two", TWO
    yield "urdf", "arm", arm
    triangle = struct.pack("<12fH", *(0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0), 0)
    yield "mesh", "stl", b"s" + bytes(80) + struct.pack("<I", 2) + triangle * 2
    text = b"solid a\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\n"
    yield "mesh", "text", b"s" + text
    yield "mesh", "obj", b"ov 0 0 0\nv 1 0 0\nv 0 1 0.5\nf 1 2 3\n"


TWO = b"""<robot name="r"><link name="a"><inertial><origin xyz="0 0 0.1" rpy="0 0 0"/><mass value="1"/>
<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial><collision><origin xyz="0 0 0"/>
<geometry><cylinder radius="0.1" length="0.2"/></geometry></collision></link><link name="b"/>
<joint name="j" type="revolute"><parent link="a"/><child link="b"/><origin xyz="0 0 1" rpy="0 1 0"/>
<axis xyz="0 0 1"/><limit lower="-1" upper="1" velocity="2" effort="3"/><mimic joint="k"/></joint></robot>"""


def _small(path: Path) -> bytes:
    """A URDF without comments, visuals and the white space between elements."""
    import re
    from xml.etree import ElementTree as Xml

    robot = Xml.fromstring(path.read_text())
    for link in robot.iter("link"):
        for visual in link.findall("visual"):
            link.remove(visual)
    return re.sub(rb">\s+<", b"><", Xml.tostring(robot))


MAKERS: tuple[Callable[[], Iterable[tuple[str, str, bytes]]], ...] = (
    link, page, servers, graph, pictures, configs, runs, datasets, robots,
)  # fmt: skip


def main() -> None:
    """Write the seeds; what is no `found-...` and is not made any more goes."""
    made: dict[tuple[str, str], bytes] = {}
    for maker in MAKERS:
        for name, seed, data in maker():
            assert name in TARGETS and (name, seed) not in made, (name, seed)
            made[name, seed] = data
    for old in CORPUS.glob("*/*"):
        if not old.name.startswith("found-"):
            old.unlink()
    for (name, seed), data in made.items():
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
        (CORPUS / name / seed).write_bytes(data)
    for folder in CORPUS.iterdir():
        if folder.name not in TARGETS:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
