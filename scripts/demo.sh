#!/usr/bin/env bash
# Write demo.html: of a fresh recording where there is a GPU and nsys, else of one that ships.
# usage: make demo
set -euo pipefail
cd "$(dirname "$0")/.."

shipped=tests/data/mlp_sync.sqlite.xz
page=demo.html

record() {
    command -v nvidia-smi > /dev/null && nvidia-smi -L > /dev/null 2>&1 || return 1
    make --no-print-directory .venv/workloads
    .venv/bin/traceview record --force -o demo.sqlite workloads/mlp.py --print-loss
}

if record; then
    trace=demo.sqlite
else
    trace=$shipped
    echo "Reporting on a recording that ships with the project (made on an H200): $trace"
fi
.venv/bin/traceview report "$trace" --html "$page" --force
echo "Open $PWD/$page in a browser; print the whole report with: .venv/bin/traceview report $trace"
