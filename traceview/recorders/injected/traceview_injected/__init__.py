"""Hooks in the recorded program: standard library only, and no failure of theirs reaches it."""
