// replay.json: what every loss-scale policy would have done on a recorded run. Written by `fp16lab replay RUN
// -o DIR`, read by reports/. Beside it lie replay.csv (the summary, one row a policy) and replay_traces.csv
// (the scales).
//
// Keys: schema, schema_version, run, workload, total_steps, observed_steps, exact, notes, band, policies; the
// members of the structures below, by their names; an interval is [lower, upper]. Steps count from 1, as in
// steps.csv. Numbers are the shortest decimals that read back to the same value; "Infinity", "-Infinity" and
// "NaN" are strings. Texts are made printable when they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "numerics/files/run/run_schema.hpp"

namespace fp16lab {

inline constexpr std::string_view replay_schema_name = "fp16lab-replay";
/// Rises with every change that an older reader would misread or refuse.
inline constexpr int replay_schema_version = 1;

struct ReplayInterval {
  double lower = 0;
  double upper = 0;
  bool exact() const { return lower == upper; }
  bool operator==(const ReplayInterval&) const = default;
};

/// One policy, or another row of the same kind (the best fixed scale in hindsight).
struct ReplayedPolicy {
  std::string name{};   ///< "torch"; of the yardstick "oracle"
  std::string label{};  ///< for figures and tables; differs from `name` where one policy is there twice
  std::vector<std::pair<std::string, double>> parameters{};  ///< all of them, in the policy's order
  std::string source{};                                      ///< repository and path, or publication
  bool per_layer = false;  ///< scales of tensors move: the traces are the smallest and the largest of them
  std::string note{};      ///< what a reader of this row must know ("stops at step 17: ..."); usually empty
  bool replayed = true;  ///< false: it cannot be replayed from histograms; `note` says why, the rest is empty
  bool exact = true;     ///< every trace and count below has equal ends, except masses read from counts

  /// The scale trace, in steps where a bound changes; each entry holds up to the next one. The first entry is
  /// the first step of the replay, the last entry its last step.
  std::vector<std::uint64_t> steps{};
  std::vector<double> log2_scale_lower{};  ///< as long as `steps`
  std::vector<double> log2_scale_upper{};
  std::vector<std::uint64_t> skipped_lower{};  ///< steps that are skipped for certain, ascending
  std::vector<std::uint64_t> skipped_upper{};  ///< those and the ones that may be

  ReplayInterval skips{};  ///< skipped steps
  ReplayInterval
      wasted_steps{};  ///< skipped, or left without any non-zero weight gradient, or behind the policy's stop
  bool any_applied =
      true;  ///< false: no step was, so nothing is known of what is lost: the next four are [0, 1]
  // Over all steps that are not skipped:
  ReplayInterval lost_count{};  ///< share of the finite non-zero gradient values that become zero
  ReplayInterval lost_l1{};     ///< the same of the sum of magnitudes, in the gradients' own units
  ReplayInterval lost_l2{};     ///< the same of the root of the sum of squares
  ReplayInterval cosine{1, 1};  ///< of the angle between the gradients and what FP16 keeps of them
  double seconds = 0;           ///< this policy's part of the replay

  bool operator==(const ReplayedPolicy&) const = default;
};

/// The scales that a run allowed, step by step, as binary logarithms of powers of two.
struct ReplayBand {
  std::vector<std::uint64_t> steps{};      ///< those with histograms of finite values
  std::vector<double> log2_highest{};      ///< the largest that cannot overflow
  std::vector<double> log2_one_percent{};  ///< the smallest that loses at most 1 % of the L1 norm
  std::vector<double> log2_lossless{};     ///< the smallest that loses nothing
  bool operator==(const ReplayBand&) const = default;
};

struct ReplayFile {
  std::string run{};                 ///< the run folder's name
  std::string workload{};            ///< its model.name
  std::uint64_t total_steps = 0;     ///< that the replay went through
  std::uint64_t observed_steps = 0;  ///< of them, with histograms
  bool exact = true;                 ///< every policy's row is exact, and so are the steps
  std::vector<std::string> notes{};  ///< what the numbers rest on
  ReplayBand band{};
  std::vector<ReplayedPolicy> policies{};
  bool altered = false;  ///< as it was read: its last member is the SHA-256 of another text
  bool operator==(const ReplayFile&) const = default;
};

namespace replay_name {
inline constexpr std::string_view json = run_file::replay;
inline constexpr std::string_view summary = run_file::replay_summary;
inline constexpr std::string_view traces = run_file::replay_traces;
}  // namespace replay_name

inline constexpr std::string_view replay_summary_columns =
    "policy,label,exact,skips_lower,skips_upper,wasted_lower,wasted_upper,lost_count_lower,lost_count_upper,"
    "lost_l1_lower,lost_l1_upper,lost_l2_lower,lost_l2_upper,cosine_lower,cosine_upper,final_log2_scale_"
    "lower,"
    "final_log2_scale_upper,seconds";
inline constexpr std::string_view replay_trace_columns =
    "policy,label,step,log2_scale_lower,log2_scale_upper,skipped_lower,skipped_upper";

/// The text of replay.json. std::invalid_argument, naming the policy, if its traces differ in length.
std::string to_json(const ReplayFile& replay);
/// std::runtime_error with the reason: damaged JSON, another schema or version, a missing key, a wrong type,
/// traces of different length, steps out of order.
ReplayFile parse_replay(std::string_view text);

/// One row a policy. Labels are quoted; policies that were not replayed have empty fields.
std::string summary_csv(const ReplayFile& replay);
/// One row for every entry of a trace and every step that may be skipped.
std::string traces_csv(const ReplayFile& replay);

/// Makes `folder` if needed and writes the three files into it, each atomically, replay.json last and sealed
/// (run_schema.hpp).
void write_replay(const std::filesystem::path& folder, const ReplayFile& replay);
/// Reads replay.json, or the one in a folder; a note says where it was altered. std::runtime_error "FILE:
/// reason".
ReplayFile read_replay(const std::filesystem::path& file_or_folder);

}  // namespace fp16lab
