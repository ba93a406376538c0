"""zstd archives, written by what reads them: a frame each."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import compress as compress
else:
    from backports.zstd import compress as compress
