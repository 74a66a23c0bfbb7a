#include "experiments/questions/allreduce/real_ranks.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "engine/parallel/shard_tree.hpp"

namespace fp16lab::experiments::allreduce {
namespace {

using engine::parallel::Communicator;
using engine::parallel::ShardTree;

constexpr int repetitions = 5;

/// Elements whose bits are not the same.
std::uint64_t unlike(std::span<const float> a, std::span<const float> b) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    count += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]) ? 1 : 0;
  return count;
}

std::vector<RealRow> all_rows(const std::vector<std::int64_t>& shards, int ranks, std::size_t elements) {
  std::vector<RealRow> rows;
  for (const std::int64_t count : shards)
    for (const DType wire : engine::parallel::wire_formats)
      for (const Predivide predivide : every<engine::parallel::Predivide>)
        for (const SumOrder order : every<engine::parallel::SumOrder>) {
          RealRow& row = rows.emplace_back();
          row.shards = count;
          row.mean = {wire, predivide, order};
          for (int rank = 0; row.has_model() && rank < ranks; ++rank)
            row.formula.push_back(formula_bytes(row.mean, elements, count, ranks, rank));
        }
  return rows;
}

/// One step's gradients of the shards of a row, and the part of them that is here.
class Step {
 public:
  Step(Communicator& communicator, Gradients gradients, double scale)
      : communicator_(&communicator),
        gradients_(gradients),
        scale_(scale),
        exact_(exact_mean(gradients, scale)),
        shards_(engine::parallel::placed_shards(static_cast<std::int64_t>(gradients.size()),
                                                communicator.size(), communicator.rank())) {
    for (const std::vector<float>& gradient :
         gradients.subspan(static_cast<std::size_t>(shards_.first), static_cast<std::size_t>(shards_.local)))
      stack_.insert(stack_.end(), gradient.begin(), gradient.end());
  }

  const ExactMean& exact() const { return exact_; }

  void add_to(RealRow& row) {
    const Variant variant{row.mean, Unscale::after};
    const Mean model = row.has_model() ? reduce_mean(variant, gradients_, scale_) : Mean{};
    ShardTree tree(*communicator_, shards_, row.mean);
    std::vector<float> sum(exact_.values.size());
    std::vector<std::uint64_t> nanoseconds, sent(static_cast<std::size_t>(communicator_->size()));
    std::uint64_t others[2] = {};  // elements with other bits than the model's, than rank 0's
    for (int repetition = 0; repetition <= repetitions; ++repetition) {
      communicator_->any(false);  // all begin together
      const std::uint64_t sent_before = communicator_->sent_bytes();
      const auto begin = std::chrono::steady_clock::now();
      tree.mean(stack_, sum);
      const auto taken = std::chrono::steady_clock::now() - begin;
      const std::uint64_t sent_now = communicator_->sent_bytes() - sent_before;
      const Mean mean = unscaled_mean(sum, gradients_, scale_);
      if (row.has_model()) others[0] += unlike(mean.values, model.values);
      if (repetition > 0) {  // in the first one buffers grow
        nanoseconds.push_back(static_cast<std::uint64_t>(std::chrono::nanoseconds(taken).count()));
        continue;
      }
      sent[static_cast<std::size_t>(communicator_->rank())] = sent_now;
      std::vector<float> first = mean.values;
      communicator_->broadcast(std::as_writable_bytes(std::span(first)), 0);
      others[1] += unlike(mean.values, first);
      if (row.mean.order == SumOrder::tree) tree_mean_ = mean.values;
      row.unlike_tree += unlike(mean.values, tree_mean_);
      row.add(variant, mean, exact_, static_cast<int>(gradients_.size()), scale_);
      const double model_error = row.has_model() ? compare(model, exact_).absolute : 0;
      row.model_squares += model_error * model_error;
    }
    communicator_->max(nanoseconds);
    communicator_->sum(sent);
    communicator_->sum(others);
    for (const std::uint64_t count : nanoseconds) row.seconds.push_back(static_cast<double>(count) * 1e-9);
    if (row.has_model()) row.sent = std::move(sent);
    row.unlike_model += others[0];
    row.unlike_first += others[1];
  }

 private:
  Communicator* communicator_;
  Gradients gradients_;
  double scale_;
  ExactMean exact_;
  engine::parallel::Shards shards_;
  std::vector<float> stack_, tree_mean_;
};

}  // namespace

RealMeasured measure_real(Communicator& communicator, RankGradients& source,
                          const std::vector<std::int64_t>& shards, std::uint64_t steps, double scale) {
  RealMeasured measured{.rows = all_rows(shards, communicator.size(), source.elements()),
                        .ranks = communicator.size(),
                        .library = communicator.library(),
                        .elements = source.elements(),
                        .scale = scale};
  for (std::uint64_t iteration = 0; iteration < steps; ++iteration) {
    const std::vector<std::vector<float>> all =
        source.scaled(iteration, static_cast<int>(shards.back()), scale);
    std::vector<float> next;
    for (const std::int64_t count : shards) {
      Step step(communicator, Gradients(all).first(static_cast<std::size_t>(count)), scale);
      for (RealRow& row : measured.rows)
        if (row.shards == count) step.add_to(row);
      next = rounded(step.exact().values);
    }
    if (all_finite(all)) source.step(next);
  }
  return measured;
}

// What is shown and asked of them.

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
       "error <= its a-priori bound (experiments/questions/allreduce/gradient_mean.hpp) where no Inf was "
       "born",
       [](const RealMeasured& measured) { return judge_bounds(measured.rows); }},
      {"MPI_Allreduce gives all ranks the same bits", "order mpi: no element differs from rank 0's",
       judge_library},
  };
}

Described describe(const RealMeasured& measured) {
  return {table_of(measured), {{"real_ranks.csv", csv_of(measured)}}};
}

}  // namespace fp16lab::experiments::allreduce
