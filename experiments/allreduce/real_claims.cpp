// What is shown and asked of means on real ranks.
#include <fmt/format.h>

#include <numeric>

#include "experiments/allreduce/allreduce_claims.hpp"
#include "experiments/allreduce/real_ranks.hpp"

namespace fp16lab::experiments::allreduce {
namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}
double mean_of(const std::vector<std::uint64_t>& bytes) {
  return static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0})) /
         static_cast<double>(bytes.size());
}

Answer judge_bits(const RealMeasured& measured) {
  std::uint64_t rows = 0, other = 0, errors = 0;
  for (const RealRow& row : measured.rows) {
    if (!row.has_model()) continue;
    ++rows;
    other += row.unlike_model;
    errors += row.error_squares == row.model_squares ? 0 : 1;
  }
  return {verdict_of(rows > 0 && other == 0 && errors == 0),
          fmt::format("{} elements of {} means have other bits, {} errors are others", other, rows, errors)};
}

Answer judge_traffic(const RealMeasured& measured) {
  std::size_t rows = 0, exact = 0;
  for (const RealRow& row : measured.rows) {
    if (!row.has_model()) continue;
    ++rows;
    exact += row.sent == row.formula ? 1 : 0;
  }
  return {verdict_of(rows > 0 && exact == rows), fmt::format("{} of {} means, on every rank", exact, rows)};
}

Answer judge_library(const RealMeasured& measured) {
  std::uint64_t other = 0;
  for (const RealRow& row : measured.rows)
    if (!row.has_model()) other += row.unlike_first;
  return {verdict_of(other == 0),
          fmt::format("{} elements of other ranks have other bits than rank 0's", other)};
}

}  // namespace

std::vector<Question<RealMeasured>> real_questions() {
  return {
      {"real ranks compute what the model says, to the last bit",
       "orders tree, nccl-ring and nccl-tree: no element of any rank, step and repetition has other bits "
       "than the model's, and errors are equal",
       judge_bits},
      {"they send what the formula says",
       "orders tree, nccl-ring and nccl-tree: bytes of every rank as engine/parallel/shard_tree.hpp has "
       "them, exactly",
       judge_traffic},
      {"rounding explains every error, MPI_Allreduce's too",
       "error <= its a-priori bound (experiments/allreduce/gradient_mean.hpp) where no Inf was born",
       [](const RealMeasured& measured) { return judge_bounds(measured.rows); }},
      {"MPI_Allreduce gives all ranks the same bits", "order mpi: no element differs from rank 0's",
       judge_library},
  };
}

std::string table_of(const RealMeasured& measured) {
  std::string text;
  std::int64_t shards = 0;
  for (const RealRow& row : measured.rows) {
    if (row.shards != shards) {
      shards = row.shards;
      text += fmt::format("\n{:<25}{:>12} {:>12} {:>10} {:>12} {:>12} {:>12} {:>9}\n",
                          fmt::format("{} shards, {} ranks", shards, measured.ranks), "bytes/rank", "formula",
                          "ms", "error", "model's", "unlike tree", "Inf born");
    }
    const auto bytes = [&](const std::vector<std::uint64_t>& of_ranks) {
      return row.has_model() ? fmt::format("{:.0f}", mean_of(of_ranks)) : "-";
    };
    text += fmt::format("  {:<23}{:>12} {:>12} {:>10.3f} {:>12.3e} {:>12} {:>12} {:>9}\n",
                        fmt::format("{} {}, {}", name_of(row.mean.wire), name_of(row.mean.order),
                                    name_of(row.mean.predivide)),
                        bytes(row.sent), bytes(row.formula), 1e3 * median(row.seconds),
                        row.relative(row.error_squares),
                        row.has_model() ? fmt::format("{:.3e}", row.relative(row.model_squares)) : "-",
                        row.unlike_tree, row.born);
  }
  return text +
         "  bytes/rank, formula: of a mean, averaged over ranks; MPI_Allreduce does not tell; ms: median "
         "until\n"
         "  the last rank has it; error: L2 relative to the mean in FP64, where finite; unlike tree: "
         "elements\n"
         "  with other bits than the tree's of the same wire and predivide; Inf born: although no shard has "
         "it\n";
}

std::string csv_of(const RealMeasured& measured) {
  std::string text =
      "shards,ranks,library,wire,order,predivide,mean_bytes_per_rank,most_bytes_per_rank,formula_mean_bytes,"
      "seconds_median,seconds_least,seconds_most,relative_l2_error,model_relative_l2_error,bound,unlike_tree,"
      "unlike_model,unlike_first_rank,inf_born\n";
  for (const RealRow& row : measured.rows) {
    const auto known = [&](const auto& value) { return row.has_model() ? fmt::format("{}", value()) : ""; };
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", row.shards, measured.ranks,
        measured.library, name_of(row.mean.wire), name_of(row.mean.order), name_of(row.mean.predivide),
        known([&] { return mean_of(row.sent); }), known([&] { return *std::ranges::max_element(row.sent); }),
        known([&] { return mean_of(row.formula); }), median(row.seconds),
        *std::ranges::min_element(row.seconds), *std::ranges::max_element(row.seconds),
        row.relative(row.error_squares), known([&] { return row.relative(row.model_squares); }),
        row.relative(row.bound_squares), row.unlike_tree, known([&] { return row.unlike_model; }),
        row.unlike_first, row.born);
  }
  return text;
}

}  // namespace fp16lab::experiments::allreduce
