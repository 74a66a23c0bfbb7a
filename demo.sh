#!/usr/bin/env bash
# From a clean machine to a report: installs what is missing, builds, trains on Fashion-MNIST in FP32 (also with every
# initial weight moved by one ulp) and in emulated FP16 under several loss-scale policies, and writes figures and one
# offline page.
#   ./demo.sh          reduced grid, 3 to 9 minutes of training on 2 cores -> results/demo/report.html
#   ./demo.sh --full   the full grid of scales          -> results/full/report.html
#   ./demo.sh --help   this text
# A second run resumes: finished runs are not repeated.
set -euo pipefail
cd "$(dirname "$0")"

grid=demo
case "${1:-}" in
  "") ;;
  --full) grid=full ;;
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 0 ;;
  *) echo "demo.sh: unknown argument '$1' (known: --full, --help)" >&2 && exit 2 ;;
esac

scripts/setup.sh
if [[ ! -f build/build.ninja ]]; then cmake --preset release >&2; fi
targets=(fp16lab)
if [[ -e /dev/nvidiactl ]] && ninja -C build -t query fp16lab_cuda >/dev/null 2>&1; then targets+=(fp16lab_cuda); fi
cmake --build --preset release --target "${targets[@]}" >&2

# Two runs at a time with one thread each: their steps are too small for two threads. Ends with the page's path.
build/bin/fp16lab sweep -c "experiments/configs/$grid.toml" -o "results/$grid" --twin --jobs 2 --threads 2 --report
