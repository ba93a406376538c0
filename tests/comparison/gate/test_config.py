"""The grammar of gate.toml, and one clear line for what is not in it."""

from pathlib import Path

import pytest

from traceview.base.errors import InputError
from traceview.traces.comparison.gate_rules import GateCondition, Rule, read_config


def rules(tmp_path, text):
    path = tmp_path / "gate.toml"
    path.write_text(text, encoding="utf-8")
    return read_config(path)


def test_every_form_of_a_rule(tmp_path):
    found = rules(
        tmp_path,
        """
        certainty = "90 %"
        [step_time]
        max_increase = "3 %"
        and_at_least = "0.1 ms"
        [counts.synchronizations]
        equals = 0
        [load_bits."gelu_kernel<float, 4>"]
        min = 128
        ['registers["a.b[0]"]']
        max = 64
        [peak_memory_bytes]
        max_increase = "5 %"
        max = "80 GB"
        certainty = 0.99
        [gpu_busy_pct]
        max_decrease = 2
        [idle_ns.sync-drain]
        max = "50 us"
        """,
    )
    assert found == (
        Rule("step_ns", (GateCondition("max_increase", 3.0, True, 100_000.0),), 0.9),
        Rule("synchronizations_per_step", (GateCondition("equals", 0.0),), 0.9),
        Rule("load_bits[gelu_kernel<float, 4>]", (GateCondition("min", 128.0),), 0.9),
        Rule("registers[a.b[0]]", (GateCondition("max", 64.0),), 0.9),
        Rule(
            "peak_memory_bytes",
            (GateCondition("max_increase", 5.0, True), GateCondition("max", 80e9)),
            0.99,
        ),
        Rule("gpu_busy_pct", (GateCondition("max_decrease", 2.0),), 0.9),
        Rule("idle_ns[sync-drain]", (GateCondition("max", 50_000.0),), 0.9),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[step_time]\nmax_incraese = "3 %"', "line 2: unknown key 'max_incraese'.*max_increase?"),
        ("[step_time]", "line 1: the rule of step_ns has no condition"),
        ('[step_time]\nmax = "3 parsecs"', "line 2: max = '3 parsecs' is not such a quantity"),
        ('[step_time]\nmax_increase = "-3 %"', "line 2: max_increase of step_ns is negative"),
        ("[step_time]\nmax = true", "line 2: max = True is not such a quantity"),
        ("[step_time]\nmax = nan", "line 2: max = nan is not such a quantity"),
        ("[step_time]\nequals = 5", "line 2: step_ns varies between runs"),
        ('[step_time]\nmax = 1\nand_at_least = "1 ms"', "line 3: and_at_least needs max_increase"),
        ('certainty = "100 %"\n[step_time]\nmax = 1', "line 1: certainty = '100 %' is not from 50"),
        ("[step_time]\nmax = 1\n[step_ns]\nmax = 2", "step_ns has two tables"),
        ("step_time = 3", "line 1: 'step_time' is not a table of a figure"),
        ("", "has no rules"),
        ("[step_time]\nmax = 1\n[peak_memory_bytes]\nmax = '1 parsec'", "line 4: max = '1 parsec'"),
        ("[step_time", "is not valid TOML"),
        ("a = " + "[" * 5000, "is not valid TOML"),
    ],
)
def test_mistakes_are_one_line_with_the_place(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        rules(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_config(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not valid TOML"):
        read_config(tmp_path / "binary.toml")


def test_a_file_without_end_is_no_config():
    with pytest.raises(InputError, match=r"too large for a gate\.toml"):
        read_config(Path("/dev/zero"))
