#include "engine/parallel/wire_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::parallel {

namespace {

constexpr DType wires[] = {DType::f32, DType::f16, DType::bf16};
constexpr std::string_view wire_texts[] = {"f32", "f16", "bf16"};
constexpr std::string_view predivide_texts[] = {"1", "sqrt", "n"};
constexpr std::string_view order_texts[] = {"tree", "nccl-ring", "nccl-tree", "mpi"};

std::size_t index_of(std::string_view what, std::string_view name, std::span<const std::string_view> known) {
  const auto found = std::ranges::find(known, name);
  if (found == known.end())
    throw std::invalid_argument(fmt::format("unknown {} '{}'; {}", what, name, known_are(name, known)));
  return static_cast<std::size_t>(found - known.begin());
}

}  // namespace

std::span<const std::string_view> wire_names() { return wire_texts; }
std::span<const std::string_view> predivide_names() { return predivide_texts; }
std::span<const std::string_view> sum_order_names() { return order_texts; }
std::string_view name_of(Predivide predivide) { return predivide_texts[static_cast<std::size_t>(predivide)]; }
std::string_view name_of(SumOrder order) { return order_texts[static_cast<std::size_t>(order)]; }

DType parse_wire(std::string_view name) { return wires[index_of("wire format", name, wire_texts)]; }
Predivide parse_predivide(std::string_view name) {
  return static_cast<Predivide>(index_of("predivide", name, predivide_texts));
}
SumOrder parse_sum_order(std::string_view name) {
  return static_cast<SumOrder>(index_of("order of sums", name, order_texts));
}

Divisors divisors_of(Predivide predivide, std::int64_t count) {
  const auto all = static_cast<float>(count);
  switch (predivide) {
    case Predivide::one:
      return {1, all};
    case Predivide::root: {
      const float root = std::sqrt(all);
      return {root, all / root};
    }
    case Predivide::all:
      return {all, 1};
  }
  throw std::logic_error("unknown predivide");
}

}  // namespace fp16lab::engine::parallel
