#!/usr/bin/env bash
# Sets up, builds everything and runs the tests; ends with CTest's own summary.
#   ./test.sh            all tests (labels fast and exhaustive; gpu tests say SKIPPED where there is no GPU)
#   ./test.sh -L fast    any CTest options
set -euo pipefail
cd "$(dirname "$0")"

scripts/setup.sh
cmake --preset release >/dev/null
cmake --build --preset release
ctest --preset release --parallel 2 "$@"
