"""The server, asked by the client of the official SDK: in a process of its own, over its pipes."""

import json
import lzma
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import traceview
from tests.places import DATA, REPOSITORY
from traceview.base.errors import InputError
from traceview.serve.answers import (
    MOST_CHARACTERS,
    Answers,
    compact,
    fitted,
    kernels_of,
    sent,
    trimmed,
)
from traceview.serve.folder import ServedFolder
from traceview.traces.analyses import ALL

pytestmark = [
    pytest.mark.skipif(find_spec("mcp") is None, reason="mcp is not installed"),
    pytest.mark.programs,
]

RECORDING = "runs/training.sqlite.xz"
TOOLS = {
    "list_recordings", "list_questions", "report", "answer", "evidence", "inspect_kernel",
    "compare", "compare_ranks", "explain_step", "show_window", "query",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Recordings, a kernel, a program, a link that leads out, and a hidden folder."""
    root = tmp_path_factory.mktemp("served")
    (root / "runs").mkdir()
    (root / ".cache").mkdir()
    shutil.copy(REPOSITORY / "examples/training.sqlite.xz", root / RECORDING)
    for name in ("mlp_nosync", "mlp_print_loss"):
        shutil.copy(DATA / f"{name}.sqlite.xz", root / "runs")
    for rank in (0, 1):
        shutil.copy(DATA / f"ranks/ddp_sleep.rank{rank}.sqlite.xz", root / f"rank{rank}.sqlite.xz")
    shutil.copy(DATA / "gelu-nvrtc-12.9-sm90.ptx", root / "gelu.ptx")
    (root / ".cache/old.sqlite").touch()
    (root / "broken.sqlite").write_text("no database")
    (root / "kernels.py").write_text("raise SystemExit('ran')\n")
    (root / "out.sqlite.xz").symlink_to(DATA / "mlp_sync.sqlite.xz")
    (root / "gone.sqlite").symlink_to(root / "nowhere")
    (root / "circle.sqlite").symlink_to(root / "circle.sqlite")
    (root / "old.qdrep").write_bytes(b"a report")
    (root / "packed.nsys-rep.xz").write_bytes(lzma.compress(b"a report"))
    return root


@pytest.fixture(scope="module")
def client(folder):
    """A function that asks the server of the folder; one serves all tests."""
    # Here, as each worker of pytest-xdist would take a second for it.
    import mcp
    from anyio.from_thread import start_blocking_portal

    command = ["-m", "traceview", "mcp", str(folder)]
    server = mcp.StdioServerParameters(command=sys.executable, args=command)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(mcp.Client(server)) as connected,
    ):

        def ask(method, *given):
            return portal.start_task_soon(getattr(connected, method), *given).result(120)

        ask.begun = lambda method, *given: portal.start_task_soon(
            getattr(connected, method), *given
        )
        yield ask


@pytest.fixture
def told(client):
    """The results of tool calls, as the client gets them."""
    return lambda *calls: [client("call_tool", name, given) for name, given in calls]


@pytest.fixture
def documents(told):
    """The answers to tool calls, none of which is refused."""

    def read(*calls):
        results = told(*calls)
        assert not [result.content for result in results if result.is_error]
        return [json.loads(result.content[0].text) for result in results]

    return read


def test_every_tool_only_reads(client):
    tools = client("list_tools").tools
    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)


def test_from_the_list_to_the_evidence(folder, documents):
    listed, questions, report, answer, evidence = documents(
        ("list_recordings", {}),
        ("list_questions", {}),
        ("report", {"recording": RECORDING}),
        ("answer", {"recording": RECORDING, "question": "gpu-idle", "table": "gaps", "rows": 3}),
        ("evidence", {"recording": RECORDING, "finding": 0, "rows": 2}),
    )
    names = [each["recording"] for each in listed["recordings"]]
    assert RECORDING in names
    assert not {"out.sqlite.xz", ".cache/old.sqlite", "gone.sqlite", "circle.sqlite"} & set(names)
    assert not {"old.qdrep", "packed.nsys-rep.xz"} & set(names)
    assert [each["target"] for each in listed["code"]] == ["gelu.ptx"]
    assert (listed["recordings_left_out"], listed["code_left_out"]) == (0, 0)
    assert "gpu-idle" in [each["question"] for each in questions["questions"]]

    expected = traceview.analyze(traceview.load(folder / RECORDING))
    assert report["verdict"]["text"] == expected.verdict.text
    first = report["findings"][0]
    assert first["message"] == expected.findings[0].finding.message
    assert (first["saving"], first["is_partial"]) == ("about", False)
    forecast = expected.findings[0].forecast
    assert (first["step_ns"], first["is_mean"]) == (forecast.step_ns, forecast.is_mean)
    assert (first["finding"], evidence["finding"]["message"]) == (0, first["message"])
    assert list(answer["tables"]) == ["gaps"]
    assert len(answer["tables"]["gaps"]) == 3
    assert set(answer["tables"]["gaps"][0]) <= set(answer["columns"])
    assert all(len(rows) <= 2 for rows in evidence["tables"].values())
    window = evidence["finding"]["evidence"]
    kernels = evidence["kernels_in_window"]
    ends = [each["start_ns"] + each["duration_ns"] for each in kernels]
    assert all(end > window["start_ns"] for end in ends)


def test_kernels_and_comparisons(documents):
    pair = {"before": ["runs/mlp_nosync.sqlite.xz"], "after": ["runs/mlp_print_loss.sqlite.xz"]}
    kernel, comparison = documents(("inspect_kernel", {"target": "gelu.ptx"}), ("compare", pair))
    assert kernel["kernels"][0]["accesses"]
    assert kernel["target"] == "gelu.ptx"
    assert comparison["changes"]
    assert all(each["before"] != each["after"] for each in comparison["counts"])


def test_what_a_comparison_refuses_can_be_forced_as_the_refusal_says(told):
    pair = {"before": ["runs/mlp_nosync.sqlite.xz"], "after": ["runs/mlp_nosync.sqlite.xz"]}
    refused, forced = told(("compare", pair), ("compare", {**pair, "force": True}))
    assert refused.is_error
    assert "pass force=True" in refused.content[0].text
    assert not forced.is_error


@pytest.mark.slow
def test_every_answer_fits_into_the_context_of_an_agent(folder, told):
    pair = {"before": ["runs/mlp_nosync.sqlite.xz"], "after": ["runs/mlp_print_loss.sqlite.xz"]}
    ranks = {"recordings": ["rank0.sqlite.xz", "rank1.sqlite.xz"]}
    questions = [{"recording": RECORDING, "question": analysis.name} for analysis in ALL]
    found = len(traceview.analyze(traceview.load(folder / RECORDING)).findings)
    results = told(
        *[("list_questions", {}), ("report", {"recording": RECORDING}), ("compare", pair)],
        *[("answer", each) for each in questions],
        *[("evidence", {"recording": RECORDING, "finding": number}) for number in range(found)],
        *[("inspect_kernel", {"target": "gelu.ptx"}), ("compare_ranks", ranks)],
    )
    for result in results:
        assert not result.is_error
        assert len(result.content[0].text) <= 8_000
        assert json.loads(result.content[0].text)
        assert result.structured_content is None
    assert "sleeps in data.py" in results[-1].content[0].text


def test_what_an_answer_leaves_out_is_counted(documents):
    pair = {"before": ["runs/mlp_nosync.sqlite.xz"], "after": ["runs/mlp_print_loss.sqlite.xz"]}
    short, long = documents(("compare", {**pair, "rows": 1}), ("compare", pair))
    assert len(short["parts"]) == 1
    assert short["parts_left_out"] == len(long["parts"]) + long["parts_left_out"] - 1
    kernels = [f"kernel_{number}" for number in range(100)]
    access = {"kind": "load", "space": "global", "opcode": "ld.b32", "width_bits": 32, "count": 1}
    access |= {"source": "x.py:1"}
    one = dict.fromkeys(
        ("launches", "registers", "spill_bytes", "occupancy", "elements_per_thread")
    )
    many = [{**one, "name": name, "accesses": [access] * 9, "findings": []} for name in kernels]
    summed = kernels_of({"arch": "sm_90", "kernels": many})
    assert summed["kernels"][0]["accesses"] == [access] * 9
    assert summed["kernels_by_name"] == kernels
    assert len(compact(summed)) <= MOST_CHARACTERS
    assert trimmed({"a": None, "b": [1 / 3], "c": "x" * 9}, 4) == {"b": [0.33333], "c": "xxxx…"}


def test_rows_of_a_job_that_are_left_out_are_counted(documents):
    ranks = {"recordings": ["rank0.sqlite.xz", "rank1.sqlite.xz"]}
    short, long = documents(
        ("compare_ranks", {**ranks, "rows": 1}), ("compare_ranks", {**ranks, "rows": 200})
    )
    assert "saving" in short["findings"][0]
    for name, rows in long["tables"].items():
        assert len(short["tables"][name]) == min(1, len(rows))
        whole = len(rows) + long["rows_left_out"].get(name, 0)
        assert short["rows_left_out"].get(name, 0) == max(0, whole - 1)


def test_a_long_list_of_files_is_cut_and_counted(tmp_path):
    for number in range(503):
        (tmp_path / f"{number:03}.ptx").touch()
    listed = Answers(ServedFolder.of(tmp_path)).recordings()
    assert (len(listed["code"]), listed["code_left_out"]) == (500, 3)


def test_ctrl_c_ends_the_server_at_once(folder):
    command = [sys.executable, "-m", "traceview", "mcp", str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    client = {"protocolVersion": "2025-06-18", "capabilities": {}}
    client["clientInfo"] = {"name": "test", "version": "1"}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    with subprocess.Popen(command, **pipes) as server:
        server.stdin.write(json.dumps(hello).encode() + b"\n")
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.send_signal(signal.SIGINT)
        try:
            assert server.wait(60) == -signal.SIGINT
        finally:
            server.kill()


def test_no_answer_is_longer_than_what_is_sent():
    name = "k" * 3_000_000
    asked = fitted(lambda rows: {"rows": [name] * rows}, 200)
    assert len(asked["rows"]) == 200
    with pytest.raises(InputError, match=r"401,010 characters.*; ask for fewer rows"):
        sent(asked)
    assert len(sent(fitted(lambda rows: {"rows": [name] * rows}, 20))) < 50_000


REFUSED = (
    ("report", {"recording": "../secret.sqlite"}, "there is no file"),
    ("report", {"recording": "/etc/passwd"}, "there is no file"),
    ("report", {"recording": "out.sqlite.xz"}, "there is no file"),
    ("report", {"recording": "runs"}, "there is no file"),
    ("report", {"recording": "a\0b"}, "there is no file"),
    ("report", {"recording": "circle.sqlite"}, "there is no file"),
    ("report", {"recording": "a" * 9_000}, "there is no file"),
    ("report", {"recording": "old.qdrep"}, "the server starts no program"),
    ("report", {"recording": "packed.nsys-rep.xz"}, "the server starts no program"),
    ("report", {"recording": "broken.sqlite"}, "broken.sqlite"),
    ("answer", {"recording": RECORDING, "question": "gpu-idel"}, "gpu-idle"),
    ("answer", {"recording": RECORDING, "question": "gpu-idle", "table": "gap"}, "gaps"),
    ("evidence", {"recording": RECORDING, "finding": 99}, "there is no finding 99"),
    ("inspect_kernel", {"target": "kernels.py"}, "runs no program"),
)


def test_what_is_refused_says_so(told):
    results = told(*((tool, given) for tool, given, _ in REFUSED))
    for result, (tool, given, says) in zip(results, REFUSED, strict=True):
        assert result.is_error, (tool, given)
        assert says in result.content[0].text
        assert "Traceback" not in result.content[0].text


def test_a_cancelled_call_leaves_the_server_as_it_was(client, documents):
    recording = {"recording": "runs/mlp_print_loss.sqlite.xz"}
    calls = [client.begun("call_tool", "report", recording) for _ in range(8)]
    listed = documents(("list_recordings", {}))[0]
    assert [each.cancel() for each in calls[:6]]
    first, second = (json.loads(each.result(120).content[0].text) for each in calls[6:])
    assert first == second == documents(("report", recording))[0]
    assert documents(("list_recordings", {}))[0] == listed


def test_the_folder_stays_as_it_is(folder, documents):
    before = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
    documents(("report", {"recording": RECORDING}))
    assert {path: path.lstat().st_mtime_ns for path in folder.rglob("*")} == before
