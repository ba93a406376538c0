"""The code of kernels built into a recorded program, in its trace."""

import pytest

from tests.build import Export
from tests.ptx.compiled_kernels import ptx_kernel
from tests.ptx.sass.fatbins import LZ4, ZSTD, entry, fatbin
from traceview.traces.facts.code import gathered_code
from traceview.traces.recorders import program_code
from traceview.traces.trace.load import load

PTX = ptx_kernel("ld.global.f32 %r3, [%rd3];")


def recorded(folder, names):
    """A trace in which these kernels ran, each longer than the one before it."""
    export = Export()
    for number, name in enumerate(names):
        at = 1_000_000 * number
        export.launch(
            (at, at + 10),
            (at + 20, at + 1_000 * (number + 2)),
            name=name,
            mangledName=export.string(name),
        )
    path = folder / "t.sqlite"
    export.drop("TRACEVIEW_KERNELS").write(path)
    return path


def program(folder, names, compressed=0):
    path = folder / "program"
    texts = [PTX.replace(".entry k(", f".entry {name}(") for name in names]
    path.write_bytes(fatbin(*(entry(1, 90, text.encode(), compressed) for text in texts)))
    return str(path)


@pytest.mark.parametrize("compressed", [0, LZ4, ZSTD])
@pytest.mark.parametrize("words", [(), ("--size", "100"), ("absent-of-all.txt",)])
def test_the_kernels_that_ran_are_stored(tmp_path, compressed, words):
    path = recorded(tmp_path, ["_Z4stepPf", "_Z3sumPf", "of_a_library"])
    built = program(tmp_path, ["_Z4stepPf", "_Z3sumPf", "_Z5neverPf"], compressed)
    command = ["mpirun", "-n", "2", built, *words]
    assert program_code.write_program_code(path, command) == 2
    code = gathered_code(load(path))
    assert [each.compiled.name for each in code.launched] == ["_Z3sumPf", "_Z4stepPf"]
    assert all(each.compiled.ptx for each in code.launched)


def test_the_longest_are_stored_where_there_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(program_code, "_MOST_KERNELS", 3)
    names = [f"_Z2k{number}Pf" for number in range(8)]
    path = recorded(tmp_path, names)
    assert program_code.write_program_code(path, [program(tmp_path, names)]) == 3
    launched = gathered_code(load(path)).launched
    assert [each.compiled.name for each in launched] == names[:-4:-1]


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh", b"\x7fELF", fatbin()[:8], b"\x50\xed\x55\xba"]
)
def test_what_cannot_be_read_adds_nothing(tmp_path, content):
    path = recorded(tmp_path, ["_Z4stepPf"])
    (tmp_path / "program").write_bytes(content)
    assert program_code.write_program_code(path, [str(tmp_path / "program"), "absent"]) == 0
    assert "kernel_code" not in load(path).tables


def test_a_trace_without_kernels_is_left_alone(tmp_path):
    path = recorded(tmp_path, [])
    assert program_code.write_program_code(path, [program(tmp_path, ["_Z4stepPf"])]) == 0
