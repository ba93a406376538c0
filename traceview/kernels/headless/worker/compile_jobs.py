"""Compile a list of kernels, each from its source or from a file of intermediate code.

The list is a JSON file of objects with `arguments` and `options`, and with either `code`, the path
of a .ttir or .ptx file, or `file` and `name`, the Python file of a kernel and its function. A
kernel's number in the list is its remark in the event log.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traceview.base.errors import InputError
from traceview.kernels.headless import run_script
from traceview.kernels.headless.compile_options import Deadline
from traceview.kernels.headless.fakes.triton_driver import REPORTED, Gpu
from traceview.kernels.headless.project.imports import ProjectImports
from traceview.kernels.headless.worker.event_log import EventLog
from traceview.kernels.headless.worker.jit_functions import Jitted, compile_for, jitted_in
from traceview.kernels.headless.worker.recompile_server import RAN, STARTED, Channel
from traceview.kernels.ptx.model import Argument


def run(path: Path, log: EventLog, gpu: Gpu, channel: Channel) -> bool:
    """Compile the kernels of a list; the log has those that compile, and why others do not."""
    channel.send(STARTED)
    log.how = "given"
    for number, job in enumerate(json.loads(path.read_text("utf-8"))):
        log.remarks = (str(number),)
        try:
            _compile(job, gpu.target)
        except Exception as error:
            # What Triton raises is in the log.
            if not hasattr(error, REPORTED) and type(error).__name__ != "OutOfResources":
                log.rejected(f"{job['name']}.py", job["options"], error)
    log.how = None
    channel.send(f"{RAN}{Deadline.after(0.0).at_s!r}\n")
    return True


def _compile(job: Mapping[str, Any], target: Any) -> None:
    from triton.compiler import compile as compile_

    if "code" in job:
        compile_(job["code"], target=target, options=dict(job["options"]))._init_handles()
        return
    functions = _functions(job["file"])
    if job["name"] not in functions:
        raise InputError(f"{job['file']} has no kernel {job['name']} any more")
    arguments = [Argument(**fields) for fields in job["arguments"]]
    compile_for(target, functions[job["name"]], arguments, job["options"])._init_handles()


@functools.cache
def _functions(file: str) -> dict[str, Jitted]:
    """The kernels that a file defines when it is imported."""
    script, imports = run_script.of_file(file), ProjectImports()
    imports.install(script.package)
    ending = run_script.run(script, as_main=False, arguments=())
    found = {jitted.name: jitted for jitted in jitted_in(ending.names)}
    if not found and ending.failure:
        raise InputError(f"{Path(file).name} {ending.failure}")
    return found
