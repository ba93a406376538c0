"""The verdict on a recording: its steps, how busy the GPU is, and what limits it."""

from traceview.analyses.verdict.verdict import Verdict as Verdict
from traceview.analyses.verdict.verdict import verdict as verdict
