"""A trace is untrusted: whatever the file holds, one clear line or a correct report comes out.

Every test here also holds the input to its promise: not a byte of it changes, and nothing
appears beside it.
"""

import hashlib
import json
import sqlite3
from contextlib import closing

import pytest

from tests.build import Export
from tests.export_file import SCHEMAS
from traceview.cli import run

NAMES = {
    "script": "k</script><script>alert(1)</script>",
    "markup": '<img src=x onerror="alert(1)">&amp;',
    "quotes": "k'\"`; DROP TABLE StringIds; --",
    "terminal": "\x1b[2J\x1b[31mred\x1b]0;title\x07\x9b31m",
    "lines": "first\nsecond\r\nthird\ttab\x0b",
    "rich": "[bold red]k[/bold red] [link=file:///etc/passwd]x[/link]",
    "braces": "{{ 7 * 7 }}{% raw %}{0}%s%(x)s",
    "dollar": "$\\frac{1}{0}$ $x^{",
    "bidirectional": "k\u202etxet\u202c\u2066",
    "emoji": "k\U0001f525\u0301",
    "nul": "before\x00after",
    "separators": "line\u2028paragraph\u2029",
    "path": "../../etc/passwd/step_1//",
    "empty": "",
    "blank": "   ",
}


class Case:
    """A file in a folder of its own, and the command run on it."""

    def __init__(self, folder, capfd):
        self.folder, self._capfd = folder, capfd
        self.path = folder / "trace.sqlite"

    def report(self, *options):
        """Run `traceview report`; give status, stdout and stderr."""
        before = self._contents()
        self._capfd.readouterr()
        status = run(["report", str(self.path), *options])
        out, err = self._capfd.readouterr()
        assert self._contents() == before, "the input or its folder was changed"
        assert "Traceback" not in out + err
        assert "internal error" not in err
        return status, out, err

    def assert_refused(self):
        """One line on stderr that names the file, and nothing else."""
        status, out, err = self.report()
        assert (status, out) == (1, "")
        assert err.startswith("traceview: error: ")
        assert err.count("\n") == 1
        assert self.path.name in err
        assert ";" in err, "no remedy in the line"
        return err

    def assert_reported(self, outside):
        """Text, HTML and JSON come out; give the text, the page and the document."""
        status, text, err = self.report()
        assert status == 0, err
        page = outside / "page.html"
        status, document, err = self.report("--html", str(page), "--json")
        assert status == 0, err
        return text, page.read_text("utf-8"), json.loads(document)

    def _contents(self):
        files = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        return [(f.name, hashlib.sha256(f.read_bytes()).hexdigest()) for f in files if f.is_file()]


@pytest.fixture
def case(tmp_path, capfd):
    folder = tmp_path / "input"
    folder.mkdir()
    return Case(folder, capfd)


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "output"
    folder.mkdir()
    return folder


def ordinary() -> Export:
    export = Export().range("step_0", 0, 1000).launch((10, 20), (30, 90)).launch((40, 50), (95, 99))
    return export.sync("cudaStreamSynchronize_v3020", 60, 120)


NO_TRACES = {
    "empty": b"",
    "nul": b"\x00",
    "text": b"just some text\n",
    "html": b"<html></html>",
    "json": b"{}",
    "png": b"\x89PNG\r\n\x1a\n" * 99,
    "magic": b"SQLite format 3\x00",
    "magic and noise": b"SQLite format 3\x00" + b"\xff" * 5000,
    "broken xz": b"\xfd7zXZ\x00broken",
    "broken gzip": b"\x1f\x8b\x08broken",
    "broken zstd": b"\x28\xb5\x2f\xfdbroken",
}


@pytest.mark.parametrize("content", NO_TRACES.values(), ids=NO_TRACES.keys())
def test_what_is_no_trace(case, content):
    case.path.write_bytes(content)
    case.assert_refused()


def test_no_file(case):
    case.assert_refused()


def test_a_folder(case):
    case.path.mkdir()
    case.assert_refused()


def test_a_database_of_something_else(case):
    with closing(sqlite3.connect(case.path)) as connection:
        connection.execute("CREATE TABLE albums (title TEXT)")
        connection.commit()
    assert "albums" in case.assert_refused()


def test_a_database_without_a_table(case):
    with closing(sqlite3.connect(case.path)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("DROP TABLE t")
        connection.commit()
    case.assert_refused()


@pytest.mark.parametrize("kept", [99, 512, 4096, 0.3, 0.6, 0.9])
def test_a_truncated_export(case, unpack, kept):
    whole = unpack("mlp_sync").read_bytes()
    case.path.write_bytes(whole[: kept if kept >= 1 else int(len(whole) * kept)])
    case.assert_refused()


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_export(case, unpack, seed):
    """Pages overwritten with noise: refused, or reported without what is lost."""
    damaged = bytearray(unpack("mlp_sync").read_bytes())
    for place in range(4096 * (seed + 1), len(damaged) - 600, 4096 * 12):
        noise = hashlib.shake_128(f"{seed} {place}".encode()).digest(600)
        damaged[place + 37 * seed : place + 37 * seed + 600] = noise
    case.path.write_bytes(damaged)
    status, out, err = case.report("--json")
    assert status in (0, 1)
    assert (status == 0) == bool(out)
    if status:
        assert err.startswith("traceview: error: ")
        assert err.count("\n") == 1
    else:
        json.loads(out)


def test_no_kernels(case, outside):
    ordinary().drop("CUPTI_ACTIVITY_KIND_KERNEL").write(case.path)
    text, _, document = case.assert_reported(outside)
    assert document["analyses"]["kernel-share"]["status"] == "skipped"
    assert "--trace=cuda" in text, "the report does not say how to record kernels"


def test_no_api_calls(case, outside):
    ordinary().drop("CUPTI_ACTIVITY_KIND_RUNTIME").write(case.path)
    *_, document = case.assert_reported(outside)
    answers = document["analyses"]
    assert answers["run-ahead"]["status"] == "skipped"
    assert answers["kernel-share"]["tables"]["kernels"][0]["total_ns"] == 64


def test_nothing_at_all(case, outside):
    Export().write(case.path)
    *_, document = case.assert_reported(outside)
    assert document["findings"] == []


def test_only_names_and_version(case, outside):
    tables = set(SCHEMAS["3.20.3"]["tables"]) - {"StringIds", "META_DATA_EXPORT"}
    Export().drop(*tables).write(case.path)
    case.assert_reported(outside)


def test_a_name_that_is_not_in_stringids(case, outside):
    ordinary().raw("StringIds", id=77, value="x").write(case.path)
    with closing(sqlite3.connect(case.path)) as connection:
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 4711")
        connection.commit()
    *_, document = case.assert_reported(outside)
    (kernel,) = document["analyses"]["kernel-share"]["tables"]["kernels"]
    assert (kernel["calls"], kernel["total_ns"]) == (2, 64)


def test_no_names_at_all(case, outside):
    ordinary().drop("StringIds").write(case.path)
    status, _, err = case.report()
    assert status == 0 or err.startswith("traceview: error: ")


def test_an_end_before_its_start(case, outside):
    ordinary().launch((200, 210), (300, 250)).range("odd", 500, 400).write(case.path)
    *_, document = case.assert_reported(outside)
    kernels = document["analyses"]["kernel-share"]["tables"]["kernels"]
    assert all(kernel["min_ns"] >= 0 for kernel in kernels)
    devices = document["analyses"]["gpu-idle"]["tables"]["devices"]
    assert devices[0]["busy_ns"] == 64


@pytest.mark.parametrize("time", [2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_absurd_times(case, time):
    ordinary().launch((200, 210), (time, time)).write(case.path)
    status, _, err = case.report("--json")
    assert status == 0 or err.startswith("traceview: error: ")


@pytest.mark.parametrize("value", ["text", 1.5, b"\x00\xff", 2**40, -1, None])
@pytest.mark.parametrize("column", ["start", "deviceId", "streamId", "globalPid", "demangledName"])
def test_values_of_the_wrong_kind(case, column, value):
    ordinary().write(case.path)
    with closing(sqlite3.connect(case.path)) as connection:
        rows = connection.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL")
        names = [description[0] for description in rows.description]
        data = [list(row) for row in rows]
        data[0][names.index(column)] = value
        connection.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({', '.join(names)})")
        marks = ", ".join("?" * len(names))
        connection.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({marks})", data)
        connection.commit()
    status, _, err = case.report("--json")
    assert status == 0 or err.startswith("traceview: error: ")


@pytest.mark.slow
def test_a_kernel_name_longer_than_a_page(case, outside):
    name = "k" * 1_000_000
    Export().launch((0, 2), (8, 20), name=name).range(name, 0, 100).write(case.path)
    text, page, document = case.assert_reported(outside)
    assert len(text) < 100_000
    assert len(page) < len(name)
    kernels = document["analyses"]["kernel-share"]["tables"]["kernels"]
    assert kernels[0]["name"] == name


def named(name: str) -> Export:
    export = Export().range(name, 0, 500).launch((10, 20), (30, 90), name=name)
    export.sync(name, 60, 120).diagnostic(name).gpu(0, name=name).range(name, 510, 900, domain=name)
    return export.launch((520, 530), (540, 590), name=name, api=name)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_hostile_names(case, outside, name):
    named(name).write(case.path)
    text, page, document = case.assert_reported(outside)
    assert not {sign for sign in text if sign < " " and sign != "\n"}
    assert not set(text) & set("\x7f\x9b\u202e\u2066\u2028\u2029")
    assert "\x1b" not in page
    assert "\x00" not in page
    assert not set(page) & set("\u202e\u2066")
    for tag in ("<script>alert", "<img src=x"):
        assert tag not in page
    kernels = document["analyses"]["kernel-share"]["tables"]["kernels"]
    assert name.strip() == "" or kernels[0]["name"] == name


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_hostile_names_in_an_error(case, name):
    named(name).write(case.path)
    status, out, err = case.report("--range", "there is no such range")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert not {sign for sign in err.rstrip("\n") if sign < " "}


def test_a_name_that_is_not_utf8(case, outside):
    ordinary().write(case.path)
    with closing(sqlite3.connect(case.path)) as connection:
        connection.execute("UPDATE StringIds SET value = CAST(X'6BFFFE41' AS TEXT)")
        connection.commit()
    case.assert_reported(outside)


def test_a_read_only_folder_and_another_reader(case, outside):
    ordinary().write(case.path)
    case.path.chmod(0o444)
    case.folder.chmod(0o555)
    try:
        with closing(sqlite3.connect(f"file:{case.path}?mode=ro", uri=True)) as other:
            other.execute("BEGIN").execute("SELECT count(*) FROM StringIds")
            case.assert_reported(outside)
    finally:
        case.folder.chmod(0o755)


@pytest.mark.parametrize("schema", ["3.99.1", "9.0.0", "none", "", "99999999999999999999.1"])
def test_a_version_from_the_future_or_none(case, outside, schema):
    ordinary().write(case.path)
    with closing(sqlite3.connect(case.path)) as connection:
        connection.execute(
            "UPDATE META_DATA_EXPORT SET value = ? WHERE name = 'EXPORT_SCHEMA_VERSION'", (schema,)
        )
        connection.commit()
    *_, document = case.assert_reported(outside)
    kernels = document["analyses"]["kernel-share"]["tables"]["kernels"]
    assert kernels[0]["total_ns"] == 64


@pytest.mark.parametrize("name", ["ampere_sgemm_128x64_tn", "implicit_convolve_sgemm", "k"])
def test_kernels_that_take_no_time(case, outside, name):
    export = Export().launch((0, 2), (3, 3), name="other")
    for at in range(1, 4):
        export.launch((10 * at, 10 * at + 2), (10 * at + 5, 10 * at + 5), name=name)
    export.write(case.path)
    case.assert_reported(outside)
    assert run(["compare", str(case.path), str(case.path), "--force"]) == 2
