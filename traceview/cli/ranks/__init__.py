"""`traceview report` of several ranks: which recordings it is about, and its outputs."""
