#!/usr/bin/env bash
# Sets up, builds everything and runs the tests: CTest's, then those of the Python package (scripts/test_python.sh).
#   ./test.sh            all tests (labels fast and exhaustive; gpu tests say SKIPPED where there is no GPU)
#   ./test.sh --torch    besides, PyTorch from PyPI (5.4 GB) and the tests that need it
#   ./test.sh -L fast    any CTest options (after --torch)
#   ./test.sh --help     this text; ctest --help has CTest's options
# FP16LAB_WERROR=ON in the environment makes the compiler's warnings errors.
set -euo pipefail
cd "$(dirname "$0")"

case "${1:-}" in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 0 ;; esac

python=(scripts/test_python.sh)
if [[ ${1:-} == --torch ]]; then
  python+=(--torch)
  shift
fi
scripts/setup.sh --tests
"${python[@]}" --download >/dev/null 2>&1 & # while the compiler works; what fails there is told below
download=$!
cmake --preset release -DFP16LAB_TESTS=ON ${FP16LAB_WERROR:+-DFP16LAB_WERROR="$FP16LAB_WERROR"} >/dev/null
cmake --build --preset release
wait "$download" || true
ctest --preset release --parallel 2 "$@"
"${python[@]}"
