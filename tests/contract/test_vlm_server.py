"""The client of a vision-language model against the stand-in: what it sends, and that whatever the
server does ends as the truth or as unlabelled, never as another number. What does not depend on the
protocol is tested in both: in words (chat) and in numbers (heads)."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.bench.vlm import bench
from robot_rl.bench.vlm_standin import MODEL, StandIn, Truth, brightness, serving, table
from robot_rl.errors import ConfigError, RobotRLError, SpecError
from robot_rl.reward.vlm.canary import Canary
from robot_rl.reward.vlm.client import VlmClient, author_of
from robot_rl.reward.vlm.config import VlmConfig
from robot_rl.reward.vlm.guards import Cache
from robot_rl.reward.vlm.questions import Answer, Question, QuestionKind, load_prompts

for package in ("httpx", "fastapi", "uvicorn"):
    pytest.importorskip(package)
cv2 = pytest.importorskip("cv2")

TASK = "put the peg into the hole"


def picture(level: float, height: int = 24, width: int = 32) -> np.ndarray:
    """A grey one: its brightness is what is true of it."""
    return np.full((height, width, 3), round(255 * level), np.uint8)


def success(level: float) -> Question:
    return Question(QuestionKind.SUCCESS, (picture(level),), TASK)


def progress(level: float) -> Question:
    return Question(QuestionKind.PROGRESS, (picture(0.0), picture(level)), TASK)


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now_s, self.slept = 0.0, []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


class Line:
    """A stand-in, its url, and clients of it that never really sleep."""

    def __init__(self, stand_in: StandIn, url: str) -> None:
        self.stand_in, self.time, self.protocol = stand_in, Time(), stand_in.protocol
        self.url = url if self.protocol == "chat" else url.removesuffix("/v1")
        self.clients: list[VlmClient] = []

    def client(self, **changes: Any) -> VlmClient:
        words = {"url": self.url, "model": MODEL, "protocol": self.protocol, **changes}
        words = {"retries": 2, "timeout_s": 5.0, **words}
        made = VlmClient(VlmConfig(**words), now_s=lambda: self.time.now_s, sleep=self.time.sleep)
        self.clients.append(made)
        return made

    @property
    def asked(self) -> int:
        """Requests that the server has looked at."""
        return sum(self.stand_in.asked.values())


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[StandIn, str]]:
    stand_in = StandIn(brightness)
    with serving(stand_in) as url:
        yield stand_in, url


@pytest.fixture(params=["chat", "heads"])
def line(served: tuple[StandIn, str], request: pytest.FixtureRequest) -> Iterator[Line]:
    stand_in, url = served
    vars(stand_in).update(vars(StandIn(brightness, protocol=request.param)))  # as new
    made = Line(stand_in, url)
    yield made
    for client in made.clients:
        client.close()


in_words = pytest.mark.parametrize("line", ["chat"], indirect=True)
in_numbers = pytest.mark.parametrize("line", ["heads"], indirect=True)
in_both = pytest.mark.parametrize("protocol", ["chat", "heads"])


def one(client: VlmClient, question: Question, **more: Any) -> Answer:
    (answer,) = client.ask([question], **more)
    assert (answer.value is None) == bool(answer.problem)
    return answer


# -- what is sent, what comes back -----------------------------------------------------------------


@in_words
def test_the_request_is_what_such_servers_take(line: Line) -> None:
    client = line.client(image_px=64, extra={"chat_template_kwargs": {"enable_thinking": False}})
    wide = np.zeros((100, 200, 3), np.uint8)
    wide[:, :, 0] = 255  # red: channels are not swapped on the way
    one(client, Question(QuestionKind.PROGRESS, (wide, wide[:, ::-1]), TASK))
    heard = line.stand_in.heard
    assert heard["model"] == MODEL and heard["temperature"] == 0 and heard["max_tokens"] <= 8
    assert heard["logprobs"] is True and heard["top_logprobs"] == 20
    assert heard["chat_template_kwargs"] == {"enable_thinking": False}
    system, user = heard["messages"]
    assert system["role"] == "system" and isinstance(system["content"], str)
    assert user["role"] == "user"
    kinds = [part["type"] for part in user["content"]]
    assert kinds == ["text", "image_url", "text", "image_url", "text"]
    assert TASK in user["content"][-1]["text"]
    head, _, data = user["content"][1]["image_url"]["url"].partition(",")
    assert head == "data:image/jpeg;base64"
    image = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
    assert image[..., :2].max() < 20
    assert image.shape == (32, 64, 3) and image[..., 2].min() > 240


@in_words
def test_each_kind_comes_back_as_what_is_true(line: Line) -> None:
    client = line.client()
    dark, mid, bright = picture(0.2), picture(0.4), picture(0.95)
    asked = [
        success(0.95),
        success(0.2),
        progress(0.4),
        Question(QuestionKind.CHANGE, (dark, mid), TASK),
        Question(QuestionKind.CHANGE, (mid, dark), TASK),
        Question(QuestionKind.PREFERENCE, (dark, bright), TASK),
        Question(QuestionKind.PREFERENCE, (bright, dark), TASK),
        Question(QuestionKind.PREFERENCE, (dark, dark), TASK),
    ]
    answers = client.ask(asked)
    assert [a.problem for a in answers] == [""] * len(asked)
    expected = [0.97, 0.03, 0.4, 0.25, -0.5, 1.0, -1.0, 0.0]
    np.testing.assert_allclose([a.value for a in answers], expected, atol=0.01)
    assert all(a.sure is not None and 0.0 <= a.sure <= 1.0 for a in answers)
    assert answers[0].author == client.author(QuestionKind.SUCCESS) == f"{MODEL} success@8c472dca69"


def test_no_more_than_so_many_are_under_way(line: Line) -> None:
    line.stand_in.latency_s = 0.05
    client = line.client(in_flight=3)
    answers = client.ask([progress(i / 20) for i in range(12)])
    assert all(a.value is not None for a in answers)
    np.testing.assert_allclose([a.value for a in answers], [i / 20 for i in range(12)], atol=0.01)
    assert line.stand_in.most_at_once == 3


def test_pictures_are_known_by_what_the_client_makes_of_them(line: Line) -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (300, 400, 3), np.uint8) for _ in range(2)]
    line.stand_in.knows = table(zip(images, [Truth(True, 1.0), Truth(False, 0.3)], strict=True))
    client = line.client()
    asked = [Question(QuestionKind.SUCCESS, (image,), TASK) for image in (*images, images[0][::-1])]
    yes, no, stranger = client.ask(asked)
    assert yes.value == pytest.approx(0.97) and no.value == pytest.approx(0.03)
    assert stranger.value is None and stranger.problem.startswith("not an answer")


# -- what goes wrong -------------------------------------------------------------------------------

PROBLEMS = {
    "malformed": "not an answer: no JSON",
    "prose": "not an answer: 'Well",
    "empty": "not an answer: not a chat",
    "refusal": "refused: ",
    "nan": "not an answer: not a chat",
    "oversized": "not an answer: reply too large",
    "429": "server is busy: status 429",
    "500": "server is busy: status 500",
}
OF_HEADS = {
    "prose": "not an answer: 'Well, 73' for a number",
    "empty": "not an answer: no head for success",
    "refusal": "refused: status 422",
    "nan": "not an answer: nan for a number",
}


@pytest.mark.parametrize("fault", PROBLEMS)
def test_a_fault_leaves_the_question_unlabelled_and_the_next_is_answered(
    line: Line, fault: str
) -> None:
    client = line.client()
    assert one(client, success(0.1)).value is not None
    line.stand_in.faults, before = {fault: 1.0}, line.asked
    answer = one(client, success(0.95))
    problems = PROBLEMS | (OF_HEADS if line.protocol == "heads" else {})
    assert answer.problem.startswith(problems[fault])
    tries = {"429": 3, "500": 3, "refusal": 1}.get(fault, 2)  # no answer: asked once more
    assert line.asked - before == tries and line.stand_in.asked[fault] == tries
    assert answer.later == (fault in ("429", "500"))
    line.stand_in.faults = {}
    assert one(client, success(0.95)).value == pytest.approx(0.97)


@in_words
def test_the_second_try_asks_for_the_form_alone(line: Line) -> None:
    client = line.client()
    one(client, success(0.1))
    line.stand_in.faults = {"prose": 1.0}
    one(client, success(0.95))
    last = line.stand_in.heard["messages"][-1]["content"][-1]["text"]
    assert last.endswith(load_prompts()[QuestionKind.SUCCESS].again)


@pytest.mark.parametrize("how", ["hang", "slow"])
def test_a_server_that_takes_too_long_is_given_up(line: Line, how: str) -> None:
    client = line.client(timeout_s=0.5, retries=1)
    one(client, success(0.1))
    line.time.slept.clear()
    line.stand_in.faults = {"hang": float(how == "hang")}
    line.stand_in.latency_s = 1.5 * (how == "slow")
    began_s = time.monotonic()
    answer = one(client, success(0.95))
    assert answer.problem == "timeout: 0.5 s" and answer.later
    assert time.monotonic() - began_s < 10.0 and len(line.time.slept) == 1
    line.stand_in.faults, line.stand_in.latency_s = {}, 0.0
    assert one(client, success(0.95)).value == pytest.approx(0.97)


@contextmanager
def raw_server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Whatever `answer` writes to a connection."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.05)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                talk, _ = listening.accept()
            except TimeoutError:
                continue
            with talk:
                talk.settimeout(1.0)
                try:
                    talk.recv(1 << 16)
                    answer(talk)
                    talk.shutdown(socket.SHUT_WR)
                    while talk.recv(1 << 16):  # or what was sent might be lost in a reset
                        pass
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        stop.set()
        thread.join()
        listening.close()


def test_a_reply_that_drips_is_cut_off_by_the_whole_time() -> None:
    def drip(talk: socket.socket) -> None:
        talk.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(1000):
            talk.sendall(b" ")
            time.sleep(0.03)

    config = VlmConfig(url="", model=MODEL, timeout_s=0.3, retries=0)
    with raw_server(drip) as url, VlmClient(_at(config, url)) as client:
        began_s = time.monotonic()
        assert one(client, success(0.5)).problem.startswith("timeout")
        assert time.monotonic() - began_s < 10.0  # 30 s if it were heard to the end


@in_both
@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "server does not answer"),
        (b"", "server does not answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "server does not answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe", "not an answer: no JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[[[[", "not an answer: no JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n3", "not an answer"),
        (b"HTTP/1.1 503 Later\r\nRetry-After: x\r\nContent-Length: 0\r\n\r\n", "server is busy"),
    ],
)
def test_something_else_at_the_port_is_no_answer(sent: bytes, problem: str, protocol: str) -> None:
    config = VlmConfig(url="", model=MODEL, protocol=protocol, timeout_s=2.0, retries=0)
    with (
        raw_server(lambda talk: talk.sendall(sent)) as url,
        VlmClient(_at(config, url)) as client,
    ):
        assert one(client, success(0.5)).problem.startswith(problem)


@in_both
def test_a_redirect_is_not_followed(protocol: str) -> None:
    """It would carry pictures elsewhere."""
    went = []
    with raw_server(lambda talk: went.append(1)) as elsewhere:
        sent = f"HTTP/1.1 307 Go\r\nLocation: {elsewhere}/x\r\nContent-Length: 0\r\n\r\n".encode()
        with raw_server(lambda talk: talk.sendall(sent)) as url:
            config = _at(VlmConfig(url="", model=MODEL, protocol=protocol, retries=0), url)
            with VlmClient(config) as client, pytest.raises(ConfigError, match="refuses"):
                one(client, success(0.5))
    assert not went


def _at(config: VlmConfig, url: str) -> VlmConfig:
    return VlmConfig(**{**vars(config), "url": url})


# -- patience --------------------------------------------------------------------------------------


def test_retry_after_is_waited_for(line: Line) -> None:
    client = line.client()
    one(client, success(0.1))
    line.stand_in.faults, line.stand_in.retry_after_s = {"429": 1.0}, 7
    one(client, success(0.95))
    assert len(line.time.slept) == 2 and min(line.time.slept) >= 7.0


def test_a_long_retry_after_leaves_the_server_alone(line: Line) -> None:
    client = line.client()
    one(client, success(0.1))
    line.stand_in.faults, line.stand_in.retry_after_s = {"429": 1.0}, 300
    assert one(client, success(0.95)).problem.startswith("server is busy")
    asked = line.asked
    assert one(client, success(0.96)).problem == "breaker open"
    assert line.asked == asked and client.wait_s == pytest.approx(300)
    line.time.now_s += 301
    line.stand_in.faults = {}
    assert one(client, success(0.96)).value is not None


def test_waits_grow_and_differ(line: Line) -> None:
    client = line.client(retries=5, breaker_failures=100)
    one(client, success(0.1))
    line.stand_in.faults = {"500": 1.0}
    one(client, success(0.95))
    waits = line.time.slept
    assert len(waits) == 5 and waits[0] <= 0.5 and all(w <= 20.0 for w in waits)
    assert all(0.25 * 2**n <= wait <= 0.5 * 2**n for n, wait in enumerate(waits))


def test_the_breaker_opens_tries_with_one_and_closes(line: Line) -> None:
    client = line.client(retries=1, breaker_failures=4, breaker_pause_s=30.0)
    one(client, success(0.1))
    line.stand_in.faults = {"500": 1.0}
    many = [success(0.9 + i / 255) for i in range(8)]
    assert all(a.value is None and a.later for a in client.ask(many))
    assert "server does not answer since" in client.trouble and client.wait_s > 0
    asked = line.asked
    assert {a.problem for a in client.ask(many)} == {"breaker open"}
    assert line.asked == asked  # left alone

    line.time.now_s += 31  # still broken: one question finds out
    assert all(a.value is None for a in client.ask(many))
    assert line.asked == asked + 1 and client.wait_s == pytest.approx(30)

    line.time.now_s += 31
    line.stand_in.faults = {}
    assert all(a.value is not None for a in client.ask(many))
    assert client.trouble == "" and client.wait_s == 0
    line.stand_in.faults = {"500": 1.0}  # and it counts from 0 again
    assert one(client, success(0.5)).problem.startswith("server is busy") and client.wait_s == 0


@in_both
def test_a_server_that_is_away_is_found_again(protocol: str) -> None:
    stand_in, clock = StandIn(brightness, protocol=protocol), Time()
    with serving(stand_in) as url:
        config = VlmConfig(url=url, model=MODEL, protocol=protocol, retries=1, breaker_failures=2)
        client = VlmClient(config, now_s=lambda: clock.now_s, sleep=clock.sleep)
        assert one(client, success(0.95)).value is not None
    with client:
        answer = one(client, success(0.1))
        assert answer.problem.startswith("server does not answer") and answer.later
        clock.now_s += 40
        assert client.trouble.startswith("server does not answer since 40 s")
        with serving(stand_in, int(url.rsplit(":", 1)[1].removesuffix("/v1"))):
            assert one(client, success(0.1)).value is not None


def test_what_is_asked_can_be_given_up(line: Line) -> None:
    client = line.client()
    one(client, success(0.1))
    line.stand_in.faults = {"hang": 1.0}
    threading.Timer(0.1, client.interrupt).start()
    answers = client.ask([success(0.95), success(0.9)])
    assert {a.problem for a in answers} == {"stopped"} and all(a.later for a in answers)
    line.stand_in.faults = {}
    assert one(client, success(0.95)).value is not None
    client.close()
    assert one(client, success(0.95)).problem == "stopped"


# -- money, memory ---------------------------------------------------------------------------------


def test_a_budget_of_requests_lasts_for_the_hour(line: Line) -> None:
    client = line.client(budget_per_hour=5, in_flight=1)  # the first goes into getting acquainted
    answers = client.ask([progress(i / 10) for i in range(7)])
    assert [a.problem for a in answers] == [""] * 4 + ["over budget"] * 3
    assert sum(line.stand_in.asked.values()) == 5
    assert "over budget, next question in 3600 s" in client.trouble and client.wait_s == 3600
    line.time.now_s += 3601
    assert one(client, progress(0.9)).value is not None and client.trouble == ""


@in_words
def test_a_budget_of_tokens_counts_what_the_server_says(line: Line) -> None:
    client = line.client(budget_per_hour=2000, budget_unit="tokens", in_flight=1)
    answers = client.ask([success(i / 255) for i in range(40)])
    done = sum(a.value is not None for a in answers)
    assert client.budget.used == 101 * (done + 1) <= 2000 and done > 10
    assert answers[-1].problem == "over budget"


def test_a_budget_that_pays_for_no_question_is_refused(line: Line) -> None:
    client = line.client(budget_per_hour=0.5)
    with pytest.raises(ConfigError, match="more than the budget") as error:
        client.ask([success(0.5)])
    assert "budget_per_hour=1 or more" in error.value.fix and not line.asked


@in_words
def test_so_is_one_that_pays_for_the_first_look_alone(line: Line) -> None:
    """The grey picture is cheaper than a question with the words of a long task."""
    client = line.client(budget_per_hour=250, budget_unit="tokens", in_flight=2)
    long = Question(QuestionKind.SUCCESS, (picture(0.5),), "word " * 390)
    with pytest.raises(ConfigError, match="more than the budget"):
        client.ask([long, long])
    assert line.asked == 1


def test_what_was_answered_is_not_asked_again(line: Line, tmp_path: Path) -> None:
    file = str(tmp_path / "a" / "cache.sqlite")
    with line.client(cache=file) as client:
        first = client.ask([success(0.95), progress(0.5)])
        asked = line.asked
        again = client.ask([success(0.95), progress(0.5)])
        assert line.asked == asked
        assert [(a.value, a.sure) for a in again] == [(a.value, a.sure) for a in first]
        assert all(a.latency_s == 0.0 for a in again)
        assert one(client, success(0.95), fresh=True).value is not None
        assert line.asked == asked + 1
        one(client, success(0.3), fresh=True)
        one(client, success(0.3))
        assert line.asked == asked + 3  # what was asked freshly was not kept
    before = line.asked
    with line.client(cache=file) as other:
        assert [a.value for a in other.ask([success(0.95), progress(0.5)])] == [
            a.value for a in first
        ]
        assert line.asked == before
        others = (
            Question(QuestionKind.SUCCESS, (picture(0.95),), "another task"),
            Question(QuestionKind.SUCCESS, (picture(0.95, 32, 24),), TASK),
            Question(QuestionKind.SUCCESS, (picture(0.95), picture(0.95)), TASK),
            success(0.9),
        )
        for number, question in enumerate(others, 1):
            before = line.asked
            assert one(other, question).value is not None, number
            assert line.asked > before, number
    line.stand_in.model = "another"
    with line.client(cache=file, model="another") as other:
        before = line.asked
        one(other, success(0.95))
        assert line.asked == before + 2  # with getting acquainted


def test_what_is_unlabelled_is_not_remembered(line: Line) -> None:
    client = line.client()
    one(client, success(0.1))
    line.stand_in.faults = {"prose": 1.0}
    assert one(client, success(0.95)).value is None
    line.stand_in.faults = {}
    assert one(client, success(0.95)).value is not None


def test_a_cache_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match="cannot keep answers"):
        Cache(tmp_path / "x")
    cache = Cache("")
    cache.close()
    cache.put(b"k", 1.0, None, "yes")  # too late: forgotten, not raised
    assert cache.get(b"k") is None


# -- set up wrongly: said before anything is asked -------------------------------------------------


def refused(line: Line, settings: dict[str, Any], changes: dict[str, Any], match: str) -> None:
    """A stand-in with these settings, asked by a client with these changes, is an error."""
    for name, value in settings.items():
        setattr(line.stand_in, name, value)
    client = line.client(**changes)
    for _ in range(2):  # and it stays one
        with pytest.raises(ConfigError, match=match) as error:
            client.ask([progress(0.5)])
        assert error.value.fix
    assert client.trouble == ""


@in_words
@pytest.mark.parametrize(
    ("settings", "changes", "match"),
    [
        ({"logprobs": False}, {}, "log-probabilities"),
        ({"model": "qwen-vl"}, {"model": "qwen-v1"}, "did you mean 'qwen-vl'"),
        ({"key": "secret"}, {}, "reward.server.key"),
        ({"max_images": 1}, {}, "limit-mm-per-prompt"),
    ],
)
def test_a_server_that_cannot_do_it_is_an_error_with_a_fix(
    line: Line, settings: dict[str, Any], changes: dict[str, Any], match: str
) -> None:
    refused(line, settings, changes, match)


@in_words
def test_words_do_not_do_where_probabilities_are_required(line: Line) -> None:
    client = line.client()
    one(client, success(0.1))
    line.stand_in.logprobs = False  # another server behind the name
    assert one(client, success(0.95)).problem == "not an answer: no logprobs"


@in_words
def test_words_do_where_the_config_says_so(line: Line) -> None:
    line.stand_in.logprobs = False
    for mode in ("prefer", "never"):
        client = line.client(logprobs=mode)
        yes, far = client.ask([success(0.95), progress(0.42)])
        assert yes.value == 1.0 and yes.sure is None and far.value == pytest.approx(0.4)
    assert "logprobs" not in line.stand_in.heard
    line.stand_in.logprobs = True
    assert one(line.client(logprobs="prefer"), progress(0.42)).value == pytest.approx(
        0.42, abs=0.01
    )


def test_the_key_of_this_machine_is_sent_and_shown_nowhere(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.stand_in.key = "sk-secret"
    monkeypatch.setenv("ROBOT_RL_API_KEY_LAB", "127.0.0.1 sk-secret")
    client = line.client(key="lab")
    assert one(client, success(0.95)).value is not None
    assert "sk-secret" not in repr(VlmConfig(key="lab")) + repr(line.stand_in.heard)
    line.stand_in.key = "changed"
    answer = one(client, success(0.5))
    assert answer.problem.startswith("server refuses: status 401") and answer.later
    with pytest.raises(ConfigError, match=r"server\.key"):
        one(client, success(0.5))


def test_a_key_is_sent_to_its_own_host_and_to_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBOT_RL_API_KEY_LAB", "api.example.com sk-secret")
    for words, match in (
        ({"key": "none"}, "no key 'none'"),
        ({"key": "lab", "url": "https://evil.example/v1"}, "no key 'lab'"),
        ({"key": "lab", "url": "https://api.example.com.evil.example/v1"}, "no key 'lab'"),
        (
            {"key": "lab", "url": "http://api.example.com/v1", "plain_http": True,
             "proxy": "http://evil.example:1"},
            "proxy in clear",
        ),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=match) as error:
            VlmClient(VlmConfig(model=MODEL, **words))
        assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "words",
    [
        {"url": "http://gpu-box:8000/v1"},
        {"url": "http://192.168.1.5:8000/v1"},
        {"url": "https://me:key@host/v1"},
        {"url": "ftp://127.0.0.1/v1"},
        {"url": "127.0.0.1:8000"},
        {"url": "http://127.0.0.1:99999/v1"},
        {"url": "https://host/v1?key=1"},
        {"model": ""},
        {"prompts": "pyproject.toml", "cache": "/dev/null/x"},
    ],
)
def test_an_address_that_cannot_be_used_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(RobotRLError) as error:
        VlmClient(VlmConfig(**{"model": MODEL, **words}))
    assert error.value.fix and "me:key" not in str(error.value)


def test_http_beyond_this_machine_has_to_be_asked_for() -> None:
    VlmClient(VlmConfig(url="http://192.168.1.5:8000/v1", model=MODEL, plain_http=True)).close()
    VlmClient(VlmConfig(url="http://[::1]:8000/v1/", model=MODEL)).close()


@pytest.mark.parametrize(
    "words",
    [
        {"timeout_s": 0.0},
        {"retries": -1},
        {"in_flight": 0},
        {"image_px": 8},
        {"jpeg_quality": 101},
        {"logprobs": "yes"},
        {"budget_unit": "euros"},
        {"budget_per_hour": -1.0},
        {"extra": {"temperature": 1}},
        {"protocol": "heads", "budget_unit": "tokens"},
        {"protocol": "heads", "prompts": "mine"},
        {"protocol": "heads", "extra": {"use_frame_steps": True}},
    ],
)
def test_values_out_of_range_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|\w"):
        VlmConfig(**words)


# -- a reward model with heads ---------------------------------------------------------------------


@in_numbers
def test_the_form_is_what_robometers_server_takes(line: Line) -> None:
    client = line.client(image_px=64)
    wide = np.zeros((100, 200, 3), np.uint8)
    wide[:, :, 0] = 255  # red: channels are not swapped on the way
    one(client, Question(QuestionKind.PROGRESS, (wide, wide[:, ::-1], wide), TASK))
    heard = line.stand_in.heard
    frames = heard["sample_0_trajectory_frames"]
    assert set(heard) == {"sample_0", "use_frame_steps", "sample_0_trajectory_frames"}
    assert heard["use_frame_steps"] is False
    assert frames.dtype == np.uint8 and frames.shape == (3, 32, 64, 3)
    assert (frames == np.array([255, 0, 0])).all()
    trajectory = {
        "frames": {"__numpy_file__": "sample_0_trajectory_frames"},
        "frames_shape": [3, 32, 64, 3],
        "task": TASK,
        "id": "0",
        "metadata": {"subsequence_length": 3},
        "video_embeddings": None,
    }
    assert heard["sample_0"] == {"sample_type": "progress", "trajectory": trajectory}

    one(client, Question(QuestionKind.PREFERENCE, (picture(0.1), picture(0.9)), TASK), fresh=True)
    sample = line.stand_in.heard["sample_0"]
    assert sample["sample_type"] == "preference"
    assert {sample[f"{x}_trajectory"]["task"] for x in ("chosen", "rejected")} == {TASK}
    levels = [
        line.stand_in.heard[f"sample_0_{x}_trajectory_frames"].max() for x in ("chosen", "rejected")
    ]
    assert sorted(levels) == [26, 230]


@in_numbers
def test_each_head_comes_back_as_what_is_true(line: Line) -> None:
    client = line.client()
    dark, bright = picture(0.2), picture(0.95)
    asked = [
        success(0.95),
        success(0.2),
        progress(0.4),
        Question(QuestionKind.SUCCESS, (bright, dark), TASK),  # the last frame counts
        Question(QuestionKind.PREFERENCE, (dark, bright), TASK),
        Question(QuestionKind.PREFERENCE, (bright, dark), TASK),
        Question(QuestionKind.PREFERENCE, (dark, dark), TASK),
        Question(QuestionKind.PREFERENCE, (bright, dark, dark, bright), TASK),
    ]
    answers = client.ask(asked)
    assert [a.problem for a in answers] == [""] * len(asked)
    expected = [0.97, 0.03, 0.4, 0.03, 1.0, -1.0, 0.0, 1.0]
    np.testing.assert_allclose([a.value for a in answers], expected, atol=0.01)
    sure = [0.97, 0.97, None, 0.97, 0.97, 0.97, 0.5, 0.97]
    assert [a.sure for a in answers] == [None if x is None else pytest.approx(x) for x in sure]
    assert answers[2].text == "[0.0, 0.4]"
    assert answers[0].author == client.author(QuestionKind.SUCCESS) == f"{MODEL} success@heads-v1"
    for kind in (QuestionKind.SUCCESS, QuestionKind.PROGRESS):
        assert client.author(kind) == author_of(VlmConfig(model=MODEL, protocol="heads"), kind)


@in_numbers
def test_what_heads_cannot_be_asked_is_said_before_anything_is_sent(line: Line) -> None:
    client = line.client()
    change = Question(QuestionKind.CHANGE, (picture(0.2), picture(0.4)), TASK)
    with pytest.raises(ConfigError, match="knows no change") as error:
        client.ask([success(0.5), change])
    assert "protocol=chat" in error.value.fix
    uneven = Question(QuestionKind.PROGRESS, (picture(0.2), picture(0.4, 32, 24)), TASK)
    with pytest.raises(SpecError, match="differ in size"):
        client.ask([success(0.5), uneven])
    assert line.asked == 0


@in_numbers
@pytest.mark.parametrize(
    ("settings", "changes", "match"),
    [
        ({"lacks": frozenset({QuestionKind.PROGRESS})}, {}, "no head for progress"),
        ({"model": "robometer/4B"}, {"model": "robometer/4b"}, "did you mean 'robometer/4B'"),
        ({"key": "secret"}, {}, "reward.server.key"),
        ({"max_images": 1}, {}, "at most 1 images"),
        ({"protocol": "chat"}, {}, "without /v1"),
    ],
)
def test_a_server_without_the_heads_that_are_needed_is_an_error_with_a_fix(
    line: Line, settings: dict[str, Any], changes: dict[str, Any], match: str
) -> None:
    refused(line, settings, changes, match)


@in_numbers
def test_only_the_heads_that_are_asked_are_needed(line: Line) -> None:
    line.stand_in.lacks = frozenset({QuestionKind.SUCCESS, QuestionKind.PREFERENCE})
    client = line.client()
    assert one(client, progress(0.5)).value == pytest.approx(0.5, abs=0.01)
    pair = Question(QuestionKind.PREFERENCE, (picture(0.1), picture(0.9)), TASK)
    with pytest.raises(ConfigError, match="no head for preference"):
        client.ask([pair])
    line.stand_in.lacks = frozenset({QuestionKind.PROGRESS})  # another server behind the address
    assert one(client, progress(0.6)).problem == "not an answer: no head for progress"


@pytest.mark.parametrize("protocol", ["chat", "heads"])
def test_a_server_of_the_other_kind_is_recognised(
    served: tuple[StandIn, str], protocol: str
) -> None:
    stand_in, url = served
    vars(stand_in).update(vars(StandIn(brightness, protocol=protocol)))
    other = "heads" if protocol == "chat" else "chat"
    config = VlmConfig(url=url, model=MODEL, protocol=other, retries=0)
    with VlmClient(config) as client, pytest.raises(ConfigError, match="refuses") as error:
        one(client, success(0.5))
    assert ("reward.server.protocol=chat" in error.value.fix) == (protocol == "chat")


def test_a_server_that_does_not_name_its_model_is_refused() -> None:
    """Nobody would know whose labels they are."""
    body = b'{"outputs_success": {"success_probs": [[0.5]]}}'
    sent = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with raw_server(lambda talk: talk.sendall(sent)) as url:
        config = _at(VlmConfig(url="", model=MODEL, protocol="heads", retries=0), url)
        with VlmClient(config) as client, pytest.raises(ConfigError, match="another one") as error:
            one(client, success(0.5))
    assert "no model_path" in error.value.got


def test_a_protocol_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'heads'"):
        VlmConfig(protocol="head")


# -- lies ------------------------------------------------------------------------------------------


def test_the_canary_knows_a_liar_and_a_server_that_always_says_the_same(
    line: Line, tmp_path: Path
) -> None:
    canary = Canary((picture(0.95), picture(0.92)), (picture(0.1), picture(0.3)), TASK)
    client = line.client(cache=str(tmp_path / "cache"))
    assert canary.check(client) == ""
    line.stand_in.lying = True
    assert "order wrong" in canary.check(client)  # what was said before does not help
    line.stand_in.lying, line.stand_in.knows = False, lambda data: Truth(True, 1.0)
    assert "equal" in canary.check(client)
    line.stand_in.faults = {"prose": 1.0}
    assert "unlabelled: not an answer" in canary.check(client)
    line.stand_in.faults, line.stand_in.knows = {}, brightness
    assert canary.check(client) == ""


@in_words
def test_canary_pictures_come_from_a_folder(line: Line, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="both kinds"):
        Canary.from_folder(tmp_path, TASK)
    for name, level in (("good", 0.95), ("bad", 0.2)):
        (tmp_path / name).mkdir()
        cv2.imwrite(str(tmp_path / name / "a.png"), picture(level))
    assert Canary.from_folder(tmp_path, TASK).check(line.client()) == ""
    (tmp_path / "bad" / "b.png").write_text("no picture")
    with pytest.raises(ConfigError, match="is no picture"):
        Canary.from_folder(tmp_path, TASK)


# -- everything at once ----------------------------------------------------------------------------


def test_a_third_of_everything_going_wrong_never_becomes_a_number(line: Line) -> None:
    each = 0.3 / 8
    line.stand_in.faults = dict.fromkeys(PROBLEMS, each)
    client = line.client(breaker_failures=1000, in_flight=8)
    levels = np.arange(100) / 255
    answers = client.ask([progress(x) for x in levels])
    told = [(a.value, x) for a, x in zip(answers, levels, strict=True) if a.value is not None]
    assert 60 < len(told) <= 100
    for value, truth in told:
        assert value == pytest.approx(truth, abs=1e-6)
    assert all(a.problem for a in answers if a.value is None)
    assert sum(line.stand_in.asked[f] for f in PROBLEMS) > 25  # it was broken indeed


def test_the_bench_measures_what_it_says() -> None:
    figures = bench(0.0, frames=64, batch=16, latency_ms=20.0)
    assert figures["images"] == 64 and figures["unlabelled"] == 0
    assert 0.0 < figures["images_per_s"] <= figures["bound_images_per_s"] * 1.1
    assert figures["cached_images_per_s"] > figures["images_per_s"]
