"""What a worker says of a recording in which there is no GPU work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import Export
from traceview.base.errors import InputError
from traceview.traces.ranks.execution.task import RankFile, figures_of_file


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("0", "no GPU work was recorded; record the rank while it works on its GPU"),
        ("7", "the program ended with exit status 7; events that were not yet saved are lost"),
    ],
)
def test_a_recording_without_gpu_work_says_how_the_program_ended(
    status: str, said: str, tmp_path: Path
) -> None:
    export = Export().run(exit_status=status, rank="0", world_size="2").range("step", 0, 100)
    path = export.write(tmp_path / "rank0.sqlite")
    with pytest.raises(InputError) as refused:
        figures_of_file(RankFile(str(path)))
    assert said in str(refused.value)
