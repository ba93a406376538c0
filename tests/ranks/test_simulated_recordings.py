"""Figures extracted from recordings of simulated ranks, against those of the simulation itself.

The two ways share nothing but the schedule: one goes through an nsys export, the reader and the
facts, the other computes from the schedule.
"""

import numpy as np
import pytest

from tests.ranks.job_model import FAULTS, SHAPES, US
from tests.ranks.rank_programs import run
from tests.ranks.simulated_export import write
from tests.ranks.simulated_figures import figures, lossy, recordings
from tests.ranks.simulated_jobs import with_straggler
from tests.ranks.simulation import LAUNCH_NS
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.facts.idle.causes import OWN_WORK_NS
from traceview.traces.ranks.figures import RankFigures
from traceview.traces.ranks.rank_figures import figures_of_ranks
from traceview.traces.trace.load import load

EQUAL = (
    *("start_ns", "end_ns", "kind", "communicator", "bytes", "bus_bytes", "members"),
    *("exposed_ns", "step", "work_ns"),
)
STEPS = ("number", "begin_ns", "end_ns", "compute_ns", "exposed_ns", "hidden_ns", "copies_ns")


Pairs = list[tuple[RankFigures, RankFigures]]


@pytest.fixture(scope="module", params=range(8))
def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Figures of some ranks of a job: of the simulation, and of its recording."""
    seed = int(request.param)
    job = with_straggler(seed, SHAPES[seed % len(SHAPES)], FAULTS[seed])
    lines = run(job)
    recorded = recordings(seed, job.ranks, per_host=2)
    if seed % 2:
        recorded = lossy(recorded, lines, seed)
    folder, both = tmp_path_factory.mktemp("ranks"), []
    for line, each in list(zip(lines, recorded, strict=True))[:4]:
        path = write(line, each, folder / f"{line.program.rank}.sqlite")
        (extracted,) = figures_of_ranks(load(path))
        both.append((figures(line, each), extracted))
    return both


def test_collectives_of_a_recording(pairs: Pairs):
    for simulated, extracted in pairs:
        for name in EQUAL:
            np.testing.assert_array_equal(
                getattr(extracted.collectives, name), getattr(simulated.collectives, name), name
            )
        assert extracted.name.rank == simulated.name.rank
        if extracted.communicators:
            assert extracted.communicators == simulated.communicators


def test_idle_time_of_a_recording(pairs: Pairs):
    for simulated, extracted in pairs:
        np.testing.assert_array_equal(
            extracted.collectives.idle_ns.sum(axis=1), simulated.collectives.idle_ns.sum(axis=1)
        )
        of_cause = extracted.collectives.idle_ns - simulated.collectives.idle_ns
        # A pause after a wait is due to the wait for as long as that lasted, as in training loops;
        # the simulation says what the thread did in it.
        late, drain = CAUSE_NAMES.index("launch-late"), CAUSE_NAMES.index("sync-drain")
        assert np.abs(of_cause[:, drain]).max() <= OWN_WORK_NS
        of_cause[:, late] += of_cause[:, drain]
        of_cause[:, drain] = 0
        # A launch that waits some µs for the copy before it: the simulation has no such cause.
        others = [each for each, cause in enumerate(CAUSE_NAMES) if cause != "copy-wait"]
        assert np.abs(of_cause[:, others]).max() <= 20 * US
        long = simulated.collectives.place_ns > 1_500 * US
        assert _places(extracted)[long].tolist() == _places(simulated)[long].tolist()


def test_steps_of_a_recording(pairs: Pairs):
    for simulated, extracted in pairs:
        for name in STEPS:
            np.testing.assert_array_equal(
                getattr(extracted.steps, name), getattr(simulated.steps, name), name
            )
        work = {
            part.kind: (part.calls, part.time_ns)
            for part in extracted.work
            if part.kind != "communication"
        }
        assert work == {part.kind: (part.calls, part.time_ns) for part in simulated.work}
        assert extracted.step_median_ns == simulated.step_median_ns


def test_time_of_the_cpu(pairs: Pairs):
    for simulated, extracted in pairs:
        assert extracted.steps.cpu_ns is not None
        assert simulated.steps.cpu_ns is not None
        # The last step ends with its last call; before the others a range begins and ends.
        off = np.abs(extracted.steps.cpu_ns - simulated.steps.cpu_ns)[:-1]
        assert off.max(initial=0) <= 2 * LAUNCH_NS


def _places(rank: RankFigures) -> np.ndarray:
    texts = [*(place.text for place in rank.places), ""]
    return np.array([texts[place] for place in rank.collectives.place.tolist()])
