#!/usr/bin/env bash
# What nvcc makes of the CUDA sources, read in PTX: the instructions that ARCHITECTURE.md promises are there, and none that
# would change bits. usage: ptx_test.sh NVCC SOURCE_DIR
set -euo pipefail
nvcc=$1
cd "$2"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0

# The bit-relevant flags of scripts/targets.cmake.
flags=(-std=c++20 -I. -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr -ptx)

translate() {  # translate FILE ARCHITECTURE
  "$nvcc" "${flags[@]}" -arch="compute_$2" -o "$work/$(basename "$1").$2.ptx" "$1" || echo "$1: does not compile"
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

# Without .rn, ptxas or a driver may still contract (PTX ISA, "add": the default modifier allows it).
inexact='\.ftz|\.approx|div\.full|(mul|add|sub)\.f(32|64)'
float_atomics='(^|[^a-z])(red|atom)\.[a-z.]*f(16|32|64)'

# Two at a time.
(translate engine/backend/cuda/product/gemm.cu 80; translate engine/backend/cuda/product/convolution.cu 90) &
(translate engine/backend/cuda/product/gemm.cu 90; translate experiments/tensor_core_probe/wgmma_kernels.cu 90a
 for room in elementwise reduce adam optimizers step pooling; do translate "engine/backend/cuda/verbs/$room.cu" 90; done) &
wait

for name in gemm.cu.80 gemm.cu.90 convolution.cu.90; do
  file=$work/$name.ptx
  expect "$file" 'mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32' "FP16 products on tensor cores"
  expect "$file" 'mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32' "BF16 products on tensor cores"
  expect "$file" 'mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.tf32\.tf32\.f32' "TF32 products on tensor cores"
  expect "$file" 'ldmatrix\.sync' "operands come from shared memory by matrix loads"
  expect "$file" 'cp\.async' "slices arrive while others are multiplied"
  expect "$file" 'fma\.rn\.f32' "FP32 products are a chain of fma"
  refuse "$file" "mma\.sync[^;]*\.f16\.f16\.f16\.f16|$inexact|$float_atomics" "an order or a rounding that is not ours"
done
for room in elementwise reduce adam optimizers step pooling; do
  refuse "$work/$room.cu.90.ptx" "$inexact|$float_atomics" "not the arithmetic of the shared functions"
done
for room in adam optimizers; do
  file=$work/$room.cu.90.ptx
  refuse "$file" 'fma\.rn\.f(32|64)' "a contraction: optimizers round every operation"
  expect "$file" 'div\.rn\.f32' "IEEE division"
  expect "$file" 'sqrt\.rn\.f32' "IEEE square roots"
done
expect "$work/wgmma_kernels.cu.90a.ptx" 'wgmma\.mma_async\.sync\.aligned' "the probe asks Hopper's own instruction"

exit $wrong
