// replay.json: what every loss-scale policy would have done on a recorded run. Written by `fp16lab replay RUN
// -o DIR`, read by reports/. The same folder has replay.csv (the summary, one row a policy) and
// replay_traces.csv (the scales).
//
// The keys are schema, schema_version and what is described below. Steps count from 1, as in steps.csv.
// Numbers are the shortest decimals that read back to the same value; "Infinity", "-Infinity" and "NaN" are
// strings. Readers make texts printable.
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

struct ReplayedPolicy {
  using Parameters = std::vector<std::pair<std::string, double>>;
  FP16LAB_RECORD(ReplayedPolicy, "replay.json: policies", 1,
                 "One policy, or another row of the same kind (the best fixed scale in hindsight). The scale "
                 "trace has the steps where a bound changes; each entry holds up to the next one; the first "
                 "entry is the first step of the replay, the last entry its last step. lost_count, lost_l1, "
                 "lost_l2 and cosine follow, as in replay.csv.");
  FP16LAB_FIELD(std::string, name, {}, "\"torch\"; of the yardstick \"oracle\"");
  FP16LAB_FIELD(std::string, label, {},
                "for figures and tables; differs from `name` where one policy is there twice");
  FP16LAB_FIELD(Parameters, parameters, {}, "all of them, in the policy's order");
  FP16LAB_FIELD(std::string, source, {}, "repository and path, or publication");
  FP16LAB_FIELD(bool, per_layer, false,
                "scales of tensors move: the traces are the smallest and the largest of them");
  FP16LAB_FIELD(std::string, note, {},
                "what a reader of this row must know (\"stops at step 17: ...\"); usually empty");
  FP16LAB_FIELD(bool, replayed, true,
                "false: it cannot be replayed from histograms; `note` says why, the rest is empty");
  FP16LAB_FIELD(bool, exact, true, "every trace and count has equal ends, except masses read from counts");
  FP16LAB_FIELD(std::vector<std::uint64_t>, steps, {}, "of the scale trace");
  FP16LAB_FIELD(std::vector<double>, log2_scale_lower, {}, "as long as `steps`");
  FP16LAB_FIELD(std::vector<double>, log2_scale_upper, {}, "as long as `steps`");
  FP16LAB_FIELD(std::vector<std::uint64_t>, skipped_lower, {},
                "steps that are skipped for certain, ascending");
  FP16LAB_FIELD(std::vector<std::uint64_t>, skipped_upper, {}, "those and the ones that may be");
  FP16LAB_FIELD(ReplayInterval, skips, {}, "skipped steps, [lower, upper]");
  FP16LAB_FIELD(
      ReplayInterval, wasted_steps, {},
      "[lower, upper]: skipped, or left without any non-zero weight gradient, or after the policy's stop");
  FP16LAB_FIELD(double, seconds, 0, "this policy's part of the replay", .unit = "s");
  bool any_applied = true;  ///< false: no step was; the next four are then [0, 1], and null in JSON
  // Over all steps that are not skipped (ReplaySummaryRow says what they are):
  ReplayInterval lost_count{};
  ReplayInterval lost_l1{};
  ReplayInterval lost_l2{};
  ReplayInterval cosine{1, 1};
  FP16LAB_RECORD_END(ReplayedPolicy);
};

struct ReplayBand {
  FP16LAB_RECORD(ReplayBand, "replay.json: band", 1,
                 "The scales that a run allowed, step by step, as binary logarithms of powers of two.");
  FP16LAB_FIELD(std::vector<std::uint64_t>, steps, {}, "those with histograms of finite values");
  FP16LAB_FIELD(std::vector<double>, log2_highest, {}, "the largest that cannot overflow");
  FP16LAB_FIELD(std::vector<double>, log2_one_percent, {},
                "the smallest that loses at most 1 % of the L1 norm");
  FP16LAB_FIELD(std::vector<double>, log2_lossless, {}, "the smallest that loses nothing");
  FP16LAB_RECORD_END(ReplayBand);
};

struct ReplayFile {
  FP16LAB_RECORD(ReplayFile, "replay.json", 1,
                 "What every loss-scale policy would have done on a recorded run.");
  FP16LAB_FIELD(std::string, run, {}, "the run folder's name");
  FP16LAB_FIELD(std::string, workload, {}, "its model.name");
  FP16LAB_FIELD(std::uint64_t, total_steps, 0, "that the replay went through");
  FP16LAB_FIELD(std::uint64_t, observed_steps, 0, "of them, with histograms");
  FP16LAB_FIELD(bool, exact, true, "every policy's row is exact, and so are the steps");
  FP16LAB_FIELD(std::vector<std::string>, notes, {}, "what the numbers rest on");
  FP16LAB_FIELD(ReplayBand, band, {}, "the scales that the run allowed");
  FP16LAB_FIELD(std::vector<ReplayedPolicy>, policies, {}, "that were replayed");
  bool altered = false;  ///< as it was read: its last member is the SHA-256 of another text
  FP16LAB_RECORD_END(ReplayFile);
};

/// Policies that were not replayed have a name and a label alone.
struct ReplaySummaryRow {
  using Number = std::optional<double>;
  FP16LAB_RECORD(ReplaySummaryRow, "replay.csv", 1,
                 "One policy over the whole replay. What is lost is counted over all steps that are not "
                 "skipped; where there is none, nothing is known of it.");
  FP16LAB_FIELD(std::string, policy, {}, "its name");
  FP16LAB_FIELD(std::string, label, {}, "tells rows of one policy apart", .quoted = true);
  FP16LAB_FIELD(std::optional<bool>, exact, {}, "every count has equal ends, except masses read from counts");
  FP16LAB_FIELD(Number, skips_lower, {}, "skipped steps, at least");
  FP16LAB_FIELD(Number, skips_upper, {}, "at most");
  FP16LAB_FIELD(
      Number, wasted_lower, {},
      "steps skipped, or left without any non-zero weight gradient, or after the policy's stop, at least");
  FP16LAB_FIELD(Number, wasted_upper, {}, "at most");
  FP16LAB_FIELD(Number, lost_count_lower, {},
                "share of the finite non-zero gradient values that become zero, at least");
  FP16LAB_FIELD(Number, lost_count_upper, {}, "at most");
  FP16LAB_FIELD(Number, lost_l1_lower, {},
                "the same of the sum of magnitudes, in the gradients' own units, at least");
  FP16LAB_FIELD(Number, lost_l1_upper, {}, "at most");
  FP16LAB_FIELD(Number, lost_l2_lower, {}, "the same of the root of the sum of squares, at least");
  FP16LAB_FIELD(Number, lost_l2_upper, {}, "at most");
  FP16LAB_FIELD(Number, cosine_lower, {},
                "of the angle between the gradients and what FP16 keeps of them, at least");
  FP16LAB_FIELD(Number, cosine_upper, {}, "at most");
  FP16LAB_FIELD(Number, final_log2_scale_lower, {}, "binary logarithm of the last scale, at least");
  FP16LAB_FIELD(Number, final_log2_scale_upper, {}, "at most");
  FP16LAB_FIELD(Number, seconds, {}, "this policy's part of the replay", .unit = "s");
  FP16LAB_RECORD_END(ReplaySummaryRow);
};

struct ReplayTraceRow {
  FP16LAB_RECORD(ReplayTraceRow, "replay_traces.csv", 1,
                 "One entry of a policy's scale trace, or a step that it may have skipped.");
  FP16LAB_FIELD(std::string, policy, {}, "its name");
  FP16LAB_FIELD(std::string, label, {}, "tells rows of one policy apart", .quoted = true);
  FP16LAB_FIELD(std::uint64_t, step, 0, "counts from 1");
  FP16LAB_FIELD(double, log2_scale_lower, 0, "binary logarithm of the scale from this step on, at least");
  FP16LAB_FIELD(double, log2_scale_upper, 0, "at most");
  FP16LAB_FIELD(bool, skipped_lower, false, "the step is skipped for certain");
  FP16LAB_FIELD(bool, skipped_upper, false, "or may be");
  FP16LAB_RECORD_END(ReplayTraceRow);
};

namespace replay_name {
inline constexpr std::string_view json = run_file::replay;
inline constexpr std::string_view summary = run_file::replay_summary;
inline constexpr std::string_view traces = run_file::replay_traces;
}  // namespace replay_name

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
