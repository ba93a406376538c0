"""`traceview export`: writes a whole file or none, and never over another one unasked."""

import gzip

from traceview.cli import run


def test_export_writes_and_says_so(unpack, tmp_path, capsys):
    out = tmp_path / "out.pftrace"
    assert run(["export", str(unpack("mlp_sync")), "--perfetto", str(out)]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"Wrote {out}\n")
    assert out.stat().st_size > 100_000


def test_a_file_is_replaced_with_force_only(unpack, tmp_path, capsys):
    out = tmp_path / "out.pftrace.gz"
    out.write_text("mine")
    command = ["export", str(unpack("mlp_sync")), "--perfetto", str(out)]
    assert run(command) == 1
    assert out.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert run([*command, "--force"]) == 0
    assert gzip.decompress(out.read_bytes())


def test_what_fails_leaves_no_file(tmp_path, capsys):
    source = tmp_path / "damaged.sqlite"
    source.write_bytes(b"SQLite format 3\0" + b"x" * 500)
    assert run(["export", str(source), "--perfetto", str(tmp_path / "out.pftrace")]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.sqlite"]
    assert capsys.readouterr().err.count("\n") == 1


def test_misuse_exits_2(tmp_path, capsys):
    assert run(["export", "a.sqlite"]) == 2
    assert run(["export", "a.sqlite", "--perfetto", "-"]) == 2
    assert "name a file" in capsys.readouterr().err
