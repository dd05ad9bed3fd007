"""A client of the page that speaks as the page does: cookie, origin and the page's secret."""

from __future__ import annotations

from typing import Any

import httpx
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from robot_rl.console.doors import FRAGMENT, SECRET, SUBPROTOCOL


def entered(link: str, **options: Any) -> httpx.Client:
    """A client with the session of a link."""
    url = link.partition("/enter")[0]
    client = httpx.Client(base_url=url, headers={"Origin": url}, **options)
    answer = client.get(link)
    assert answer.status_code == 303
    client.headers[SECRET] = answer.headers["location"].partition(f"#{FRAGMENT}=")[2]
    return client


def cookie_of(client: httpx.Client) -> str:
    """The header `Cookie` of a client."""
    return "; ".join(f"{k}={v}" for k, v in client.cookies.items())


def socket_of(client: httpx.Client, path: str, **headers: str) -> Any:
    """One of the page's sockets."""
    url = str(client.base_url).rstrip("/")
    agent = client.headers["User-Agent"]  # a session is one browser's
    extra = {"Cookie": cookie_of(client), "Origin": url} | headers
    spoken = [Subprotocol(SUBPROTOCOL + client.headers.get(SECRET, ""))]
    return connect(
        url.replace("http", "ws") + path,
        additional_headers=extra,
        subprotocols=spoken,
        user_agent_header=agent,
    )
