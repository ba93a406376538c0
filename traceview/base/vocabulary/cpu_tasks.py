"""What a CPU works at, by the functions that samples show it in, and what to do about each."""

from __future__ import annotations

import re

from traceview.base.records import record


@record
class CpuTask:
    """One kind of CPU work. `what` follows `97 % of it`; without it only the remedy is said.

    `frames` matches any frame of a stack: of native code such as `std::ostream::put`, of Python
    such as `numpy/lib/npyio.py::savetxt`. `source` matches the text of a line of the program in
    which functions without a frame of their own are called, `inner` the library function that the
    program is in, as StackSites names it, and `named` the functions of the program itself.
    """

    what: str
    remedy: str
    frames: re.Pattern[str] | None = None
    source: re.Pattern[str] | None = None
    inner: re.Pattern[str] | None = None
    named: re.Pattern[str] | None = None


_PACKAGES = r"(?:site|dist)-packages/"
_PART = r"(?:^|_|::|(?<=[a-z])(?=[A-Z]))"
TASKS = (
    CpuTask(
        "",
        "Log less often or fewer tensors: each is copied to the CPU and processed there.",
        re.compile(rf"{_PACKAGES}(?:torch/utils/tensorboard|tensorboardX|tensorboard)/"),
    ),
    CpuTask(
        "",
        "Compute this in JAX instead of a host callback, or on the CPU before the step: the GPU "
        "waits for what a callback returns.",
        re.compile(r"jax/_src/callback\.py::"),
    ),
    CpuTask(
        "",
        "Keep these parameters and their optimizer on the GPU. If they do not fit, update on the "
        "CPU while the GPU works on the next batch.",
        inner=re.compile(r"torch\.optim\."),
    ),
    CpuTask(
        "",
        "Keep these arrays on the GPU: open a data region around the loop (acc data, omp target "
        "data), so that directives inside copy nothing. Put what must be copied into pinned memory "
        "(nvc -gpu=pinned): pageable memory goes through buffers of the runtime.",
        inner=re.compile(
            r"(?:__pgi_uacc_data|__tgt_target_data|GOACC_(?:data|enter|update)"
            r"|GOMP_target_(?:data|enter|update))"
        ),
    ),
    CpuTask(
        "compiling code at run time",
        "Compile once and keep the result: load a cubin that was built ahead (nvcc -cubin, or "
        "nvrtcGetCUBIN, saved to a file), and include fewer headers.",
        re.compile(r"nvrtcCompileProgram"),
        re.compile(r"\bnvrtcCompileProgram\("),
    ),
    CpuTask(
        "formatting numbers as text",
        "Write numbers in binary (fwrite, ofstream::write, numpy.save), or fewer of them: to "
        "format them as text takes this time, not the file.",
        re.compile(
            r"^(?:_*(?:IO_)?(?:v?[sf]?n?printf|vfprintf)(?:_\w+)?$|__printf_fp|std::(?:basic_)?ostream"
            r"|std::(?:__cxx11::)?num_put|std::ostreambuf_iterator|std::__?to_chars|fmt::)"
            r"|/numpy/lib/_?\w*npyio\w*\.py::savetxt|/numpy/_core/arrayprint|/json/encoder\.py::"
            r"|/pandas/io/formats/csvs\.py::"
        ),
        re.compile(r"\b(?:savetxt|json\.dumps?|to_csv|print|writerows?)\("),
    ),
    CpuTask(
        "parsing text",
        "Read numbers in binary (fread, numpy.load), or parse the text once and keep it so.",
        re.compile(
            r"^(?:_*(?:IO_|isoc\d+_)?v?[sf]?scanf(?:_\w+)?$|_*(?:isoc\d+_)?strto(?:d|f|l|ul|ll|ull)(?:_\w+)?$|ato[fil]$"
            r"|std::(?:basic_)?istream|std::(?:__cxx11::)?num_get|std::getline)"
            r"|/numpy/lib/_?\w*npyio\w*\.py::(?:loadtxt|genfromtxt|_read)|/json/decoder\.py::"
            r"|/pandas/io/parsers/"
        ),
        re.compile(r"\b(?:loadtxt|genfromtxt|json\.loads?|read_csv)\("),
    ),
    CpuTask(
        "reading and decoding files",
        "Read and decode on other threads or processes, or keep the decoded data (numpy.save).",
        re.compile(
            rf"{_PACKAGES}(?:PIL|imageio|h5py|rasterio|soundfile|av|nibabel|tifffile)/"
            r"|^(?:jpeg_\w+|png_read\w*|inflate\w*|H5D?read|cv::im(?:read|decode))$"
        ),
        re.compile(r"\b(?:imread|imdecode|np\.load|pickle\.loads?|h5py\.File)\("),
    ),
    CpuTask(
        "drawing random numbers",
        "Draw them on the GPU (cuRAND, curand_kernel.h), or on several threads.",
        re.compile(
            r"^(?:s?rand(?:om)?(?:_r)?|[delmn]rand48(?:_r)?)$"
            r"|^std::(?:mersenne_twister|linear_congruential|\w+_distribution|random_device)"
            r"|/random\.py::"
        ),
        re.compile(r"\b(?:np|numpy)\.random\.|\brandom(?:\.\w+)?\(|\brng\.\w+\("),
    ),
    CpuTask(
        "sorting",
        "Sort on the GPU (thrust::sort, cub::DeviceRadixSort, torch.sort).",
        re.compile(
            r"^(?:std::(?:stable_)?sort|std::__\w*(?:sort|heap|partition)\w*|qsort\w*|msort\w*)$"
        ),
        re.compile(r"\bsorted\(|\.sort\(|\bnp\.(?:arg|lex)?sort\("),
    ),
    CpuTask(
        "in a check or a version for the CPU, by its name",
        "Leave it out of runs that are to be fast, or check a smaller case, or compare on the GPU.",
        named=re.compile(
            rf"{_PART}(?i:seq|sequential|serial|cpu|ref|reference|gold|golden|verify|validate"
            rf"|check|compare|expected)(?:_|$|(?=[A-Z(<]))"
        ),
    ),
)
