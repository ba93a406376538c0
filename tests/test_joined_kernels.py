"""The columns that `Trace.kernels` adds, beside what pandas joins from the recorded tables."""

import numpy as np
import pandas as pd
import pytest

import traceview
from tests.places import DATA
from traceview.api.joined_kernels import COLUMNS

RECORDINGS = ("training", "cupy", "ddp_late", "cuda_graphs_nodes")


@pytest.mark.parametrize("name", RECORDINGS)
def test_each_column_is_the_join_that_it_stands_for(name):
    trace = traceview.load(DATA / f"{name}.sqlite.xz")
    joined, recorded = trace.kernels.to_pandas(), trace.table("kernels").to_pandas()
    assert list(joined)[len(COLUMNS) :] == list(recorded)
    pd.testing.assert_frame_equal(joined[list(recorded)], recorded)
    assert (joined["duration_ns"] == recorded["end_ns"] - recorded["start_ns"]).all()

    calls = trace.api_calls.to_pandas()
    calls = calls.sort_values("start_ns").drop_duplicates(["process", "correlation_id"], keep=False)
    found = recorded.merge(
        calls, "left", on=["process", "correlation_id"], suffixes=("", "_call")
    ).astype({"start_ns_call": "Int64", "end_ns_call": "Int64"})
    sure = found["start_ns_call"].notna().to_numpy() & joined["launched_ns"].notna().to_numpy()
    assert (joined["launched_ns"][sure] == found["start_ns_call"][sure]).all()
    waits = (found["start_ns"] - found["end_ns_call"])[sure].clip(lower=0)
    assert (joined["queue_wait_ns"][sure] == waits).all()

    report = traceview.analyze(trace, ["kernel-share", "steps"])
    by_label = joined.groupby("label", observed=True)["duration_ns"].sum()
    told = report["kernel-share"].tables["kernels"].to_pandas()
    by_name = told.groupby("name", observed=True)["total_ns"].sum()
    assert sorted(by_label) == sorted(by_name)
    if report.step_count:
        assert 0 < joined["step"].nunique() <= report.step_count


def test_parts_of_the_table_are_joined_too():
    kernels = traceview.load(DATA / "training.sqlite.xz").kernels
    every, rows = kernels.to_pandas(), np.array([7, 3, 3])
    part = kernels.take(rows).to_pandas().astype(object)
    assert part.equals(every.iloc[rows].reset_index(drop=True).astype(object))
    assert list(kernels.head(2)) == list(kernels)
