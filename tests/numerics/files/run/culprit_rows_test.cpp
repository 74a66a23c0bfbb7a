// culprits.jsonl: an optional file of the run folder.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "numerics/files/run/run_folder.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing_support::message_of;
using testing_support::TemporaryFolder;

constexpr double infinity = std::numeric_limits<double>::infinity();

CulpritRow some_row(std::uint64_t step) {
  CulpritRow row;
  row.step = step;
  row.pass = CulpritPass::backward;
  row.cause = CulpritCause::operation;
  row.op = "linear";
  row.part = "matmul";
  row.layer = "encoder.fc1";
  row.tensor = "encoder.fc1.input";
  row.dtype = DType::f16;
  row.shape = {4, 3, 2};
  row.micro_batch = 1;
  row.loss_scale = 65536;
  row.element = 17;
  row.value = -infinity;
  row.nonfinite = 3;
  row.wide_value = -70000.5;
  row.wide_greatest = 1e30;
  row.wide.emplace();
  row.wide->count(0x3f800000);
  row.wide->nan = 2;
  row.operands.push_back({.name = "gradient",
                          .dtype = DType::bf16,
                          .shape = {},
                          .smallest = 0x1p-149,
                          .greatest = infinity,
                          .histogram = *row.wide});
  row.reached = true;
  row.verdict = CulpritVerdict::lower_scale;
  row.black = "linear";
  row.excluded = "encoder.fc1";
  row.binades = 3;
  row.finite_scale = 64;
  row.advice = "a \"lower\" scale";
  return row;
}

void finish_run(const std::filesystem::path& folder, const std::vector<CulpritRow>& rows) {
  RunWriter writer(folder, Manifest{});
  for (const CulpritRow& row : rows) writer.append(row);
  writer.finish(ExitState::finished);
}

TEST(CulpritRows, RoundTripKeepsEverything) {
  const TemporaryFolder folder;
  CulpritRow unknown = some_row(2);
  unknown.wide_value.reset();
  unknown.finite_scale.reset();
  unknown.wide.reset();
  unknown.shape = {};
  unknown.element = 0;
  unknown.value = 1.0;
  unknown.operands.clear();
  const std::vector<CulpritRow> rows = {some_row(1), unknown};
  finish_run(folder.path() / "run", rows);
  EXPECT_EQ(read_culprits(folder.path() / "run"), rows);
  std::ifstream file(folder.path() / "run/culprits.jsonl");
  std::string line;
  std::getline(file, line);
  EXPECT_THAT(line, HasSubstr("\"index\":[2,2,1]")) << "17 in a shape of (4, 3, 2)";
  EXPECT_THAT(line, HasSubstr("\"value\":\"-Infinity\""));
}

TEST(CulpritRows, AFolderWithoutAnyHasNoFile) {
  const TemporaryFolder folder;
  finish_run(folder.path() / "run", {});
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run/culprits.jsonl"));
  EXPECT_THAT(read_culprits(folder.path() / "run"), IsEmpty());
  EXPECT_NO_THROW(read_run_folder(folder.path() / "run"));
}

TEST(CulpritRows, DamageIsNamedByLineAndATornLineLeftOut) {
  const TemporaryFolder folder;
  finish_run(folder.path() / "run", {some_row(1), some_row(2)});
  const auto file = folder.path() / "run/culprits.jsonl";
  std::ofstream(file, std::ios::app) << "{\"step\":3,";
  EXPECT_THAT(read_culprits(folder.path() / "run"), SizeIs(2));
  std::ofstream(file, std::ios::app) << "\"pass\":7}\n";
  EXPECT_THAT(message_of([&] { read_culprits(folder.path() / "run"); }),
              ::testing::AllOf(HasSubstr("culprits.jsonl:3: "), HasSubstr("pass")));
}

TEST(CulpritRows, GoAwayWithTheirRun) {
  const TemporaryFolder folder;
  finish_run(folder.path() / "run", {some_row(1)});
  remove_run(folder.path() / "run");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run"));
}

}  // namespace
}  // namespace fp16lab
