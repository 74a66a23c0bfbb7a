#include "experiments/app/replay/recorded_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "experiments/app/config/run_identity.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/run_config.hpp"

namespace fp16lab::experiments {
namespace {

/// Thrown by a visitor that has seen enough of a file.
struct Enough {};

std::filesystem::path without_trailing_slash(const std::filesystem::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

/// Collects the rows of a step, then hands it on together with the unobserved steps before it.
class StepAssembly {
 public:
  StepAssembly(const RecordedRun& run, bool recorded_only,
               const std::function<void(const RecordedStep&)>& visit)
      : run_(&run),
        file_((run.folder().path / run_file::histograms).string()),
        recorded_only_(recorded_only),
        visit_(&visit) {}

  void add(const HistogramRow& row) {
    ++line_;
    if (!(std::isfinite(row.loss_scale) && row.loss_scale > 0))
      fail(fmt::format("loss_scale is {}; a finite number above 0 is needed", row.loss_scale));
    if (row.step != current_.step) begin(row.step);
    add_to_group(row);
  }

  void finish() {
    if (current_.step != 0) emit();
    if (recorded_only_ || !begun_) return;
    for (; next_ < steps().size(); ++next_) emit_held(steps()[next_]);
  }

 private:
  const std::vector<StepRow>& steps() const { return run_->folder().steps; }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(fmt::format("{}:{}: {}", file_, line_, what));
  }

  void begin(std::uint64_t step) {
    if (step < current_.step || step == 0)
      fail(fmt::format("step {} comes after step {}: the rows must be in the order of the steps", step,
                       current_.step));
    if (current_.step != 0) emit();
    current_ = RecordedStep{};
    current_.step = step;
  }

  void add_to_group(const HistogramRow& row) {
    const DType format = run_->rounded() ? row.dtype : DType::f16;
    auto group =
        std::find_if(current_.groups.begin(), current_.groups.end(), [&](const RecordedGroup& known) {
          return known.loss_scale == row.loss_scale && known.format == format &&
                 known.intermediate == row.intermediate;
        });
    if (group == current_.groups.end())
      group = current_.groups.insert(
          group, {.loss_scale = row.loss_scale, .format = format, .intermediate = row.intermediate});
    (row.kind == "weight" ? group->weight : group->activation) += row.before;
  }

  /// Emits the observed step in current_, after the steps that have no histograms.
  void emit() {
    const bool hold = begun_ && !recorded_only_;
    for (; next_ < steps().size() && steps()[next_].step < current_.step; ++next_)
      if (hold) emit_held(steps()[next_]);
    if (next_ == steps().size()) return;  // killed between its histograms and its row
    if (steps()[next_].step != current_.step)
      fail(fmt::format("step {}, which {} does not have", current_.step, run_file::steps));
    begun_ = true;
    hand_on(steps()[next_++], true);
    if (!recorded_only_) held_ = current_;
  }

  void emit_held(const StepRow& row) {
    std::swap(current_, held_);
    const std::uint64_t step = current_.step;
    current_.step = row.step;
    hand_on(row, false);
    current_.step = step;
    std::swap(current_, held_);
  }

  void hand_on(const StepRow& row, bool observed) {
    current_.loss_scale = row.loss_scale;
    current_.found_inf = row.found_inf;
    current_.observed = observed;
    (*visit_)(current_);
  }

  const RecordedRun* run_;
  std::string file_;
  bool recorded_only_;
  const std::function<void(const RecordedStep&)>* visit_;
  RecordedStep current_{}, held_{};
  std::size_t line_ = 0;
  std::size_t next_ = 0;  ///< into steps()
  bool begun_ = false;    ///< an observed step was handed on
};

}  // namespace

RecordedRun::RecordedRun(const std::filesystem::path& folder)
    : folder_(read_run_folder(folder)), name_(printable(without_trailing_slash(folder).filename().string())) {
  const std::string where = (folder / run_file::config).string();
  const reports::FlatConfig config = reports::flatten_toml(told(folder_.manifest).config, where);
  workload_ = value_or(config, "model.name", "");
  checked_ = value_or(config, "scaler.drop_overflow_update", "true") != "false";
  if (value_or(config, "scaler.per_loss", "false") == "true")
    throw std::runtime_error(
        fmt::format("{}: each loss of this run had its own scale (scaler.per_loss = true), and its "
                    "histograms do not say which "
                    "part of a gradient came from which loss; no policy can be replayed on them",
                    folder.string()));
  if (const std::string names = value_or(config, "observe.names", "[]"); names != "[]")
    throw std::runtime_error(fmt::format(
        "{}: observe.names = {}: gradients of other tensors were not recorded, and policies decide "
        "by all of them; no policy can be replayed on it",
        folder.string(), names));
  for (const std::string& note : folder_.notes) notes_.push_back(note);
  for (const std::string& damage : folder_.damage) notes_.push_back(damage);
  if (folder_.steps.empty())
    throw std::runtime_error(fmt::format("{}: the run has no steps", folder.string()));

  // A tensor's dtype does not change during a run, so the first step tells.
  bool any = false;
  try {
    std::uint64_t first = 0;
    for_each_histogram(folder, [&](const HistogramRow& row) {
      if (any && row.step != first) throw Enough{};
      any = true;
      first = row.step;
      rounded_ = rounded_ || row.dtype != DType::f32;
      known_extremes_ = known_extremes_ && row.before.extremes_known();
    });
  } catch (const Enough&) {
  }
  if (const std::string tensors = value_or(config, "observe.tensors", "gradients");
      !any && tensors.find(name_of(Observed::gradients)) == std::string::npos)
    throw std::runtime_error(fmt::format(
        "{}: observe.tensors = {}: no gradients recorded, and nothing to replay", folder.string(), tensors));
  if (!any && folder_.damaged(run_file::histograms))
    throw std::runtime_error(fmt::format("{}: no histograms are left to replay: {}", folder.string(),
                                         fmt::join(folder_.damage, "; ")));
  if (!any)
    throw std::runtime_error(
        fmt::format("{}: no histograms recorded: nothing to replay; record with observe.histograms_every = 1",
                    folder.string()));
  if (value_or(config, "train.accumulate", "1") != "1")
    notes_.push_back(
        "train.accumulate > 1: histograms count the gradients of the micro-batches, not their sums");
  if (!rounded_)
    notes_.push_back(
        "the run rounded no gradient: each is judged as if FP16 held it, and nothing was lost before it was "
        "counted");
  if (!known_extremes_)
    notes_.push_back(
        "recorded without the smallest and the greatest value of each tensor, by an older version: where the "
        "bin of the greatest holds the edge to infinity, whether the step overflows is not known");
}

void RecordedRun::for_each_step(bool recorded_only,
                                const std::function<void(const RecordedStep&)>& visit) const {
  StepAssembly assembly(*this, recorded_only, visit);
  for_each_histogram(folder_.path, [&](const HistogramRow& row) { assembly.add(row); });
  assembly.finish();
}

}  // namespace fp16lab::experiments
