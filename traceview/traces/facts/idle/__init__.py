"""Idle gaps of each GPU: where they begin and end, their cause, and what the CPU did meanwhile."""
