#include "reports/data/run_gradients.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "numerics/files/run/run_folder.hpp"

namespace fp16lab::reports {

std::vector<std::size_t> evenly_chosen(std::size_t count, std::size_t limit) {
  limit = std::min(count, std::max<std::size_t>(limit, 2));
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < limit; ++i) chosen.push_back(limit < 2 ? i : i * (count - 1) / (limit - 1));
  return chosen;
}

bool GradientSnapshot::one_scale() const {
  return std::all_of(scales.begin(), scales.end(), [&](double scale) { return scale == loss_scale; });
}

RangeCounts RunGradients::at_scale(std::size_t tensor, double scale) const {
  RangeCounts sum;
  for (const auto& [recorded, histogram] : by_scale[tensor])
    sum += count_ranges(histogram, range_of(formats[tensor]), scale / recorded);
  return sum;
}

RangeCounts RunGradients::at_scale(double scale) const {
  RangeCounts sum;
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor)
    if (formats[tensor] != DType::f32) sum += at_scale(tensor, scale);
  return sum;
}

std::string RunGradients::format_names() const {
  std::vector<std::string> names;
  for (const DType format : formats) {
    std::string name = title_of(format);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  std::string words;
  for (std::size_t i = 0; i < names.size(); ++i)
    words += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return words;
}

std::vector<Observed> other_tensors(const Run& run) {
  std::vector<Observed> others;
  if (run.missing) return others;
  const FlatConfig config = flatten_toml(run.folder.manifest.config, run.name);
  const std::string recorded = value_or(config, "observe.tensors", "");
  for (const Observed observed : every<Observed>)
    if (observed != Observed::gradients && recorded.find(name_of(observed)) != std::string::npos)
      others.push_back(observed);
  std::error_code error;
  if (!std::filesystem::exists(run.folder.path / run_file::histograms, error)) others.clear();
  return others;
}

RunGradients load_gradients(const Run& run, std::size_t max_snapshots, Observed observed) {
  // Only what is shown is read again, which keeps memory at its size.
  RunGradients gradients;
  const bool watched = is_watched(run.folder.manifest);
  std::map<std::uint64_t, std::uint64_t> begins;  // step, the byte at which its rows begin
  std::map<std::pair<std::string, DType>, std::size_t> index;
  for_each_histogram(
      run.folder.path, 0,
      [&](const HistogramRow& row, std::uint64_t begin) {
        begins.try_emplace(row.step, begin);
        const auto [found, made] = index.emplace(std::pair(row.tensor, row.dtype), gradients.tensors.size());
        if (made) {
          const bool second = std::find(gradients.tensors.begin(), gradients.tensors.end(), row.tensor) !=
                              gradients.tensors.end();
          gradients.tensors.push_back(second ? fmt::format("{} ({})", row.tensor, title_of(row.dtype))
                                             : row.tensor);
          gradients.kinds.push_back(row.kind);
          gradients.formats.push_back(row.dtype);
          gradients.by_scale.emplace_back();
          gradients.rounded = gradients.rounded || row.dtype != DType::f32;
        }
        gradients.by_scale[found->second][row.loss_scale] += row.before;
        return true;
      },
      {observed});
  if (!gradients.rounded) std::fill(gradients.formats.begin(), gradients.formats.end(), DType::f16);
  gradients.observed_steps = begins.size();
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> all(begins.begin(), begins.end());
  for (const std::size_t place : evenly_chosen(all.size(), max_snapshots)) {
    GradientSnapshot snapshot;
    snapshot.step = all[place].first;
    snapshot.histograms.resize(gradients.tensors.size());
    snapshot.casts.resize(gradients.tensors.size());
    snapshot.scales.resize(gradients.tensors.size());
    for_each_histogram(run.folder.path, all[place].second,
                       [&](const HistogramRow& row, std::uint64_t) {
                         if (row.step != snapshot.step) return false;
                         const auto known = index.find({row.tensor, row.dtype});
                         if (known == index.end())
                           return true;  // a run that is still going on may have grown since
                         snapshot.loss_scale = row.loss_scale;
                         snapshot.histograms[known->second] += row.before;
                         if (const std::optional<CastCounts> counts =
                                 cast_counts(row.dtype, row.before, row.after, watched)) {
                           std::optional<CastCounts>& sum = snapshot.casts[known->second];
                           sum = sum.value_or(CastCounts{});
                           *sum += *counts;
                         }
                         snapshot.scales[known->second] = row.loss_scale;
                         return true;
                       },
                       {observed});
    for (double& scale : snapshot.scales)  // tensors that this step did not see
      if (scale == 0) scale = snapshot.loss_scale;
    gradients.snapshots.push_back(std::move(snapshot));
  }
  return gradients;
}

}  // namespace fp16lab::reports
