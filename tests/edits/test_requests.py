"""The forms of edits."""

import pytest

from traceview.base.errors import InputError
from traceview.traces.edits.requests import KINDS, parse


@pytest.mark.parametrize(
    ("text", "target", "factor"),
    [
        ("kernel gemm*=0.5", "gemm*", 0.5),
        ("fuse a|b=0.5", "a|b", 0.5),
        ("--kernel a=b=2x", "a=b", 0.5),
        ("kernel k<int>(T1)=0", "k<int>(T1)", 0),
        ("cpu data.py:24=1e-1", "data.py:24", 0.1),
        ("link 2x", "", 0.5),
        ("link 4", "", 0.25),
        ("copy H2D=2×", "H2D", 0.5),
        ("no-sync my range", "my range", 1),
        ("no-recorder", "", 1),
    ],
)
def test_an_edit_is_read(text, target, factor):
    edit = parse(text)
    assert (edit.target, edit.factor) == (target, factor)
    assert parse(edit.text) == edit


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel gemm", "kernel lacks a factor; write kernel PATTERN=FACTOR"),
        ("kernel =0.5", "kernel lacks a factor"),
        ("kernel gemm=fast", "factor 'fast'"),
        ("kernel gemm=-1", "factor '-1'"),
        ("kernel gemm=nan", "factor 'nan'"),
        ("kernel gemm=inf", "factor 'inf'"),
        ("kernel gemm=0x", "factor '0x'"),
        ("link 0", "factor '0'; write link FACTORx, where 2x is twice as fast"),
        ("no-sync", "no-sync '' names nothing; write no-sync PLACE"),
        ("no-recorder 4", "no-recorder takes no value"),
        ("kernl a=1", "no edit is named 'kernl'; did you mean kernel"),
    ],
)
def test_another_form_is_an_error(text, message):
    with pytest.raises(InputError, match=message):
        parse(text)


def test_every_kind_has_an_option():
    from traceview.cli.what_if import command

    options = {each.opts[0].removeprefix("--") for each in command.params}
    assert {*KINDS} <= options
