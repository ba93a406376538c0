"""The package of a file, by its folders and its relative imports."""

import ast

import pytest

from traceview.kernels.headless.project.package import package_of, project_folders

NOTHING = ast.parse("")
RELATIVE = ast.parse("from ..ops import gelu")


@pytest.fixture
def tree(tmp_path):
    def make(*files):
        for file in files:
            path = tmp_path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return tmp_path

    return make


def test_a_script_belongs_to_no_package(tree):
    assert package_of(tree("gelu.py") / "gelu.py", NOTHING) is None


def test_the_outermost_folder_with_an_init_is_the_top(tree):
    root = tree("src/ops/__init__.py", "src/ops/act/__init__.py", "src/ops/act/gelu.py")
    package = package_of(root / "src/ops/act/gelu.py", NOTHING)
    assert (package.root, package.module) == (root / "src", "ops.act.gelu")
    assert (package.top, package.parent) == ("ops", "ops.act")


def test_a_folder_without_init_inside_a_package_belongs_to_it(tree):
    root = tree("awq/__init__.py", "awq/modules/__init__.py", "awq/modules/triton/gemm.py")
    package = package_of(root / "awq/modules/triton/gemm.py", NOTHING)
    assert (package.root, package.module) == (root, "awq.modules.triton.gemm")


@pytest.mark.parametrize("name", ["triton", "torch", "numpy", "cuda"])
@pytest.mark.parametrize(("above", "text"), [("ops", ""), ("a/ops", "from ..x import y")])
@pytest.mark.parametrize("has_init", [True, False])
def test_a_folder_named_as_what_kernels_are_made_of(tree, name, above, text, has_init):
    file = f"{above}/{name}/gelu.py"
    root = tree(file, f"{above}/{name}/{'__init__' if has_init else 'other'}.py")
    package = package_of(root / file, ast.parse(text))
    if not has_init and not text:
        assert package is None
    elif name == "cuda" and has_init and not text:
        assert package.module == "cuda.gelu"
    else:
        assert package.module.endswith(f"ops.{name}.gelu")


def test_relative_imports_find_the_project(tree):
    root = tree("pyproject.toml", "kernels/layers/norm.py", "kernels/ops/gelu.py")
    package = package_of(root / "kernels/layers/norm.py", RELATIVE)
    assert (package.root, package.module) == (root, "kernels.layers.norm")
    assert package.project == root


@pytest.mark.parametrize("project", ["", "pyproject.toml"])
@pytest.mark.parametrize(("level", "module"), [(1, "gpu.norm"), (2, "ops.gpu.norm"), (3, None)])
def test_relative_imports_may_reach_above_the_folders_with_an_init(tree, level, module, project):
    root = tree(f"{project or 'readme'}", "lib/ops/gpu/__init__.py", "lib/ops/gpu/norm.py")
    tree_of = ast.parse(f"from {'.' * level}names import LIBRARY")
    package = package_of(root / "lib/ops/gpu/norm.py", tree_of)
    whole = "lib.ops.gpu.norm"
    assert package.module == (whole if project and level > 1 else module or whole)


def test_a_script_beside_no_package_with_absolute_imports_is_a_script(tree):
    root = tree("pyproject.toml", "examples/run.py")
    assert package_of(root / "examples/run.py", ast.parse("import torch")) is None


def test_a_file_that_imports_from_its_own_folder_by_name_belongs_to_it(tree):
    root = tree("kernels/softmax.py", "kernels/shared/tiles.py", "elsewhere/tiles.py")
    own = ast.parse("from kernels.shared.tiles import cdiv")
    package = package_of(root / "kernels/softmax.py", own)
    assert (package.root, package.module) == (root, "kernels.softmax")
    others = ("import kernels", "from kernels.gone import cdiv", "import elsewhere.tiles")
    for text in others:
        assert package_of(root / "kernels/softmax.py", ast.parse(text)) is None, text


@pytest.mark.parametrize("above", [("app",), ("app", "app/lib")])
def test_a_copied_package_keeps_the_name_it_imports_itself_by(tree, above):
    root = tree(*(f"{f}/__init__.py" for f in above), "app/lib/tiles/__init__.py",
                "app/lib/tiles/ops/__init__.py", "app/lib/tiles/ops/a.py")  # fmt: skip
    for text, expected in [
        ("from tiles.ops import a", (root / "app/lib", "tiles.ops.a")),
        ("from .b import c\nfrom tiles.ops.a import d", (root / "app/lib", "tiles.ops.a")),
        ("from ...b import c\nfrom tiles.ops.a import d", (root, "app.lib.tiles.ops.a")),
        ("from app.lib.tiles.ops import a", (root, "app.lib.tiles.ops.a")),
    ]:
        package = package_of(root / "app/lib/tiles/ops/a.py", ast.parse(text))
        assert (package.root, package.module) == expected, text


def test_the_packages_of_a_project_lie_in_its_root_and_in_src(tree):
    root = tree("setup.py", "src/ops/__init__.py", "tests/fast/test_ops.py")
    assert project_folders(root / "tests/fast/test_ops.py") == [root, root / "src"]
