"""Run a notebook's code cells and save what they show, as text; needs no Jupyter.

    python scripts/run_notebook.py docs/python.ipynb

Outputs are the `repr` of each cell's last expression, so that the file stays small and readable
without running it. A notebook server shows the HTML of the same values instead.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any


def run(notebook: dict[str, Any]) -> list[object]:
    """The value of each code cell's last expression, None for a cell that ends in a statement."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    return [
        _run_cell("".join(cell["source"]), namespace)
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def _run_cell(source: str, namespace: dict[str, object]) -> object:
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec", dont_inherit=True), namespace)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "<cell>", "eval", dont_inherit=True), namespace)


def shown(value: object) -> list[dict[str, Any]]:
    """The outputs of a cell, as a notebook stores them."""
    if value is None:
        return []
    text = repr(value).splitlines(keepends=True)
    data = {"data": {"text/plain": text}, "metadata": {}, "execution_count": None}
    return [{"output_type": "execute_result", **data}]


def main(path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, value in zip(cells, run(notebook), strict=True):
        cell["outputs"] = shown(value)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
