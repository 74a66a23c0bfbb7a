#include "tests/engine/backend/cuda/ptx/proof/product_contract.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace fp16lab::engine::ptx::test {

namespace {

/// A product commutes, and which operand of an instruction the weights are is the kernel's choice.
bool same(const Symbolic::Product& x, const Symbolic::Product& y) {
  return (x.a == y.a && x.b == y.b) || (x.a == y.b && x.b == y.a);
}

}  // namespace

ChainRule chain_rule(int architecture, DType multiplied) {
  const bool hopper = architecture >= 90;
  if (multiplied == DType::f32) return {.block = 1, .run = 1};
  if (multiplied == DType::tf32 && architecture >= 80) return {.block = hopper ? 8 : 4, .run = 4};
  if (multiplied == DType::f16 || (multiplied == DType::bf16 && architecture >= 80))
    return {.block = hopper ? 16 : 8, .run = 8};
  throw std::invalid_argument(
      fmt::format("tensor cores of {} do not multiply {}", architecture, name_of(multiplied)));
}

std::vector<std::byte> Tagged::bytes() const {
  const std::size_t size = size_of(dtype);
  std::vector<std::byte> bytes(patterns.size() * size);
  for (std::size_t i = 0; i < patterns.size(); ++i) std::memcpy(bytes.data() + i * size, &patterns[i], size);
  return bytes;
}

// Where no two tags, and no tag and handle of a term, may be the same pattern: 16-bit ones are below 2^16
// and, widened from BF16, are multiples of 2^16 without the values at which handles begin; TF32 ones are
// multiples of 2^13 above 2^16; those of FP32 are odd and above 2^16.
const Tagged& Tags::make(const std::string& name, const Shape& shape, DType dtype, bool tf32) {
  auto tagged = std::make_unique<Tagged>(Tagged{name, shape, dtype, {}});
  for (std::int64_t i = 0; i < shape.element_count(); ++i) {
    std::uint32_t tag = ++count_;
    if (size_of(dtype) == 2) {
      if (tag >= Symbolic::first_half_handle) tag += 0x2000;
      if (tag > 0xffff) throw std::length_error("there are no 16-bit tags left for " + name);
    } else if (tf32) {
      tag = (tag + 7) << 13;
      if (tag >= 0x7f800000) throw std::length_error("there are no TF32 tags left for " + name);
    } else {
      tag = 0x10001 + 2 * tag;
    }
    tagged->patterns.push_back(tag);
  }
  tensors_.push_back(std::move(tagged));
  return *tensors_.back();
}

std::string Tags::name(std::uint32_t pattern) const {
  if (pattern == 0) return "0";
  for (const auto& tensor : tensors_) {
    const auto found = std::find(tensor->patterns.begin(), tensor->patterns.end(), pattern);
    if (found == tensor->patterns.end()) continue;
    auto index = static_cast<std::int64_t>(found - tensor->patterns.begin());
    std::string place;
    for (int axis = tensor->shape.rank() - 1; axis >= 0; --axis) {
      place = std::to_string(index % tensor->shape[axis]) + (place.empty() ? "" : ", ") + place;
      index /= tensor->shape[axis];
    }
    return fmt::format("{}({})", tensor->name, place);
  }
  return fmt::format("the pattern {:x}", pattern);
}

bool OutputJudge::is(std::uint64_t operand, const ExpectedOutput::Addend& addend) const {
  if (addend.dtype == DType::f32) return operand == addend.tag;
  if (addend.dtype == DType::bf16) return operand == std::uint64_t{addend.tag} << 16;
  const Symbolic::Term* const wide = terms_.find(static_cast<std::uint32_t>(operand));
  return wide != nullptr && wide->opcode == "cvt" && wide->type.kind == 'f' && wide->type.bits == 32 &&
         wide->operands[0] == addend.tag;
}

std::string OutputJudge::text_of(const Symbolic::Product& product) const {
  return fmt::format("{} {}", tags_.name(product.a), tags_.name(product.b));
}

/// Down to the chain: "cvt(add([16 products: a(0, 0) b(0, 0) .. a(0, 15) b(15, 0)] ...".
std::string OutputJudge::text_of(std::uint32_t pattern) const {
  const Symbolic::Term* const term = terms_.find(pattern);
  if (term == nullptr) return pattern == 0 ? "+0" : tags_.name(pattern);
  if (term->opcode != "fma")
    return fmt::format("{}({}{}{})", term->opcode, text_of(static_cast<std::uint32_t>(term->operands[0])),
                       term->opcode == "cvt" ? "" : ", ",
                       term->opcode == "cvt" ? "" : text_of(static_cast<std::uint32_t>(term->operands[1])));
  std::uint32_t begin = 0;
  const std::vector<std::vector<Symbolic::Product>> blocks = terms_.chain(pattern, begin);
  std::size_t products = 0;
  for (const auto& block : blocks) products += block.size();
  return fmt::format("{} + {} products in {} blocks ({} .. {})", text_of(begin), products, blocks.size(),
                     text_of(blocks.front().front()), text_of(blocks.back().back()));
}

std::string OutputJudge::difference(std::uint32_t pattern, const ExpectedOutput& expected) const {
  const auto told = [&](const std::string& what, const std::string& got) {
    return fmt::format("{}; got {}", what, got);
  };
  std::uint32_t sum = pattern;
  if (size_of(stored_) == 2) {
    const Symbolic::Term* const rounded = terms_.find_half(static_cast<std::uint16_t>(pattern));
    if (rounded == nullptr || rounded->opcode != "cvt" || rounded->type.bits != 16 ||
        rounded->type.kind != (stored_ == DType::bf16 ? 'h' : 'f'))
      return told(fmt::format("expected a sum rounded to {}", name_of(stored_)),
                  rounded == nullptr ? tags_.name(pattern) : std::string(rounded->opcode));
    sum = static_cast<std::uint32_t>(rounded->operands[0]);
  }
  for (std::size_t i = expected.addends.size(); i > 0; --i) {
    const ExpectedOutput::Addend& addend = expected.addends[i - 1];
    const Symbolic::Term* const term = terms_.find(sum);
    const bool adds = term != nullptr && term->opcode == "add";
    if (adds && is(term->operands[1], addend))
      sum = static_cast<std::uint32_t>(term->operands[0]);
    else if (adds && is(term->operands[0], addend))
      sum = static_cast<std::uint32_t>(term->operands[1]);
    else
      return told(fmt::format("expected {} to be added {}", tags_.name(addend.tag),
                              i == expected.addends.size() ? "last" : "before the last"),
                  text_of(sum));
  }
  return chain_difference(sum, expected);
}

std::string OutputJudge::chain_difference(std::uint32_t sum, const ExpectedOutput& expected) const {
  const std::size_t k = expected.products.size(), run = static_cast<std::size_t>(rule_.run),
                    size = static_cast<std::size_t>(rule_.block), padded = (k + run - 1) / run * run,
                    count = (padded + size - 1) / size;
  const auto at = [&](std::size_t i) { return i < k ? expected.products[i] : Symbolic::Product{}; };
  std::uint32_t rest = sum;
  std::string where;
  for (std::size_t block = count; block > 0 && where.empty(); --block) {
    const std::size_t first = (block - 1) * size, products = std::min(size, padded - first);
    const Symbolic::Term* const term = terms_.find(rest);
    if (term == nullptr || term->opcode != "fma" || term->operands[1] != 0) {
      where = fmt::format("block {} of {}, k = {} .. {}, is not there", block, count, first,
                          first + products - 1);
      break;
    }
    const auto got = terms_.products(*term);
    if (got.size() != products)
      where = fmt::format("block {} of {} has {} products, not {}", block, count, got.size(), products);
    for (std::size_t i = 0; i < products && where.empty(); ++i)
      if (!same(got[i], at(first + i)))
        where = fmt::format("block {} of {}, k = {}: expected {}, got {}", block, count, first + i,
                            text_of(at(first + i)), text_of(got[i]));
    rest = static_cast<std::uint32_t>(term->operands[0]);
  }
  if (where.empty() && rest != expected.begin)
    where =
        fmt::format("before the first product: expected {}, got {}", text_of(expected.begin), text_of(rest));
  if (where.empty()) return {};
  std::string chain = text_of(expected.begin);
  if (count > 0)
    chain += fmt::format(" + {} products in {} blocks ({} .. {})", padded, count, text_of(at(0)),
                         text_of(at(padded - 1)));
  return fmt::format("{}; expected {}; got {}", where, chain, text_of(sum));
}

}  // namespace fp16lab::engine::ptx::test
