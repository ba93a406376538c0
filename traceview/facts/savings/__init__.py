"""What remedies win, replayed: the gain of edits of the run, over its steady time."""
