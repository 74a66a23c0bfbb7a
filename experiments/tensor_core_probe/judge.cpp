#include "experiments/tensor_core_probe/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "numerics/platform/worker_pool.hpp"

namespace fp16lab::probe {
namespace {

constexpr std::size_t tiles_in_a_batch = 4096;

}  // namespace

DType dtype_of(const Format& format) { return format == f32 ? DType::f32 : operand_format(format.name); }

std::string_view generation_of(Capability capability) {
  return tensor_core_of(capability.major, capability.minor);
}

std::optional<TensorCoreModel> row_for(const Instruction& in, Capability capability,
                                       std::string_view generation) {
  const int architecture = capability.architecture();
  if (in.unit != Unit::wgmma && (architecture < in.first || architecture > in.last)) return std::nullopt;
  if (generation.empty()) generation = generation_of(capability);
  if (in.unit == Unit::wgmma) generation = "hopper-wgmma";
  // The sm_120 family multiplies FP8 natively, with the numbers of tcgen05.
  if (generation == "blackwell" && capability.major == 12 && in.operands.bytes == 1)
    generation = "blackwell-tcgen05";
  for (const TensorCoreModel& row : tensor_core_models())
    if (row.name == generation && row.operands.contains(dtype_of(in.operands)) &&
        row.accumulator() == dtype_of(in.accumulator))
      return row;
  return std::nullopt;
}

DotProduct dot_product_of(const TensorCoreModel& row, const Format& operands) {
  return [row, format = dtype_of(operands)](std::span<const std::uint32_t> a,
                                            std::span<const std::uint32_t> b, std::uint32_t c) {
    return fused_dot_add(row, format, a, format, b, c);
  };
}

void compare_tiles(const Instruction& in, const Tiles& tiles, const Words& d, int threads,
                   const DotProduct& expected, Comparison& comparison) {
  const std::size_t outputs = in.outputs(), tiles_before = comparison.outputs / outputs;
  std::vector<std::vector<Difference>> found(tiles.count);
  std::vector<std::uint64_t> differing(tiles.count);
  share_tasks(tiles.count, threads, [&](std::size_t tile) {
    for (std::size_t i = 0; i < outputs; ++i) {
      const auto a = std::span(tiles.a).subspan((tile * in.m + i / in.n) * in.k, in.k);
      const auto b = std::span(tiles.b).subspan((tile * in.n + i % in.n) * in.k, in.k);
      const std::uint32_t c = tiles.c[tile * outputs + i], word = d[tile * outputs + i];
      const std::uint32_t right = expected(a, b, c);
      if (word == right || ++differing[tile] > comparison.kept) continue;
      std::string place = fmt::format("tile {}, row {}, column {}", tiles_before + tile, i / in.n, i % in.n);
      found[tile].push_back(
          {std::move(place), Words(a.begin(), a.end()), Words(b.begin(), b.end()), c, word, right});
    }
  });
  comparison.outputs += tiles.count * outputs;
  for (std::size_t tile = 0; tile < tiles.count; ++tile) {
    comparison.differing += differing[tile];
    for (Difference& difference : found[tile])
      if (comparison.first.size() < comparison.kept) comparison.first.push_back(std::move(difference));
  }
}

Comparison compare_random(Device& device, const Instruction& in, Distribution distribution,
                          std::uint64_t seed, std::uint64_t outputs, int threads,
                          const DotProduct& expected) {
  const std::uint64_t count = (outputs + in.outputs() - 1) / in.outputs();
  Comparison comparison;
  for (std::uint64_t first = 0; first < count; first += tiles_in_a_batch) {
    const Tiles tiles = random_tiles(in, distribution, seed, first,
                                     std::min<std::uint64_t>(tiles_in_a_batch, count - first), threads);
    compare_tiles(in, tiles, device.run(in, tiles, true), threads, expected, comparison);
  }
  return comparison;
}

std::vector<CaptureVerdict> judge(const Capture& capture, std::string_view generation, int threads) {
  std::vector<CaptureVerdict> verdicts;
  for (const Instruction& in : instructions) {
    const auto mine = [&](const auto& part) { return part.instruction == &in; };
    if (std::ranges::none_of(capture.vectors, mine) && std::ranges::none_of(capture.tiles, mine)) continue;
    CaptureVerdict& verdict = verdicts.emplace_back(CaptureVerdict{&in, {}, 0, 0, {}});
    const std::optional<TensorCoreModel> row = row_for(in, capture.device.capability, generation);
    if (!row) continue;
    verdict.model = row->name;
    const DotProduct expected = dot_product_of(*row, in.operands);
    for (const CapturedVector& captured : capture.vectors) {
      if (!mine(captured)) continue;
      const Vector& vector = captured.vector;
      const std::uint32_t word = expected(vector.a, vector.b, vector.c);
      ++verdict.questions;
      for (std::size_t i = 0; i < captured.d.size(); ++i) {
        if (captured.d[i] == word) continue;
        std::string place = "question " + vector.id;
        if (captured.d.size() > 1) place += fmt::format(", row {}, column {}", i / in.n, i % in.n);
        verdict.differences.push_back({std::move(place), vector.a, vector.b, vector.c, captured.d[i], word});
      }
    }
    for (const CapturedTiles& captured : capture.tiles) {
      if (!mine(captured)) continue;
      Comparison comparison;
      comparison.kept = std::numeric_limits<std::size_t>::max();
      compare_tiles(in, operands_of(captured, capture.seed, threads), captured.d, threads, expected,
                    comparison);
      verdict.random_outputs += comparison.outputs;
      for (Difference& difference : comparison.first) {
        difference.place = fmt::format("{}, {}", name_of(captured.distribution), difference.place);
        verdict.differences.push_back(std::move(difference));
      }
    }
  }
  return verdicts;
}

}  // namespace fp16lab::probe
