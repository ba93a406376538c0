"""Nsight Compute's CSV: units, languages, lines around it, and files that are none."""

import lzma
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.places import DATA
from traceview.base.errors import InputError
from traceview.kernels.ptx.producers import base_name
from traceview.traces.trace.ncu import (
    decimal_sign,
    factor,
    number,
    rate_factor,
    read_counters,
    seconds_in,
)

LAUNCH = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size"]
SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def sheet(metrics, *rows, units=None, sign=",", before="", after="", launch=LAUNCH):
    """A CSV with the named metrics; a row is a kernel's name and its values."""
    units = units or [""] * len(metrics)
    lines = [[*launch, *metrics], [*[""] * len(launch), *units]]
    for number_, (name, *values) in enumerate(rows):
        lines.append([str(number_), "77", name, "(128, 1, 1)", "(4, 2, 1)", *values])
    text = "\n".join(sign.join(f'"{cell}"' for cell in line) for line in lines)
    return f"{before}{text}\n{after}"


def read(tmp_path, text):
    path = tmp_path / "ncu.csv"
    path.write_text(text, encoding="utf-8")
    return read_counters(path)


def cells(tmp_path, text, *columns):
    table, _ = read(tmp_path, text)
    return [tuple(row[name] for name in columns) for row in table.rows()]


def test_a_launch(tmp_path):
    metrics = ["dram__bytes_read.sum", "dram__bytes_write.sum", *map(SASS.format, TRIO)]
    text = sheet(metrics, ["void ns::k<float>(int)", "1,000", "24", "5", "7", "11"])

    table, remarks = read(tmp_path, text)

    assert list(table.rows()) == [
        {
            "short_name": "k",
            "grid_x": 4,
            "grid_y": 2,
            "grid_z": 1,
            "block_x": 128,
            "block_y": 1,
            "block_z": 1,
            "process_id": 77,
            "bytes": 1024.0,
            "flop": 5.0 + 7 + 22,
            "flop_kind": "fp32",
        }
    ]
    assert "tensor-core FLOP" in remarks[0]


TRIO = ("fadd", "fmul", "ffma")


@pytest.mark.parametrize(
    ("unit", "value", "moved"),
    [
        ("byte", "1,073,819,136", 1_073_819_136),
        ("byte", "1073819136", 1_073_819_136),
        ("Kbyte", "42.75", 42_750),
        ("Mbyte", "1.07", 1_070_000),
        ("Gbyte", "1.07", 1_070_000_000),
        ("Tbyte", "1.5", 1_500_000_000_000),
        ("GB", "2", 2_000_000_000),
        ("furlong", "1", None),
        ("byte", "n/a", None),
        ("byte", "", None),
        ("byte", "nan", None),
        ("byte", "-5", None),
        ("byte", "inf", None),
        ("byte", "9" * 400, None),
    ],
)
def test_units(tmp_path, unit, value, moved):
    text = sheet(["dram__bytes.sum"], ["k", value], units=[unit])

    [(found,)] = cells(tmp_path, text, "bytes")
    assert found == (None if moved is None else pytest.approx(moved))


def test_either_print_units_gives_the_same(tmp_path):
    names = ["dram__bytes.sum.per_second", "gpu__time_duration.sum"]
    scaled = sheet(names, ["k", "4.20", "502.46"], units=["Tbyte/s", "us"])
    base = sheet(names, ["k", "4,200,000,000,000", "502,460"], units=["byte/second", "ns"])

    moved = [cells(tmp_path, text, "bytes")[0][0] for text in (scaled, base)]
    assert moved == [pytest.approx(4.2e12 * 502.46e-6)] * 2


@pytest.mark.parametrize("sign", [",", ";", "\t"])
def test_a_german_machine(tmp_path, sign):
    metrics = ["dram__bytes_read.sum", "dram__bytes_write.sum"]
    text = sheet(metrics, ["k", "1.073.819.136", "1.024"], units=["byte"] * 2, sign=sign)

    assert cells(tmp_path, text, "bytes") == [(1_073_819_136.0 + 1024,)]


def test_lines_of_the_program_and_of_ncu(tmp_path):
    before = "==PROF== Connected to process 798\nloss 0.3\n\n"
    text = sheet(["dram__bytes.sum"], ["a", "5"], before=before, after="==PROF== Disconnected\n")

    assert cells(tmp_path, text, "short_name", "bytes") == [("a", 5.0)]


def test_half_a_line_is_left_out(tmp_path):
    text = sheet(["dram__bytes.sum"], ["a", "5"], ["b", "6"])

    assert cells(tmp_path, text[: text.rindex('"(4')], "short_name") == [("a",)]


def test_without_sizes_the_launch_metrics_serve(tmp_path):
    sides = [f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz"]
    text = sheet(["dram__bytes.sum", *sides], ["a", "5", "1,056", "1", "1", "256", "1", "1"])
    text = text.replace("Block Size", "Block").replace("Grid Size", "Grid")

    assert cells(tmp_path, text, "grid_x", "block_x") == [(1056, 256)]


def test_flop_of_tensor_cores_are_not_counted_twice(tmp_path):
    metrics = [
        "sm__ops_path_tensor_src_fp16.sum",
        "sm__ops_path_tensor_src_fp16_dst_fp32.sum",
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
        "sm__ops_path_tensor_src_fp8_sparsity_on.sum",
        "sm__ops_path_tensor_op_hgmma_src_fp16.sum",
        "sm__ops_path_tensor_src_int1.sum",
    ]
    text = sheet(metrics, ["k", "100", "60", "7", "9", "9", "9"])

    assert cells(tmp_path, text, "flop", "flop_kind") == [(107.0, "fp16")]


def test_half_precision_works_on_pairs(tmp_path):
    metrics = [SASS.format(f"h{what}") for what in ("add", "mul", "fma")]

    assert cells(tmp_path, sheet(metrics, ["k", "1", "2", "4"]), "flop", "flop_kind") == [
        (2 * (1 + 2 + 2 * 4), "fp16-lanes")
    ]


def test_a_precision_without_all_of_its_counters_does_not_count(tmp_path):
    text = sheet(["dram__bytes.sum", SASS.format("fadd")], ["k", "1", "2"])

    assert cells(tmp_path, text, "bytes", "flop") == [(1.0, None)]


def test_a_product_without_flop_was_not_counted(tmp_path):
    text = sheet([*map(SASS.format, TRIO)], ["my_gemm_kernel", "0", "0", "0"], ["copy", *"000"])

    assert cells(tmp_path, text, "short_name", "flop") == [("my_gemm_kernel", None), ("copy", 0.0)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is empty"),
        ("a,b,c\n1,2,3\n", "it starts with 'a,b,c'"),
        ("SQLite format 3\x00" + "\x00" * 100, "it starts with"),
        ("\n" * 1000, "it is empty"),
        ('"ID","Process ID","Kernel Name","Metric Name"\n', "one metric per line"),
        (sheet(["gpu__cycles.max"], ["k", "5"]), "no metrics of device-memory bytes"),
        (sheet(["dram__bytes.sum"], ["k", "5"]).split("\n")[0], "no row of units"),
        (sheet(["dram__bytes.sum"], ["k" * 200_000, "5"]), "field larger"),
        (sheet(["dram__bytes.sum"], ["k", "5"])[:-2] + "\n" + "x" * 200_000, "field larger"),
    ],
)
def test_what_is_no_csv_of_ncu(tmp_path, content, said):
    with pytest.raises(InputError) as error:
        read(tmp_path, content)
    assert said in error.value.what
    assert "ncu --csv --page raw" in str(error.value)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "report.ncu-rep"
    path.write_bytes(bytes(range(256)) * 1000)
    with pytest.raises(InputError, match="not a CSV file of Nsight Compute"):
        read_counters(path)
    with pytest.raises(InputError, match="cannot read"):
        read_counters(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="cannot read"):
        read_counters(tmp_path)


def test_many_launches_are_read_in_seconds(tmp_path):
    row = ["void a::b::k<float, (c)1>(int, T2 *) " + "x" * 300, "1,073,819,136"]
    text = sheet(["dram__bytes.sum"], *[row] * 20_000)

    begun = time.process_time()
    table, _ = read(tmp_path, text)
    assert len(table) == 20_000
    assert time.process_time() - begun < 20


@pytest.mark.parametrize(
    ("whole", "base"),
    [
        ("gelu_kernel", "gelu_kernel"),
        (
            "void at::<unnamed>::k_1<float, 4, void f::g<int>(int)::[lambda() (instance 1)]>(T *)",
            "k_1",
        ),
        ("void (anonymous namespace)::k<(a::B)1>(int)", "k"),
        ("at::native::k(int)", "k"),
        ("void at::native::(anonymous namespace)::cat<int, 4>(int*)", "cat"),
        ("void a::b<c::d<e>, 2>::run<f>(g)", "run"),
        ("operator<", "operator"),
        ("(((", "((("),
        ("", ""),
    ],
)
def test_base_names(whole, base):
    assert base_name(whole) == base


@given(st.text(max_size=60))
def test_no_cell_is_too_strange(cell):
    base_name(cell)
    number(cell, decimal_sign([cell, "1.000.000"]))
    factor(cell), rate_factor(cell), seconds_in(cell)


def test_base_names_are_those_that_nsys_gives(unpack):
    """Of every kernel of the shipped CSV."""
    from traceview.traces.trace.load import load

    text = lzma.decompress((DATA / "rates.ncu.csv.xz").read_bytes()).decode()
    assert "==PROF==" not in text
    path = unpack("metrics").with_name("rates.ncu.csv")
    path.write_text(text)
    counted, _ = read_counters(path)
    assert set(counted.cells("short_name")) == set(
        load(unpack("metrics")).kernels.cells("short_name")
    )


def test_numbers_beyond_any_column_are_cut(tmp_path):
    path = tmp_path / "x.csv"
    header = '"ID","Process ID","Kernel Name","launch__grid_dim_x","launch__grid_dim_y",'
    header += '"launch__grid_dim_z","Block Size","dram__bytes_read.sum"'
    row = f'"0","{"9" * 22}","k","{"9" * 22}","1","1","(1, 1, 1)","5"'
    path.write_text(f'{header}\n"","","","","","","","byte"\n{row}\n')
    table, _ = read_counters(path)
    assert next(table.rows())["grid_x"] == next(table.rows())["process_id"] == 1 << 62
