"""`traceview what-if`: what edits of a program would win, by replaying its recording with them.

`requests` reads edits, one file per kind finds what an edit touches, `answer` replays them one
after the other, `limits` says what the GPU then waits for, `wording` writes the sentences.
"""
