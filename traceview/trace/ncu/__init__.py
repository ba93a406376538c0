"""Nsight Compute's counters: from its reports and its CSV to the table kernel_counters."""
