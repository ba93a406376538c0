"""The verdict on a recording, its scoreboard, and where the time of its GPU went."""

from traceview.traces.analyses.verdict.scoreboard import SCOREBOARD as SCOREBOARD
from traceview.traces.analyses.verdict.scoreboard import RunTime as RunTime
from traceview.traces.analyses.verdict.scoreboard import Scoreboard as Scoreboard
from traceview.traces.analyses.verdict.scoreboard import run_time as run_time
from traceview.traces.analyses.verdict.scoreboard import scoreboard as scoreboard
from traceview.traces.analyses.verdict.verdict import Verdict as Verdict
from traceview.traces.analyses.verdict.verdict import verdict as verdict
