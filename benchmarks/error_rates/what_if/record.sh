#!/usr/bin/env bash
# Record the faulty program of each pair: record.sh OUT [OPTIONS OF run, such as --ranges]
# Writes OUT/NAME.sqlite.xz; needs a GPU and nsys on the PATH. FOLDER=findings records the programs of
# that folder, ONLY="NAME NAME" these alone, STEPS steps of each (40); PYTHON is the interpreter. A
# program that fails does not stop the others.
set -uo pipefail
out=$(mkdir -p "${1:?usage: record.sh OUT [OPTIONS]}" && cd "$1" && pwd)
shift
cd "$(dirname "$0")/../../.." || exit
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
python=${PYTHON:-python3}
pairs=benchmarks/error_rates/what_if_pairs.py
for name in ${ONLY:-$("$python" "$pairs" names "${FOLDER:-what_if}")}; do
    echo "== $name"
    if ! timeout --kill-after=20 90 "$python" -m traceview record --backend nsys --force \
        -o "$out/$name.sqlite" "$pairs" run "$name" fault --steps "${STEPS:-40}" "$@" > "$out/$name.log" 2>&1; then
        echo "traceview record failed, last lines of $name.log:"
        tail -n 5 "$out/$name.log"
        # nsys alone: the same activities, without the source lines.
        timeout --kill-after=20 90 nsys profile --trace=cuda,nvtx,cublas --cuda-memory-usage=true \
            --cudabacktrace=sync:0 --sample=process-tree --backtrace=none --cpuctxsw=none \
            --python-sampling=true --python-sampling-frequency=1000 --force-overwrite=true \
            --output="$out/$name" "$python" "$pairs" run "$name" fault --steps "${STEPS:-40}" "$@" \
            > "$out/$name.nsys.log" 2>&1 &&
            nsys export --type=sqlite --include-json=true --force-overwrite=true \
                --output="$out/$name.sqlite" "$out/$name.nsys-rep" >> "$out/$name.nsys.log" 2>&1 ||
            { echo "nsys failed too:"; tail -n 5 "$out/$name.nsys.log"; }
        rm -f "$out/$name.nsys-rep"
    fi
    # Compressed while the next program runs.
    [ -f "$out/$name.sqlite" ] && xz -9 --force "$out/$name.sqlite" &
done
wait
ls -l "$out"
