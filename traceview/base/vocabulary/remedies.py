"""Remedies in a few words, for the plan, by how their action begins.

Most actions begin with a short imperative, such as `Pin the host memory (pin_memory=True)`, and
need no record here. Those do whose first clause is longer, or says too little alone.
"""

from __future__ import annotations

from collections.abc import Mapping

SHORT: Mapping[str, str] = {
    "Take this CPU work out of the": "take CPU work out of the loop",
    "Take it out of the run": "take CPU work out of the run",
    "Cast their input to": "cast the input to float32",
    "Make this call before": "move the call out of the loop",
    "Compute this on the GPU": "compute on the GPU",
    "Work on several cases at once": "work on several at once",
    "Where communication ends long before it is needed": "leave more SMs to compute",
    "Look first at what comes after the wait": "remove the wait",
    "Read results on the CPU less often": "read results less often",
    "Look at what the other thread does": "start the other thread earlier",
    "Look at whether neighbouring threads": "coalesce memory accesses",
    "Give each thread adjacent elements": "use wider loads and stores",
    "Use torch.nn.functional.scaled_dot_product_attention": "use fused attention",
    "torch.compile is on, but not for these": "compile these, too",
    "Remove the graph breaks first": "remove breaks, then use graphs",
    "Write results where they are read": "copy less on the GPU",
    "Overlap it with compute": "overlap communication",
    "Make it a multiple of": "pad the GEMM sizes",
    "Fuse them": "fuse elementwise kernels",
    "Keep on the GPU what is copied": "keep the data on the GPU",
    "Start the copies": "start the copies earlier",
    "Remove it if the CPU needs nothing": "remove the wait",
    "Keep these arrays in a data region": "open a data region",
    "Make the data on the GPU": "make the data on the GPU",
    "Read back only what the CPU needs": "copy back less",
    "Keep parallel regions from waiting": "add async clauses",
    "Keep target regions from waiting": "add nowait clauses",
    "Record its counters": "measure the kernel",
    "Compare with": "compare with a library",
    "Use a library's matrix product": "use a library's product",
    "Keep this data in": "use mapped memory",
    "Allocate the array in one block": "copy the rows at once",
    "Allocate less, or clear": "clear less memory",
    "Clear the values in the kernel before": "clear memory in kernels",
    "Allocate before the loop": "allocate before the loop",
    "Log less often": "log less often",
    "Remove torch.cuda.empty_cache()": "keep the allocator's memory",
    "Run the forward pass under torch.autocast to bf16": "use autocast to bf16",
    "Run the forward pass under torch.autocast to fp16": "use autocast to fp16",
    "Keep them as NHWC": "keep tensors as NHWC",
    "Write it as a matrix product": "use a matrix product",
    "Pad or align": "align the sizes",
    "Raise num_workers of that DataLoader": "raise num_workers",
    "Keep the DataLoader's workers": "keep the loader's workers",
    "Make the batches once": "make the batches once",
    "Instantiate and upload CUDA graphs": "upload graphs before the loop",
    "Put several steps into one CUDA graph": "put steps into one CUDA graph",
    "Pin what is uploaded": "pin what is uploaded",
    "Put what is uploaded into pinned": "pin what is uploaded",
    "Spread the work over more blocks": "use more blocks",
    "Look at what the work waited for": "look at what the work awaits",
    "Check whether input sizes change": "check the sizes of inputs",
    "Call gc.freeze() once": "collect garbage less often",
    "Call gc.collect() between": "collect garbage less often",
    "Move the line out of the compiled function": "remove graph breaks",
    "Keep what the CPU writes and reads": "keep the CPU's data apart",
}
"""The beginning of an action and the words for it, an imperative of at most 30 characters.

A plan is read before its findings: what `this` or `their` would be is not known there."""
