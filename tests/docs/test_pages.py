"""Links lead somewhere, generated pages are current, the example recording is clean."""

import lzma
import re
import subprocess
import sys

import pytest

from tests.docs.blocks import pages
from tests.places import REPOSITORY
from tests.recordings.test_shipped import PRIVATE

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


def test_the_example_recording_holds_no_environment_and_no_home():
    packed = (REPOSITORY / "examples/training.sqlite.xz").read_bytes()
    assert len(packed) < 170_000
    assert not PRIVATE.search(lzma.decompress(packed))


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
