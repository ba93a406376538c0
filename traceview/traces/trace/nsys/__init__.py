"""Exports of Nsight Systems: the only room that knows its table names and versions."""
