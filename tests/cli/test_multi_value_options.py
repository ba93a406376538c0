"""Several values of an option in a row are told from the target and from other arguments."""

import pytest

from traceview.cli.options import one_option_per_value, one_or_list, split_at_double_dash


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("gelu.py --num-warps 4 8", "gelu.py --num-warps 4 --num-warps 8"),
        ("--num-warps 4 8 gelu.py", "--num-warps 4 --num-warps 8 gelu.py"),
        ("--num-warps 4 gelu.py", "--num-warps 4 gelu.py"),
        ("--num-warps=4 8 gelu.py", "--num-warps=4 --num-warps 8 gelu.py"),
        ("--num-warps 4 --num-warps 8 x", "--num-warps 4 --num-warps 8 x"),
        ("--num-stages 2 3 4 x", "--num-stages 2 --num-stages 3 --num-stages 4 x"),
        ("--arch sm_80 sm_90a x.ptx", "--arch sm_80 --arch sm_90a x.ptx"),
        ("--arch sm_80 sm_90.ptx", "--arch sm_80 sm_90.ptx"),
        ("--constexpr B=1 B=2 x", "--constexpr B=1 --constexpr B=2 x"),
        ("--constexpr B=1 b.py:k", "--constexpr B=1 b.py:k"),
        ("--constexpr B=1 b=1.py", "--constexpr B=1 b=1.py"),
        ("--signature *f,i *f,i:16 x.py", "--signature *f,i --signature *f,i:16 x.py"),
        ("--signature *fp32 gelu.py", "--signature *fp32 gelu.py"),
        ("--signature *fp32 a,b.py", "--signature *fp32 a,b.py"),
        ("--num-warps 4 --arch sm_80 8", "--num-warps 4 --arch sm_80 8"),
        ("--num-warps 4 --json 8", "--num-warps 4 --json 8"),
        ("x --kernel 4 8", "x --kernel 4 8"),
        ("--num-warps --arch sm_80", "--num-warps --arch sm_80"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_value_is_taken_only_if_it_has_the_form_of_the_option(given, read):
    assert one_option_per_value(given.split()) == read.split()


def test_a_file_that_is_there_is_no_value(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "B=2").touch()
    assert one_option_per_value(["--constexpr", "B=1", "B=2"]) == ["--constexpr", "B=1", "B=2"]


def test_what_is_behind_the_dashes_is_the_script_s():
    assert split_at_double_dash(["x", "--num-warps", "4", "--", "8", "--", "9"]) == (
        ["x", "--num-warps", "4"],
        ["8", "--", "9"],
    )
    assert split_at_double_dash(["x"]) == (["x"], [])


def test_equal_values_are_one():
    assert [one_or_list(values) for values in ((), (4,), (4, 4), (4, 8, 4))] == [None, 4, 4, [4, 8]]
