"""The verdict on a recording: its steps, how busy the GPU is, what limits it; its scoreboard."""

from traceview.analyses.verdict.scoreboard import SCOREBOARD as SCOREBOARD
from traceview.analyses.verdict.scoreboard import Scoreboard as Scoreboard
from traceview.analyses.verdict.scoreboard import scoreboard as scoreboard
from traceview.analyses.verdict.verdict import Verdict as Verdict
from traceview.analyses.verdict.verdict import verdict as verdict
