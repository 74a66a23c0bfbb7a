// Run folders that look like real ones, without training: for tests of reports/ and for looking at its
// pictures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fp16lab::reports {

struct SyntheticRun {
  std::string model = "autoencoder";  ///< with accuracy in its evaluations if it is "classifier"
  std::uint64_t seed = 1;
  std::string level = "O1";
  std::string policy = "none";
  double initial_scale = 65536;
  double final_loss = 0.06;                ///< the last evaluation's, exactly
  std::optional<double> final_accuracy{};  ///< likewise
  bool bits_per_character = false;         ///< loss / ln 2 in its evaluations
  double gradient_log2 = -22;              ///< typical magnitude of unscaled gradients
  std::uint64_t steps = 300;
  std::uint64_t histograms_every = 20;  ///< 0: none
  std::uint64_t evaluate_every = 50;    ///< and after the last step
  std::vector<std::uint64_t> skips{};   ///< steps with found_inf; a dynamic scale halves after each
  int perturb_ulps = 0;
  std::string state = "finished";
  std::string extra_config{};         ///< appended to the TOML text
  std::string workload{}, variant{};  ///< as a sweep names them; empty: the model, and what its rounding is
  std::string bits{};  ///< runs of one seed that agree in it have one state; empty: level, policy and scale
};

/// Writes the run and returns its folder, `root`/<model>-<policy...>-seed<seed>.
std::filesystem::path write_synthetic_run(const std::filesystem::path& root, const SyntheticRun& run);

/// Both workloads, FP32 and its twin, no scaling, 2^3, 2^7, 2^11, 2^15 and dynamic, three seeds each: 48
/// runs. Autoencoder without scaling ends at 0.068 against 0.0583 in FP32, the others within 0.3 % of it.
std::vector<std::filesystem::path> write_synthetic_grid(const std::filesystem::path& root);

}  // namespace fp16lab::reports
