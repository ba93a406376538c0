"""Which recordings files, folders and globs stand for."""

from pathlib import Path

import pytest

from traceview.base.errors import InputError
from traceview.traces.ranks.execution.task import RankFile, files_on, rank_files


def touch(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"x")


def names(files):
    return [Path(file.path).name for file in files]


def test_a_folder_holds_its_recordings_in_order_of_their_numbers(tmp_path):
    touch(tmp_path, *(f"rank_{n}.sqlite" for n in (10, 9, 0)), "notes.txt", "rank_9.nsys-rep")
    assert names(rank_files([str(tmp_path)])) == [
        "rank_0.sqlite",
        "rank_9.sqlite",
        "rank_10.sqlite",
    ]


def test_what_traceview_wrote_there_is_no_recording(tmp_path):
    (tmp_path / "report.json").write_text('{"schema_version": 1, "traceview_version": "1"}')
    (tmp_path / "rank0.json").write_text('{"traceEvents": []}')
    assert names(rank_files([str(tmp_path)])) == ["rank0.json"]


def test_globs_files_and_folders_together_each_file_once(tmp_path):
    touch(tmp_path, "a0.sqlite", "a1.sqlite", "b.sqlite")
    given = [str(tmp_path / "a*.sqlite"), str(tmp_path / "a0.sqlite"), str(tmp_path)]
    assert names(rank_files(given)) == ["a0.sqlite", "a1.sqlite", "b.sqlite"]
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "b.sqlite")
    assert len(rank_files(given)) == 3


def test_a_name_with_brackets_that_exists_is_itself(tmp_path):
    touch(tmp_path, "a[0].sqlite", "a0.sqlite")
    assert names(rank_files([str(tmp_path / "a[0].sqlite")])) == ["a[0].sqlite"]


@pytest.mark.parametrize("pattern", ["", "*.sqlite"])
def test_no_recordings_are_refused(tmp_path, pattern):
    with pytest.raises(InputError, match="has no recordings"):
        rank_files([str(tmp_path / pattern)])
    with pytest.raises(InputError, match=r"^no recordings; pass files, .* or \.json files$"):
        rank_files([])


def test_a_missing_file_is_listed_so_that_reading_it_tells(tmp_path):
    assert names(rank_files([str(tmp_path / "gone.sqlite")])) == ["gone.sqlite"]


ONE, OTHER = RankFile("/run/a.sqlite", 10, 5), RankFile("/run/a.sqlite", 12, 7)


def test_a_file_that_all_workers_see_may_be_read_by_any():
    assert files_on({"w1": [ONE], "w2": [ONE]}, ["/run"]) == [ONE]


def test_a_file_of_one_worker_is_read_there():
    second = RankFile("/run/b.sqlite", 1, 1)
    (first, last) = files_on({"w1": [ONE], "w2": [second]}, ["/run"])
    assert (first.workers, last.workers) == (("w1",), ("w2",))


def test_files_of_one_path_on_two_machines_are_two_recordings():
    found = files_on({"w1": [ONE], "w2": [OTHER]}, ["/run"])
    assert [(file.size, file.workers) for file in found] == [(10, ("w1",)), (12, ("w2",))]


def test_absent_on_one_worker_is_not_absent():
    (found,) = files_on({"w1": [RankFile("/run/a.sqlite")], "w2": [ONE]}, ["x"])
    assert (found.size, found.workers) == (10, ("w2",))
