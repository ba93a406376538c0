"""Facts shared by analyses, computed once per trace: which call launched what, which range it
belongs to, when each device was busy. Every fact is a pure function of a Trace; none is an answer.
"""
