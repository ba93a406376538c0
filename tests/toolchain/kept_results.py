"""What NVIDIA's tools make of an input, kept for the session: it is the same each time.

Programs that a test has written itself run each time.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from os import getpid
from pathlib import Path

import pytest

from traceview.kernels.toolchain import tools
from traceview.kernels.toolchain.tools import ProcessResult

_run = tools.run


class KeptResults:
    """Results by the tool, its arguments and its input, in a folder that processes may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def run(
        self,
        path: Path,
        arguments: Callable[[Path, Path], Sequence[str | Path]],
        source: bytes | None,
        suffix: str = "",
        timeout_s: float = tools.COMPILE_TIMEOUT_S,
        folder: Path | None = None,
    ) -> ProcessResult:
        """Take the place of traceview.kernels.toolchain.tools.run."""
        is_of_test = path.is_relative_to(self._folder.parents[1])
        if source is None or is_of_test:
            return _run(path, arguments, source, suffix, timeout_s, folder)
        words = [*map(str, arguments(Path("input"), Path("output")))]
        key = sha256(repr((path, words, suffix)).encode() + source).hexdigest()
        kept = self._folder / key
        if kept.exists():
            result: ProcessResult = pickle.loads(kept.read_bytes())
            return result
        result = _run(path, arguments, source, suffix, timeout_s)
        written = self._folder / f"{key}.{getpid()}"
        written.write_bytes(pickle.dumps(result))
        written.replace(kept)
        return result


@pytest.fixture(scope="session", autouse=True)
def kept_results(shared_folder: Path) -> Iterator[None]:
    """Run each tool once per input in this session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools, "run", KeptResults(shared_folder / "tools").run)
        yield
