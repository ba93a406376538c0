"""The request that a worker process receives as JSON."""

import pytest

from traceview.kernels.headless.compile_options import CompileOptions, Request


@pytest.mark.parametrize(
    "options",
    [
        CompileOptions(),
        CompileOptions(
            kernel="gelu",
            arch="sm_100a",
            signature="*fp32:16, i32",
            constexprs={"BLOCK": "1024", "TYPE": "tl.float16"},
            num_warps=8,
            num_stages=3,
            first_config=True,
            emulate=True,
            compile_torch=True,
            timeout_s=2.5,
            arguments=("--size", "é\n"),
        ),
    ],
)
def test_json_round_trip(options):
    request = Request("/tmp/gelu.py", None, "10.0", options)
    assert Request.from_json(request.to_json()) == request


def test_options_as_the_worker_reads_them():
    options = CompileOptions(constexprs={"BLOCK": "1024", "ON": "True"}, num_warps=8)
    assert options.constexpr_values == {"BLOCK": 1024, "ON": True}
    assert options.launch_options == {"num_warps": 8}


def test_a_string_is_one_argument():
    assert CompileOptions(arguments="--help").arguments == ("--help",)
