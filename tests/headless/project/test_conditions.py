"""A kernel that is defined under a condition only."""

from traceview.kernels.headless.project.call_sites import condition_of

SOURCE = """HAS_TMA = False
def always(): ...
if True:
    def outer(): ...
    if HAS_TMA and 1 < 2:
        def inner(): ...
    else:
        def fallback(): ...
"""


def test_the_innermost_condition_is_told(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(SOURCE)
    assert condition_of(str(file), "inner") == (
        "line 6 defines it under `if HAS_TMA and 1 < 2` (line 5)"
    )
    assert condition_of(str(file), "outer").endswith("`if True` (line 3)")
    assert condition_of(str(file), "always") == condition_of(str(file), "missing") == ""
    assert condition_of(str(tmp_path / "missing.py"), "inner") == ""
