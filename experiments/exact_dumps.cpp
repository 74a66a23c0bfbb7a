#include "experiments/exact_dumps.hpp"

#include <variant>

#include "numerics/convert.hpp"

namespace fp16lab::experiments {
namespace {

/// FP8 elements are FP32 numbers, too few bits to sum by a path of their own.
template <class F>
void add_chunk(std::span<const SmallFloat<F>> values, ExactZoneMass& mass, int threads) {
  std::vector<float> wide(values.size());
  widen(values, std::span<float>(wide));
  mass.add(std::span<const float>(wide), threads);
}
void add_chunk(std::span<const float> values, ExactZoneMass& mass, int threads) { mass.add(values, threads); }
void add_chunk(std::span<const double> values, ExactZoneMass& mass, int threads) {
  mass.add(values, threads);
}

}  // namespace

std::vector<analysis::NamedExactMass> exact_masses(const CountedDumps& dumps, double factor, int threads) {
  std::vector<analysis::NamedExactMass> masses;
  for (const CountedArray& array : dumps.arrays) {
    ExactZoneMass mass(fp16_range, factor);
    ArrayFile(array.file).visit(array.info, [&](const ArrayChunk& chunk) {
      std::visit([&](const auto& values) { add_chunk(values, mass, threads); }, chunk);
    });
    masses.push_back({array.label, mass});
  }
  return masses;
}

}  // namespace fp16lab::experiments
