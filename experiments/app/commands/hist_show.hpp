// What the parts of fp16lab hist share: the command as given, and how tensors are shown.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/account.hpp"
#include "analysis/range_output.hpp"
#include "experiments/app/commands/name_selection.hpp"
#include "experiments/app/common_options.hpp"
#include "numerics/files/run/observed.hpp"
#include "reports/figures/range_figure.hpp"

namespace fp16lab::experiments {

struct HistCommand {
  CommonOptions common;
  std::vector<std::filesystem::path> inputs;  ///< run folders, dumps, patterns
  std::vector<std::string> formats;  ///< to judge in; empty: in which the values were stored, else f16
  std::vector<std::string> include, exclude;  ///< patterns of tensor names
  std::string scale;                          ///< "2^15" or a number; empty: as recorded
  std::string recorded_scale;               ///< what the values of dumps carry; empty: what they say, else 1
  std::optional<std::uint64_t> step;        ///< default: the last recorded one
  Observed observed = Observed::gradients;  ///< of run folders
  std::vector<std::string> as;              ///< what bytes and words in dumps are
  std::vector<std::string> blocks;          ///< of dumps: quantizers to judge by instead
  bool exact_mass = false;                  ///< of dumps: also exact sums
  bool all = false;                         ///< every tensor, in several tables
  bool separate = false;                    ///< every dump by itself
  std::string tensors = "gradients";        ///< --tensors, as given
  bool json = false;

  bool draws() const { return !common.out.empty(); }
  /// Tables of every tensor; exact sums are nowhere else.
  bool lists_all() const { return all || exact_mass; }
};

/// CommandError(usage) naming the option.
double parse_scale(const std::string& option, const std::string& text);
/// `option` f16,bf16, also as FP16,BF16; std::nullopt: not given.
std::optional<std::vector<DType>> parse_formats(std::string_view option, std::span<const DType> possible,
                                                const std::vector<std::string>& names);

/// What one report is made of, and its figures.
struct Tensors {
  analysis::RangeReport report;
  std::vector<reports::ScaledTensor> drawn;  ///< filled only for figures: 2 kB a tensor
  /// Least and greatest recorded scale: they differ where layers, or losses, had scales of their own.
  double least_scale = std::numeric_limits<double>::infinity();
  double greatest_scale = 0;

  void saw_scale(double scale) {
    least_scale = std::min(least_scale, scale);
    greatest_scale = std::max(greatest_scale, scale);
  }
  bool empty() const { return greatest_scale == 0; }

  /// Where nothing else was asked for: the scale that all carried, or none, each at its own.
  std::optional<double> common_scale() const {
    return least_scale == greatest_scale ? std::optional<double>(least_scale) : std::nullopt;
  }
};

/// What is asked of it.
struct HistQuestion {
  std::vector<DType> formats;   ///< not empty
  std::optional<double> scale;  ///< none: each tensor at its own
};

using HistJson = nlohmann::ordered_json;

/// One figure a format. Where one was not asked for among several, its name is that of the subject alone.
void draw(const HistCommand& command, const Tensors& tensors, const std::string& subject,
          const HistQuestion& question);

/// What is printed beside the tensors.
struct HistAnswer {
  std::string before{};                       ///< lines above the account: what was assumed
  std::vector<analysis::Account> accounts{};  ///< of a run one, of dumps one a format
  std::string after{};                        ///< lines below the suggestions
  std::string next{};                         ///< "fp16lab hist ... (what it tells)"
};

/// The answer on stdout, in at most 25 lines a report: account, the tensors with which most is wrong, what
/// changed from step to step, suggestions; or with --all all tables, or the JSON, with `additions` at its
/// end. Draws the figures where they are asked for.
void show(const HistCommand& command, const Tensors& tensors, const std::string& subject,
          const HistQuestion& question, std::span<const analysis::SuggestedScale> suggestions,
          const HistAnswer& answer, const HistJson& additions);

/// One for each format.
std::vector<analysis::SuggestedScale> suggestions_of(const analysis::RangeReport& report,
                                                     const std::vector<DType>& formats);

/// What a run folder has recorded of one step. (hist_run.cpp)
void show_run(const HistCommand& command, const std::filesystem::path& run, NameSelection& selection);

}  // namespace fp16lab::experiments
