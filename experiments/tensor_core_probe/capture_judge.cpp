// Every word of a capture against the table of tensor cores.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "experiments/tensor_core_probe/capture_file.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab::probe {
namespace {

void judge_vector(const CapturedVector& vector, const TensorCoreModel& row, CaptureVerdict& verdict) {
  const Instruction& in = *vector.instruction;
  const std::uint32_t expected = fused_dot_add(row, in.operands, vector.a, in.operands, vector.b, vector.c);
  ++verdict.questions;
  for (std::size_t i = 0; i < vector.d.size(); ++i) {
    if (vector.d[i] == expected) continue;
    std::string place = "question " + vector.id;
    const auto n = static_cast<std::size_t>(in.n);
    if (vector.d.size() > 1) place += fmt::format(", row {}, column {}", i / n, i % n);
    verdict.differences.push_back(
        {&in, std::move(place), vector.a, vector.b, vector.c, vector.d[i], expected});
  }
}

void judge_tiles(const CapturedTiles& captured, const TensorCoreModel& row, std::uint64_t seed, int threads,
                 CaptureVerdict& verdict) {
  const Instruction& in = *captured.instruction;
  const auto m = static_cast<std::size_t>(in.m), n = static_cast<std::size_t>(in.n),
             k = static_cast<std::size_t>(in.k);
  const Tiles tiles = operands_of(captured, seed, threads);
  std::vector<std::vector<CapturedDifference>> found(captured.count);
  share_tasks(captured.count, threads, [&](std::size_t tile) {
    for (std::size_t i = 0; i < m * n; ++i) {
      const auto a = std::span(tiles.a).subspan((tile * m + i / n) * k, k);
      const auto b = std::span(tiles.b).subspan((tile * n + i % n) * k, k);
      const std::uint32_t c = tiles.c[tile * m * n + i], d = captured.d[tile * m * n + i];
      const std::uint32_t expected = fused_dot_add(row, in.operands, a, in.operands, b, c);
      if (d == expected) continue;
      found[tile].push_back(
          {&in,
           fmt::format("{}, tile {}, row {}, column {}", name_of(captured.distribution), tile, i / n, i % n),
           {a.begin(), a.end()},
           {b.begin(), b.end()},
           c,
           d,
           expected});
    }
  });
  verdict.random_outputs += captured.count * m * n;
  for (std::vector<CapturedDifference>& of_tile : found)
    std::ranges::move(of_tile, std::back_inserter(verdict.differences));
}

}  // namespace

std::vector<CaptureVerdict> judge(const Capture& capture, std::string_view generation, int threads) {
  std::vector<CaptureVerdict> verdicts;
  for (const Instruction& in : instructions()) {
    const auto mine = [&](const auto& part) { return part.instruction == &in; };
    if (std::ranges::none_of(capture.vectors, mine) && std::ranges::none_of(capture.tiles, mine)) continue;
    CaptureVerdict verdict{&in, {}, 0, 0, {}};
    if (const std::optional<TensorCoreModel> row = row_for(in, capture.device.capability, generation)) {
      verdict.model = row->name;
      for (const CapturedVector& vector : capture.vectors)
        if (mine(vector)) judge_vector(vector, *row, verdict);
      for (const CapturedTiles& tiles : capture.tiles)
        if (mine(tiles)) judge_tiles(tiles, *row, capture.seed, threads, verdict);
    }
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

}  // namespace fp16lab::probe
