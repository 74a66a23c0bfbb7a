#include "tests/engine/backend/cuda/ptx/symbolic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace fp16lab::engine::ptx {

std::uint32_t Symbolic::handle_of(const Term& term) {
  const std::size_t handle = first_handle + terms_.size();
  if (handle >= 0x7f800000) throw std::invalid_argument("there are no handles left for terms");
  terms_.push_back(term);
  return static_cast<std::uint32_t>(handle);
}

std::uint64_t Symbolic::operate(std::string_view opcode, Type to, Type from,
                                const std::uint64_t (&operands)[3]) {
  const auto [a, b, c] = operands;
  if (opcode == "setp") throw std::invalid_argument("a comparison of terms, which have no values");
  if (to.bits > 32 || from.bits > 32) throw std::invalid_argument(fmt::format("{} of terms in FP64", opcode));
  if (opcode == "fma") {
    products_.push_back({static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b)});
    return handle_of({opcode, to, {c, 0}, products_.size() - 1, 1});
  }
  const std::uint32_t handle = handle_of({opcode, to, {a, b}, 0, 0});
  if (to.bits != 16) return handle;
  const std::size_t half = first_half_handle + half_terms_.size();
  if (half >= (to.kind == 'h' ? 0x7f80u : 0x7c00u))
    throw std::invalid_argument("there are no handles of 16 bits left");
  half_terms_.push_back(handle - first_handle);
  return half;
}

std::uint32_t Symbolic::multiply(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                                 std::uint32_t c, int block_size) {
  const auto size = static_cast<std::size_t>(block_size);
  for (std::size_t first = 0; first < a.size(); first += size) {
    const std::size_t count = std::min(size, a.size() - first), begin = products_.size();
    for (std::size_t i = first; i < first + count; ++i) products_.push_back({a[i], b[i]});
    c = handle_of({"fma", {'f', 32}, {c, 0}, begin, count});
  }
  return c;
}

const Symbolic::Term* Symbolic::find(std::uint32_t pattern) const {
  const std::size_t index = std::size_t{pattern} - first_handle;
  return pattern >= first_handle && index < terms_.size() ? &terms_[index] : nullptr;
}

const Symbolic::Term* Symbolic::find_half(std::uint16_t pattern) const {
  const std::size_t index = std::size_t{pattern} - first_half_handle;
  return pattern >= first_half_handle && index < half_terms_.size() ? &terms_[half_terms_[index]] : nullptr;
}

std::vector<std::vector<Symbolic::Product>> Symbolic::chain(std::uint32_t handle,
                                                            std::uint32_t& begin) const {
  std::vector<std::vector<Product>> blocks;
  begin = handle;
  for (const Term* term = find(begin); term != nullptr && term->opcode == "fma"; term = find(begin)) {
    const std::span<const Product> block = products(*term);
    blocks.emplace_back(block.begin(), block.end());
    begin = static_cast<std::uint32_t>(term->operands[0]);
  }
  std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

}  // namespace fp16lab::engine::ptx
