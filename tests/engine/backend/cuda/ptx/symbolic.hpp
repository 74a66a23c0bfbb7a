// Terms in place of numbers: which products a kernel adds to which sum, and in which order.
//
// Memory holds tags: patterns of 16 or 32 bits that name elements. Every floating-point instruction makes a
// term and gives its handle, again a pattern, which the kernel rounds, stages and stores as it would a
// number. 0 is +0.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tests/machines/ptx/instruction.hpp"

namespace fp16lab::engine::ptx {

class Symbolic final : public Terms {
 public:
  struct Product {
    std::uint32_t a = 0, b = 0;  ///< tags
    bool operator==(const Product&) const = default;
  };
  /// An fma, or a block of mma.sync (which counts as one): `operands[0]` plus all products, by one rounding.
  /// Or another operation on its operands.
  struct Term {
    std::string_view opcode;  ///< from the table: "fma", "add", "cvt"
    Type type;
    std::uint64_t operands[2] = {};
    std::size_t first_product = 0, product_count = 0;
  };
  /// Handles of 32 bits begin here, those of 16 bits at their sixteenth: no zero, no NaN and no infinity.
  /// Tags have to be below: up to 1fffffff, or up to 1fff for 16 bits.
  static constexpr std::uint32_t first_handle = 0x20000000, first_half_handle = 0x2000;

  std::uint64_t operate(std::string_view opcode, Type to, Type from,
                        const std::uint64_t (&operands)[3]) override;
  std::uint32_t multiply(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, std::uint32_t c,
                         int block_size) override;
  /// Forgets all terms.
  void clear() { *this = {}; }

  /// The term of a handle; null for a tag. Valid until the next one is made.
  const Term* find(std::uint32_t pattern) const;
  const Term* find_half(std::uint16_t pattern) const;
  std::span<const Product> products(const Term& term) const {
    return std::span(products_).subspan(term.first_product, term.product_count);
  }
  /// The blocks of a sum, first one first, down to what it began with (`begin`): 0 for +0, a tag, or the
  /// handle of a term of another operation.
  std::vector<std::vector<Product>> chain(std::uint32_t handle, std::uint32_t& begin) const;

 private:
  std::uint32_t handle_of(const Term& term);

  std::vector<Term> terms_;
  std::vector<std::size_t> half_terms_;  ///< indices
  std::vector<Product> products_;
};

}  // namespace fp16lab::engine::ptx
