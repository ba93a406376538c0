"""Names in bars of the timeline: whole, by their number or first words, never in pieces."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import traceview

MODULE = Path(traceview.__file__).parent / "render/script/timeline/canvas/names.js"
NODE = shutil.which("node")

CASES = [
    ("launch-late", 11, "launch-late"),
    ("launch-late", 10, "launch…"),
    ("launch-late", 6, ""),
    ("cudaStreamSynchronize", 15, "cudaStream…"),
    ("cudaStreamSynchronize", 8, ""),
    ("step_11", 6, "…11"),
    ("step_11", 2, ""),
    ("epoch_0/batch_5", 10, "…/batch_5"),
    ("epoch_0/batch_5", 4, "…5"),
    ("cuBLAS fp32 GEMM 128×128×8 TN", 20, "cuBLAS fp32 GEMM…"),
    ("train.py:46 in load", 14, "train.py:46…"),
    ("reduce sum fp32 256", 12, "reduce sum…"),
    ("x" * 500, 20, "x" * 19 + "…"),
    ("x" * 500, 12, ""),
]


@pytest.mark.skipif(NODE is None, reason="no node here")
def test_a_name_is_shortened_by_whole_words():
    script = (
        f"import {{ fitted }} from {json.dumps(MODULE.as_uri())};"
        f"const cases = {json.dumps(CASES)};"
        "console.log(JSON.stringify(cases.map(([text, room]) =>"
        " fitted(text, (part) => [...part].length <= room))));"
    )
    command = [NODE, "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [expected for _, _, expected in CASES]
