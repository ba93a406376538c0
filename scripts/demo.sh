#!/usr/bin/env bash
# Write demo.html: from a fresh recording where there is a GPU or torch, else from a shipped one.
# usage: make demo
set -euo pipefail
cd "$(dirname "$0")/.."

installed=.venv/bin/traceview
page=demo.html

has_gpu() { command -v nvidia-smi > /dev/null && nvidia-smi -L > /dev/null 2>&1; }
has_torch() { .venv/bin/python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))'; }

record() {
    local backend=torch
    if has_gpu; then
        make --no-print-directory .venv/workloads
        backend=auto
    elif ! has_torch; then
        return 1
    fi
    "$installed" record --backend "$backend" --force -o demo.sqlite examples/train.py
}

if record; then
    trace=demo.sqlite
else
    trace=examples/training.sqlite.xz
    echo "Reporting on a shipped recording, made on an H200: $trace"
fi
"$installed" report "$trace" --html "$page" --force > /dev/null

# The command to type next: on the PATH if this very installation is there.
command=$installed
if [ "$(command -v traceview || true)" -ef "$installed" ]; then command=traceview; fi
echo
echo "Open $PWD/$page in a browser, or print the same report here:"
echo "    $command report $trace"
