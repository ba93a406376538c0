"""Links lead somewhere, generated pages are current, the example recordings are clean."""

import contextlib
import lzma
import re
import sqlite3
import subprocess
import sys

import pytest

from tests.docs.blocks import pages
from tests.places import REPOSITORY
from tests.recordings.test_shipped import PRIVATE
from traceview.render.report.json import REPORT

EXAMPLES = sorted((REPOSITORY / "examples").rglob("*.sqlite.xz"))
SIX_STEPS = [path for path in EXAMPLES if path.parent.name == "six_steps"]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)|src=\"(?!https?:)([^\"]+)\"")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for link in LINK.findall(page.read_text()):
        target = page.parent / (link[0] or link[1])
        assert target.exists(), f"{page.name} links to {target}"


def test_every_page_is_linked_from_the_readme_or_contributing():
    linked = "".join((REPOSITORY / f"{name}.md").read_text() for name in ("README", "CONTRIBUTING"))
    for page in (REPOSITORY / "docs").glob("*.md"):
        assert f"(docs/{page.name})" in linked


def test_the_list_of_facts_is_current():
    program = [sys.executable, "scripts/list_facts.py", "-"]
    listed = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert listed.stdout == (REPOSITORY / "docs/facts.md").read_text(), "run make docs"


def test_every_fact_is_described():
    lines = (REPOSITORY / "docs/facts.md").read_text().splitlines()
    facts = [line for line in lines if line.startswith("| `")]
    assert len(facts) > 40
    assert all(len(line.split(" | ")[2].rstrip(" |")) > 10 for line in facts)


def keys_of(schema, path=()):
    """The keys of a document by its schema, which allows no others; columns tell their meaning."""
    for key, value in schema.get("properties", {}).items():
        # Analyses and tables are data, as are figures of one analysis.
        if path[-1:] not in (("analyses",), ("tables",), ("summary",)):
            yield key
        if path[-1:] not in (("tables",), ("summary",)):
            yield from keys_of(value, (*path, key))
    for word in ("oneOf", "anyOf", "allOf", "items", "additionalProperties"):
        inner = schema.get(word, ())
        for each in inner if isinstance(inner, list) else (inner,):
            if isinstance(each, dict):
                yield from keys_of(each, path)


def test_every_key_of_a_report_is_described():
    """`schema report` names them all: tests/render/schemas hold the recordings against it."""
    code = re.findall(r"(?s)```.*?```|`[^`]+`", (REPOSITORY / "docs" / "json.md").read_text())
    words = set(re.findall(r"\w+", " ".join(code)))
    keys = set(keys_of(REPORT.schema()))
    assert {"verdict", "basis", "sm_count", "left_out"} <= keys
    assert keys - words == set()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_recordings_are_small_and_hold_no_environment_and_no_home(path):
    packed = path.read_bytes()
    assert len(packed) < 350_000
    assert not PRIVATE.search(lzma.decompress(packed))


@pytest.mark.parametrize("path", SIX_STEPS, ids=lambda path: path.name)
def test_the_program_in_steps_is_the_one_recorded(path, tmp_path):
    recording = tmp_path / "recording.sqlite"
    recording.write_bytes(lzma.decompress(path.read_bytes()))
    with contextlib.closing(sqlite3.connect(recording)) as connection:
        query = "SELECT line, text FROM TRACEVIEW_SOURCE_LINES WHERE file = 'examples/six_steps.py'"
        recorded = connection.execute(query).fetchall()
    lines = (REPOSITORY / "examples/six_steps.py").read_text().splitlines()
    assert len(recorded) > 10
    assert all(lines[number - 1].strip() == text for number, text in recorded)


@pytest.mark.parametrize("name", ["terminal.svg", "page.png"])
def test_pictures_are_small_and_load_nothing(name):
    picture = (REPOSITORY / "docs/images" / name).read_bytes()
    assert len(picture) < 200_000
    assert not re.search(rb"url\(\s*['\"]?http|@import|@font-face", picture)


def test_the_demo_ends_with_a_command_that_works(tmp_path):
    """Without a GPU it reports on the shipped recording."""
    for name in ("examples", "scripts", "traceview", "workloads"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    binaries = tmp_path / ".venv/bin"
    binaries.mkdir(parents=True)
    script = binaries / "traceview"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m traceview "$@"\n')
    script.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    # The script itself, not a link: it goes to the folder above its own.
    demo = tmp_path / "scripts"
    demo.unlink()
    demo.mkdir()
    (demo / "demo.sh").write_text((REPOSITORY / "scripts/demo.sh").read_text())
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    done = subprocess.run(
        ["bash", demo / "demo.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo.html").exists()
    last = done.stdout.splitlines()[-1].strip()
    assert last == ".venv/bin/traceview report examples/training.sqlite.xz"
    subprocess.run(last.split(), cwd=tmp_path, env=environment, check=True, capture_output=True)
