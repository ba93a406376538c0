"""Paths of sources beyond ASCII, which each compiler escapes in its own way."""

import pytest

from traceview.kernels.ptx.disassembly import parse
from traceview.kernels.ptx.model import SourceLine, source_path
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.ptx.stages import stage_lines

PATH = "/home/josé/日本.py"
PTX = r"/home/jos\303\251/\346\227\245\346\234\254.py"
MLIR = r"/home/jos\C3\A9/\E6\97\A5\E6\9C\AC.py"


@pytest.mark.parametrize(
    ("written", "path"),
    [
        (PTX, PATH),
        (MLIR, PATH),
        (PATH, PATH),
        (r"C:\ABC\k.cu", r"C:\ABC\k.cu"),
        (r"/tmp/\377\376.py", r"/tmp/\377\376.py"),
        ("/tmp/\udcff\\303\\251.py", "/tmp/\udcff\\303\\251.py"),
    ],
)
def test_escaped_bytes_are_read_where_they_are_text(written, path):
    assert source_path(written) == path


def test_all_levels_of_the_code_name_the_same_file():
    ptx = parse_ptx(
        ".version 8.7\n.target sm_90\n.address_size 64\n"
        f'.visible .entry k() {{\n.loc 1 7 0\n ret;\n}}\n.file 1 "{PTX}"\n'
    )
    sass = parse(
        '        .type           k,@function\n        .other          k,@"STO_CUDA_ENTRY"\nk:\n'
        f'\t//## File "{PTX}", line 7\n        /*0000*/                   EXIT ;\n'
    )
    ttir = stage_lines("ttir", f'  tt.return loc(#loc1)\n#loc1 = loc("{MLIR}":7:0)\n')
    folder, _, name = MLIR.rpartition("/")
    llir = stage_lines(
        "llir",
        "define void @k() {\n  ret void, !dbg !1\n}\n"
        "!1 = !DILocation(line: 7, column: 1, scope: !2)\n!2 = distinct !DISubprogram(file: !3)\n"
        f'!3 = !DIFile(filename: "{name}", directory: "{folder}")\n',
    )
    here = SourceLine(PATH, 7)
    assert ptx.kernels()[0].instructions[0].source == here
    assert sass.functions[0].instructions[0].source == here
    assert ttir[0].source == here
    assert [line.source for line in llir if "ret" in line.text] == [here]
