"""Types of tensors that only a caller in another file shows, in the forms that projects use."""

import pytest

from tests.headless.project.test_launch_arguments import KERNEL
from traceview.kernels.headless.project.assumed_tensor import AssumedTensor
from traceview.kernels.headless.project.call_sites import call_sites, calls_elsewhere
from traceview.kernels.headless.project.launch_arguments import launch_arguments

torch = pytest.importorskip("torch")

LAUNCH = "kernel[(1,)](x, y, None, x.stride(0), n, BLOCK=64)"
WRAPPERS = {
    "launches": f"def decode(x, y, n: int):\n    {LAUNCH}\n",
    "calls what launches": (
        "def decode(x, y, n: int):\n    rows = x.shape[0]\n    return _launch(x, y, rows)\n"
        f"def _launch(x, y, n):\n    {LAUNCH}\n"
    ),
    "is of autograd": (
        "class Decode(torch.autograd.Function):\n    @staticmethod\n"
        f"    def forward(ctx, x, y, n):\n        {LAUNCH}\n"
        "def decode(x, y, n: int):\n    return Decode.apply(x, y, n)\n"
    ),
}
PLACES = ["tests/test_decode.py", "benchmarks/decode.py", "pkg/model.py", "test_it.py"]
CALLS = {
    "from pkg.ops import decode\n": "decode",
    "from pkg import ops\n": "ops.decode",
    "import pkg.ops as fast\n": "fast.decode",
    "from pkg.ops import decode as run, other\nimport pkg\n": "pkg.ops.decode",
}
TYPES = {
    "y = torch.empty(8, 64, dtype=torch.int8)": "int8",
    "y = torch.randn(8, 64, device='cuda').bfloat16()": "bfloat16",
    "y = torch.randn(8, 64).to(torch.float8_e4m3fn).cuda()": "float8_e4m3fn",
    "kw = dict(device='cuda', dtype=torch.bfloat16)\n    y = torch.zeros(8, 64, **kw)": "bfloat16",
    "y = torch.randn(8, 64).abs().mul(2).half()": "float16",
    "for kind in (torch.uint8, torch.int8):\n        y = torch.ones(8, dtype=kind)": "uint8",
    "y = torch.randn(8, 64)": "float32",
}


def dtype_of_y(folder, wrapper, place="", caller=""):
    """The type of y at the launch in pkg/ops.py, which a file at `place` calls."""
    files = {"pkg/ops.py": f"import torch\n{wrapper}", "pyproject.toml": "", place: caller}
    for name, text in files.items():
        if name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    calls_elsewhere.cache_clear()
    (site,) = call_sites("kernel", folder / "pkg/ops.py", folder)
    found = launch_arguments(site, KERNEL, {"torch": torch}, folder).values.get("y")
    return str(found.dtype).removeprefix("torch.") if isinstance(found, AssumedTensor) else ""


def caller(imports, call, of_y):
    return f"import torch\n{imports}def test_it():\n    {of_y}\n    {call}(y, y, 3)\n"


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("place", PLACES)
def test_the_type_that_another_file_passes(tmp_path, wrapper, place):
    for number, (imports, call) in enumerate(CALLS.items()):
        of_y, dtype = list(TYPES.items())[number]
        written = caller(imports, call, of_y)
        assert dtype_of_y(tmp_path / str(number), wrapper, place, written) == dtype


@pytest.mark.parametrize(("of_y", "dtype"), TYPES.items())
def test_each_way_to_make_a_tensor(tmp_path, of_y, dtype):
    written = caller("from pkg.ops import decode\n", "decode", of_y)
    assert dtype_of_y(tmp_path, WRAPPERS["launches"], PLACES[0], written) == dtype


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ("'dtype', [torch.float32, torch.bfloat16]", "bfloat16"),
        ("'n, dtype', [(1, torch.float32), (2, torch.float32)]", "float32"),
        ("['dtype'], [[torch.int8], [torch.uint8]]", "int8"),
    ],
)
def test_a_type_that_pytest_passes(tmp_path, values, dtype):
    written = (
        "import pytest, torch\nfrom pkg.ops import decode\n"
        f"@pytest.mark.parametrize({values})\n"
        "def test_it(dtype, n=1):\n    y = torch.empty(8, 64, dtype=dtype)\n    decode(y, y, n)\n"
    )
    assert dtype_of_y(tmp_path, WRAPPERS["launches"], PLACES[0], written) == dtype


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from torch.nn.functional import decode\n", "decode"),
        ("import other\n", "other.decode"),
        ("from elsewhere import decode\n", "decode"),
        ("def decode(*_): pass\n", "decode"),
    ],
)
def test_a_function_of_the_same_name_from_elsewhere_says_nothing(tmp_path, imports, call):
    written = caller(imports, call, next(iter(TYPES)))
    assert dtype_of_y(tmp_path, WRAPPERS["launches"], PLACES[0], written) == ""
    assert dtype_of_y(tmp_path, WRAPPERS["launches"]) == ""


def test_what_the_module_itself_says_comes_first(tmp_path):
    own = WRAPPERS["launches"].replace("    kernel", "    y = y.to(torch.int16)\n    kernel")
    written = caller("from pkg.ops import decode\n", "decode", next(iter(TYPES)))
    assert dtype_of_y(tmp_path, own, PLACES[0], written) == "int16"
