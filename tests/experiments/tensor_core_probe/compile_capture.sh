#!/usr/bin/env bash
# compile_capture.sh SOURCE_FOLDER: capture.cu and its two headers for every architecture that nvcc knows, with nothing else
# of the project beside them, warnings as errors. The SASS is not run. Exit 77, Skipped, where there is no nvcc.
set -euo pipefail
nvcc=${CUDACXX:-$(command -v nvcc || true)}
[ -n "$nvcc" ] || { echo "no nvcc"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$1"/experiments/capture/*.{cu,hpp} "$folder"
cd "$folder"
known=$("$nvcc" --list-gpu-code)
compiled=0
for architecture in 70 75 80 86 89 90 100 120; do
  if ! grep -qx "sm_$architecture" <<< "$known"; then
    echo "sm_$architecture: this nvcc does not know it"
    continue
  fi
  "$nvcc" -arch="sm_$architecture" -Werror all-warnings -cubin -o capture.cubin capture.cu
  echo "sm_$architecture: compiled"
  compiled=$((compiled + 1))
done
[ "$compiled" -gt 0 ]
"$nvcc" -arch=sm_90 -Werror all-warnings -o capture capture.cu
# Without a GPU the program says so in one line and writes nothing.
if [ ! -e /dev/nvidia0 ]; then
  if CUDA_VISIBLE_DEVICES= ./capture > capture.txt 2> capture.err; then echo "a capture without a GPU?"; exit 1; fi
  [ ! -s capture.txt ] && grep -q "^capture: looking for a GPU: " capture.err
fi
