"""Programs run with remedies: in a scratch folder, in bounded steps, judged against themselves.

`driver` and `session` run inside the program and import neither numpy nor torch by themselves.
"""
