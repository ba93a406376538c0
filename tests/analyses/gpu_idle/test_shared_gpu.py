"""The remedy where a free GPU starts launched work late names the tools of its vendor."""

import pytest

from tests.build import Export
from traceview.traces.analyses.gpu_idle.remedies import shared_gpu


@pytest.mark.parametrize(("facts", "named"), [({}, "nvidia"), ({"gpu_vendor": "AMD"}, "rocm")])
def test_other_processes_are_listed_by_the_tool_of_this_gpu(tmp_path, facts, named):
    remedy = shared_gpu(Export().launch((0, 10), (20, 30)).run(**facts).load(tmp_path))
    assert f"({named}-smi)" in remedy
    assert remedy.count("-smi") == 1
    assert ("MPS" in remedy) is (named == "nvidia")
