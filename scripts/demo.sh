#!/usr/bin/env bash
# Write demo.html: of a fresh recording where there is a GPU, else of a shipped one. Without a GPU,
# torch still lets a program be recorded on the CPU: that comes last.
# usage: make demo
set -euo pipefail
cd "$(dirname "$0")/.."

installed=.venv/bin/traceview
page=demo.html

has_gpu() { command -v nvidia-smi > /dev/null && nvidia-smi -L > /dev/null 2>&1; }
has_torch() { .venv/bin/python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))'; }
record() { "$installed" record --backend "$1" --force -o demo.sqlite examples/train.py; }

if has_gpu; then
    make --no-print-directory .venv/workloads
    trace=demo.sqlite
    record auto
    "$installed" report "$trace" --html "$page" --force > /dev/null
else
    trace=examples/training.sqlite.xz
    echo "No GPU here, so this is the report of a shipped recording, made on an H200:"
    echo
    "$installed" report "$trace" --html "$page" --force
    if has_torch; then
        echo
        echo "And a fresh recording of the same program on this machine's CPU:"
        echo
        record torch
    fi
fi

# The command to type next: on the PATH if this very installation is there.
command=$installed
if [ "$(command -v traceview || true)" -ef "$installed" ]; then command=traceview; fi
echo
echo "Open $PWD/$page in a browser, or print the same report here:"
echo "    $command report $trace"
