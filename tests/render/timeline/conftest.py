"""The page of a real recording, and that page open in the browser."""

import pytest

from tests.build import Export
from tests.render.timeline.opened_page import Opened
from traceview import analyze, load


@pytest.fixture(scope="module")
def exported(unpack):
    return unpack("mlp_sync")


@pytest.fixture(scope="module")
def recording(exported, tmp_path_factory):
    """Two answers on a real recording, and the page made of them, which opens sooner than all."""
    report = analyze(load(exported), ["kernel-share", "gpu-idle"])
    path = tmp_path_factory.mktemp("page") / "page.html"
    return report, report.to_html(path)


@pytest.fixture
def opened(browser, recording):
    opened = Opened(browser, recording[1], viewport={"width": 1400, "height": 1000})
    yield opened
    assert opened.said == []
    opened.close()


@pytest.fixture(scope="module")
def recording_with_a_slow_step(tmp_path_factory):
    """Eight steps of 100 µs; in step_4 the load of a batch takes 400 µs longer."""
    export, at = Export(), 0
    for step in range(8):
        late = 400_000 if step == 4 else 0
        export.range(f"step_{step}", at, at + 100_000 + late)
        export.range("load_batch", at + 1_000, at + 11_000 + late)
        call = at + 20_000 + late
        export.launch((call, call + 5_000), (call + 10_000, call + 70_000))
        at += 100_000 + late
    folder = tmp_path_factory.mktemp("slow")
    return analyze(export.load(folder)).to_html(folder / "page.html")
