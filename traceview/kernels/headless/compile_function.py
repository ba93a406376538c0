"""Compile one @triton.jit function in this process, as declared and without a GPU."""

from __future__ import annotations

from typing import Any

from traceview.base.errors import InputError, ToolNotFoundError
from traceview.base.hardware import limits_of
from traceview.kernels.headless import signatures
from traceview.kernels.headless.compile_error import in_words, source_of
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.headless.worker.jit_functions import Jitted, compile_for, jitted_in
from traceview.kernels.ptx.model import Argument, Compiled


def compile_function(function: Any, options: CompileOptions, arch: str) -> Compiled:
    """Compile a function for the argument types of `options.signature`.

    An autotuned function gets its first configuration, in which `options` replace values. Raises
    InputError if it is not a @triton.jit function, its arguments are not declared or it does not
    compile, ToolNotFoundError without Triton.
    """
    jitted = _jitted(function)
    if options.signature is None:
        remedy = f"pass signature={signatures.EXAMPLE}"
        raise InputError(f"{jitted.name} does not say the types of its arguments", remedy)
    configuration = jitted.configurations[0]
    constexprs = dict(configuration.constexprs) | options.constexpr_values
    whole = signatures.is_whole(options.signature, jitted.parameters)
    arguments = signatures.bind(options.signature, jitted.parameters, {} if whole else constexprs)
    launch = dict(configuration.options) | options.launch_options
    try:
        from triton.backends.compiler import GPUTarget

        capability = int(limits_of(arch).compute_capability.replace(".", ""))
        kernel = compile_for(GPUTarget("cuda", capability, 32), jitted, arguments, launch)
    except Exception as error:
        what = f"{jitted.name} does not compile as declared: {in_words(error, [jitted.function])}"
        raise InputError(what) from error
    return _compiled(jitted, kernel, arguments, arch)


def _jitted(function: Any) -> Jitted:
    try:
        jitted = list(jitted_in({"": function}))
    except ImportError as error:
        what = f"compiling a function needs Triton, which cannot be imported ({error})"
        raise ToolNotFoundError(what, "install it: pip install 'traceview[ptx]'") from None
    if not jitted:
        what = f"{getattr(function, '__name__', function)!r:.80} is not a @triton.jit function"
        remedy = "pass one, or a target of `traceview ptx`; unset TRITON_INTERPRET, if it is set"
        raise InputError(what, remedy)
    return jitted[0]


def _compiled(jitted: Jitted, made: Any, arguments: tuple[Argument, ...], arch: str) -> Compiled:
    source = source_of(jitted.function) or (None, None)
    return Compiled(
        name=str(made.metadata.name),
        arch=arch,
        how="declared",
        ptx=made.asm["ptx"],
        cubin=made.asm["cubin"],
        arguments=arguments,
        num_warps=made.metadata.num_warps,
        num_stages=made.metadata.num_stages,
        dynamic_shared_bytes=made.metadata.shared,
        source_file=source[0],
        source_line=source[1],
    )
