// exp_tensor_core_probe without a GPU: the emulator in its place. Every verdict must be able to say both, so
// the emulator answers once as the table says and once with one thing changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/tensor_core_probe/emulated_device.hpp"
#include "experiments/tensor_core_probe/question.hpp"
#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tensor_core_vectors.hpp"

namespace fp16lab::probe {
namespace {

using Row = TensorCoreModel;
using ChangeModel = std::function<void(Row&)>;

ChangeModel to(int Stage::*number, int value) {
  return [=](Row& row) { row.set(number, value); };
}
ChangeModel by(int Stage::*number, int change) {
  return [=](Row& row) { row.set(number, row.block().*number + change); };
}
void half_block(Row& row) { row.set(&Stage::products, row.block().products / 2); }
void keeps_sign(Row& row) { row.underflow_zero = UnderflowZero::keeps_sign; }
void own_exponent(Row& row) { row.subnormal_accumulator = SubnormalAccumulator::own_exponent; }
/// FP8 through FP16 with k < 16 in the first block.
void in_halves(Row& row) {
  for (Stage& stage : row.stages)
    if (row.as_fp16 && stage.products > 0) stage.share.run = 16;
}
void native(Row& row) {
  row.stages = fused_block(32, row.block().fraction_bits, row.block().output, row.block().exponent_floor);
  row.as_fp16 = false;
}
void wide_sums(Row& row) {
  row.set(&Stage::fraction_bits, 25);
  if (row.accumulator() == DType::f32) row.set(&Stage::output, BlockOutput::fp32_toward_zero);
}

using testing::HasSubstr;

std::string text_of(const Finding& finding) { return analysis::claims_text({&finding.claim, 1}); }

constexpr Capability volta{7, 0}, turing{7, 5}, ampere{8, 0}, ada{8, 9}, hopper{9, 0}, blackwell{10, 0},
    blackwell_120{12, 0};

Settings small() {
  Settings settings;
  settings.random_outputs = 3000;
  settings.conversion_stride = 1'000'003;
  return settings;
}

// On a GPU, or on the PTX machine, which has mma.sync with sums in FP32 alone, and not of FP8.
TEST(ProbeDevice, KernelsComputeTheirInstructions) {
  std::string reason;
  const std::unique_ptr<Device> device = open_cuda_device(reason);
  if (!device) GTEST_SKIP() << reason;
  const bool simulated = device->info().name.find("PTX machine") != std::string::npos;
  int compared = 0;
  for (const Instruction& in : instructions) {
    const bool executed = in.unit == Unit::mma && in.operands.bytes > 1 && in.accumulator == f32;
    if (!device->has(in) || (simulated && !executed)) continue;
    const Row row = row_for(in, device->info().capability).value();
    ++compared;
    for (const Distribution distribution : every<Distribution>)
      EXPECT_EQ(
          compare_random(*device, in, distribution, 1, 2000, 2, dot_product_of(row, in.operands)).differing,
          0U)
          << in.name << ' ' << name_of(distribution);
  }
  EXPECT_GE(compared, 3);  // as many as 7.5 has
}

// What the PTX machine does not execute: PTX ISA, "Matrix Fragments for mma.m16n8k32", formula by formula, of
// element i of A and B in lane 4 * group + in_group.
TEST(FragmentLayout, OfFp8IsThatOfThePtxManual) {
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, in_group = lane % 4;
    for (int i = 0; i < 16; ++i) {
      const FragmentPlace place = a_register(lane, i / 4);
      EXPECT_EQ(place.line, i < 4 || (i >= 8 && i < 12) ? group : group + 8);
      EXPECT_EQ(place.offset + i % 4, in_group * 4 + (i & 3) + (i < 8 ? 0 : 16));
    }
    for (int i = 0; i < 8; ++i) {
      const FragmentPlace place = b_register(lane, i / 4);
      EXPECT_EQ(place.line, group);
      EXPECT_EQ(place.offset + i % 4, in_group * 4 + (i & 3) + (i < 4 ? 0 : 16));
    }
  }
}

TEST(Probe, EveryClaimHoldsOfTheEmulatorItself) {
  for (const Capability capability : {volta, turing, ampere, ada, hopper, blackwell, blackwell_120}) {
    EmulatedDevice device(capability);
    std::map<std::string, int> asked;
    for (const Finding& finding : ask_tensor_core(device, small())) {
      ++asked[finding.claim.topic];
      const bool here = finding.claim.measured.find("not on this device") == std::string::npos;
      EXPECT_EQ(finding.claim.verdict, here ? Verdict::holds : Verdict::not_run) << text_of(finding);
      EXPECT_EQ(finding.observations.empty(), !here);
    }
    if (capability.major == hopper.major) {
      for (const char* probe : {"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P10", "P11", "P12"})
        EXPECT_GT(asked[probe], 0) << probe;
    }
    for (const Finding& finding : compare_with_emulator(device, small()))
      EXPECT_NE(finding.claim.verdict, Verdict::fails) << text_of(finding);
  }
  EmulatedDevice device(hopper);
  for (const Finding& finding : ask_half(device, small()))
    EXPECT_EQ(finding.claim.verdict, Verdict::holds) << text_of(finding);
}

/// Refuted findings of one probe, each of which must name the hypothesis.
int refuted(EmulatedDevice& device, const std::string& probe, const std::string& hypothesis) {
  int count = 0;
  for (const Finding& finding : ask_tensor_core(device, small())) {
    if (finding.claim.topic != probe || finding.claim.verdict != Verdict::fails) continue;
    EXPECT_THAT(finding.claim.measured, HasSubstr(hypothesis)) << text_of(finding);
    ++count;
  }
  return count;
}

TEST(Probe, AsksFirstWhatNoPublishedRowShows) {
  const std::vector<Question> questions = tensor_core_questions(hopper, small());
  EXPECT_THAT(questions.at(0).claim, HasSubstr("mma.m16n8k8.f32.f16: one fused block of 8 products"));
  EXPECT_THAT(questions.at(3).claim, HasSubstr("mma.m16n8k8.f32.bf16: a negative sum that rounds to zero"));
}

struct Mutation {
  std::string probe;
  Capability capability;
  bool (*concerns)(const Instruction&);
  ChangeModel change;
  std::string conclusion;
  int refuted;  ///< questions whose verdict must turn
};

TEST(Probe, RefutesWithTheRightHypothesis) {
  const auto all = [](const Instruction&) { return true; };
  const auto wgmma = [](const Instruction& in) { return in.unit == Unit::wgmma; };
  const auto of_tf32 = [](const Instruction& in) { return in.operands == tf32; };
  const auto of_bf16 = [](const Instruction& in) { return in.operands == bf16; };
  const auto of_fp8 = [](const Instruction& in) { return in.operands.bytes == 1; };
  const auto of_eight = [](const Instruction& in) { return in.k == 8; };
  const std::vector<Mutation> mutations{
      {"P1", hopper, all, by(&Stage::exponent_floor, 1), "'E0 = -20'; the table must change: row 'hopper", 3},
      {"P1", hopper, all, by(&Stage::exponent_floor, -1), "exponent_floor -21 -> -22", 3},
      {"P1", ampere, all, by(&Stage::exponent_floor, 1), "'E0 = -19'", 2},
      {"P1", turing, all, by(&Stage::exponent_floor, 1), "'E0 = -19'", 1},
      {"P1", hopper, wgmma, to(&Stage::exponent_floor, -22),
       "row 'hopper-wgmma' with f16 operands, f16 accumulator: exponent_floor -21 -> -22", 1},
      {"P2", hopper, all, own_exponent, "subnormal_accumulator -> own_exponent", 3},
      {"P3", hopper, all, keeps_sign, "underflow_zero -> keeps_sign", 8},
      {"P3", ampere, of_bf16, keeps_sign, "underflow_zero -> keeps_sign", 2},
      {"P12", hopper, of_eight, to(&Stage::fraction_bits, 24),
       "'L = 8, F = 24'; the table must change: row 'hopper'", 3},
      {"P12", hopper, of_eight, to(&Stage::products, 4), "'L = 4, F = 25'", 3},
      {"P12", turing, all, to(&Stage::products, 4), "'L = 4, F = 24'; the table must change: row 'turing'",
       2},
      {"P5", hopper, of_tf32, to(&Stage::products, 4), "'L = 4'; the table must change: row 'hopper", 3},
      {"P5", hopper, of_tf32, to(&Stage::products, 2), "block_size 8 -> 2", 3},
      {"P5", ampere, of_tf32, to(&Stage::products, 8), "block_size 4 -> 8", 2},
      {"P6", hopper, all, by(&Stage::exponent_floor, 1), "exponent_floor -133 -> -132", 4},
      {"P6", ampere, all, by(&Stage::exponent_floor, -1), "exponent_floor -132 -> -133", 2},
      {"P7", hopper, of_fp8, in_halves, "stages -> block of 16 products from +0 (k / 16 mod 2 = 0)", 4},
      {"P7", hopper, of_fp8, native, "'native, L = 32, F = 25'", 4},
      {"P7", ada, of_fp8, to(&Stage::products, 32), "'native, L = 32, F = 13'", 4},
      {"P11", hopper, of_fp8, wide_sums, "'F = 25, RZ-FP32'", 2},
  };
  for (const Mutation& mutation : mutations) {
    EmulatedDevice device(mutation.capability);
    device.change_row = [&](const Instruction& in, Row& row) {
      if (mutation.concerns(in)) mutation.change(row);
    };
    EXPECT_EQ(refuted(device, mutation.probe, mutation.conclusion), mutation.refuted)
        << mutation.probe << ' ' << mutation.conclusion;
  }

  EmulatedDevice negative_zero(hopper);
  negative_zero.change_word = [](std::uint32_t word) { return word == 0 ? 0x80000000U : word; };
  EXPECT_GT(refuted(negative_zero, "P4", ""), 4);
  EmulatedDevice off(hopper);
  off.change_word = [](std::uint32_t word) { return word + 1; };
  for (const Finding& finding : ask_tensor_core(off, small())) {
    EXPECT_EQ(finding.claim.verdict, Verdict::fails) << text_of(finding);
    EXPECT_THAT(finding.claim.measured, HasSubstr("no hypothesis agrees")) << text_of(finding);
  }
  EmulatedDevice uneven(hopper);
  uneven.one_output_wrong = true;
  for (const Finding& finding : ask_tensor_core(uneven, small()))
    EXPECT_THAT(finding.claim.measured, HasSubstr("differ by their position")) << text_of(finding);
}

// Each rival on its own, also those that no row of the table can say: whoever computes it must be named.
TEST(Probe, EveryHypothesisIsRecognised) {
  for (const Capability capability : {volta, turing, ampere, ada, hopper, blackwell, blackwell_120})
    for (const Question& question : tensor_core_questions(capability, small()))
      for (const Hypothesis& truth : question.hypotheses) {
        class Truthful final : public EmulatedDevice {
         public:
          Truthful(Capability c, const Hypothesis& t) : EmulatedDevice(c), truth_(t) {}
          bool has(const Instruction&) const override { return true; }
          Words run(const Instruction& in, const Tiles& tiles, bool) override {
            Words d;
            for (std::size_t i = 0; i < tiles.count * in.outputs(); ++i) {
              const std::size_t column = i / in.outputs() * in.n + i % in.n;
              d.push_back(truth_.predict(std::span(tiles.a).subspan(i / in.n * in.k, in.k),
                                         std::span(tiles.b).subspan(column * in.k, in.k), tiles.c[i]));
            }
            return d;
          }

         private:
          const Hypothesis& truth_;
        };
        Question asked = question;
        asked.random_outputs = std::min<std::uint64_t>(asked.random_outputs, 1);
        Truthful device(capability, truth);
        const Finding finding = ask(device, small(), asked);
        const bool claimed = &truth == &question.hypotheses.front();
        EXPECT_EQ(finding.claim.verdict, claimed ? Verdict::holds : Verdict::fails)
            << truth.name << text_of(finding);
        if (!claimed) {
          EXPECT_THAT(finding.claim.measured, HasSubstr("agrees with '" + truth.name + "'"));
        }
        EXPECT_FALSE(truth.change.empty()) << truth.name << text_of(finding);
      }
}

TEST(Probe, PlainFp16IsRefutedByOtherNaNsAndOneWrongBit) {
  EmulatedDevice device(hopper);
  device.change_half = [](std::uint32_t word) { return word == 0x7fff ? 0x7e00U : word; };
  int count = 0;
  for (const Finding& finding : ask_half(device, small())) {
    if (finding.claim.claim.find("is 7fffffff") != std::string::npos)
      continue;  // cvt.f32.f16, whose NaN is another word
    EXPECT_EQ(finding.claim.verdict, Verdict::fails) << text_of(finding);
    if (finding.claim.claim.find("NaN") != std::string::npos) {
      EXPECT_THAT(finding.claim.measured, HasSubstr("'default: quiet bit alone'")) << text_of(finding);
      ++count;
    }
  }
  EXPECT_EQ(count, 7);

  device.change_half = [](std::uint32_t word) { return word == 0x3c00 ? 0x3c01U : word; };
  for (const Finding& finding : ask_half(device, small()))
    EXPECT_EQ(finding.claim.verdict,
              finding.claim.claim.find("NaN") != std::string::npos ? Verdict::holds : Verdict::fails)
        << text_of(finding);
}

// The random operands must tell every parameter of every row apart.
TEST(Probe, RandomOperandsSeeEveryParameter) {
  EmulatedDevice device(hopper);
  Settings settings = small();
  // The rarest, a subnormal c's own exponent, shows in about one output of 20,000; a real run has 10 million.
  settings.random_outputs = 40'000;
  struct Change {
    std::string name;
    ChangeModel change;
    bool (*concerns)(const Instruction&, const Row&);
  };
  // FP8 in FP16 blocks with FP16 output: 25 bits below the largest product hold every other one that FP16 can
  // show.
  const auto truncates = [](const Instruction& in, const Row& row) {
    return !row.as_fp16 || in.accumulator == f32;
  };
  const auto long_block = [](const Instruction& in, const Row& row) {
    return !row.as_fp16 && static_cast<int>(in.k) > row.block().products / 2;
  };
  const auto small_products = [](const Instruction& in, const Row&) {
    return in.operands == bf16 || in.operands == tf32;
  };
  const auto half_sums = [](const Instruction& in, const Row&) {
    return in.operands == f16 && in.accumulator == f16;
  };
  const auto underflows = [](const Instruction& in, const Row&) {
    return in.operands.bytes > 1 && (in.operands != f16 || in.accumulator == f16);
  };
  const auto through_fp16 = [](const Instruction&, const Row& row) { return row.as_fp16; };
  const std::vector<Change> changes{
      {"F - 1", by(&Stage::fraction_bits, -1), truncates},
      {"F + 1", by(&Stage::fraction_bits, 1), truncates},
      {"L / 2", half_block, long_block},
      {"E0 + 1", by(&Stage::exponent_floor, 1), small_products},
      {"E0 - 1", by(&Stage::exponent_floor, -1), small_products},
      {"own exponent", own_exponent, half_sums},
      {"signed underflow", keeps_sign, underflows},
      {"halves", in_halves, through_fp16},
  };
  for (const Change& change : changes) {
    device.change_row = [&](const Instruction&, Row& row) { change.change(row); };
    std::size_t i = 0;
    const std::vector<Finding> findings = compare_with_emulator(device, settings);
    for (const Instruction& in : instructions) {
      const std::optional<TensorCoreModel> row = row_for(in, hopper);
      if (!row) continue;  // Volta's
      const Finding& finding = findings.at(i++);
      if (change.concerns(in, *row)) {
        EXPECT_EQ(finding.claim.verdict, Verdict::fails) << change.name << '\n' << text_of(finding);
      }
    }
  }
  device.change_row = nullptr;
  device.change_word = [](std::uint32_t word) {
    return word == 0x7fffffff ? 0x7fc00000U : word == 0x7fff ? 0x7e00U : word;
  };
  for (const Finding& finding : compare_with_emulator(device, settings))
    EXPECT_EQ(finding.claim.verdict, Verdict::fails) << "NaN\n" << text_of(finding);
}

// Sums in FP16 show their floor rarely: a tie at 2^-25 that a term just above or below it breaks.
TEST(Probe, RandomOperandsSeeTheFloorOfHalfSums) {
  EmulatedDevice device(hopper);
  for (const int change : {1, -1}) {
    device.change_row = [change](const Instruction&, Row& row) { by(&Stage::exponent_floor, change)(row); };
    for (const char* name : {"mma.m16n8k8.f16.f16", "mma.m16n8k16.f16.f16", "wgmma.m64n8k16.f16.f16"}) {
      const Instruction& in = instruction(name);
      const DotProduct claimed = dot_product_of(row_for(in, hopper).value(), in.operands);
      EXPECT_GT(compare_random(device, in, Distribution::floor, 1, 100'000, 2, claimed).differing, 0U)
          << in.name << ' ' << change;
    }
  }
}

TEST(Probe, ClaimsAndCriteriaAreWrittenBeforeTheRun) {
  EmulatedDevice device(hopper);
  Settings before = small();
  before.only_criteria = true;
  const std::vector<Claim> criteria = claims_of(ask_everything(device, before)),
                           judged = claims_of(ask_everything(device, small()));
  ASSERT_EQ(criteria.size(), judged.size());
  for (std::size_t i = 0; i < judged.size(); ++i) {
    EXPECT_EQ(criteria[i].claim, judged[i].claim);
    EXPECT_EQ(criteria[i].criterion, judged[i].criterion);
    EXPECT_EQ(criteria[i].verdict, Verdict::not_run) << judged[i].claim;
    EXPECT_EQ(criteria[i].measured, "");
    EXPECT_NE(judged[i].measured, "") << judged[i].claim;
  }
}

TEST(Probe, ComparisonsDoNotDependOnThreads) {
  EmulatedDevice device(hopper);
  const Instruction& in = instruction("mma.m16n8k16.f16.f16");
  Row row = row_for(in, hopper).value();
  by(&Stage::fraction_bits, 1)(row);
  const DotProduct expected = dot_product_of(row, in.operands);
  const Comparison one = compare_random(device, in, Distribution::ordinary, 1, 20000, 1, expected);
  const Comparison three = compare_random(device, in, Distribution::ordinary, 1, 20000, 3, expected);
  EXPECT_GT(one.differing, 0U);
  EXPECT_EQ(one.differing, three.differing);
  ASSERT_EQ(one.first.size(), three.first.size());
  for (std::size_t i = 0; i < one.first.size(); ++i) {
    EXPECT_EQ(one.first[i].a, three.first[i].a);
    EXPECT_EQ(one.first[i].device, three.first[i].device);
    EXPECT_NE(one.first[i].device, one.first[i].expected);
  }
  const Tiles again = random_tiles(in, Distribution::wide, 1, 7, 2, 2);
  const Tiles longer = random_tiles(in, Distribution::wide, 1, 6, 3, 1);
  EXPECT_TRUE(std::equal(again.a.begin(), again.a.end(), longer.a.begin() + 256));
  EXPECT_TRUE(std::equal(again.b.begin(), again.b.end(), longer.b.begin() + 128));
  EXPECT_TRUE(std::equal(again.c.begin(), again.c.end(), longer.c.begin() + 128));
}

// What the questions expect are the typed vectors of tests/golden, where these have them.
TEST(Probe, ClaimsAgreeWithTheGoldenVectors) {
  using testing_support::hex_words;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, testing_support::TensorCoreVector>
      golden;
  for (const auto& vector : testing_support::all_tensor_core_vectors())
    if (vector.options.empty())
      golden.emplace(std::tuple{vector.id, vector.model, vector.in, vector.acc}, vector);
  const auto trimmed = [](std::vector<std::uint32_t> words) {
    while (!words.empty() && words.back() == 0) words.pop_back();
    return words;
  };
  std::set<std::string> found;
  for (const Capability capability : {ampere, ada, hopper, blackwell}) {
    EmulatedDevice device(capability);
    for (const Finding& finding : ask_tensor_core(device, small()))
      for (const Observation& seen : finding.observations) {
        const Vector& vector = seen.vector;
        const auto match = golden.find(
            {vector.id, seen.model, seen.instruction->operands.name, seen.instruction->accumulator.name});
        if (match == golden.end() || trimmed(hex_words(match->second.a)) != trimmed(vector.a) ||
            trimmed(hex_words(match->second.b)) != trimmed(vector.b) ||
            hex_words(match->second.c).at(0) != vector.c)
          continue;
        EXPECT_EQ(hex_words(match->second.d).at(0), seen.d) << vector.id << ' ' << seen.model;
        found.insert(vector.id);
      }
  }
  for (const char* id :
       {"V29", "V30", "V34", "V34b", "V34c", "V35", "V37", "V38", "V45", "V45b", "V45c", "P2", "P3b"})
    EXPECT_TRUE(found.contains(id)) << id;
}

TEST(Probe, RecordsCanBeReadBack) {
  EmulatedDevice device(hopper);
  std::vector<Finding> findings = ask_tensor_core(device, small());
  for (Finding& finding : ask_half(device, small())) findings.push_back(std::move(finding));
  const testing_support::TemporaryFolder folder;
  write_records(folder.path() / "new", device.info(), findings);

  std::size_t rows = 0;
  for (const std::string& line :
       testing_support::split(testing_support::slurp(folder.path() / "new/probe.tsv"), '\n')) {
    if (line.starts_with('#')) continue;
    const std::vector<std::string> f = testing_support::split(line, '\t');
    ASSERT_EQ(f.size(), 10U) << line;
    const TensorCoreModel& row = tensor_core_model(f[1], operand_format(f[2]), accumulator_format(f[3]));
    const auto words = [](const std::string& text) { return testing_support::hex_words(text); };
    EXPECT_EQ(fused_dot_add(row, operand_format(f[2]), words(f[5]), operand_format(f[2]), words(f[6]),
                            words(f[7]).at(0)),
              words(f[8]).at(0))
        << line;
    EXPECT_THAT(f[9],
                HasSubstr("captured on emulated GPU, compute capability 9.0, driver 1.2.3 (CUDA 13.0), CUDA "
                          "runtime 13.0: "));
    ++rows;
  }
  EXPECT_GT(rows, 100U);
  const std::string half = testing_support::slurp(folder.path() / "new/probe_fp16.tsv");
  EXPECT_THAT(half, HasSubstr("add.rn.f16\t7e00 3c00\t7fff\n"));
  EXPECT_THAT(half, HasSubstr("cvt.rn.f16.f32\tffc00000\t7fff\n"));
  EXPECT_THAT(testing_support::slurp(folder.path() / "new/report.md"),
              HasSubstr("| P5 | mma.m16n8k8.f32.tf32: 8 products in a fused block | HOLDS |"));
}

TEST(ProbeProgram, SaysThatThereIsNoGpu) {
  const testing_support::TemporaryFolder folder;
  const std::string program = std::string(FP16LAB_BIN_DIR) + "/exp_tensor_core_probe";
  const auto run = [&](const std::vector<std::string>& arguments) {
    return testing_support::Spawned(program, arguments, folder.path(), {{"CUDA_VISIBLE_DEVICES", ""}}).wait();
  };
  const testing_support::Finished none = run({"-o", (folder.path() / "out").string()});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("no GPU to probe: "));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out"));

  const testing_support::Finished model = run({"--model", "hoper"});
  EXPECT_EQ(model.exit_code, 2);
  EXPECT_THAT(model.err, HasSubstr("did you mean 'hopper'?"));
  EXPECT_EQ(run({"--outputs", "many"}).exit_code, 2);
  EXPECT_EQ(run({"--set", "train.steps=1"}).exit_code, 2);
}

}  // namespace
}  // namespace fp16lab::probe
