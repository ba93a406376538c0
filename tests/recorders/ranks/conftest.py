"""A stand-in for nsys, a script that records each rank into an export of its own."""

import os

import pytest

from tests.build import Export
from tests.recorders import fake_nsys

# Runs what follows the output option, with the variables for the program.
PROFILE = """shift
    while [ "${1#--output=}" = "$1" ]; do
        case "$1" in --env-var=*) export "$(echo "${1#--env-var=}" | sed s/.*,//)" ;; esac; shift
    done; shift
    touch "$out"; exec "$@" """


@pytest.fixture
def environment(tmp_path):
    """Of a machine whose nsys is the script."""
    folder = tmp_path / "nsys"
    folder.mkdir()
    for rank in ("", *range(4)):
        export = Export().launch((0, 1_000), (2_000, 3_000 + len(list(folder.iterdir()))))
        export.write(folder / f"small{rank}.db")
    export_it = f'cp "{folder}/small$RANK.db" "$out"'
    nsys = fake_nsys.nsys(folder / "nsys", profile=PROFILE, export=export_it)
    options = folder / "options.txt"
    options.write_text(f"{options.read_text()}\t--env-var=\n\n\t   Text.\n\n")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    return {**plain, "TRACEVIEW_NSYS": str(nsys)}
