#!/usr/bin/env bash
# Run the tests of compiled kernels over the versions of Triton that traceview is held to:
#
#     scripts/test-tritons.sh PYTHON      PYTHON has traceview, PyTorch, pytest and one Triton
#
# The other versions are put into .cache/triton-VERSION, without what they depend on, and before the
# installed one on the path. Options of pytest: $PYTEST. Ends with a line for each version.
set -uo pipefail
cd "$(dirname "$0")/.."

VERSIONS=(3.6.0 3.7.1 3.9.0)
PYTHON=${1:?which Python: scripts/test-tritons.sh .venv/bin/python}

install() {
    local version=$1 folder=.cache/triton-$1
    [ -e "$folder/triton/__init__.py" ] && return
    rm -rf "$folder.part"
    "$PYTHON" -m pip install --quiet --no-deps --target "$folder.part" "triton==$version" &&
        rm -rf "$folder" && mv "$folder.part" "$folder"
}

installed=$("$PYTHON" -c 'import importlib.metadata as m; print(m.version("triton"))')

test_with() {
    local version=$1 path=${PYTHONPATH:-}
    if [ "$version" != "$installed" ]; then
        install "$version" || return
        path=$PWD/.cache/triton-$version${path:+:$path}
    fi
    # shellcheck disable=SC2086 (several options)
    PYTHONPATH=$path TRACEVIEW_TEST_ARCHES=all "$PYTHON" -m pytest ${PYTEST:--q -n auto} \
        tests/ptx tests/toolchain tests/headless tests/inspect tests/oracles/test_tutorials.py \
        tests/oracles/test_libraries.py
}

failed=0
results=()
for version in "${VERSIONS[@]}"; do
    echo "== Triton $version"
    if test_with "$version"; then
        results+=("Triton $version: passed")
    else
        results+=("Triton $version: FAILED")
        failed=1
    fi
done
printf '%s\n' "${results[@]}"
exit $failed
