"""The process that recompiles: it imports the user's script once and answers line by line.

A question and its answer are each a line of JSON, on stdin and on what was stdout; whatever the
script prints goes to stderr.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from traceview.ptx import pretend_cuda, script, triton_driver
from traceview.ptx.jitted import Jitted, compile_for, in_words, jitted_in
from traceview.ptx.model import Argument
from traceview.ptx.recording import source_of
from traceview.ptx.triton_driver import Gpu, Overrides

Result = dict[str, Any]


def main(target: str) -> None:
    """Answer until stdin ends. `target` is JSON with a `file` or a `module`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    questions = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    held: _Held | None = None
    for line in questions:
        question = json.loads(line)
        held = held or _Held(json.loads(target), question["capability"])
        answers.write(json.dumps(held.answer(question)) + "\n")
        answers.flush()
    os._exit(0)


class _Held:
    """The imported script, on a GPU that launches nothing."""

    def __init__(self, target: Mapping[str, str | None], capability: str) -> None:
        self._gpu = Gpu(capability)
        self._latest: Result = {}
        triton_driver.install(
            self._gpu,
            compiled=self._compiled,
            launched=lambda *_: None,
            overrides=Overrides({}, {}),
            first_config=True,
        )
        if importlib.util.find_spec("torch"):
            pretend_cuda.install(self._gpu, lambda _: None)
        found = (
            script.of_file(str(target["file"]))
            if target["file"]
            else script.of_module(str(target["module"]))
        )
        self._names = script.run(found, as_main=False, arguments=()).names

    def answer(self, question: Mapping[str, Any]) -> Result:
        """Compile one kernel; an `error` in words where that fails."""
        jitted = self._kernel(question["kernel"], question["file"])
        if jitted is None:
            return {"error": "it is not among the names of any module"}
        arguments = [Argument(**fields) for fields in question["arguments"]]
        self._latest = {"error": "nothing was compiled"}
        try:
            compile_for(self._gpu.target, jitted, arguments, question["options"])
        except Exception as error:
            return {"error": in_words(error)}
        return self._latest

    def _kernel(self, name: str, file: str | None) -> Jitted | None:
        """The kernel of that name: of the script, or of a module that it has imported."""
        for jitted in self._everywhere():
            place = source_of(jitted.function)
            if jitted.name == name and (file is None or (place and place[0] == file)):
                return jitted
        return None

    def _everywhere(self) -> Iterator[Jitted]:
        yield from jitted_in(self._names)
        for module in list(sys.modules.values()):
            yield from jitted_in(getattr(module, "__dict__", {}))

    def _compiled(
        self, *, metadata: Mapping[str, Any], metadata_group: Mapping[str, Any], **_: Any
    ) -> None:
        files = {name.rpartition(".")[2]: str(path) for name, path in metadata_group.items()}
        self._latest = {
            "ptx": files["ptx"],
            "cubin": files["cubin"],
            "num_warps": metadata["num_warps"],
            "num_stages": metadata["num_stages"],
            "shared": metadata["shared"],
        }
