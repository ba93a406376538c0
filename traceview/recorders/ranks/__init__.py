"""Ranks of a distributed run, as recordings: the files that they write."""
