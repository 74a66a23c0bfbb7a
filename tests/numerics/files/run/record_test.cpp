// Descriptions of records: what follows from them, and folders of every schema version so far.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "numerics/files/run/record_csv.hpp"
#include "numerics/files/run/record_json.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "tests/fuzz/small_run.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

using testing_support::message_of;

using Record = Files;

TEST_F(Record, HeadersAreThoseOfAllBuildsSoFar) {
  EXPECT_EQ(csv_header<StepRow>(),
            "step,loss,loss_scale,found_inf,skipped,grad_norm,lr,underflow_rate,state_hash,seconds,epoch");
  EXPECT_EQ(oldest_columns<StepRow>(), 10u);
  EXPECT_EQ(csv_header<EvaluationRow>(), "step,split,loss,accuracy,bits_per_character");
  EXPECT_EQ(csv_header<EvaluationRow>(oldest_columns<EvaluationRow>()), "step,split,loss,accuracy");
  EXPECT_EQ(csv_header<ReplaySummaryRow>(),
            "policy,label,exact,skips_lower,skips_upper,wasted_lower,wasted_upper,lost_count_lower,lost_"
            "count_upper,lost_l1_lower,lost_l1_upper,lost_l2_lower,lost_l2_upper,cosine_lower,cosine_upper,"
            "final_log2_scale_lower,final_log2_scale_upper,seconds");
  EXPECT_EQ(csv_header<ReplayTraceRow>(),
            "policy,label,step,log2_scale_lower,log2_scale_upper,skipped_lower,skipped_upper");
}

TEST_F(Record, EveryFieldHasAMeaningAndAKnownVersion) {
  std::set<std::string> files;
  for (const RecordDescription& record : described_records()) {
    EXPECT_TRUE(files.insert(record.file).second) << record.file;
    EXPECT_FALSE(record.what.empty() && record.help.empty()) << record.file;
    for (const FieldDescription& field : record.fields) {
      EXPECT_FALSE(field.help.empty() || field.type.empty()) << record.file << " " << field.name;
      EXPECT_TRUE(field.since >= 1 && field.since <= run_schema_version) << record.file << " " << field.name;
    }
  }
  EXPECT_TRUE(files.contains("culprits.jsonl: operands") && files.contains("op_stats.csv"));
}

/// A folder of three steps (tests/fuzz/small_run.hpp, schema 2), with its files and keys of another version.
TEST_F(Record, FoldersOfEverySchemaVersionReadAlike) {
  for (int version = 1; version <= run_schema_version; ++version) {
    for (auto [name, content] : fuzz::small_run) {
      std::string text(content);
      const auto swap = [&](const std::string& from, const std::string& to) {
        if (const std::size_t at = text.find(from); at != std::string::npos)
          text.replace(at, from.size(), to);
      };
      if (name == run_file::manifest && version == 1) swap(",\"resumptions\":[]", "");
      swap("\"schema_version\":2", "\"schema_version\": " + std::to_string(version));
      for (const auto& [from, to] : {std::pair{",epoch\n", "\n"},
                                     {"0.25,0.5\n", "0.25\n"},
                                     {"0.5,1\n", "0.5\n"},
                                     {"0.75,\n", "0.75\n"}})
        if (version < 3) swap(from, to);
      for (const auto& [from, to] :
           {std::pair{",bits_per_character\n", "\n"}, {"0.5,\n", "0.5\n"}, {",,1.25\n", ",\n"}})
        if (version == 1) swap(from, to);
      if (version == 3) swap("\"kind\":\"weight\"", "\"observed\":\"updates\",\"kind\":\"weight\"");
      write_raw(std::string(name), text);
    }
    const RunFolder run = read_run_folder(folder);
    const StepRow second{.step = 2,
                         .loss = 2.25,
                         .loss_scale = 32768,
                         .grad_norm = 1.5,
                         .lr = 0.1,
                         .underflow_rate = 0.125,
                         .state_hash = 0x0123456789abcdef,
                         .seconds = 0.5,
                         .epoch = version == 3 ? std::optional(1.0) : std::nullopt};
    ASSERT_EQ(run.steps.size(), 3u) << version;
    EXPECT_EQ(run.steps[1], second) << version;
    ASSERT_EQ(run.evaluations.size(), 2u) << version;
    EXPECT_EQ(run.evaluations[1].bits_per_character, version == 1 ? std::nullopt : std::optional(1.25));
    const Observed observed = version == 3 ? Observed::updates : Observed::gradients;
    EXPECT_EQ(read_histograms(folder, {observed}).at(0).before.zero, 3u) << version;
    EXPECT_EQ(read_overflows(folder).at(0).parameters, std::vector<std::string>{"fc1.weight"}) << version;
    EXPECT_EQ(read_culprits(folder).at(0).finite_scale, std::nullopt) << version;
  }
}

TEST_F(Record, OperandsOfARecipeAddUp) {
  RecipeRow sum{.step = 3, .tensor = "fc1.input", .values = 64, .made_zero = 2, .saturated = 3};
  sum += RecipeRow{.values = 10,
                   .made_zero = 1,
                   .blocks = 1,
                   .saturated_blocks = 1,
                   .least_headroom = -0.5,
                   .mean_headroom = -0.5};
  EXPECT_EQ(sum.mean_headroom, -0.5) << "no block had one before";
  sum += RecipeRow{.values = 90, .blocks = 3, .least_headroom = 0.5, .mean_headroom = 1.5};
  sum += RecipeRow{.values = 4};
  EXPECT_EQ(run_json::to_json_line(sum), run_json::to_json_line(RecipeRow{.step = 3,
                                                      .tensor = "fc1.input",
                                                      .values = 168,
                                                      .made_zero = 3,
                                                      .saturated = 3,
                                                      .blocks = 4,
                                                      .saturated_blocks = 1,
                                                      .least_headroom = -0.5,
                                                      .mean_headroom = 1.0}));
}

TEST_F(Record, NamesThatAreNotKnownAreRefusedWithThoseThatAre) {
  const auto error = [&](std::string_view name, const std::string& line) {
    write_raw(std::string(name), line + "\n");
    return message_of(
        [&] { name == run_file::overflows ? (void)read_overflows(folder) : (void)read_culprits(folder); });
  };
  const std::string overflow = R"({"step":1,"kind":"loss","loss_scale":1,"optimizers":[],"parameters":[])";
  EXPECT_EQ(error(run_file::overflows, overflow + R"(,"rescued":true})"),
            (folder / "overflows.jsonl").string() +
                ":1: the key 'rescued' is not known; known are step, kind, loss_scale, optimizers, "
                "parameters, rescue");
  EXPECT_EQ(error(run_file::overflows, overflow + R"(,"rescue":{"attempts":1,"loss_scale":1}})"),
            (folder / "overflows.jsonl").string() + ":1: the key 'rescued' is missing");
  EXPECT_EQ(error(run_file::culprits, R"({"step":1,"pass":"sideways"})"),
            (folder / "culprits.jsonl").string() + ":1: 'pass' is 'sideways'; known are forward, backward");
}

}  // namespace
}  // namespace fp16lab
