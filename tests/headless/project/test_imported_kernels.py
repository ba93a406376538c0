"""A kernel that is asked for by name and that only a file which the script imports defines."""

from importlib.util import find_spec
from pathlib import Path

import pytest

import traceview
from traceview.base.errors import InputError
from traceview.cli import run

pytestmark = [
    pytest.mark.skipif(
        find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
    ),
    pytest.mark.programs,
]
KERNELS = "import triton\nimport triton.language as tl\n" + "".join(
    f"""

@triton.jit
def {name}(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, {value}, mask=at < n)
"""
    for name, value in (("fill", 1.0), ("clear", 0.0))
)
LAUNCH = "import torch\n{}\nops.clear[(4,)](torch.empty(4096, device='cuda'), 4096, BLOCK=1024)\n"
SCRIPTS = {
    "by name": "from ops import fill\n",
    "of a module": "import ops\n",
    "under another name": "from ops import fill as clear\n",
    "by a file between": "import between\n",
    "in a function": "def run():\n    from ops import fill as f\n    return f\n",
    "beside a launch": LAUNCH.format("import ops"),
}


def written(folder: Path, script: str) -> Path:
    (folder / "ops.py").write_text(KERNELS)
    (folder / "between.py").write_text("import ops\n")
    (folder / "script.py").write_text(script)
    return folder / "script.py"


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_the_kernel_of_an_imported_file_is_answered_with_its_place(tmp_path, script, capsys):
    path = written(tmp_path, script)
    assert run(["ptx", f"{path}:fill"]) == 0
    shown = capsys.readouterr()
    assert f"fill is in {tmp_path / 'ops.py'}" in shown.err
    assert "ops.py:8" in shown.out
    assert "clear" not in shown.out
    assert run(["ptx", f"{path}:fil"]) == 1
    assert "--signature" not in capsys.readouterr().err


def test_a_script_without_a_kernel_names_one_that_it_imports(tmp_path):
    path = written(tmp_path, "import ops\n")
    with pytest.raises(InputError) as caught:
        traceview.inspect_ptx(path)
    assert caught.value.remedy == f"name {tmp_path / 'ops.py'}:fill, or a launching script"


def test_of_two_imported_kernels_of_one_name_neither_is_chosen(tmp_path):
    path = written(tmp_path, "import ops, others\n")
    (tmp_path / "others.py").write_text(KERNELS)
    with pytest.raises(InputError, match="imports 2 kernels 'fill'") as caught:
        traceview.inspect_ptx(f"{path}:fill")
    for name in ("ops.py", "others.py"):
        assert f"{tmp_path / name}:fill" in caught.value.remedy
