"""Compiled code: cubins, fat binaries and their disassembly, live registers, spills."""
