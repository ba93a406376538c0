"""The script of the page: the bundle that ships is that of the modules, small, and well typed."""

import subprocess
from pathlib import Path

import pytest

import traceview

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "node_modules" / ".bin"
BUNDLE = Path(traceview.__file__).parent / "render" / "templates" / "report.js"
MOST_BYTES = 60_000

needs_tools = pytest.mark.skipif(
    not (TOOLS / "esbuild").exists(), reason="no node_modules: make page-tools gets it through npm"
)


def test_the_bundle_is_small_and_fetches_nothing():
    script = BUNDLE.read_text("utf-8")
    assert len(script.encode()) <= MOST_BYTES
    assert not [name for name in ("http", "fetch(", "import(", "eval(") if name in script]
    assert "</script" not in script
    assert script.isascii()


@needs_tools
def test_the_bundle_is_made_of_the_modules(tmp_path):
    built = tmp_path / "report.js"
    subprocess.run([ROOT / "scripts" / "bundle.sh", built], check=True)
    assert built.read_text() == BUNDLE.read_text(), "run: make script"


@needs_tools
def test_the_modules_are_well_typed():
    done = subprocess.run([TOOLS / "tsc", "-p", ROOT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
