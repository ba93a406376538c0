"""Scrubbing: what tells of a user goes, what the answers are made of stays."""

import gzip
import hashlib
import lzma
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from click.testing import CliRunner

from tests.build import Export, global_pid
from tests.contracts.report_numbers import numbers_of, recordings, report_of
from tests.trace.kineto import traces as kineto
from traceview.base.errors import OutputExistsError, TraceFormatError
from traceview.base.tables import Texts
from traceview.cli.files import scrub as command
from traceview.traces.trace.load import load
from traceview.traces.trace.rank_identity import pseudonym
from traceview.traces.trace.scrub.scrubber import scrub
from traceview.traces.trace.scrub.secrets import PrivateTexts, shorten_homes, variables

TOKEN = "ghp_0123456789abcdef"
ENVIRON = f"HOME=/data/people/alice\0TOKEN={TOKEN}\0TERM=xterm\0LANG=C\0VERSION=2023.4.1.5"
META = {"EXPORT_SCHEMA_VERSION": "3.7.2", "EXPORT_PRODUCT_VERSION": "2023.4.1.5"}
HOST = "build-host-17"


def write(path, *, encoding="UTF-8"):
    """An export with every place that is known to hold something private."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        connection.executescript(
            """
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
            CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
            CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
            CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INT, name TEXT, value TEXT);
            CREATE TABLE ProcessStreams (globalPid INT, filenameId INT, contentId INT);
            CREATE TABLE PROCESSES (globalPid INT, pid INT, name TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, demangledName INT, shortName INT);
            CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT);
            """
        )
        strings = [
            ENVIRON,
            "the program printed this",
            "/tmp/streams/stdout.log",
            f"kernel_of_/home/alice_{TOKEN}",
            "range in /home/alice",
            "/home/alice/venv/lib/libtorch.so",
            f"curl -H {TOKEN} https://example.org",
            "forward",
        ]
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(strings))
        pairs = {
            "META_DATA_EXPORT": {
                **META,
                "EXPORT_HOST": HOST,
                "EXPORT_USER": "alice",
                "EXPORT_PARAM_INPUT_PATH_ABS": "/scratch/x.nsys-rep",
            },
            "META_DATA_CAPTURE": {
                "PROCESS_0:COMMAND": "/home/alice/venv/bin/python",
                "PROCESS_0:ARGUMENT_0": f"--key={TOKEN}",
                "PROCESS_0:WORKING_DIR": "/scratch/secret-project",
                "PROCESS_0:USER_NAME": "alice",
                "PROCESS_0:ENVIRONMENT_VARIABLE": 'PASSWORD="open sesame"',
                "DEVICE_DISPLAY_NAME": HOST,
            },
        }
        for table, values in pairs.items():
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", values.items())
        system = {"Hostname": HOST, "DeviceEnvironment": "A=1;B=one two three", "CpuCores": "16"}
        rows = [(1, name, value) for name, value in system.items()]
        connection.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?, ?)", rows)
        # The program printed a line that is the name of a range, too: the exporter stores it once.
        connection.execute("INSERT INTO ProcessStreams VALUES (1, 2, 1), (1, 2, 7)")
        connection.execute(f"INSERT INTO PROCESSES VALUES (1, 1, '/data/people/alice/x on {HOST}')")
        connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 3, 3)")
        connection.execute("INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, 'open sesame', NULL)")
        connection.execute(
            "INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, NULL, 4), (1, 2, 59, NULL, 7)"
        )
    return path


@pytest.fixture
def dirty(tmp_path):
    return write(tmp_path / "dirty.sqlite")


def values(path, query):
    with closing(sqlite3.connect(path)) as connection:
        return [value for (value,) in connection.execute(query)]


def dump(path):
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_place(dirty, tmp_path):
    out = tmp_path / "clean.sqlite"
    report = scrub(dirty, out)
    assert values(out, "SELECT value FROM StringIds") == ["kernel_of_~", "range in ~", "forward"]
    assert values(out, "SELECT value FROM META_DATA_EXPORT") == ["3.7.2", "2023.4.1.5"]
    assert values(out, "SELECT value FROM META_DATA_CAPTURE") == ["(removed)"]
    assert values(out, "SELECT value FROM TARGET_INFO_SYSTEM_ENV") == [pseudonym(HOST)]
    assert values(out, "SELECT count(*) FROM PROCESSES") == [0]
    assert values(out, "SELECT text FROM NVTX_EVENTS WHERE text NOT NULL") == ["open sesame"]
    assert "ProcessStreams" not in values(out, "SELECT name FROM sqlite_master")
    assert report.replaced == {
        "tables": 1,
        "columns": 1,
        "facts": 12,
        "texts": 7,
        "rows of other processes": 1,
    }


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_no_byte_is_left_in_any_encoding(tmp_path, encoding):
    out = tmp_path / "clean.sqlite"
    source = write(tmp_path / "dirty.sqlite", encoding=encoding)
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        connection.execute("DELETE FROM NVTX_EVENTS")
    scrub(source, out)
    content = out.read_bytes()
    for private in (TOKEN, "alice", HOST, "printed", "sesame", "one two three", "secret-project"):
        for form in ("utf-8", "utf-16-le", "utf-16-be"):
            assert private.encode(form) not in content, private


def test_the_source_stays_as_it_is_and_a_second_time_changes_nothing(dirty, tmp_path):
    before = digest(dirty)
    scrub(dirty, tmp_path / "once.sqlite")
    assert digest(dirty) == before
    again = scrub(tmp_path / "once.sqlite", tmp_path / "twice.sqlite")
    assert again.total == 0
    assert dump(tmp_path / "twice.sqlite") == dump(tmp_path / "once.sqlite")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "dirty.sqlite",
        "once.sqlite",
        "twice.sqlite",
    ]


def test_the_commit_that_a_build_server_has_in_its_environment_stays(dirty, tmp_path):
    with closing(sqlite3.connect(dirty)) as connection, connection:
        commit = "0123456789abcdef0123456789abcdef01234567"
        connection.execute("CREATE TABLE TRACEVIEW_RUN (name TEXT PRIMARY KEY, value TEXT)")
        facts = [("git_commit", commit), ("command_line", f"/home/alice/x.py {commit} {TOKEN}")]
        connection.executemany("INSERT INTO TRACEVIEW_RUN VALUES (?, ?)", facts)
        connection.execute(
            "UPDATE StringIds SET value = value || ? WHERE id = 0", (f"\0C={commit}",)
        )
    scrub(dirty, tmp_path / "clean.sqlite")
    kept = values(tmp_path / "clean.sqlite", "SELECT value FROM TRACEVIEW_RUN")
    assert kept == [commit, "…/x.py …"]
    scrub(dirty, tmp_path / "own.sqlite", own=True)
    kept = values(tmp_path / "own.sqlite", "SELECT value FROM TRACEVIEW_RUN")
    assert kept == [commit, "~/x.py (removed) (removed)"]


def test_an_archive_is_unpacked(dirty, tmp_path):
    packed = tmp_path / "dirty.sqlite.gz"
    packed.write_bytes(gzip.compress(dirty.read_bytes()))
    assert scrub(packed, tmp_path / "a.sqlite") == scrub(dirty, tmp_path / "b.sqlite")


def test_rows_in_a_log_beside_the_file_are_kept(dirty, tmp_path):
    with closing(sqlite3.connect(dirty)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO NVTX_EVENTS VALUES (5, 6, 59, 'late', NULL)")
        connection.commit()
        scrub(dirty, tmp_path / "clean.sqlite")
    assert "late" in values(tmp_path / "clean.sqlite", "SELECT text FROM NVTX_EVENTS")


@pytest.mark.parametrize("name", sorted(recordings()))
def test_a_scrubbed_recording_answers_with_the_same_numbers(name, tmp_path):
    out = tmp_path / "clean.sqlite"
    scrub(recordings()[name], out)
    given = without_source_texts(recordings()[name], tmp_path / "given.sqlite")
    before, after = (report_of(path) for path in (given, out))
    assert numbers_of(after) == numbers_of(before)


def without_source_texts(recording, out):
    """A copy without the source text of the program's lines, which no scrubbed recording has."""
    out.write_bytes(lzma.decompress(recording.read_bytes()))
    with closing(sqlite3.connect(out)) as connection:
        for table in ("TRACEVIEW_SOURCE_LINES", "TRACEVIEW_SOURCE_EXCERPTS"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.commit()
    return out


def _same(before, after, name):
    column = before.column(name)
    if column.dtype == "text":
        texts: tuple[Texts, Texts] = before.texts(name), after.texts(name)
        return list(texts[0].decode()) == list(texts[1].decode())
    return np.array_equal(before[name], after[name], equal_nan=column.dtype == "float64")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"hello", "not an SQLite file"),
        (b"SQLite format 3\0" + bytes(200), "cannot scrub"),
    ],
)
def test_what_is_no_trace(tmp_path, content, said):
    source = tmp_path / "x.sqlite"
    source.write_bytes(content)
    with pytest.raises(TraceFormatError, match=said):
        scrub(source, tmp_path / "out.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["x.sqlite"]


def test_no_file(tmp_path):
    with pytest.raises(TraceFormatError, match="No such file"):
        scrub(tmp_path / "x.sqlite", tmp_path / "out.sqlite")


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (b"/home/alice/x", b"~/x"),
        (b"/home/alice", b"~"),
        (b"/home/a.b-c_d/x:/home/z/y", b"~/x:~/y"),
        (b"/root/.cache /rootfs /root", b"~/.cache /rootfs ~"),
        (b"/opt/root/x /my/home.d /home", b"/opt/root/x /my/home.d /home"),
        (b'"/Users/al/x"', b'"~/x"'),
        (rb"C:\Users\Al\x D:\\Users\\Al\\y c:/Users/Al", rb"~\x ~\\y ~"),
        (b"/home/\xc3\xbcber/x", b"~/x"),
        (b"file:///home/alice/x", b"file://~/x"),
    ],
)
def test_homes(text, short):
    assert shorten_homes(text) == short


def test_variables_of_each_form():
    assert list(variables(b"A=1\0B=x=y\0")) == [(b"A", b"1"), (b"B", b"x=y")]
    assert list(variables(b'A="1 2"')) == [(b"A", b"1 2")]
    assert list(variables(b"A=1;rest;B=2")) == [(b"A", b"1"), (b"", b"rest"), (b"B", b"2")]


@pytest.mark.parametrize(
    "value",
    [b"2023.4.1.5", b"/usr/local/bin:/usr/bin", b"noninteractive", b"NVIDIA H200", b"short"],
)
def test_ordinary_values_are_not_hunted_for(value):
    assert PrivateTexts.of({(b"X", value)}).cleaned(b"a " + value) == b"a " + value


def test_the_longest_secret_goes_whole():
    private = PrivateTexts.of({(b"A", b"abc-12345"), (b"B", b"abc-12345-more")})
    assert private.cleaned(b"x abc-12345-more y") == b"x (removed) y"


def test_the_command(dirty, tmp_path):
    out = tmp_path / "clean.sqlite"
    done = CliRunner().invoke(command, [str(dirty), str(out)])
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert done.stderr.endswith(f"Wrote {out}\n")
    before = digest(out)
    refused = CliRunner().invoke(command, [str(dirty), str(out)])
    assert isinstance(refused.exception, OutputExistsError)
    assert digest(out) == before
    assert CliRunner().invoke(command, [str(dirty), str(out), "--force"]).exit_code == 0
    itself = CliRunner().invoke(command, [str(dirty), str(dirty), "--force"])
    assert "is the input trace" in str(itself.exception)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_of_torch_profiler_becomes_a_clean_file(tmp_path, name):
    home = b"/home/alice/project"
    stacks = kineto.python(f"{home.decode()}/train.py(9): <module>", 0, 4000, 90, None)
    source = tmp_path / name
    written = kineto.write(tmp_path / "plain.json", [*kineto.training(), stacks])
    packed = gzip.compress if name.endswith(".gz") else bytes
    source.write_bytes(packed(written.read_bytes()))
    before = digest(source)
    out = tmp_path / "clean.sqlite"
    report = scrub(source, out)
    assert report.replaced["texts"]
    assert digest(source) == before
    assert home not in out.read_bytes()
    whole, clean = load(source), load(out)
    assert home in files_of(whole)
    assert "…/train.py".encode() in files_of(clean)
    for table in whole.tables:
        for column in whole.tables[table].columns:
            if column.dtype != "text":
                column_of = (table, column.name)
                assert _same(whole.tables[table], clean.tables[table], column.name), column_of


def files_of(trace) -> bytes:
    files = trace.tables["python_frames"].texts("file")
    return b"\n".join(str(file).encode() for file in files.decode())


def test_json_of_another_kind_is_no_trace(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1}')
    with pytest.raises(TraceFormatError, match=r"cannot scrub .*x\.json") as raised:
        scrub(tmp_path / "x.json", tmp_path / "out.sqlite")
    assert "torch.profiler" in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_the_names_of_other_peoples_processes_go(tmp_path):
    source = Export().launch((0, 2), (10, 20)).write(tmp_path / "in.sqlite")
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("INSERT INTO PROCESSES VALUES (?, 77, 'secret-project')", (77 << 24,))
    scrub(source, tmp_path / "out.sqlite")

    assert b"secret-project" not in (tmp_path / "out.sqlite").read_bytes()
    assert len(load(tmp_path / "out.sqlite").processes) == 1


def test_the_names_of_processes_that_were_only_scheduled_or_sampled_go(tmp_path):
    """With the right to, nsys records all processes of the machine."""
    export = Export().launch((0, 2), (10, 20)).off_cpu((5, 6), process=77)
    source = export.native_sample(7, ("/usr/bin/app", "main"), process=78).write(tmp_path / "in.db")
    with closing(sqlite3.connect(source)) as connection, connection:
        for process in (77, 78):
            owner = global_pid(process)
            connection.execute("INSERT INTO PROCESSES VALUES (?, 1, 'secret-project')", (owner,))
    scrub(source, tmp_path / "out.sqlite")

    assert b"secret-project" not in (tmp_path / "out.sqlite").read_bytes()


def test_home_folders_in_native_stacks_go(tmp_path):
    export = Export().launch((0, 2), (10, 20))
    source = export.native_sample(7, ("/home/alice/sim", "main")).write(tmp_path / "in.sqlite")
    scrub(source, tmp_path / "out.sqlite")

    trace = load(tmp_path / "out.sqlite")
    assert trace.table("native_frames").cells("module") == ["(removed)"]
    assert trace.table("native_frames").cells("function") == ["main"]
    scrub(source, tmp_path / "own.sqlite", own=True)
    assert load(tmp_path / "own.sqlite").table("native_frames").cells("module") == ["~/sim"]
