"""The closed set of remedies: each answers findings that there are, and changes what it says."""

import re
from pathlib import Path

import pytest

import traceview
from tests.places import REPOSITORY
from traceview.trials.remedies import BY_NAME, REMEDIES
from traceview.trials.tryout.planned import planned, together

ROOT = Path(traceview.__file__).parent
FOLDERS = (
    *(ROOT / "traces" / "analyses", ROOT / "base" / "vocabulary"),
    ROOT / "kernels" / "inspect" / "rules",
)
SOURCES = [path for folder in FOLDERS for path in folder.rglob("*.py")]
TEXTS = "\n".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in SOURCES)
UNASKED = {"zero_grad", "cudnn_benchmark"}
"""No finding asks for them; they are tried by name."""


def test_each_is_listed_and_has_a_name_and_what_it_may_change():
    sources = [path.read_text() for path in (ROOT / "trials" / "remedies").glob("*.py")]
    made = sum(
        len(re.findall(r"^\w+ = (?:base\.)?ProgramRemedy\(", text, re.M)) for text in sources
    )
    assert made == len(REMEDIES) == len(BY_NAME)
    for remedy in REMEDIES:
        assert remedy.effect
        assert remedy.may_change
        assert len(remedy.does) <= 60
        assert remedy.does[0].isupper()
        assert {*remedy.needs, *remedy.instead_of} <= set(BY_NAME)


def test_the_documentation_lists_them_in_their_words():
    page = (REPOSITORY / "docs" / "try.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
    assert [row[0].strip("`") for row in rows] == [remedy.name for remedy in REMEDIES]
    for row, remedy in zip(rows, REMEDIES, strict=True):
        assert row[1].startswith(remedy.does)
        assert row[-1].startswith(remedy.may_change)


@pytest.mark.parametrize(
    "remedy", [r for r in REMEDIES if r.name not in UNASKED], ids=lambda r: r.name
)
def test_each_answers_actions_of_findings(remedy):
    assert re.search(remedy.answers, TEXTS)


@pytest.mark.parametrize(
    ("recording", "names"),
    [
        ("examples/loader", {"num_workers", "compile", "cuda_graph"}),
        (
            "examples/training",
            {"pin_memory", "non_blocking", "matmul_precision", "autocast", "fused"}
            | {"deferred_reads"},
        ),
        ("tests/data/forecasts/chain", {"compile"}),
    ],
)
def test_findings_choose_remedies(recording, names):
    report = traceview.analyze(traceview.load(REPOSITORY / f"{recording}.sqlite.xz"))
    chosen = planned(report, ())
    assert {each.name for each in chosen} == names
    assert all(each.said.share_pct >= 1 for each in chosen)
    assert [each.name for each in planned(report, ("zero_grad",))] == ["zero_grad"]


def test_all_that_are_kept_are_replayed_together():
    report = traceview.analyze(traceview.load(REPOSITORY / "examples/loader.sqlite.xz"))
    chosen = {each.name: each for each in planned(report, ())}
    both = together(report, [chosen["num_workers"], chosen["compile"]])
    parts = [chosen[name].said.share_pct for name in ("num_workers", "compile")]
    assert max(parts) < both.said.share_pct <= sum(parts) + 5
    assert both.names == ("num_workers", "compile")
    assert both.reseeds


def test_a_remedy_comes_with_those_that_it_needs():
    (chosen,) = planned(None, ("non_blocking",))
    assert chosen.names == ("pin_memory", "non_blocking")


def test_no_server_runs_programs():
    servers = [path for name in ("serve", "mcp") for path in (ROOT / name).rglob("*.py")]
    assert servers
    assert not [path for path in servers if re.search("tryout|try_remedies", path.read_text())]
