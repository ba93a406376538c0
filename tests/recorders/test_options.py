"""The command line for nsys: what is asked for, as far as the tool at hand has it."""

import pytest

from tests.recorders import fake_nsys
from traceview.base.errors import InputError, RecordingError
from traceview.traces.recorders.nsys import Nsys, incompatibility
from traceview.traces.recorders.options import (
    Abilities,
    RecordOptions,
    abilities,
    blind_spots,
    profile_command,
)


@pytest.fixture
def tool(tmp_path):
    return Nsys(fake_nsys.nsys(tmp_path / "nsys"), "2025.3.1.0", (2025, 3))


def line(tool, tmp_path, options=None, able=None):
    chosen = options or RecordOptions()
    report = tmp_path / "out.nsys-rep"
    return profile_command(tool, able or abilities(tool), chosen, report, ["python", "a b.py"])


def test_the_defaults(tool, tmp_path):
    assert line(tool, tmp_path) == [
        str(tool.path),
        "profile",
        "--trace=cuda,nvtx,cublas",
        "--cuda-memory-usage=true",
        "--cuda-graph-trace=node",
        "--cudabacktrace=sync:0",
        "--sample=process-tree",
        "--backtrace=none",
        "--sampling-period=16000000",
        "--cpuctxsw=none",
        f"--output={tmp_path}/out.nsys-rep",
        "python",
        "a b.py",
    ]


def test_each_choice(tool, tmp_path):
    options = RecordOptions("nvtx", "graph", "none", gpu_metrics=True, nsys_options=("--delay=5",))
    command = line(tool, tmp_path, options)
    assert {"--trace=nvtx", "--cuda-graph-trace=graph", "--sample=none"} <= set(command)
    assert not [word for word in command if "backtrace" in word]
    assert "--gpu-metrics-device=all" in command
    assert command.index("--delay=5") > command.index("--trace=nvtx")


def test_native_samples(tool, tmp_path):
    command = line(tool, tmp_path, RecordOptions(native_samples=True))
    assert {"--trace=cuda,nvtx,cublas,osrt", "--sample=process-tree"} <= set(command)
    assert {"--cpuctxsw=process-tree", "--cudabacktrace=sync:0"} <= set(command)
    assert not [word for word in command if word.startswith(("--backtrace", "--sampling-period"))]


def test_native_samples_without_call_chains(tool, tmp_path):
    options = RecordOptions("cuda,osrt", backtrace="none", native_samples=True)
    command = line(tool, tmp_path, options)
    assert {"--trace=cuda,osrt", "--sample=process-tree"} <= set(command)


def test_native_samples_where_nsys_may_not_sample(tool, tmp_path):
    """Calls of the operating system are still recorded, and what is missing is said."""
    able = Abilities(frozenset({"--sample", "--cpuctxsw", "--trace"}), None, can_sample=False)
    options = RecordOptions(native_samples=True, backtrace="none")
    command = line(tool, tmp_path, options, able)
    assert {"--trace=cuda,nvtx,cublas,osrt", "--sample=none", "--cpuctxsw=none"} <= set(command)
    [said] = blind_spots(options, able)
    assert said.startswith("C++ call chains and CPU samples are not recorded")
    assert "perf_event_paranoid" in said


def test_shapes_of_tensors(tool, tmp_path):
    able = Abilities(frozenset({"--pytorch"}), None, can_sample=True)
    assert "--pytorch=autograd-shapes-nvtx" in line(
        tool, tmp_path, RecordOptions(shapes=True), able
    )
    assert not blind_spots(RecordOptions(shapes=True), able)


def test_an_nsys_that_cannot_tell_shapes_is_said(tool, tmp_path):
    able = Abilities(frozenset({"--trace"}), None, can_sample=True)
    assert not [
        word for word in line(tool, tmp_path, RecordOptions(shapes=True), able) if "torch" in word
    ]
    [said] = blind_spots(RecordOptions(shapes=True), able)
    assert said.startswith("tensor shapes are not recorded, because this nsys has no --pytorch")


def test_what_the_tool_does_not_have_is_left_out(tool, tmp_path):
    able = Abilities(frozenset({"--trace"}), None, can_sample=True)
    words = [word for word in line(tool, tmp_path, able=able) if word.startswith("--")]
    assert words == ["--trace=cuda,nvtx,cublas", f"--output={tmp_path}/out.nsys-rep"]


def test_an_extra_option_alone_is_no_list_of_letters(tool, tmp_path):
    assert RecordOptions(nsys_options="--delay=5").nsys_options == ("--delay=5",)
    assert "--delay=5" in line(tool, tmp_path, RecordOptions(nsys_options="--delay=5"))


def test_an_extra_option_takes_the_place_of_ours(tool, tmp_path):
    command = line(
        tool, tmp_path, RecordOptions(nsys_options=("--cpuctxsw=process-tree", "-s", "none"))
    )
    assert not {"--cpuctxsw=none", "--sample=process-tree"} & set(command)
    assert command[-6:-3] == ["--cpuctxsw=process-tree", "-s", "none"]


@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        (RecordOptions(), True),
        (RecordOptions("cuda"), False),
        (RecordOptions(range_name="XlaModule"), False),
        (RecordOptions(nsys_options=("--nvtx-domain-include=TSL",)), False),
    ],
)
def test_ranges_of_xla_that_nsys_cannot_import_are_left_out(tmp_path, options, left_out):
    names = ("trace", "capture-range", "capture-range-end", "nvtx-domain-[include|exclude]")
    help_text = "".join(f"\t--{name}=\n\n\t   Text.\n\n" for name in names)
    tool = Nsys(fake_nsys.nsys(tmp_path / "nsys", options=help_text), "2025.3.1.0", (2025, 3))

    assert ("--nvtx-domain-exclude=TSL" in line(tool, tmp_path, options)) == left_out


def test_newer_name_of_gpu_metrics(tool, tmp_path):
    able = Abilities(frozenset({"--gpu-metrics-devices"}), None, can_sample=True)
    assert "--gpu-metrics-devices=all" in line(
        tool, tmp_path, RecordOptions(gpu_metrics=True), able
    )


def test_a_percent_sign_in_the_output_is_no_pattern(tool, tmp_path):
    report = tmp_path / "50%q{HOME}"
    command = profile_command(tool, abilities(tool), RecordOptions(), report, ["true"])
    assert f"--output={tmp_path}/50%%q{{HOME}}" in command


def test_without_the_right_to_sample_call_chains_are_left_out_and_that_is_said(tmp_path):
    status = "CPU Profiling Environment (process-tree): Fail"
    tool = Nsys(fake_nsys.nsys(tmp_path / "nsys", status=status), "2025.3.1.0", (2025, 3))
    able = abilities(tool)
    assert "--sample=none" in line(tool, tmp_path, able=able)
    assert "perf_event_paranoid" in blind_spots(RecordOptions(), able)[0]
    assert blind_spots(RecordOptions(backtrace="none"), able) == []


def test_a_tool_without_options(tmp_path):
    tool = Nsys(fake_nsys.script(tmp_path / "nsys", "echo Killed; exit 9"), "2025.3", (2025, 3))
    with pytest.raises(RecordingError, match="does not list its options \\(Killed\\)"):
        abilities(tool)


@pytest.mark.parametrize(
    ("nvtx", "version", "told"),
    [
        ("0.2.12", (2024, 2), True),
        ("0.2.17", (2023, 4), True),
        ("0.2.11", (2023, 4), False),
        ("0.2.17", (2024, 4), False),
        ("0.3.0rc1", (2022, 4), True),
        (None, (2023, 4), False),
    ],
)
def test_nvtx_that_is_too_new(tmp_path, nvtx, version, told):
    line = incompatibility(nvtx, Nsys(tmp_path, "2023.4", version))
    assert bool(line) == told
    assert not told or "nvtx<0.2.12" in line


CAPTURES = Abilities(
    frozenset({"--trace", "--capture-range", "--nvtx-capture", "--capture-range-end", "--env-var"}),
    None,
    can_sample=False,
)


def test_a_range_bounds_the_recording(tool, tmp_path):
    command = line(tool, tmp_path, RecordOptions(range_name="a b"), CAPTURES)
    assert {"--capture-range=nvtx", "--nvtx-capture=a b@*", "--capture-range-end=stop"} <= set(
        command
    )
    assert any(word.endswith(",NSYS_NVTX_PROFILER_REGISTER_ONLY=0") for word in command)


def test_steps_bound_the_recording(tool, tmp_path):
    command = line(tool, tmp_path, RecordOptions(steps=(10, 20)), CAPTURES)
    assert {"--capture-range=cudaProfilerApi", "--capture-range-end=stop"} <= set(command)
    assert not [word for word in command if "REGISTER_ONLY" in word]


def test_an_nsys_without_capture_ranges(tool, tmp_path):
    with pytest.raises(RecordingError, match="no capture ranges"):
        line(tool, tmp_path, RecordOptions(steps=(1, 2)))


@pytest.mark.parametrize("bounds", [{"steps": (5, 5)}, {"steps": (1, 2), "range_name": "x"}])
def test_bounds_that_are_none(bounds):
    with pytest.raises(InputError):
        RecordOptions(**bounds)
