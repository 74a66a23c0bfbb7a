#include "experiments/allreduce/measurement.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fp16lab::experiments::allreduce {

std::string table_of(const std::vector<Row>& rows) {
  std::string text;
  int ranks = 0;
  for (const Row& row : rows) {
    if (row.ranks != ranks) {
      ranks = row.ranks;
      text += fmt::format("\n{} ranks{:<37}{:>14} {:>14} {:>12} {:>12} {:>9} {:>9}\n", ranks, "",
                          "bytes/rank", "most bytes", "error", "bound", "lost", "Inf born");
    }
    text += fmt::format("  {:<42} {:>14} {:>14} {:>12.3e} {:>12.3e} {:>9} {:>9}\n", describe(row.variant),
                        row.sent_total / static_cast<std::uint64_t>(row.ranks), row.sent_largest, row.error(),
                        row.relative(row.bound_squares), row.lost, row.born);
  }
  return text +
         "  error, bound: L2 relative to the mean in FP64, where finite; lost: zero although the mean is "
         "not;\n"
         "  Inf born: not finite although every rank was\n";
}

std::string csv_of(const std::vector<Row>& rows) {
  std::string text =
      "ranks,wire,algorithm,unscale,division,mean_bytes_per_rank,most_bytes_per_rank,relative_l2_error,bound,"
      "lost,inf_born\n";
  for (const Row& row : rows) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", row.ranks, name_of(row.variant.mean.wire),
                        title_of(row.variant.mean.order),
                        row.variant.unscale == Unscale::before ? "before" : "after",
                        title_of(row.variant.mean.predivide), static_cast<double>(row.sent_total) / row.ranks,
                        row.sent_largest, row.error(), row.relative(row.bound_squares), row.lost, row.born);
  }
  return text;
}

std::string table_of(const std::vector<Agreement>& all, float factor) {
  std::string text = fmt::format(
      "\nfound_inf after an overflow on rank 1 only (its inputs times {}); {} ranks, dynamic scale\n"
      "  {:<12} {:>7} {:>24} {:>23} {:>16}\n",
      factor, all.front().outcomes.size(), "checked", "skip", "next S", "non-finite weights",
      "distinct states");
  for (const Agreement& agreement : all) {
    std::uint64_t skipped = 0, nonfinite = 0;
    double least = agreement.outcomes.front().scale, most = least;
    for (const RankOutcome& outcome : agreement.outcomes) {
      skipped += outcome.skipped ? 1 : 0;
      nonfinite += outcome.nonfinite_weights;
      least = std::min(least, outcome.scale);
      most = std::max(most, outcome.scale);
    }
    text += fmt::format("  {:<12} {:>7} {:>24} {:>23} {:>16}\n", name_of(agreement.check),
                        fmt::format("{}/{}", skipped, agreement.outcomes.size()),
                        least == most ? fmt::format("{}", least) : fmt::format("{} or {}", least, most),
                        nonfinite, distinct_states(agreement.outcomes));
  }
  return text;
}

std::string csv_of(const std::vector<Agreement>& all) {
  std::string text = "check,rank,skipped,next_scale,nonfinite_weights,state_hash\n";
  for (const Agreement& agreement : all)
    for (std::size_t rank = 0; rank < agreement.outcomes.size(); ++rank) {
      const RankOutcome& outcome = agreement.outcomes[rank];
      text += fmt::format("{},{},{},{},{},{:016x}\n", name_of(agreement.check), rank, outcome.skipped ? 1 : 0,
                          outcome.scale, outcome.nonfinite_weights, outcome.state_hash);
    }
  return text;
}

}  // namespace fp16lab::experiments::allreduce
