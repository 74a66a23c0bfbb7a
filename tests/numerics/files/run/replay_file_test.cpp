// replay.json and the CSV files beside it.
#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/disk/read_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/run/record_csv.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::replay_file_test {
namespace {

using testing::HasSubstr;
using testing_support::message_of;

constexpr double infinity = std::numeric_limits<double>::infinity();

ReplayFile example() {
  ReplayFile replay{.run = "classifier-seed1",
                    .workload = "classifier",
                    .total_steps = 9,
                    .observed_steps = 8,
                    .exact = false,
                    .notes = {"one \"note\"", "another"},
                    .band = {.steps = {1, 3},
                             .log2_highest = {14, 15},
                             .log2_one_percent = {-3, -4},
                             .log2_lossless = {20, 21}},
                    .policies = {}};
  ReplayedPolicy torch{.name = "torch", .label = "torch, \"fast\""};
  torch.parameters = {
      {"initial_scale", 65536}, {"growth_factor", 2.0000000000000004}, {"max_scale", infinity}};
  torch.source = "pytorch/pytorch torch/amp/grad_scaler.py";
  torch.exact = false;
  torch.steps = {1, 4, 9};
  torch.log2_scale_lower = {16, 14, 14};
  torch.log2_scale_upper = {16, 15, 15};
  torch.skipped_lower = {2};
  torch.skipped_upper = {2, 3};
  torch.skips = {1, 2};
  torch.wasted_steps = {1, 3};
  torch.lost_count = {0.25, 0.5};
  torch.lost_l1 = {1e-300, 0x1p-25};
  torch.lost_l2 = {0, 0.1};
  torch.cosine = {0.99, 1};
  torch.seconds = 0.125;
  ReplayedPolicy layers{.name = "layerwise", .label = "layerwise"};
  layers.per_layer = true;
  layers.replayed = layers.exact = false;
  layers.note = "not replayable: ...";
  replay.policies = {torch, layers};
  return replay;
}

/// The text of a file with one thing in it replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = to_json(example());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ReplayFileText, ReadsBackWhatItWrote) {
  EXPECT_EQ(parse_replay(to_json(example())), example());
  EXPECT_EQ(parse_replay(to_json(ReplayFile{})), ReplayFile{});
}

TEST(ReplayFileText, LossesAreNullWhereNoStepWasApplied) {
  ReplayFile replay = example();
  ReplayedPolicy& policy = replay.policies[0];
  policy.any_applied = false;
  policy.lost_count = policy.lost_l1 = policy.lost_l2 = policy.cosine = {0, 1};
  const std::string text = to_json(replay);
  for (const char* key : {"lost_count", "lost_l1", "lost_l2", "cosine"})
    EXPECT_THAT(text, HasSubstr(std::string("\"") + key + "\":null"));
  EXPECT_EQ(parse_replay(text), replay);
  EXPECT_THAT(summary_csv(replay), HasSubstr(",1,3,,,,,,,,,14,15,"));
  EXPECT_THAT(message_of([] { parse_replay(changed("\"cosine\":[0.99,1.0]", "\"cosine\":null")); }),
              HasSubstr("'cosine' must be null with 'lost_count', and only then"));
}

TEST(ReplayFileText, NamesWhatIsWrong) {
  const auto error = [](const std::string& text) { return message_of([&] { parse_replay(text); }); };
  EXPECT_THAT(error("{"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(error("[]"), HasSubstr("expected an object with the key 'schema'"));
  EXPECT_THAT(error(changed("fp16lab-replay", "fp16lab-run")), HasSubstr("'schema' is 'fp16lab-run'"));
  EXPECT_THAT(error(changed("\"schema_version\":1", "\"schema_version\":2")), HasSubstr("versions 1 to 1"));
  EXPECT_THAT(error(changed("\"schema_version\":1", "\"schema_version\":\"1\"")),
              HasSubstr("schema version \"1\""));
  EXPECT_THAT(error(changed("\"total_steps\":9", "\"total_steps\":-9")),
              HasSubstr("'total_steps' must be a whole number"));
  EXPECT_THAT(error(changed("\"skips\":[1.0,2.0]", "\"skips\":[1.0]")),
              HasSubstr("'skips' must be [lower, upper]"));
  EXPECT_THAT(error(changed("\"skips\":[1.0,2.0]", "\"skips\":[2.0,1.0]")), HasSubstr("lower <= upper"));
  EXPECT_THAT(error(changed("\"steps\":[1,4,9]", "\"steps\":[1,4]")),
              HasSubstr("steps has 2 entries, log2_scale_lower 3"));
  EXPECT_THAT(error(changed("\"steps\":[1,4,9]", "\"steps\":[1,9,4]")), HasSubstr("do not ascend"));
  EXPECT_THAT(error(changed("\"skipped_lower\":[2]", "\"skipped_lower\":[5]")),
              HasSubstr("skipped_lower has a step that skipped_upper lacks"));
  EXPECT_THAT(error(changed("\"log2_highest\":[14.0,15.0]", "\"log2_highest\":[14.0]")),
              HasSubstr("band: steps has 2"));
  EXPECT_THAT(error(changed("\"cosine\"", "\"cosinus\"")), HasSubstr("the key 'cosine' is missing"));
}

TEST(ReplayFileText, EveryTruncationIsAnErrorAndNoCrash) {
  const std::string text = to_json(example());
  for (std::size_t length = 0; length + 2 < text.size(); ++length)
    EXPECT_THROW(parse_replay(std::string_view(text).substr(0, length)), std::runtime_error) << length;
}

TEST(ReplayFileText, RefusesToWriteTracesThatCannotBe) {
  ReplayFile replay = example();
  replay.policies[0].log2_scale_upper.pop_back();
  EXPECT_THAT(message_of([&] { to_json(replay); }), HasSubstr("policy 'torch, \"fast\"'"));
}

TEST(ReplayFileText, CsvHasOneRowAPolicyAndOneAnEvent) {
  EXPECT_EQ(
      summary_csv(example()),
      csv_header<ReplaySummaryRow>() +
          "\n"
          "torch,\"torch, \"\"fast\"\"\",0,1,2,1,3,0.25,0.5,1e-300,2.9802322387695312e-08,0,0.1,0.99,1,14,15,"
          "0.125\n"
          "layerwise,\"layerwise\",,,,,,,,,,,,,,,,\n");
  EXPECT_EQ(traces_csv(example()), csv_header<ReplayTraceRow>() +
                                       "\n"
                                       "torch,\"torch, \"\"fast\"\"\",1,16,16,0,0\n"
                                       "torch,\"torch, \"\"fast\"\"\",2,16,16,1,1\n"
                                       "torch,\"torch, \"\"fast\"\"\",3,16,16,0,1\n"
                                       "torch,\"torch, \"\"fast\"\"\",4,14,15,0,0\n"
                                       "torch,\"torch, \"\"fast\"\"\",9,14,15,0,0\n");
  // As many fields in an empty row as in the header.
  const std::string csv = summary_csv(example());
  const std::string last =
      csv.substr(csv.rfind("layerwise,\"") == std::string::npos ? 0 : csv.rfind("layerwise,\""));
  EXPECT_EQ(std::count(last.begin(), last.end(), ','),
            static_cast<std::ptrdiff_t>(field_count<ReplaySummaryRow>) - 1);
}

TEST(ReplayFileFolder, IsWrittenWholeAndReadByFolderOrName) {
  const testing_support::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path() / "deep" / "replay";
  write_replay(folder, example());
  EXPECT_EQ(read_replay(folder), example());
  EXPECT_EQ(read_replay(folder / replay_name::json), example());
  EXPECT_EQ(read_file(folder / replay_name::summary), summary_csv(example()));
  EXPECT_EQ(read_file(folder / replay_name::traces), traces_csv(example()));
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 3u) << "no temporary file stays";
  write_file_atomically(folder / replay_name::json, "{}");
  EXPECT_THAT(message_of([&] { read_replay(folder); }),
              HasSubstr("replay.json: the key 'schema' is missing"));
  EXPECT_THAT(message_of([&] { read_replay(temporary.path() / "none.json"); }), HasSubstr("none.json"));
}

}  // namespace
}  // namespace fp16lab::replay_file_test
