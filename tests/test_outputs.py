"""No output file replaces anything by accident."""

import errno
from pathlib import Path

import pytest

from traceview.base.errors import InputError, OutputExistsError, TraceviewError
from traceview.base.outputs import (
    check_output,
    check_report_output,
    check_trace_output,
    replacing,
    unpacked_name,
    write_pieces,
)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "trace.db"
    path.write_text("trace")
    return path


@pytest.mark.parametrize("check", [check_output, check_trace_output])
def test_an_existing_file_needs_force(tmp_path, check):
    path = tmp_path / "out.sqlite"
    check(path, force=False)
    path.write_text("mine")
    with pytest.raises(OutputExistsError, match="pass force=True") as error:
        check(path, force=False)
    assert error.value.command_text.endswith("; pass --force to overwrite it")
    check(path, force=True)


@pytest.mark.parametrize("check", [check_output, check_trace_output])
def test_a_folder_is_refused(tmp_path, check):
    with pytest.raises(InputError, match="is a folder"):
        check(tmp_path, force=True)
    with pytest.raises(InputError, match=r"folder \S+ does not exist"):
        check(tmp_path / "no" / "page.html", force=True)


def test_the_input_is_refused_under_any_name(tmp_path, source):
    link = tmp_path / "page.html"
    link.symlink_to(source)
    for path in (source, link):
        with pytest.raises(InputError, match="is the input kernel"):
            check_output(path, force=True, source=source, source_kind="kernel")


@pytest.mark.parametrize("name", ["other.sqlite", "other.sqlite.xz", "a.nsys-rep", "b.qdrep"])
def test_a_report_may_not_be_named_like_a_trace(tmp_path, source, name):
    with pytest.raises(InputError, match="named like a trace"):
        check_report_output(tmp_path / name, force=True, source=source, source_kind="trace")


def test_a_trace_may_not_be_named_like_an_archive(tmp_path):
    with pytest.raises(InputError, match="named like an archive"):
        check_trace_output(tmp_path / "a.sqlite.gz", force=True)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.nsys-rep", "a report of nsys"),
        ("A.QDREP", "a report of nsys"),
        ("a.json", r"a trace of torch\.profiler"),
    ],
)
def test_a_trace_may_not_be_named_like_another_kind(tmp_path, name, kind):
    with pytest.raises(InputError, match=f"named like {kind}; name it"):
        check_trace_output(tmp_path / name, force=True)


def test_a_device_is_written_to_by_text_and_refused_for_a_trace():
    check_output(Path("/dev/null"), force=False)
    with pytest.raises(InputError, match="not a regular file"):
        check_trace_output(Path("/dev/null"), force=True)


@pytest.mark.parametrize(
    ("name", "unpacked"),
    [("a.sqlite", "a.sqlite"), ("a.sqlite.xz", "a.sqlite"), ("a.b.gz", "a.b"), ("a", "a")],
)
def test_unpacked_name(name, unpacked):
    assert unpacked_name(Path(name)) == unpacked


def _replace(path):
    with replacing(path):
        pass


@pytest.mark.parametrize("write", [lambda path: write_pieces(path, [b"x"]), _replace])
def test_a_read_only_folder_is_named_with_the_output(tmp_path, monkeypatch, write):
    """Not the hidden file beside it, which cannot even be removed there."""

    def refuse(self, *_, **__):
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    for name in ("open", "replace", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(TraceviewError) as caught:
        write(tmp_path / "out.sqlite")
    assert caught.value.what == f"cannot write {tmp_path / 'out.sqlite'}: Read-only file system"
