// Tensor cores: ldmatrix (PTX ISA 9.7.14.5.15) and mma.sync (9.7.14.5.14). Both are .aligned and need all 32
// lanes.
//
// An instruction of k products is, as numerics has it, a chain of blocks of the row's block size in ascending
// k: two for m16n8k16 where a tensor core adds 8 products at a time. Where k is the smaller one (m16n8k8 on a
// row of 16) it is one block of so many products, not one filled up with zeros: fused_dot_add cuts its last
// block short.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "numerics/formats/small_float.hpp"
#include "numerics/gemm/gemm.hpp"
#include "tests/machines/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

/// Operands: a register for each 8 x 8 matrix. Lane 8 i + r has the address of row r of matrix i. Lane 4 r +
/// t gets columns 2 t and 2 t + 1 of row r; with .trans rows 2 t and 2 t + 1 of column r.
template <bool is_transposed>
void load_matrices(Warp& warp, const Instruction& instruction) {
  warp.require_together(all_lanes);
  std::uint16_t elements[4][8][8];
  const auto granule = std::max<std::size_t>(4, static_cast<std::size_t>(warp.block->code->shared_granule));
  for (int row = 0; row < 8 * instruction.vector; ++row) {
    const std::uint64_t address = warp.address(instruction.addresses[0], row);
    std::memcpy(elements[row / 8][row % 8], warp.shared_place(row, address, 16), 16);
    // The race watch: a lane that gets elements reads them, whichever lane has named the row.
    for (std::size_t byte = 0; byte < 16; byte += granule) {
      const int column = static_cast<int>(byte) / 2;
      const int reader = is_transposed ? 4 * column + row % 8 / 2 : 4 * (row % 8) + column / 2;
      warp.watch_shared(reader, address + byte, granule, 0);
    }
  }
  for (std::size_t i = 0; i < instruction.vector; ++i) {
    auto* const to = warp.values<std::uint32_t>(instruction.operands[i]);
    for (int lane = 0; lane < lanes; ++lane) {
      const int r = lane / 4, t = lane % 4;
      const std::uint32_t low = is_transposed ? elements[i][2 * t][r] : elements[i][r][2 * t];
      const std::uint32_t high = is_transposed ? elements[i][2 * t + 1][r] : elements[i][r][2 * t + 1];
      to[lane] = low | high << 16;
    }
  }
}

/// 16 x 8 outputs, k products. Operands: four registers of D, then those of A, B and C.
template <class Element, int k>
void multiply(Warp& warp, const Instruction& instruction) {
  warp.require_together(all_lanes);
  constexpr DType format = operand_format_of<Element>;
  const Machine::Options& options = *warp.block->options;
  const TensorCoreModel* const row = format == DType::f16    ? options.f16
                                     : format == DType::bf16 ? options.bf16
                                                             : options.tf32;
  if (row == nullptr)
    warp.fail(FaultKind::instruction, 0,
              fmt::format("mma of {} operands, which this machine has not been given", name_of(format)));

  constexpr bool halves = sizeof(Element) == 2;
  constexpr int elements = halves ? 2 : 1;  // per register, neighbours along k
  constexpr int group = 4 * elements;       // extent in k that four lanes hold in one register each
  std::uint32_t a[16][k], b[8][k], c[16][8];
  const std::uint32_t* operand = instruction.operands.data() + 4;
  const auto gather = [&](int registers, auto&& place) {
    for (int r = 0; r < registers; ++r) {
      const auto* const words = warp.values<std::uint32_t>(*operand++);
      for (int lane = 0; lane < lanes; ++lane)
        for (int i = 0; i < elements; ++i)
          place(r, lane / 4, elements * (lane % 4) + i) =
              halves ? words[lane] >> (16 * i) & 0xffff : words[lane];
    }
  };
  // Lane 4 g + t. Register r of A: row g, or g + 8 where r is odd; its k ascend with r / 2. Register r of B:
  // column g, its k ascend with r. Element i of the register: k = elements * t + i.
  gather(
      16 * k / (32 * elements), [&](int r, int g, int i) -> auto& {
        return a[g + 8 * (r % 2)][group * (r / 2) + i];
      });
  gather(
      8 * k / (32 * elements), [&](int r, int g, int i) -> auto& { return b[g][group * r + i]; });
  // c0, c1: row g, columns 2 t and 2 t + 1; c2, c3: row g + 8.
  const auto for_each_sum = [&](const std::uint32_t* registers, auto&& visit) {
    for (int r = 0; r < 4; ++r) {
      auto* const words = warp.values<std::uint32_t>(registers[r]);
      for (int lane = 0; lane < lanes; ++lane)
        visit(words[lane], c[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2]);
    }
  };
  for_each_sum(operand, [](std::uint32_t word, std::uint32_t& sum) { sum = word; });
  if (options.terms != nullptr) {
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 8; ++n)
        c[m][n] = options.terms->multiply(a[m], b[n], c[m][n], row->block().products);
  } else {
    Element a_elements[16 * k], b_elements[8 * k];
    float sums[16 * 8];
    const auto element_of = [](std::uint32_t word) {
      if constexpr (halves)
        return Element::from_bits(static_cast<std::uint16_t>(word));
      else
        return std::bit_cast<float>(word);
    };
    std::transform(a[0], a[0] + 16 * k, a_elements, element_of);
    std::transform(b[0], b[0] + 8 * k, b_elements, element_of);
    std::memcpy(sums, c, sizeof(c));
    emulated_gemm(*row, {16, 8, k}, MatrixView<Element>{a_elements, k, false},
                  MatrixView<Element>{b_elements, k, true}, sums, sums, 8);
    std::memcpy(c, sums, sizeof(c));
  }
  for_each_sum(instruction.operands.data(), [](std::uint32_t& word, std::uint32_t sum) { word = sum; });
}

}  // namespace fp16lab::engine::ptx
