// Tensor cores: ldmatrix (PTX ISA 9.7.14.5.15) and mma.sync (9.7.14.5.14). Both need all 32 lanes.
//
// An instruction of k products is, as numerics has it, a chain of blocks of the row's block size in ascending k: two for
// m16n8k16 where a tensor core adds 8 products at a time. Where k is the smaller one (m16n8k8 on a row of 16) it is one
// block of so many products, not one filled up with zeros: fused_dot_add cuts its last block short.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "engine/backend/cuda/ptx/table.hpp"
#include "engine/backend/cuda/ptx/warp.hpp"
#include "numerics/formats/small_float.hpp"
#include "numerics/gemm/gemm.hpp"

namespace fp16lab::engine::ptx {

namespace {

void require_whole_warp(Warp& warp, const char* name) {
  if (warp.live != all_lanes)
    warp.fail(std::countr_zero(warp.active),
              fmt::format("{} needs 32 lanes; lanes {:08x} live", name, warp.live));
}

/// operands: address, then a register for each 8 x 8 matrix. Lane 8 i + r has the address of row r of matrix i. Lane
/// 4 r + t gets columns 2 t and 2 t + 1 of row r; with .trans rows 2 t and 2 t + 1 of column r.
template <int matrices, bool transposed>
void load_matrices(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, "ldmatrix");
  if (!warp.meets(all_lanes)) return;
  const std::uint32_t base = instruction.operands[0];
  std::uint16_t elements[matrices][8][8];
  for (int row = 0; row < 8 * matrices; ++row) {
    std::uint64_t address = static_cast<std::uint64_t>(instruction.constant);
    if (base != no_operand)
      address += instruction.wide_address ? warp.values<std::uint64_t>(base)[row]
                                          : warp.values<std::uint32_t>(base)[row];
    if (!instruction.wide_address) address = static_cast<std::uint32_t>(address);
    if (address % 16 != 0)
      warp.fail(row, fmt::format("the row at {:#x} of shared memory is not aligned to 16 bytes", address));
    const std::uint64_t offset = address - space_begin;
    if (offset >= warp.block->shared_bytes || 16 > warp.block->shared_bytes - offset)
      warp.fail(row, fmt::format("a row at byte {} of shared memory; the block has {} bytes",
                                 static_cast<std::int64_t>(offset), warp.block->shared_bytes));
    std::memcpy(elements[row / 8][row % 8], warp.block->shared.data() + offset, 16);
    // The race watch: a lane that gets elements reads them, whoever has named the row.
    const int granule = warp.block->code->shared_granule;
    for (int byte = 0; byte < 16; byte += granule < 4 ? 4 : granule) {
      const int column = byte / 2;
      const int reader = transposed ? 4 * column + row % 8 / 2 : 4 * (row % 8) + column / 2;
      warp.note_shared(reader, address + static_cast<std::uint64_t>(byte),
                       granule < 4 ? 4 : static_cast<std::size_t>(granule), {});
    }
  }
  for (int i = 0; i < matrices; ++i) {
    auto* const to = warp.values<std::uint32_t>(instruction.operands[static_cast<std::size_t>(i) + 1]);
    for (int lane = 0; lane < lanes; ++lane) {
      const int r = lane / 4, t = lane % 4;
      const std::uint32_t low = transposed ? elements[i][2 * t][r] : elements[i][r][2 * t];
      const std::uint32_t high = transposed ? elements[i][2 * t + 1][r] : elements[i][r][2 * t + 1];
      to[lane] = low | high << 16;
    }
  }
}

/// One of the shapes that are multiplied: 16 x 8 outputs, k products of elements of so many bits.
template <class Element, int k>
struct Shape {
  static constexpr bool halves = sizeof(Element) == 2;
  static constexpr int elements = halves ? 2 : 1;  // of a register, neighbours along k
  static constexpr int a_registers = 16 * k / (32 * elements), b_registers = 8 * k / (32 * elements);
  static constexpr int k_group = 4 * elements;  // of k that four lanes hold in one register each

  std::uint32_t a[16][k], b[8][k], c[16][8];

  static std::uint32_t element(std::uint32_t word, int i) {
    return halves ? word >> (16 * i) & 0xffff : word;
  }

  /// Register r of A: row g, or g + 8 where r is odd; its k ascend with r / 2. Register r of B: column g, its k ascend
  /// with r. Element i of the register: k = elements * t + i. c0, c1: row g, columns 2 t and 2 t + 1; c2, c3: row g + 8.
  void gather(Warp& warp, const Instruction& instruction) {
    const std::uint32_t* operand = instruction.operands.data() + 4;
    for (int r = 0; r < a_registers; ++r) {
      const auto* const words = warp.values<std::uint32_t>(*operand++);
      for (int lane = 0; lane < lanes; ++lane)
        for (int i = 0; i < elements; ++i)
          a[lane / 4 + 8 * (r % 2)][k_group * (r / 2) + elements * (lane % 4) + i] = element(words[lane], i);
    }
    for (int r = 0; r < b_registers; ++r) {
      const auto* const words = warp.values<std::uint32_t>(*operand++);
      for (int lane = 0; lane < lanes; ++lane)
        for (int i = 0; i < elements; ++i)
          b[lane / 4][k_group * r + elements * (lane % 4) + i] = element(words[lane], i);
    }
    for (int r = 0; r < 4; ++r) {
      const auto* const words = warp.values<std::uint32_t>(*operand++);
      for (int lane = 0; lane < lanes; ++lane)
        c[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2] = words[lane];
    }
  }
  void scatter(Warp& warp, const Instruction& instruction) const {
    for (int r = 0; r < 4; ++r) {
      auto* const words = warp.values<std::uint32_t>(instruction.operands[static_cast<std::size_t>(r)]);
      for (int lane = 0; lane < lanes; ++lane)
        words[lane] = c[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2];
    }
  }
};

const TensorCoreModel& row_of(Warp& warp, DType format) {
  const Machine::Options& options = *warp.block->options;
  const TensorCoreModel* const row = format == DType::f16    ? options.f16
                                     : format == DType::bf16 ? options.bf16
                                                             : options.tf32;
  if (row == nullptr)
    warp.fail(0, fmt::format("mma of {} operands, which this machine has not been given", name_of(format)));
  return *row;
}

template <class Element, int k>
void multiply(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, "mma");
  if (!warp.meets(all_lanes)) return;
  constexpr DType format = operand_format_of<Element>;
  const TensorCoreModel& row = row_of(warp, format);
  Shape<Element, k> shape;
  shape.gather(warp, instruction);
  Element a[16 * k], b[8 * k];
  float c[16 * 8];
  const auto fill = [](Element* to, const auto& from) {
    for (const auto& line : from)
      for (const std::uint32_t word : line) {
        if constexpr (sizeof(Element) == 2)
          *to++ = Element::from_bits(static_cast<std::uint16_t>(word));
        else
          *to++ = std::bit_cast<float>(word);
      }
  };
  fill(a, shape.a);
  fill(b, shape.b);
  std::memcpy(c, shape.c, sizeof(c));
  emulated_gemm(row, {16, 8, k}, MatrixView<Element>{a, k, false}, MatrixView<Element>{b, k, true}, c, c, 8);
  std::memcpy(shape.c, c, sizeof(c));
  shape.scatter(warp, instruction);
}

template <class Element, int k>
void multiply_terms(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp, "mma");
  if (!warp.meets(all_lanes)) return;
  constexpr DType format = operand_format_of<Element>;
  const int block_size = row_of(warp, format).block_size;
  Shape<Element, k> shape;
  shape.gather(warp, instruction);
  try {
    for (std::size_t m = 0; m < 16; ++m)
      for (std::size_t n = 0; n < 8; ++n)
        shape.c[m][n] = warp.block->options->arithmetic->multiply(format, shape.a[m], shape.b[n],
                                                                  shape.c[m][n], block_size);
  } catch (const std::invalid_argument& error) {
    warp.fail(0, error.what());
  }
  shape.scatter(warp, instruction);
}

template <class Element, int k>
void bind_multiply(Form& form) {
  form.handler = &multiply<Element, k>;
  form.on_terms = &multiply_terms<Element, k>;
}

}  // namespace

void bind_matrix(Form& form, std::string_view name) {
  if (name == "ldmatrix") {
    const std::string_view count = form.parts[3];
    const bool transposed = form.parts[4] == "trans";
    form.space = Space::shared;
    form.access_bytes = 16;
    form.vector = count == "x4" ? 4 : count == "x2" ? 2 : 1;
    if (form.vector == 4) form.handler = transposed ? &load_matrices<4, true> : &load_matrices<4, false>;
    if (form.vector == 2) form.handler = transposed ? &load_matrices<2, true> : &load_matrices<2, false>;
    if (form.vector == 1) form.handler = transposed ? &load_matrices<1, true> : &load_matrices<1, false>;
    return;
  }
  const std::string_view shape = form.parts[2], operands = form.parts[6];
  if (operands == "f16")
    shape == "m16n8k16" ? bind_multiply<Float16, 16>(form) : bind_multiply<Float16, 8>(form);
  if (operands == "bf16")
    shape == "m16n8k16" ? bind_multiply<BFloat16, 16>(form) : bind_multiply<BFloat16, 8>(form);
  if (operands == "tf32") shape == "m16n8k8" ? bind_multiply<float, 8>(form) : bind_multiply<float, 4>(form);
}

}  // namespace fp16lab::engine::ptx
