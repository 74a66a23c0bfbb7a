// Kernels over a list of tensors: one launch for as many as fit into a kernel's parameters, because a model
// has hundreds of gradients and most are small.
//
// The tensors of a table are cut into chunks of 4096 elements, numbered through the table; the blocks of a
// launch take chunks by grid strides, and find a chunk's tensor by bisection.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/instructions.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "engine/tensor/tensor.hpp"

namespace fp16lab::engine::gpu {

/// A part of a list of tensors (f), passed to kernels by value.
struct GradientTable {
  static constexpr int capacity = 144;
  static constexpr std::int64_t chunk = 4096;  ///< elements; a multiple of 16 bytes and of TREE's chunks

  std::int64_t first_chunk[capacity + 1];  ///< tensor i's; after the last tensor: how many there are
  std::int64_t elements[capacity];
  std::byte* address[capacity];
  DType dtype[capacity];
  std::uint8_t aligned[capacity];  ///< may 16 bytes be accessed at once?
  int tensors;

  FP16LAB_HD std::int64_t chunks() const { return first_chunk[tensors]; }
};
static_assert(sizeof(GradientTable) <= 4096 - 256,
              "a kernel has 4 KB of parameters, a pass needs some of it");

/// call(table, index of its first tensor in the list) for tables that hold all tensors, in order. Tensors
/// without elements are in the tables, too, and have no chunks.
template <class Call>
void for_each_table(std::span<const Tensor> tensors, const Call& call) {
  for (std::size_t begin = 0; begin < tensors.size(); begin += GradientTable::capacity) {
    GradientTable table{};
    table.tensors = static_cast<int>(std::min<std::size_t>(GradientTable::capacity, tensors.size() - begin));
    std::int64_t chunks = 0;
    for (int i = 0; i < table.tensors; ++i) {
      const Tensor& tensor = tensors[begin + static_cast<std::size_t>(i)];
      table.first_chunk[i] = chunks;
      table.elements[i] = tensor.element_count();
      table.address[i] = tensor.data();
      table.dtype[i] = tensor.dtype();
      table.aligned[i] = holds_packs(tensor.data(), 16);
      chunks += (tensor.element_count() + GradientTable::chunk - 1) / GradientTable::chunk;
    }
    table.first_chunk[table.tensors] = chunks;
    call(table, begin);
  }
}

/// The tensor to which a chunk belongs: the last one whose first chunk is not above it.
__device__ __forceinline__ int tensor_of_chunk(const GradientTable& table, std::int64_t chunk) {
  int low = 0, high = table.tensors;  // first_chunk[low] <= chunk < first_chunk[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_chunk[middle] <= chunk)
      low = middle;
    else
      high = middle;
  }
  return low;
}

}  // namespace fp16lab::engine::gpu
