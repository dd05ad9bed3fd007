"""The page over a folder of runs, behind the doors of the operator's page.

    GET  /enter  /  /trust ... as in `console.app`, behind the same doors
    GET  /api/runs  /api/run   the list, or what has changed of it; one run; changes nothing
    GET  /api/compare  ...     runs beside each other, their films, pictures and reports
    POST /api/form  /api/plan  the form of an experiment; the command line it would be; nothing runs
    POST /api/start  ...       what acts: start, finish, put away, restore, open a console

A run is named by its path below the folder; the name is looked up among those that are known.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Query
from fastapi.requests import HTTPConnection
from fastapi.responses import FileResponse, Response

from robot_rl.console.access import Access, Seat
from robot_rl.console.app import guarded
from robot_rl.console.certificate import PageCertificate
from robot_rl.console.doors import Doors, Operator, Watcher, cookie_name
from robot_rl.console.intake import allow_files
from robot_rl.console.remembered import Remembered, Role
from robot_rl.console.serve import hosts_of, listen, server_for
from robot_rl.studio.commands import shown
from robot_rl.studio.consoles import Consoles
from robot_rl.studio.form import experiments
from robot_rl.studio.jobs import FOLDER, facts_of
from robot_rl.studio.studio import FIRST_SUCCESS, REPORT, Studio
from robot_rl.system.audit import audit, audit_into

router = APIRouter(prefix="/api")
Said = Annotated[dict[str, Any], Body()]
MAX_NAME = 400  # characters of the name of a run
Name = Annotated[str, Query(alias="id", max_length=MAX_NAME)]


@dataclass(frozen=True, kw_only=True)
class StudioDoors(Doors):
    """What the routes of this page share."""

    studio: Studio


def _doors_of(connection: HTTPConnection) -> StudioDoors:
    return connection.app.state.doors


TheStudio = Annotated[StudioDoors, Depends(_doors_of)]


def _text(said: dict[str, Any], key: str) -> str:
    """A text of a body. Raises `HTTPException` for anything else."""
    value = said.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
        raise HTTPException(422, f'expected {{"{key}": text}} of at most {MAX_NAME} characters')
    return value


@router.get("/about")
def about(doors: TheStudio, session: Watcher) -> dict[str, Any]:
    """What the page must know once."""
    return {"you": session.name, "role": session.role, "folder": str(doors.studio.folder)}


@router.get("/runs")
def runs(doors: TheStudio, session: Watcher, since: int = 0) -> dict[str, Any]:
    """Rows of the list that have changed since a version."""
    return doors.studio.runs(since, logs=session.role is Role.OPERATOR)


@router.get("/run")
def run(doors: TheStudio, session: Watcher, name: Name) -> dict[str, Any]:
    """Everything about a run."""
    return doors.studio.run(name, logs=session.role is Role.OPERATOR)


@router.get("/compare")
def compare(
    doors: TheStudio, _: Watcher, names: Annotated[list[str], Query(alias="id", max_length=8)]
) -> dict[str, Any]:
    """Runs beside each other."""
    return doors.studio.compare(names)


@router.get("/film")
def film(doors: TheStudio, _: Watcher, name: Name) -> dict[str, int]:
    """How many pictures the film of a run's evaluation has."""
    found = doors.studio.catalogue.run(name)
    return {"pictures": len(doors.studio.films.pictures(found.folder))}


@router.get("/film/picture")
def film_picture(doors: TheStudio, _: Watcher, name: Name, at: float = 0.0) -> Response:
    """A picture of it; at: from 0, the first one, to 1."""
    found = doors.studio.catalogue.run(name)
    pictures = doors.studio.films.pictures(found.folder)
    if not pictures or not math.isfinite(at):
        raise HTTPException(404, "no picture")
    place = round(min(max(at, 0.0), 1.0) * (len(pictures) - 1))
    return Response(pictures[place], media_type="image/jpeg")


@router.get("/first_success")
def first_success(doors: TheStudio, _: Watcher, name: Name) -> Response:
    """The first episode that the policy solved alone, as a strip of pictures."""
    return _file(doors.studio.catalogue.run(name).folder / FIRST_SUCCESS, "image/png", "")


@router.get("/report")
def report(doors: TheStudio, _: Watcher, name: Name) -> Response:
    """The report as a file to save: it is a page of its own, which this page's policy would cut."""
    found = doors.studio.catalogue.run(name)
    return _file(found.folder / REPORT, "text/html", f"{found.name.replace('/', '-')}.html")


def _file(path: Path, media_type: str, save_as: str) -> Response:
    if not path.is_file() or path.is_symlink():
        raise HTTPException(404, f"no {path.name} yet")
    return FileResponse(path, media_type=media_type, filename=save_as or None)


@router.get("/bin")
def in_bin(doors: TheStudio, _: Watcher) -> list[dict[str, Any]]:
    """What was put away."""
    return doors.studio.bin.all()


@router.get("/experiments")
def known_experiments(doors: TheStudio, _: Watcher) -> list[dict[str, str]]:
    """The experiments that a run may be begun from."""
    return experiments(doors.studio.config_dir)


@router.post("/form")
def form(doors: TheStudio, _: Operator, said: Said) -> dict[str, Any]:
    """Every value in force under {"words": [key=value, ...]}; nothing runs."""
    return doors.studio.form(said.get("words"))


@router.post("/plan")
def plan(doors: TheStudio, _: Operator, said: Said) -> dict[str, Any]:
    """The command line that /api/start would run for the same body; it is checked, nothing runs."""
    found = doors.studio.planned(said)
    command, warning = shown(found.words), found.warning
    return {"verb": found.verb, "run": found.run, "command": command, "warning": warning}


@router.post("/start")
def start(doors: TheStudio, session: Operator, said: Said) -> dict[str, Any]:
    """Run it: {"verb", "words"} begins a run, {"verb", "run", ...} works on one that is there."""
    job = doors.studio.start(said)
    audit.info("%s: started %s", session.name, shown(job.words))
    return {**facts_of(job), "run": job.run}


@router.post("/finish")
def finish(doors: TheStudio, session: Operator, said: Said) -> dict[str, Any]:
    """End {"run", "verb"} gently."""
    name, verb = _text(said, "run"), _text(said, "verb")
    doors.studio.finish(name, verb)
    audit.info("%s: finish %s %s", session.name, verb, name)
    return {"said": f"{verb} of {name} was asked to end"}


@router.post("/put_away")
def put_away(doors: TheStudio, session: Operator, said: Said) -> dict[str, Any]:
    """Move {"run"} into the bin."""
    name = _text(said, "run")
    id_ = doors.studio.put_away(name)
    audit.info("%s: put away %s", session.name, name)
    return {"id": id_}


@router.post("/restore")
def restore(doors: TheStudio, session: Operator, said: Said) -> dict[str, Any]:
    """Move {"id"} back out of the bin."""
    name = doors.studio.restore(_text(said, "id"))
    audit.info("%s: restored %s", session.name, name)
    return {"run": name}


@router.post("/console")
def console(doors: TheStudio, session: Operator, said: Said) -> dict[str, Any]:
    """A link, good once, to the page of {"run"}; "page": "review" leads there."""
    name = _text(said, "run")
    link = doors.studio.console(name, str(said.get("page", "")))
    audit.info("%s: console of %s", session.name, name)
    return {"link": link}


def studio_server(
    studio: Studio,
    host: str,
    port: int,
    remembered: Remembered | None = None,
    certificate: PageCertificate | None = None,
) -> tuple[uvicorn.Server, Access]:
    """A server that is not running yet, and its `Access`; remembered: see `Access`.

    certificate: serve over HTTPS; None = plain HTTP, for this machine only.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        studio.close()

    access = Access(Seat(Path(os.devnull)), remembered)  # nobody drives at this page
    doors = StudioDoors(
        access=access,
        hosts=hosts_of(host, port, certificate),
        cookie=cookie_name("studio", port, certificate),
        certificate=certificate,
        studio=studio,
    )
    app = guarded(doors, "robot-rl studio", "studio.html", lifespan)
    app.include_router(router)
    return server_for(app, host, port, certificate), access


def serve_studio(
    folder: Path,
    host: str,
    port: int,
    started: Callable[[Callable[[str], str]], None],
    *,
    config_dir: Path | None = None,
    certificate: PageCertificate | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; every command of a page becomes a line of `audit.log`.

    started: gets a function that makes links (role -> token); certificate: see `studio_server`.
    """
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    audit_into(folder / FOLDER)
    studio = Studio(folder, config_dir, Consoles(host, certificate))
    server, access = studio_server(studio, host, port, Remembered(folder, port), certificate)
    listening = listen(server)
    started(lambda role: access.invite(Role(role)))
    allow_files()
    server.run(sockets=[listening])
