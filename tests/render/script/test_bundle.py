"""The scripts of the pages: the bundles that ship are those of the modules, small, well typed."""

import subprocess
from pathlib import Path

import pytest

import traceview

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "node_modules" / ".bin"
TEMPLATES = Path(traceview.__file__).parent / "render" / "templates"
BUNDLES = {
    "report.js": ("main.js", 13_000),
    "timeline.js": ("timeline.js", 58_000),
    "ranks.js": ("ranks.js", 36_000),
}
"""The module that each bundle begins with, and how large it may be."""

needs_tools = pytest.mark.skipif(
    not (TOOLS / "esbuild").exists(), reason="no node_modules: make page-tools gets it through npm"
)


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_is_small_and_fetches_nothing(name):
    script = (TEMPLATES / name).read_text("utf-8")
    assert len(script.encode()) <= BUNDLES[name][1]
    assert not [name for name in ("http", "fetch(", "import(", "eval(") if name in script]
    assert "</script" not in script
    assert script.isascii()


@needs_tools
@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_is_made_of_the_modules(tmp_path, name):
    built = tmp_path / name
    subprocess.run([ROOT / "scripts" / "bundle.sh", BUNDLES[name][0], built], check=True)
    assert built.read_text() == (TEMPLATES / name).read_text(), "run: make script"


@needs_tools
def test_the_modules_are_well_typed():
    done = subprocess.run([TOOLS / "tsc", "-p", ROOT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
