"""Targets: what other processes, servers, pages and devices say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from robot_rl.errors import CodecError, ConfigError, LinkError, SpecError, StoreError
from tests.fuzz.target import target

# -- the link and its codec ------------------------------------------------------------------------


@target("link_frame", "link.frames.decode", CodecError, LinkError, weight=3)
def _(_folder: Path) -> Any:
    from robot_rl.link.frames import decode

    return decode


@target("link_body", "link.frames.decode, with a right CRC", CodecError, weight=3,
        tree="msgpack", skip=1)  # fmt: skip
def _(_folder: Path) -> Any:
    from robot_rl.bench.faults.messages import framed
    from robot_rl.link.frames import decode, encode

    def run(data: bytes) -> None:
        sequence, message = decode(framed(data[0] if data else 0, data[1:]))
        encode(message, sequence)  # what was accepted is a message of ours

    return run


@target("link_answer", "link.answers.Answers.answer", weight=0.15, tree="msgpack", skip=1)
def _(folder: Path) -> Any:
    from robot_rl.bench.faults.messages import SPEC, framed
    from robot_rl.link.answers import Answers
    from robot_rl.link.auth import Keys
    from robot_rl.link.config import LinkConfig
    from robot_rl.store.store import Store

    store = Store(folder / "link.sqlite", spec=SPEC, reserve_bytes=0, synchronous="episode")
    keys = Keys("learner", b"l" * 40, b"s" * 40, {b"a" * 40: "actor"})
    answers = Answers(LinkConfig(), keys, SPEC, store)

    def run(data: bytes) -> None:
        answers._peers["actor"].strikes = 0  # whoever sends rubbish is ignored otherwise
        answers.answer(b"r", "actor", [framed(data[0] if data else 0, data[1:])])

    return run


@target("codec_record", "store.codec.decode_tensors", CodecError, weight=2)
def _(_folder: Path) -> Any:
    from robot_rl.store.codec import decode_tensors

    return decode_tensors


@target("codec_body", "store.codec.decode_tensors, with a right CRC", CodecError, weight=2,
        tree="msgpack", skip=2)  # fmt: skip
def _(_folder: Path) -> Any:
    import struct
    import zlib

    from robot_rl.store.codec import decode_tensors, encode_tensors

    def run(data: bytes) -> None:
        body = bytes(int.from_bytes(data[:2], "little") % 2048)
        head = data[2:]
        start = struct.pack("<4sII", b"RRT1", len(head), len(body))
        crc = zlib.crc32(body, zlib.crc32(head, zlib.crc32(start)))
        record = start + struct.pack("<I", crc) + head + body
        encode_tensors(decode_tensors(record))

    return run


@target("codec_value", "store.codec.unpack", CodecError, weight=2, tree="msgpack")
def _(_folder: Path) -> Any:
    from robot_rl.store.codec import unpack

    return unpack


@target("msgpack", "system.bounded_msgpack.unpacked", ValueError, weight=2, tree="msgpack")
def _(_folder: Path) -> Any:
    from robot_rl.system.bounded_msgpack import unpacked

    return unpacked


@target("store_row", "store.rows.restore, check_against", CodecError, SpecError, tree="msgpack")
def _(_folder: Path) -> Any:
    from robot_rl.bench.faults.messages import SPEC, framed
    from robot_rl.link.frames import decode
    from robot_rl.store.rows import check_against, flatten, restore

    def run(data: bytes) -> None:
        for flat in decode(framed(4, data))[1].rows:  # type: ignore[union-attr]
            row = restore(flat)
            check_against(row, SPEC)
            assert flatten(row) == flat

    return run


@target("pairing_string", "link.invitation.read_invitation", LinkError, weight=2)
def _(_folder: Path) -> Any:
    import base64

    from robot_rl.link import invitation

    def run(data: bytes) -> None:
        if data[:1] == b"\0":  # a right checksum
            whole = data[1:] + invitation._check(data[1:])
            data = b"rrl1:" + base64.urlsafe_b64encode(whole).rstrip(b"=")
        found = invitation.read_invitation(data.decode("utf-8", "replace"))
        assert invitation.read_invitation(found.encode()) == found

    return run


# -- the page, and devices -------------------------------------------------------------------------


@target("console_line", "link.panel.decode", LinkError, weight=2, tree="msgpack")
def _(_folder: Path) -> Any:
    from robot_rl.link.panel import decode

    return lambda data: decode(data, 65_536)


@target("console_input", "operate.remote.parse", LinkError, SpecError, weight=3, tree="json")
def _(_folder: Path) -> Any:
    import numpy as np

    from robot_rl.operate.remote import MAX_BYTES, parse

    def run(data: bytes) -> None:
        found = parse(data[:MAX_BYTES], 1.0)
        assert (np.abs(np.asarray(found.axes)) <= 1.0).all()

    return run


@target("console_clock", "console.sockets.PageClock.stamp_s", tree="json")
def _(_folder: Path) -> Any:
    from robot_rl.console.sockets import PageClock, said_by

    clock = PageClock()

    def run(data: bytes) -> None:
        said = said_by(data.decode("utf-8", "replace"))
        assert 0.0 <= clock.stamp_s(said, 5.0) <= 5.0

    return run


@target("console_head", "console.intake.checked_body")
def _(_folder: Path) -> Any:
    from robot_rl.console.intake import checked_body

    def run(data: bytes) -> None:
        lines = (line.partition(b":") for line in data.split(b"\n"))
        checked_body([(name.strip().lower(), value.strip()) for name, _, value in lines])

    return run


@target("console_label", "console.records.Records.label", StoreError, CodecError, weight=0.05,
        tree="json")  # fmt: skip
def _(folder: Path) -> Any:
    from robot_rl.bench.samples import episode_rows, sample_spec
    from robot_rl.config.run_folder import STORE
    from robot_rl.console.records import Records
    from robot_rl.store.store import Store
    from robot_rl.types import EpisodeId

    spec = sample_spec(images=1, image_size=8)
    options: dict[str, Any] = {"spec": spec, "reserve_bytes": 0, "synchronous": "episode"}
    with Store(folder / STORE, **options) as store:
        store.append(episode_rows(spec, EpisodeId("run", "actor", 0), 3))
    records = Records(folder)

    def run(data: bytes) -> None:
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):  # FastAPI refuses it
            return
        if isinstance(said, dict):
            records.label(said, "operator 1")

    return run


@target("console_crop", "run.cameras.with_crop", ConfigError, tree="json")
def _(_folder: Path) -> Any:
    from robot_rl.observe.cameras import CameraConfig
    from robot_rl.run.cameras import with_crop

    camera = CameraConfig()

    def run(data: bytes) -> None:
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            return
        with_crop(camera, said, (480, 640))

    return run


@target("spacemouse", "robot_rl_hardware.spacemouse.parse", weight=1)
def _(_folder: Path) -> Any:
    from robot_rl_hardware.spacemouse import parse

    return parse


# -- servers of policies and of models -------------------------------------------------------------


def _seen() -> Any:
    import numpy as np

    return {"state": np.zeros(5, np.float32), "image/front": np.zeros((8, 8, 3), np.uint8)}


def _spec() -> Any:
    from robot_rl.spec import ActionSpec, Spec, TensorSpec

    seen = {"state": TensorSpec((5,), "float32"), "image/front": TensorSpec((8, 8, 3), "uint8")}
    return Spec("fuzz", 10.0, seen, ActionSpec(0.01, 0.1, gripper=True))


@target("base_openpi", "policy.base.openpi.unpacked, mapping.Actions", LinkError, SpecError,
        weight=2, tree="msgpack")  # fmt: skip
def _(_folder: Path) -> Any:
    from robot_rl.policy.base import openpi
    from robot_rl.policy.base.mapping import Actions, answer_of

    actions = Actions(openpi.OpenpiConfig(chunk=4, inputs={"a": "state"}), 7)

    def run(data: bytes) -> None:
        found = openpi.unpacked(data)
        if isinstance(found, dict) and "actions" in found:
            with answer_of("the server"):
                actions(found["actions"])

    return run


@target("base_groot", "policy.base.groot.GrootBase.sample", LinkError, SpecError, weight=1,
        tree="msgpack")  # fmt: skip
def _(_folder: Path) -> Any:
    from robot_rl.policy.base import groot

    config = groot.GrootConfig(chunk=4, inputs={"state.arm": "state"}, actions=("arm",))
    base: Any = groot.GrootBase(config, _spec())

    def run(data: bytes) -> None:
        base._ask = lambda *_: groot.unpacked(data)
        base.sample(_seen())

    return run


@target("base_openvla", "policy.base.openvla.OpenVlaBase.sample", LinkError, SpecError, weight=1,
        tree="json")  # fmt: skip
def _(_folder: Path) -> Any:
    from robot_rl.policy.base import openvla

    config = openvla.OpenVlaConfig(inputs={"image": "image/front", "instruction": "prompt"})
    base: Any = openvla.OpenVlaBase(config, _spec())

    def run(data: bytes) -> None:
        base._ask = lambda _: json.loads(data, object_hook=openvla._from_json)
        base.sample(_seen())

    return run


@target("base_served", "policy.base.served.ServedBase.describe, sample", LinkError, SpecError,
        CodecError, tree="json")  # fmt: skip
def _(_folder: Path) -> Any:
    from robot_rl.policy.base.served import ServedBase

    base: Any = object.__new__(ServedBase)
    base._spec = _spec()

    def run(data: bytes) -> None:
        base._ask = lambda *_: data
        if data.startswith(b"RRT1"):
            base.sample(_seen())
        else:
            base.describe()

    return run


def _question(kind: str) -> Any:
    import numpy as np

    from robot_rl.reward.vlm.questions import Question, QuestionKind

    return Question(QuestionKind(kind), (np.zeros((8, 8, 3), np.uint8),) * 2, "insert the peg")


def _checked(reading: Any) -> None:
    assert (reading.value is None) == bool(reading.problem)
    assert reading.value is None or -1.0 <= reading.value <= 1.0
    assert reading.sure is None or 0.0 <= reading.sure <= 1.0


@target("vlm_chat", "reward.vlm.chat.Chat.reading, spent", weight=1, tree="json")
def _(_folder: Path) -> Any:
    from robot_rl.reward.vlm.chat import Chat
    from robot_rl.reward.vlm.config import VlmConfig

    wire = Chat(VlmConfig(model="m"))
    questions = [_question(kind) for kind in ("success", "progress", "change", "preference")]

    def run(data: bytes) -> None:
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):  # `client.VlmClient._replied`
            return
        for question in questions:
            reading, text = wire.reading(question, said)
            _checked(reading)
            assert isinstance(text, str)
        wire.spent(said)

    return run


@target("vlm_heads", "reward.vlm.heads.Heads.reading", weight=1, tree="json")
def _(_folder: Path) -> Any:
    from robot_rl.reward.vlm.config import VlmConfig
    from robot_rl.reward.vlm.heads import Heads

    wire = Heads(VlmConfig(model="m"))
    questions = [_question(kind) for kind in ("success", "progress", "preference")]

    def run(data: bytes) -> None:
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            return
        for question in questions:
            _checked(wire.reading(question, said)[0])

    return run


@target("vlm_client", "reward.vlm.client.VlmClient._replied, _retry_after_s", tree="json")
def _(_folder: Path) -> Any:
    from robot_rl.reward.vlm.client import VlmClient, VlmConfig, _retry_after_s

    client = VlmClient(VlmConfig(model="m", budget_unit="tokens", budget_per_hour=1000.0))

    def run(data: bytes) -> None:
        client._replied(data, [0.0, 1.0])
        assert 0.0 <= _retry_after_s({"retry-after": data[:40].decode("latin-1")}) < 1e6

    return run
