#include "engine/parallel/wire_options.hpp"

#include <cmath>
#include <stdexcept>

namespace fp16lab::engine::parallel {

namespace {

constexpr DType wires[] = {DType::f32, DType::f16, DType::bf16};
constexpr Predivide predivides[] = {Predivide::one, Predivide::root, Predivide::all};
constexpr SumOrder orders[] = {SumOrder::tree, SumOrder::nccl_ring, SumOrder::nccl_tree, SumOrder::library};
constexpr std::string_view predivide_names[] = {"1", "sqrt", "n"};
constexpr std::string_view order_names[] = {"tree", "nccl-ring", "nccl-tree", "mpi"};

}  // namespace

std::span<const DType> wire_formats() { return wires; }
std::span<const Predivide> all_predivides() { return predivides; }
std::span<const SumOrder> all_sum_orders() { return orders; }
std::string_view name_of(Predivide predivide) { return predivide_names[static_cast<std::size_t>(predivide)]; }
std::string_view name_of(SumOrder order) { return order_names[static_cast<std::size_t>(order)]; }

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
