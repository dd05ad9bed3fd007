"""Documentation that cannot rot quietly: links resolve, commands exist, no machine's paths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from robot_rl.cli.main import VERBS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FOLDERS = ("robot_rl", "sim", "hardware", "launch", "ros2_ws", "configs", "docs", "tests", ".ci")
FOLDERS += (".github",)
TEXT_SUFFIXES = {".py", ".md", ".yaml", ".yml", ".xml", ".toml", ".css", ".js", ".html", ".cfg", ""}
MACHINE_PATHS = re.compile(rf"{re.escape(str(ROOT))}\b|/(?:root|home/\w+)/|/opt/(?!ros\b)\w+")


def _anchor(heading: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_between_pages_resolves(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name} links to {target}, which is not there"
        if anchor and path.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
            assert anchor in map(_anchor, headings), f"{page.name}: no heading for {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_verb_and_make_target_in_the_docs_exists(page: Path) -> None:
    blocks = re.findall(r"```[a-z]*\n(.*?)```", page.read_text(), re.DOTALL)
    code = "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", page.read_text())])
    for verb in re.findall(r"robot-rl +([a-z]+(?:-[a-z]+)*)\b", code):
        assert verb in VERBS, f"{page.name} mentions `robot-rl {verb}`"
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for target in re.findall(r"(?:^|[;&`]) *make ([a-z-]+)", code, re.MULTILINE):
        assert target in targets, f"{page.name} mentions `make {target}`"


def test_the_experiments_that_the_docs_name_exist() -> None:
    from robot_rl.config.compose import options

    for page in PAGES:
        for name in re.findall(r"experiment=(\w+)", page.read_text()):
            known = name in options("experiment") or name.startswith("my_")  # the reader's own
            assert known, f"{page.name} mentions experiment={name}"


def test_no_file_of_the_project_names_a_path_of_one_machine() -> None:
    files = [p for f in FOLDERS for p in (ROOT / f).rglob("*") if p.is_file()]
    files += [p for p in ROOT.iterdir() if p.is_file() and not p.name.startswith(".venv")]
    for path in files:
        if (
            path.suffix not in TEXT_SUFFIXES
            or "__pycache__" in path.parts
            or path == Path(__file__)
        ):
            continue
        found = MACHINE_PATHS.search(path.read_text(errors="replace"))
        assert not found, f"{path.relative_to(ROOT)} names {found.group() if found else ''}"


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (ROOT / "README.md").read_text()
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "bash .ci/run" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_workflow_actions_are_pinned_to_commits() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    used = re.findall(r"uses: \S+@(\S+)", text)
    assert used
    assert all(re.fullmatch(r"[0-9a-f]{40}", ref) for ref in used)


def test_constraints_pin_what_pyproject_asks_for() -> None:
    import tomllib

    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in ("sim", "ros", "learn", "dev"):
        wanted += project["optional-dependencies"][extra]
    names = {re.split(r"[<>=\[ ]", w)[0].lower().replace("_", "-") for w in wanted}
    assert names <= set(pins), names - set(pins)
    assert pins["torch"] == "2.13.0"
    assert not any("+" in version for version in pins.values())


def test_the_reading_path_is_short_and_in_the_order_of_the_data_flow() -> None:
    text = (ROOT / "README.md").read_text().split("## Reading path")[1].split("\n## ")[0]
    files = [ROOT / name for name in re.findall(r"^\| \[`[^`]+`\]\(([^)]+)\)", text, re.MULTILINE)]
    assert len(files) >= 8
    assert sum(len(path.read_text().splitlines()) for path in files) <= 3200


def test_the_mark_alone_is_written_in_the_file_of_its_tests() -> None:
    """Of the others, `tests/conftest.py` reads none where `alone` is asked for."""
    helpers = [p for p in (ROOT / "tests").rglob("*.py") if not p.name.startswith("test_")]
    helpers.remove(ROOT / "tests" / "conftest.py")
    assert not [p for p in helpers if "mark.alone" in p.read_text()]
