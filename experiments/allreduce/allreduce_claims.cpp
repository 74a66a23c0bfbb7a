#include "experiments/allreduce/allreduce_claims.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace fp16lab::experiments::allreduce {
namespace {

const Row& row_of(const std::vector<Row>& rows, int ranks, const Variant& variant) {
  return *std::ranges::find_if(rows,
                               [&](const Row& row) { return row.ranks == ranks && row.variant == variant; });
}

Answer judge_wide_wire(const Measured& measured) {
  double widest = 0, narrowest = std::numeric_limits<double>::infinity();
  bool clean = true;
  for (const Row& row : measured.rows) {
    const bool wide = row.variant.mean.wire == DType::f32;
    if (wide) {
      widest = std::max(widest, row.error());
      clean = clean && row.born == 0 && row.lost == 0;
    } else if (row.born == 0) {
      narrowest = std::min(narrowest, row.error());
    }
  }
  return {verdict_of(clean && widest < narrowest),
          fmt::format("largest FP32 error {:.3e}, smallest FP16 error {:.3e}", widest, narrowest)};
}

Answer judge_overflow(const Measured& measured) {
  std::uint64_t post = 0, pre = 0;
  for (const Row& row : measured.rows) {
    if (row.variant.mean.wire != DType::f16 || row.variant.unscale != Unscale::after) continue;
    if (row.variant.mean.predivide == Predivide::one) post += row.born;
    if (row.variant.mean.predivide == Predivide::all) pre += row.born;
  }
  const bool undecided = pre == 0 && post == 0 && !measured.scale_is_largest;
  return {undecided ? Verdict::cannot_tell : verdict_of(pre == 0 && post > 0),
          fmt::format("{} elements with postdivide, {} with predivide", post, pre)};
}

Answer judge_underflow(const Measured& measured) {
  bool holds = true;
  std::uint64_t before = 0, after = 0;
  for (const int count : measured.ranks)
    for (const SumOrder order : {SumOrder::nccl_ring, SumOrder::nccl_tree}) {
      const Row& early = row_of(measured.rows, count, {{DType::f16, Predivide::all, order}, Unscale::before});
      const Row& late = row_of(measured.rows, count, {{DType::f16, Predivide::all, order}, Unscale::after});
      before += early.lost;
      after += late.lost;
      holds = holds && late.lost < early.lost && late.error() < early.error();
    }
  return {measured.scale <= 1 || before == 0 ? Verdict::cannot_tell : verdict_of(holds),
          fmt::format("{} elements lost with unscale before, {} with unscale after", before, after)};
}

Answer judge_bytes(const Measured& measured) {
  bool holds = true;
  for (const Row& row : measured.rows) {
    const std::uint64_t width = row.variant.mean.wire == DType::f16 ? 2 : 4;
    const auto ranks = static_cast<std::uint64_t>(row.ranks);
    holds = holds && row.sent_total == 2 * (ranks - 1) * measured.elements * width;
    // The chunks of a ring differ by one element at most.
    if (row.variant.mean.order == SumOrder::nccl_ring)
      holds = holds && row.sent_largest <= 2 * (ranks - 1) * (measured.elements / ranks + 1) * width;
  }
  const Row& first = measured.rows.front();
  return {verdict_of(holds), fmt::format("{} bytes a rank for {} ranks and {} elements in FP32",
                                         first.sent_total / static_cast<std::uint64_t>(first.ranks),
                                         first.ranks, measured.elements)};
}

Answer judge_agreement(const Measured& measured) {
  bool holds = true;
  std::string text;
  for (const Agreement& agreement : measured.agreement) {
    const std::size_t states = distinct_states(agreement.outcomes);
    const bool unanimous = std::ranges::all_of(agreement.outcomes, [&](const RankOutcome& outcome) {
      return outcome.skipped == agreement.outcomes[0].skipped;
    });
    holds = holds && (states == 1) == unanimous && (unanimous || !agrees_by_construction(agreement.check));
    if (agreement.check == Check::local) holds = holds && states > 1;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", name_of(agreement.check), states);
  }
  return {verdict_of(holds), text};
}

}  // namespace

std::vector<Question<Measured>> questions() {
  return {
      {"rounding explains every error: nothing else is lost on the way",
       "error <= its a-priori bound (experiments/allreduce/gradient_mean.hpp) where no Inf was born",
       [](const Measured& measured) { return judge_bounds(measured.rows); }},
      {"an FP32 all-reduce loses no element and no range, whatever the order of scalings",
       "FP32 on the wire: nothing lost, no Inf born, and every error below every FP16 one", judge_wide_wire},
      {"a sum of scaled FP16 gradients overflows although no rank did; dividing by R first prevents it",
       "FP16, unscale after, at the largest S without overflow on any rank: Inf born with postdivide, none "
       "with predivide",
       judge_overflow},
      {"unscaling before an FP16 all-reduce throws away what the loss scale had saved",
       "FP16, predivide: fewer elements lost and a smaller error with unscale after, for every R and "
       "algorithm, at S > 1",
       judge_underflow},
      {"FP16 halves the bytes; ring and tree send equally many, the ring's ranks evenly",
       "n elements: 2 (R - 1) / R n elements a rank, exactly in total", judge_bytes},
      {"ranks that do not reduce found_inf stop being replicas",
       "distinct states after one iteration: one where found_inf is reduced or all look at the same mean; "
       "more where each looks at its own gradient, or at its own shard and not all shards overflowed",
       judge_agreement},
  };
}

}  // namespace fp16lab::experiments::allreduce
