"""Gradients of causal attention with heads of 128 numbers, by flash_attention_backward.py."""

from kernels.flash_attention_backward import attention_operation

OPERATION = attention_operation("flash_attention_backward_causal", dim=128, causal=True)
