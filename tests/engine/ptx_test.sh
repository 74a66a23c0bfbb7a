#!/usr/bin/env bash
# What nvcc makes of the CUDA sources, read in PTX: the instructions that the design promises are there, and none that
# would change bits. usage: ptx_test.sh NVCC SOURCE_DIR
set -euo pipefail
nvcc=$1
cd "$2"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0

# The bit-relevant flags of scripts/targets.cmake.
flags=(-std=c++20 -I. -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr -ptx)

ptx() {  # ptx FILE ARCHITECTURE: prints the name of the PTX file
  local out
  out=$work/$(basename "$1").$2.ptx
  "$nvcc" "${flags[@]}" -arch="compute_$2" -o "$out" "$1"
  echo "$out"
}
expect() {  # expect FILE PATTERN WHY
  grep -qE "$2" "$1" || { echo "$(basename "$1"): no $2: $3"; wrong=1; }
}
refuse() {  # refuse FILE PATTERN WHY
  if grep -nE "$2" "$1" | head -3 | grep .; then
    echo "$(basename "$1"): $2: $3"
    wrong=1
  fi
}

for arch in 80 90; do
  for room in gemm convolution; do
    file=$(ptx "engine/backend/cuda/$room.cu" $arch)
    expect "$file" 'mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32' "FP16 products on tensor cores"
    expect "$file" 'mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32' "BF16 products on tensor cores"
    expect "$file" 'ldmatrix\.sync' "operands come from shared memory by matrix loads"
    expect "$file" 'cp\.async' "slices arrive while others are multiplied"
    expect "$file" 'fma\.rn\.f32' "FP32 products are a chain of fma"
    refuse "$file" 'mma\.sync[^;]*\.f16\.f16\.f16\.f16|\.ftz|\.approx|red\.[a-z.]*f(16|32)|atom\.[a-z.]*f(16|32)' \
      "an order or a rounding that is not ours"
  done
done
for room in elementwise reduce optimizers step pooling random; do
  file=$(ptx "engine/backend/cuda/$room.cu" 90)
  refuse "$file" '\.ftz|\.approx|div\.full|red\.[a-z.]*f(16|32|64)|atom\.[a-z.]*\.add\.f(16|32|64)' \
    "not the arithmetic of the shared functions"
done
file=$(ptx engine/backend/cuda/optimizers.cu 90)
refuse "$file" 'fma\.rn\.f(32|64)' "a contraction: optimizers round every operation"
expect "$file" 'div\.rn\.f32' "IEEE division"
expect "$file" 'sqrt\.rn\.f32' "IEEE square roots"
file=$(ptx experiments/tensor_core_probe/wgmma_kernels.cu 90a)
expect "$file" 'wgmma\.mma_async\.sync\.aligned' "the probe asks Hopper's own instruction"

exit $wrong
