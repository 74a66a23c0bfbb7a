// AlgorithmCache: keys, the file between processes, and files that are something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/backend/cuda/library/algorithm_cache.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine {
// Found by argument, so that GoogleTest prints what differs.
inline void PrintTo(const AlgorithmOutcome& outcome, std::ostream* out) {
  *out << (outcome.pinned ? outcome.algorithm.description : outcome.reason);
}

namespace test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_support::message_of;

AlgorithmEnvironment h200() {
  return {.library = "cublasLt 130002",
          .device = "NVIDIA H200",
          .capability_major = 9,
          .capability_minor = 0,
          .multiprocessors = 132,
          .driver = 13000,
          .tensor_core = "hopper",
          .workspace_bytes = 1 << 25};
}
ProductProblem some_problem() {
  return contiguous_product(64, 10, 128, 2, DType::bf16, DType::f32, false, true);
}
AlgorithmOutcome some_outcome() {
  return {.pinned = true,
          .algorithm = {.words = {0, 1, ~0ull, 0x0123456789abcdef, 4, 5, 6, 1ull << 63},
                        .workspace_bytes = 512,
                        .description = "algorithm 66 (\"tile\" 23)"}};
}
AlgorithmOutcome some_refusal() {
  return {.pinned = false, .reason = "none of the 3 algorithms\tis \\ equal"};
}

class AlgorithmCacheFile : public testing::Test {
 protected:
  std::filesystem::path file() const { return folder_.path() / "pins.jsonl"; }
  AlgorithmCache store(const AlgorithmEnvironment& environment = h200()) const {
    return AlgorithmCache(environment, file());
  }
  std::string text() const { return read_file(file()); }

 private:
  testing_support::TemporaryFolder folder_;
};

/// Every field of a problem that a file keeps, changed by itself.
const std::vector<std::function<void(ProductProblem&)>> problem_changes{
    [](ProductProblem& p) { ++p.m; },
    [](ProductProblem& p) { ++p.n; },
    [](ProductProblem& p) { ++p.k; },
    [](ProductProblem& p) { ++p.batch; },
    [](ProductProblem& p) { p.operands = DType::f16; },
    [](ProductProblem& p) { p.out = DType::bf16; },
    [](ProductProblem& p) { p.transpose_a = !p.transpose_a; },
    [](ProductProblem& p) { p.transpose_b = !p.transpose_b; },
    [](ProductProblem& p) { ++p.lda; },
    [](ProductProblem& p) { ++p.ldb; },
    [](ProductProblem& p) { ++p.ldd; },
    [](ProductProblem& p) { p.alignment_a = 8; },
    [](ProductProblem& p) { p.alignment_b = 4; },
    [](ProductProblem& p) { p.alignment_d = 2; }};
const std::vector<std::function<void(AlgorithmEnvironment&)>> environment_changes{
    [](AlgorithmEnvironment& e) { e.library = "cublasLt 130003"; },
    [](AlgorithmEnvironment& e) { e.device = "NVIDIA H100"; },
    [](AlgorithmEnvironment& e) { e.capability_major = 10; },
    [](AlgorithmEnvironment& e) { e.capability_minor = 1; },
    [](AlgorithmEnvironment& e) { e.multiprocessors = 114; },
    [](AlgorithmEnvironment& e) { e.driver = 13010; },
    [](AlgorithmEnvironment& e) { e.tensor_core = "hopper-wgmma"; },
    [](AlgorithmEnvironment& e) { e.workspace_bytes = 0; }};

TEST_F(AlgorithmCacheFile, WhatWasRememberedComesBackInAnotherProcess) {
  {
    AlgorithmCache first = store();
    first.remember(some_problem(), some_outcome());
    ProductProblem other = some_problem();
    other.k = 256;
    first.remember(other, some_refusal());
  }
  const AlgorithmCache second = store();
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(*second.find(some_problem()), some_outcome());
  ProductProblem other = some_problem();
  other.k = 256;
  EXPECT_EQ(*second.find(other), some_refusal());
}

TEST_F(AlgorithmCacheFile, EveryFieldOfTheProblemIsPartOfTheKey) {
  AlgorithmCache writing = store();
  writing.remember(some_problem(), some_outcome());
  for (std::size_t i = 0; i < problem_changes.size(); ++i) {
    ProductProblem other = some_problem();
    problem_changes[i](other);
    EXPECT_EQ(writing.find(other), nullptr) << "change " << i;
    EXPECT_EQ(store().find(other), nullptr) << "change " << i << ", from the file";
  }
  for (const auto& change : problem_changes) {
    ProductProblem other = some_problem();
    change(other);
    writing.remember(other, some_refusal());
  }
  EXPECT_EQ(store().size(), 1 + problem_changes.size());
  EXPECT_EQ(*store().find(some_problem()), some_outcome());
}

TEST_F(AlgorithmCacheFile, LinesOfOtherEnvironmentsAreKeptAndNotUsed) {
  store().remember(some_problem(), some_outcome());
  for (std::size_t i = 0; i < environment_changes.size(); ++i) {
    AlgorithmEnvironment other = h200();
    environment_changes[i](other);
    AlgorithmCache elsewhere = store(other);
    EXPECT_EQ(elsewhere.size(), 0u) << "change " << i;
    elsewhere.remember(some_problem(), some_refusal());
  }
  EXPECT_EQ(*store().find(some_problem()), some_outcome());
  EXPECT_EQ(std::ranges::count(text(), '\n'), 2 + std::ssize(environment_changes));
}

TEST_F(AlgorithmCacheFile, AProcessAddsToWhatOthersHaveWrittenSinceItStarted) {
  AlgorithmCache one = store(), two = store();
  ProductProblem other = some_problem();
  other.m = 65;
  one.remember(some_problem(), some_outcome());
  two.remember(other, some_refusal());
  two.remember(some_problem(), some_outcome());  // the same line again: replaced, not doubled
  EXPECT_EQ(store().size(), 2u);
  EXPECT_EQ(std::ranges::count(text(), '\n'), 3);
}

TEST_F(AlgorithmCacheFile, FailuresAndStoresWithoutAFileStayInTheProcess) {
  AlgorithmCache one = store();
  AlgorithmOutcome failure = some_refusal();
  failure.failed = true;
  one.remember(some_problem(), failure);
  EXPECT_EQ(*one.find(some_problem()), failure);
  EXPECT_FALSE(std::filesystem::exists(file()));
  AlgorithmCache without(h200());
  without.remember(some_problem(), some_outcome());
  EXPECT_EQ(*without.find(some_problem()), some_outcome());
}

TEST_F(AlgorithmCacheFile, TheKeyCanBeReadInTheFile) {
  store().remember(some_problem(), some_outcome());
  for (const char* field :
       {R"("format":"fp16lab pins","version":1)", R"("library":"cublasLt 130002")",
        R"("device":"NVIDIA H200")", R"("capability":[9,0])", R"("multiprocessors":132,"driver":13000)",
        R"("tensor_core":"hopper")", R"("workspace_bytes":33554432)", R"("m":64,"n":10,"k":128)",
        R"("batch":2)", R"("operands":"bf16","out":"f32","epilogue":"none")",
        R"("transpose_a":false,"transpose_b":true)", R"("leading_dimensions":[128,128,10])",
        R"("alignments":[16,16,16])", R"("pinned":true)"})
    EXPECT_THAT(text(), HasSubstr(field));
}

TEST_F(AlgorithmCacheFile, AlgorithmsThatAreNotAcceptedAreForgotten) {
  AlgorithmCache one = store();
  ProductProblem refused = some_problem(), other = some_problem();
  refused.k = 256, other.k = 512;
  one.remember(some_problem(), some_outcome());
  one.remember(other, some_outcome());
  one.remember(refused, some_refusal());
  one.keep_accepted([](const ProductProblem& problem, const ProductAlgorithm&) { return problem.k == 128; });
  EXPECT_NE(one.find(some_problem()), nullptr);
  EXPECT_EQ(one.find(other), nullptr);
  EXPECT_NE(one.find(refused), nullptr) << "a refusal has no algorithm";
}

/// Whatever happens to a file: one line that names it and the line's number, and the file stays as it is.
TEST_F(AlgorithmCacheFile, AnythingElseIsOneClearErrorAndIsNotOverwritten) {
  store().remember(some_problem(), some_outcome());
  const std::string good = text();
  const auto replaced = [&good](const std::string& what, const std::string& with) {
    std::string changed = good;
    changed.replace(changed.find(what), what.size(), with);
    return changed;
  };
  const std::size_t header = good.find('\n') + 1;
  const std::vector<std::pair<std::string, int>> files{
      {"", 1},            // empty
      {"not JSON\n", 1},  //
      {"[1, 2]\n", 1},    // no object
      {R"({"format":"other","version":1})"
       "\n",
       1},                                                 //
      {replaced(R"("version":1)", R"("version":2)"), 1},   //
      {good.substr(header), 1},                            // no header
      {good.substr(0, good.size() - 1), 2},                // torn
      {good.substr(0, good.size() / 2), 2},                //
      {replaced(R"("m":64)", R"("m":65)"), 2},             // the checksum tells
      {replaced(R"("pinned":true)", R"("pinned":1)"), 2},  //
      {good + "\n", 3},                                    // an empty line
      {good + "{}\n", 3},                                  //
      {good + R"({"checksum":7})"
              "\n",
       3},                                        // of the wrong type
      {good + std::string("\x00\xff\n", 3), 3}};  // no text
  for (const auto& [content, line] : files) {
    write_file_atomically(file(), content);
    const std::string message = message_of([&] { store(); });
    EXPECT_THAT(message,
                HasSubstr(file().string() + ":" + std::to_string(line) + " is not a line of pinned products"))
        << content;
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    EXPECT_EQ(text(), content);
  }
}

TEST_F(AlgorithmCacheFile, AFileThatBecomesSomethingElseIsNotOverwrittenEither) {
  AlgorithmCache one = store();
  write_file_atomically(file(), "notes\n");
  EXPECT_THAT(message_of([&] { one.remember(some_problem(), some_outcome()); }),
              HasSubstr("is not a line of pinned"));
  EXPECT_EQ(text(), "notes\n");
}

}  // namespace
}  // namespace test
}  // namespace fp16lab::engine
