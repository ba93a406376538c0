"""Expectations as text: what each part means, and what is said of a part that means nothing."""

import pytest

from traceview.base.errors import InputError
from traceview.kernels.inspect.expectations import AccessWidth, parse_all, parse_expectation


def quantities(text):
    return [(c.quantity, c.comparison, c.limit) for c in parse_expectation(text).conditions]


def test_an_expectation_is_a_kernel_and_conditions():
    expectation = parse_expectation(" gelu* :global  load>=128 bits,Spills = 0 ")
    assert expectation.kernel == "gelu*"
    assert [c.text for c in expectation.conditions] == ["global load>=128 bits", "Spills = 0"]
    assert quantities(expectation.text) == [
        (AccessWidth("global", "load"), ">=", 128),
        ("spills", "=", 0),
    ]


def test_levels_loops_and_units():
    assert quantities("sass shared stores in loops > 32bit, shared memory <= 48 KiB") == [
        (AccessWidth("shared", "store", "sass", in_loops=True), ">", 32),
        ("shared memory", "<=", 49152),
    ]
    assert quantities("occupancy >= 37.5 %, stack <= 2 kB") == [
        ("occupancy", ">=", 37.5),
        ("stack", "<=", 2000),
    ]


def test_a_name_in_cpp_may_hold_colons_and_commas():
    assert (
        parse_expectation("void a::b<float, 4>(int): spills = 0").kernel
        == "void a::b<float, 4>(int)"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "global lod >= 128",
            "is not a quantity of a kernel; did you mean global load?",
        ),
        ("load >= 128", "'load' is not a quantity of a kernel"),
        ("spills", "'spills' is not a comparison of a quantity with a number"),
        ("spills = 0 = 1", "is not a comparison"),
        ("spills = ", "'nothing' is not a number; compare spills with one"),
        ("registers <= many", "'many' is not a number"),
        ("spills = -1", "'-1' is not a number"),
        ("registers <= 64 kB", "'kB' is not a unit of registers; its units: none"),
        ("global load >= 16 bytes", "'bytes' is not a unit of global load; its units: bit, bits"),
        ("gelu:", "a condition is missing"),
        ("gelu: spills = 0,", "a condition is missing"),
        (": spills = 0", "there is no kernel before the colon"),
        ("", "a condition is missing"),
    ],
)
def test_what_means_nothing_is_named(text, what):
    with pytest.raises(InputError) as raised:
        parse_expectation(text)
    assert str(raised.value).startswith(f"expectation {text!r}: ")
    assert what in str(raised.value)


def test_a_file_holds_one_per_line(tmp_path):
    (tmp_path / "kernels").write_text("# of the model\ngelu: spills = 0  # none\n\nwaves >= 1\n")
    listed = parse_all([f"@{tmp_path / 'kernels'}", "registers <= 64"])
    assert [each.text for each in listed] == ["gelu: spills = 0", "waves >= 1", "registers <= 64"]


def test_a_file_without_any_is_refused(tmp_path):
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, what in [
        ("empty", "holds no expectation"),
        ("binary", "it is not text"),
        ("missing", "No such file"),
    ]:
        with pytest.raises(InputError, match=what):
            parse_all([f"@{tmp_path / name}"])
