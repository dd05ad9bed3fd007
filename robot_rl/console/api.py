"""Lease, stops, labels, review. Commands are written to the audit log; no GET changes anything.

With several arms, `?arm=NAME` says which one is meant.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, HTTPException, Query, Request
from fastapi.responses import Response, StreamingResponse

from robot_rl.console.doors import Console, Operator, TheConsole, Watcher, console_of, operator
from robot_rl.console.exports import chunks
from robot_rl.console.shift import strip, totals
from robot_rl.console.signals import MOST_SIGNALS
from robot_rl.system.audit import audit
from robot_rl.types import EpisodeId

STOPS = ("hold", "stop")  # whoever may look may stop the robot
SEATED = ("ready",)  # lets the arm move: only for the session that has the lease
STRIP = 20  # episodes of the strip
MAX_ITEM = 128  # characters of the name of an item
GOES_ON = ("go", "acknowledge", "resume")  # what was stopped: not beside somebody in the seat
COMMANDS = (*STOPS, *SEATED, *GOES_ON)
Which = Annotated[EpisodeId, Depends(EpisodeId)]  # ?run=...&actor=...&episode=...
router = APIRouter(prefix="/api")


@router.get("/about")
async def about(console: TheConsole, session: Watcher) -> dict[str, Any]:
    """What the page must know once."""
    return {
        "you": session.name,
        "author": session.author,
        "role": session.role,
        **console.feed.about,
    }


@router.post("/lease/{verb}")
async def lease(verb: str, console: TheConsole, session: Operator) -> dict[str, Any]:
    """Claim or release the right to drive."""
    if verb not in ("claim", "release"):
        raise HTTPException(404, "claim or release")
    refusal = console.access.claim(session) if verb == "claim" else ""
    if verb == "release":
        console.access.release(session)
    audit.info(
        "%s: lease %s%s", console.who(session), verb, f" refused: {refusal}" if refusal else ""
    )
    if refusal:
        raise HTTPException(409, refusal)
    return {"holder": console.access.holder.name if console.access.holder else None}


def meant(request: Request, verb: str) -> list[Console]:
    """The console that a command is for. A stop that names an arm which is not there is for all."""
    try:
        return [console_of(request)]
    except HTTPException:
        if verb not in STOPS:
            raise
        return list(request.app.state.arms.values())


@router.post("/command/{verb}")
async def command(
    verb: str,
    consoles: Annotated[list[Console], Depends(meant)],
    session: Watcher,
    left: str = "",
) -> dict[str, Any]:
    """Anybody may hold and stop; the rest needs an operator, `ready` the one in the seat.

    What was stopped is let go on by whoever has the seat, at this console or at another one of the
    run; while nobody has it, or they were not heard of for `PRESENT_S`, by any operator.

    left: not empty with `hold` = nobody asked for it: the page went away while it drove.
    """
    if verb not in COMMANDS:
        raise HTTPException(404, f"one of {', '.join(COMMANDS)}")
    if verb not in STOPS:
        operator(session)
    if verb in SEATED and not consoles[0].access.hears(session):
        raise HTTPException(409, "take the seat first")
    if verb in GOES_ON and (who := consoles[0].access.other_present(session)):
        audit.info("%s: %s refused: %s has the seat", consoles[0].who(session), verb, who)
        raise HTTPException(409, f"{who} has the seat, and lets it go on")
    for console in consoles:
        audit.info("%s: %s%s", console.who(session), verb, " (the page was left)" if left else "")
        console.feed.say_left(bool(left) and verb == "hold")
    asked = (console.feed.panel.ask("command", verb=verb) for console in consoles)
    answers = await asyncio.gather(*asked)
    return dict(answers[0][0])


@router.post("/accept")
async def accept(
    console: TheConsole, session: Operator, said: Annotated[dict[str, Any], Body()]
) -> dict[str, Any]:
    """Accept an item of the readiness list, or take that back: {"name": text, "on": flag}."""
    name, on = said.get("name"), said.get("on")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ITEM or not isinstance(on, bool):
        raise HTTPException(422, 'expected {"name": an item of the readiness list, "on": flag}')
    if not console.access.hears(session):
        raise HTTPException(409, "take the seat first")
    audit.info("%s: %s %s", console.who(session), "accepts" if on else "takes back", name)
    answer, _ = await console.feed.panel.ask("accept", name=name, on=on)
    return dict(answer)


@router.post("/name")
def rename(
    console: TheConsole, session: Watcher, said: Annotated[dict[str, Any], Body()]
) -> dict[str, Any]:
    """Say who is at this page: {"name": text}. The name stands beside what this person does."""
    before, name = session.name, said.get("name")
    refusal = console.access.rename(session, name) if isinstance(name, str) else "name: text"
    if refusal:
        raise HTTPException(422, refusal)
    audit.info("%s is now %s", before, console.who(session))
    return {"you": session.name}


@router.post("/note")
def note(
    console: TheConsole, session: Operator, said: Annotated[dict[str, Any], Body()]
) -> dict[str, Any]:
    """Write a note about an episode: {"run", "actor", "episode", "text"}."""
    id_ = console.records.known(said)
    console.notes.add(id_, str(said.get("text", "")), session.author)
    audit.info("%s: note on episode %d", console.who(session), id_.episode)
    return {"episode": id_.episode}


@router.get("/strip")
def newest(console: TheConsole, session: Watcher, since_ns: int = 0) -> dict[str, Any]:
    """The newest episodes, and what this person did since a moment (ns since 1970)."""
    records = console.records
    all_, drove = ([], []) if records.is_empty() else (records.episodes(), records.drove())
    return {
        "episodes": strip(all_, console.notes, STRIP),
        "totals": totals(drove, all_, session.author, since_ns),
    }


@router.get("/episodes")
def episodes(console: TheConsole, _: Watcher) -> list[dict[str, Any]]:
    """All episodes, newest first."""
    return console.records.episodes()


@router.get("/episode")
def episode(id_: Which, console: TheConsole, _: Watcher) -> dict[str, Any]:
    """Steps, events and labels of one episode."""
    return console.records.episode(id_)


@router.get("/signals")
def signals(
    id_: Which,
    console: TheConsole,
    _: Watcher,
    name: Annotated[list[str], Query(max_length=MOST_SIGNALS)] = [],  # noqa: B006
) -> dict[str, Any]:
    """What can be plotted of an episode, and curves of the signals named: ?name=...&name=..."""
    return console.records.signals(id_, name)


@router.get("/starts")
def starts(console: TheConsole, _: Watcher) -> dict[str, Any]:
    """Where the episodes started."""
    return console.records.starts()


@router.get("/export/{kind}")
def export(kind: str, id_: Which, console: TheConsole, _: Watcher) -> Response:
    """An episode as a file for Rerun (rrd) or Foxglove (mcap)."""
    name, made = console.records.export(id_, kind)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(chunks(made), headers=headers, media_type="application/octet-stream")


@router.get("/frame/{camera}/{frame}")
def picture(camera: str, frame: int, id_: Which, console: TheConsole, _: Watcher) -> Response:
    """One picture of an episode, JPEG."""
    return Response(console.records.picture(id_, frame, camera), media_type="image/jpeg")


@router.get("/scene/{start}/{camera}")
def scene(start: str, camera: str, console: TheConsole, _: Watcher) -> Response:
    """How a scene looked when its start was used first (a comparison of policies), JPEG."""
    return Response(console.records.scene(start, camera), media_type="image/jpeg")


@router.post("/label")
def label(
    console: TheConsole, session: Operator, said: Annotated[dict[str, Any], Body()]
) -> dict[str, Any]:
    """Append a label; {"kind": "undo", "value": number} takes one back."""
    answer = console.records.label(said, author=session.author)
    audit.info("%s: label %s", console.who(session), answer["said"])
    return answer


@router.post("/labels")
def labels(
    console: TheConsole, session: Operator, said: Annotated[dict[str, Any], Body()]
) -> dict[str, Any]:
    """Exclude several episodes at once, or take that back; all or none (`batch.py`)."""
    answer = console.records.label_many(said, author=session.author)
    audit.info("%s: label %s", console.who(session), answer["said"])
    return answer
