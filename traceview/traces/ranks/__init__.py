"""The ranks of one job side by side: who waits for whom, and why."""
