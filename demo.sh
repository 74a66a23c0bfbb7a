#!/usr/bin/env bash
# From a clean machine to a report: installs what is missing, builds, trains on Fashion-MNIST in FP32 and in emulated
# FP16 under several loss-scale policies, and writes figures and one offline page.
#   ./demo.sh          reduced grid, minutes on 2 cores -> results/demo/report.html
#   ./demo.sh --full   the full grid of scales          -> results/full/report.html
# A second run resumes: finished runs are not repeated.
set -euo pipefail
cd "$(dirname "$0")"

grid=demo
case "${1:-}" in
  "") ;;
  --full) grid=full ;;
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0" && exit 0 ;;
  *) echo "demo.sh: unknown argument '$1' (known: --full, --help)" >&2 && exit 2 ;;
esac

scripts/setup.sh
if [[ ! -f build/build.ninja ]]; then cmake --preset release >&2; fi
cmake --build --preset release --target fp16lab >&2

build/bin/fp16lab sweep -c "experiments/configs/$grid.toml" -o "results/$grid" --report  # ends with the page's path
