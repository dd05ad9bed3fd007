"""The studio over HTTPS: for who trusts its certificate, and the pages of runs that it opens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from robot_rl.cli.main import main
from robot_rl.console.certificate import PageCertificate, make
from robot_rl.studio.commands import shown
from tests.studio.test_page import FIRST
from tests.support.served import new_page, until
from tests.support.studio import BROWSER, ServedStudio

AGENT = {"user-agent": BROWSER}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> PageCertificate:
    return make(tmp_path_factory.mktemp("tls"), ["robot-pc.local"])


@pytest.fixture
def secure(runs: Path, certificate: PageCertificate) -> Iterator[ServedStudio]:
    served = ServedStudio(runs, certificate)
    yield served
    served.close()


def test_it_works_over_https_and_so_does_the_page_of_a_run(
    runs: Path, secure: ServedStudio, certificate: PageCertificate
) -> None:
    cookie = httpx.get(secure.invite(), verify=secure.trust, headers=AGENT).headers["set-cookie"]
    assert {"Secure", "HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{secure.url}/trust")
    body = {"verb": "report", "run": FIRST}
    with secure.page() as page:
        assert page.get("/ca.crt").content == certificate.ca.read_bytes()
        assert page.post("/api/plan", json=body).status_code == 200
        name = f"robot-pc.local:{secure.port}"
        asked = {"host": name, "origin": f"https://{name}"}
        assert page.post("/api/plan", json=body, headers=asked).status_code == 200
        for foreign in ({"origin": f"http://{name}"}, {"host": f"evil.example:{secure.port}"}):
            assert page.post("/api/plan", json=body, headers=foreign).status_code == 403
        told = page.get("/api/run", params={"id": FIRST}).json()["page_command"]
        folder = certificate.key.parent
        assert told == shown(["console", str(runs / FIRST), "--tls", str(folder)])
        link = page.post("/api/console", json={"run": FIRST}).json()["link"]
    assert link.startswith("https://127.0.0.1:") and not link.startswith(secure.url)
    assert httpx.get(link, verify=secure.trust, headers=AGENT).status_code == 303


def test_plain_http_at_its_port_gets_nothing(secure: ServedStudio) -> None:
    link = secure.invite()
    path = link.removeprefix(secure.url)
    with socket.create_connection(("127.0.0.1", secure.port), timeout=5) as plain:
        plain.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{secure.port}\r\n\r\n".encode())
        answer = b""
        try:
            while part := plain.recv(4096):
                answer += part
        except ConnectionResetError:
            pass
    assert len(answer) < 16 and b"HTTP" not in answer  # an alert of TLS, at most
    assert httpx.get(link, verify=secure.trust, headers=AGENT).status_code == 303  # still good


def test_a_browser_goes_from_the_studio_to_the_page_of_a_run(
    browser: Any, secure: ServedStudio
) -> None:
    """At another of the certificate's names than the one that the links are told with."""
    context = browser.new_context(ignore_https_errors=True)
    page = new_page(context)
    page.goto(secure.invite().replace("127.0.0.1", "localhost"))
    page.locator(".run a").first.click()
    page.get_by_role("button", name="Open its page").click()
    way = page.get_by_role("link", name="Open it")
    until(way.count, 60.0)
    assert "tunnel" not in page.locator("dialog").inner_text()
    with context.expect_page() as opened:
        way.click()
    until(lambda: opened.value.locator("#word").count())
    assert opened.value.url.startswith("https://localhost:")
    assert page.problems == []
    context.close()


def test_it_is_served_only_where_the_certificate_is_for(
    runs: Path,
    certificate: PageCertificate,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    served: list[Any] = []

    def serve(_: Path, host: str, port: int, started: Any, **more: Any) -> None:
        served.append((host, more["certificate"]))
        started(lambda role: f"a-token-of-an-{role}")

    monkeypatch.setattr("robot_rl.studio.app.serve_studio", serve)
    monkeypatch.setattr("robot_rl.cli.console.check_free", lambda host, port: None)
    words = ["studio", str(runs), "--no-browser", "--port", "8123"]
    tls = ["--tls", str(certificate.key.parent)]
    for host, told in (
        ("evil.example", "the page's certificate is not for 'evil.example'"),
        ("0.0.0.0", "'0.0.0.0' is not a name that a page can be served under"),
    ):
        assert main([*words, *tls, "--host", host]) == 2
        assert told in capsys.readouterr().err
    assert main([*words, "--host", "robot-pc.local"]) == 2  # without HTTPS: this machine only
    assert main([*words, "--tls", str(runs)]) == 2
    assert not served
    capsys.readouterr()
    assert main([*words, *tls, "--host", "robot-pc.local"]) == 0
    assert served == [("robot-pc.local", certificate)]
    said = capsys.readouterr().out
    link = "https://robot-pc.local:8123/enter?token=a-token-of-an-operator"
    assert said.count(f"  {link}\n") == 2 and "page=xr" not in said
    assert f"https://robot-pc.local:8123/trust   fingerprint {certificate.fingerprint}" in said
