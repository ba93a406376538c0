"""Attention in which a query sees no later key, with heads of 128 numbers.

Half of the n × n matrix is left out: blocks above the diagonal are never computed, blocks on it are
masked. What it takes to come near half the time is told in flash_attention.py, whose functions
these are.
"""

from kernels.flash_attention import attention_operation

OPERATION = attention_operation("flash_attention_causal", dim=128, causal=True)
