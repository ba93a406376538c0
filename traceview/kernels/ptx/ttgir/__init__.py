"""Triton's TTGIR as text: operations, layouts, and how wide each access can be."""
