// The rows of fp16lab mma --row: what each key does, each mistake, and files damaged at random.
#include "experiments/app/commands/tensor_core_row.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments::tensor_core_row_test {
namespace {

using testing::HasSubstr;

const std::string whole =
    "name = \"mine\"\noperands = [\"f16\", \"bf16\"]\nblock_size = 4\nfraction_bits = 23\n"
    "exponent_floor = -131\noutput = \"fp32_toward_zero\"\n";

/// The message of the CommandError that `toml` leads to; "" if it is accepted.
std::string refusal(const std::string& toml, const std::string& operands = "",
                    const std::string& accumulator = "") {
  try {
    parse_tensor_core_row(toml, "rows/own.toml", operands, accumulator);
  } catch (const CommandError& error) {
    EXPECT_EQ(error.code, ExitCode::usage);
    return error.what();
  }
  return "";
}

void expect_equal(const TensorCoreModel& x, const TensorCoreModel& y) {
  for (const DType format : dtypes<is_low_precision>)
    EXPECT_EQ(x.operands.contains(format), y.operands.contains(format)) << name_of(format);
  EXPECT_TRUE(same_function(x, y)) << stages_text(x) << " is not " << stages_text(y);
}

const std::string two_blocks =
    "[[stage]]\nproducts = 16\nrun = 16\ngroups = 2\nentry = \"zero\"\nfraction_bits = 0x30\n"
    "exponent_floor = -1000\noutput = \"fp16_nearest_even\"\n"
    "[[stage]]\nproducts = 16\nrun = 16\ngroups = 2\ngroup = 1\nentry = \"previous\"\nfraction_bits = 48\n"
    "exponent_floor = -1000\noutput = \"fp16_nearest_even\"\n"
    "[[stage]]\nsum = \"addition\"\noutput = \"fp16_nearest_even\"\n";

TEST(TensorCoreRow, EveryKeyIsRead) {
  const OwnRow own = parse_tensor_core_row(
      "name = \"mine\"\noperands = [\"e5m2\", \"e4m3\"]\n"
      "subnormal_accumulator = \"own_exponent\"\nunderflow_zero = \"keeps_sign\"\nas_fp16 = true\n" +
          two_blocks,
      "own.toml");
  EXPECT_EQ(own.row.name, "mine");
  EXPECT_EQ(own.operands, DType::e5m2) << "the first of the list";
  TensorCoreModel expected = tensor_core_model("hopper", DType::e4m3, DType::f16);
  expected.set(&Stage::fraction_bits, 48);
  expected.set(&Stage::exponent_floor, -1000);
  for (Stage& stage : expected.stages)
    if (stage.products > 0) stage.share.run = 16;
  expected.subnormal_accumulator = SubnormalAccumulator::own_exponent;
  expected.underflow_zero = UnderflowZero::keeps_sign;
  expect_equal(own.row, expected);
}

TEST(TensorCoreRow, WithoutBaseTheLastThreeKeysHaveDefaults) {
  const OwnRow own = parse_tensor_core_row(whole, "own.toml");
  TensorCoreModel expected = tensor_core_model("ampere");  // for its two formats
  expected.set(&Stage::products, 4);
  expected.set(&Stage::fraction_bits, 23);
  expected.set(&Stage::exponent_floor, -131);
  expect_equal(own.row, expected);
  EXPECT_EQ(own.operands, DType::f16);
}

const std::string nvfp4 =
    "operands = [\"e2m1\"]\nscales = [\"ue4m3/16\", \"e8m0/16\", \"e8m0/32\"]\n[[stage]]\nproducts = 64\n"
    "exact_group = 16\nfraction_bits = 35\nexponent_floor = -139\noutput = \"fp32_toward_zero\"\n";

TEST(TensorCoreRow, ScalesAndExactGroupsAreKeys) {
  expect_equal(parse_tensor_core_row(nvfp4, "own.toml").row,
               tensor_core_model("blackwell-mxf4nvf4", DType::e2m1));
}

TEST(TensorCoreRow, BaseIsTheModelsRowForTheFormatsAskedFor) {
  for (const TensorCoreModel& row : all_tensor_core_models())
    for (const DType format : dtypes<is_low_precision>) {
      if (!row.operands.contains(format)) continue;
      const std::string base = "base = \"" + std::string(row.name) + "\"\n";
      const OwnRow own = parse_tensor_core_row(base, "rows/own.toml", std::string(name_of(format)),
                                               std::string(name_of(row.accumulator())));
      expect_equal(own.row, row);
      EXPECT_EQ(own.row.name, "own") << "the file's name";
      EXPECT_EQ(own.operands, format);
    }
  const OwnRow changed = parse_tensor_core_row("base = \"hopper\"\nfraction_bits = 24\n", "own.toml");
  TensorCoreModel expected = tensor_core_model("hopper");
  expected.set(&Stage::fraction_bits, 24);
  expect_equal(changed.row, expected);
  // The file's output chooses the accumulator where --acc does not.
  expect_equal(parse_tensor_core_row("base = \"volta\"\noutput = \"fp16_nearest_even\"", "own.toml").row,
               tensor_core_model("volta", DType::f16, DType::f16));
}

TEST(TensorCoreRow, EveryMistakeNamesFileLineKeyAndWhatIsRight) {
  EXPECT_EQ(refusal(whole), "");
  const auto with = [](const std::string& line) { return refusal(whole + line + "\n"); };
  EXPECT_EQ(
      with("block_siz = 3"),
      "rows/own.toml:7: unknown key 'block_siz': known are name, base, operands, block_size, "
      "fraction_bits, exponent_floor, output, stage, scales, as_fp16, subnormal_accumulator, underflow_zero; "
      "did you mean 'block_size'?");
  EXPECT_THAT(with("[row]\nblock_size = 3"), HasSubstr("rows/own.toml:7: unknown key 'row'"));
  EXPECT_THAT(with("block_size = 5"), HasSubstr("rows/own.toml:7: ")) << "twice in a file";
  EXPECT_THAT(refusal("block_size = \n"), HasSubstr("rows/own.toml:1: "));

  const auto instead = [](const std::string& key, const std::string& value) {
    std::string toml = whole;
    const std::size_t begin = toml.find(key);
    toml.replace(begin, toml.find('\n', begin) - begin, key + " = " + value);
    return refusal(toml);
  };
  const std::string sizes = ": expected an integer from 1 to 64";
  EXPECT_EQ(instead("block_size", "0"), "rows/own.toml:3: block_size = 0" + sizes);
  EXPECT_EQ(instead("block_size", "65"), "rows/own.toml:3: block_size = 65" + sizes);
  EXPECT_EQ(instead("block_size", "4.0"), "rows/own.toml:3: block_size = 4.0" + sizes);
  EXPECT_EQ(instead("block_size", "'4'"), "rows/own.toml:3: block_size = '4'" + sizes);
  EXPECT_EQ(instead("block_size", "true"), "rows/own.toml:3: block_size = true" + sizes);
  EXPECT_EQ(instead("block_size", "[4]"), "rows/own.toml:3: block_size = [ 4 ]" + sizes);
  EXPECT_EQ(instead("block_size", "4294967300"), "rows/own.toml:3: block_size = 4294967300" + sizes);
  EXPECT_EQ(instead("fraction_bits", "49"),
            "rows/own.toml:4: fraction_bits = 49: expected an integer from 1 to 48");
  EXPECT_EQ(instead("exponent_floor", "-1001"),
            "rows/own.toml:5: exponent_floor = -1001: expected an integer from -1000 to 1000");
  EXPECT_EQ(instead("output", "\"fp32_towards_zero\""),
            "rows/own.toml:6: output = 'fp32_towards_zero': known are fp32_toward_zero, "
            "fp32_toward_zero_14_bits, fp16_nearest_even, fp32_nearest_even, fp32_nearest_even_flushed, "
            "fp64_nearest_even; did you mean 'fp32_toward_zero'?");
  EXPECT_EQ(instead("output", "1"),
            "rows/own.toml:6: output = 1: expected one of the texts fp32_toward_zero, "
            "fp32_toward_zero_14_bits, fp16_nearest_even, fp32_nearest_even, fp32_nearest_even_flushed, "
            "fp64_nearest_even");
  EXPECT_THAT(instead("operands", "\"f16\""),
              HasSubstr("rows/own.toml:2: operands = 'f16': expected a list such as [\"f16\"] of f16, bf16"));
  EXPECT_THAT(instead("operands", "[]"), HasSubstr("operands = []: expected a list"));
  EXPECT_THAT(instead("operands", "[\"fp16\"]"),
              HasSubstr("'fp16': known are f16, bf16, tf32, e4m3, e5m2, e3m2, e2m3, e2m1; did you "
                        "mean 'f16'?"));
  EXPECT_THAT(instead("operands", "[\"f32\"]"), HasSubstr("'f32': known are"));
  EXPECT_THAT(instead("operands", "[16]"), HasSubstr("'16': known are"));
  EXPECT_THAT(instead("operands", "[\"f16\", \"f16\"]"), HasSubstr("'f16' is named twice"));
  EXPECT_EQ(instead("name", "\"\""), "rows/own.toml:1: name = '': expected a text that is not empty");
  EXPECT_THAT(instead("name", "\"a\\tb\""), HasSubstr("expected a text without control characters"));

  EXPECT_EQ(with("as_fp16 = 1"), "rows/own.toml:7: as_fp16 = 1: expected true or false");
  EXPECT_EQ(with("stage = 1"), "rows/own.toml:7: stage = 1: expected one to 4 tables [[stage]]");
  EXPECT_EQ(with(two_blocks),
            "rows/own.toml:3: block_size = 4: expected it in the [[stage]] tables, which say "
            "what an instruction does");
  const std::string open = "operands = [\"e4m3\"]\n";
  EXPECT_EQ(refusal(open + "[[stage]]\nsum = \"pairwise\""),
            "rows/own.toml:3: sum = 'pairwise': known are aligned, fma, addition");
  EXPECT_EQ(refusal(open + "[[stage]]\nsize = 3"),
            "rows/own.toml:3: unknown key 'size': known are sum, products, run, groups, group, entry, "
            "fraction_bits, exponent_floor, output, exact_group");
  EXPECT_EQ(refusal(open + "[[stage]]\nproducts = 8\noutput = \"fp32_toward_zero\""),
            "rows/own.toml: a [[stage]] with sum \"aligned\" has no key 'fraction_bits'");
  EXPECT_EQ(
      refusal(open + "[[stage]]\nsum = \"fma\"\nproducts = 2\ngroups = 2\noutput = \"fp32_nearest_even\""),
      "rows/own.toml: tensor-core model 'own' has stages of which not just one takes product 1 of an "
      "instruction");
  const std::string fma =
      "[[stage]]\nsum = \"fma\"\nproducts = 1\ngroups = 2\noutput = \"fp32_nearest_even\"\n";
  EXPECT_EQ(refusal(open + fma + fma + "group = 1\n"), "") << "what the first made enters the second";
  EXPECT_THAT(refusal(open + fma + fma + "group = 1\nentry = \"zero\""),
              HasSubstr("has a stage 2 that zero enters: what the stages before it made would be lost"));
  EXPECT_THAT(refusal(open + "[[stage]]\nsum = \"fma\"\nproducts = 2\noutput = \"fp32_toward_zero\""),
              HasSubstr("rounds a stage of kind fma by fp32_toward_zero, which it cannot"));
  EXPECT_THAT(with("subnormal_accumulator = \"own\""), HasSubstr("known are emin, own_exponent, fp16_emin"));
  EXPECT_EQ(with("subnormal_accumulator = \"fp16_emin\""), "") << "an FP32 accumulator";
  EXPECT_THAT(
      with("scales = [\"e8m0/64\"]"),
      HasSubstr("scales = [ 'e8m0/64' ]: 'e8m0/64': expected e8m0/16, e8m0/32, ue4m3/16 or ue4m3/32"));
  EXPECT_THAT(with("scales = \"e8m0/32\""), HasSubstr("expected a list of one to three texts such as"));
  EXPECT_THAT(with("scales = [\"ue4m3/16\"]"),
              HasSubstr("has scales of ue4m3 for 16 elements; e8m0, or for"));
  EXPECT_EQ(with("scales = [\"e8m0/32\", \"e8m0/16\"]"), "");
  EXPECT_EQ(
      with("subnormal_accumulator = \"own_exponent\""),
      "rows/own.toml:7: subnormal_accumulator = 'own_exponent': the row has no FP16 accumulator: expected "
      "output = \"fp16_nearest_even\", or no such key");
  EXPECT_THAT(with("underflow_zero = \"negative\""), HasSubstr("known are keeps_sign, positive"));

  EXPECT_EQ(
      refusal("base = \"hoper\""),
      fmt::format("rows/own.toml:1: base = 'hoper': unknown tensor-core model 'hoper': known are {}, {}, {}; "
                  "did you mean 'hopper'?",
                  fmt::join(fp16lab::tensor_core_names(), ", "), fmt::join(tensor_core_chips(), ", "),
                  fmt::join(block_scaled_names(), ", ")));
  EXPECT_THAT(refusal("base = 9"), HasSubstr("base = 9: expected the name of a --model: volta, "));
  EXPECT_THAT(refusal("base = \"volta\"", "bf16"),
              HasSubstr("'volta' has no bf16 operands with f32 accumulators; it has f16 with f32"));
  EXPECT_THAT(refusal("base = \"hopper\"\noperands = [\"e4m3\"]\nblock_size = 8"),
              HasSubstr("rows/own.toml:3: block_size = 8: expected no such key, or [[stage]] tables: an "
                        "instruction of own has block of 16 products from +0 (k / 2 mod 2 = 0)"));
  for (const char* const key : {"operands", "block_size", "fraction_bits", "exponent_floor", "output"}) {
    std::string toml = whole;
    const std::size_t begin = toml.find(key);
    toml.erase(begin, toml.find('\n', begin) - begin);
    EXPECT_EQ(refusal(toml), "rows/own.toml: no key '" + std::string(key) +
                                 "': expected it, or base = \"hopper\" or another model to take it from");
  }
  EXPECT_EQ(refusal(whole, "tf32"),
            "rows/own.toml:2: operands = [ 'f16', 'bf16' ]: expected tf32 among them, which "
            "--in asks for");
  EXPECT_EQ(refusal(whole, "", "f16"),
            "rows/own.toml:6: output = 'fp32_toward_zero': it gives f32, expected one "
            "that gives f16, which --acc asks for");
  EXPECT_EQ(refusal(open + fma + fma + "group = 1\n", "", "f16"),
            "rows/own.toml: the last [[stage]] gives f32: expected one that gives f16, which --acc asks for");
}

/// Files cut, joined and overwritten at random: each is a row that fused_dot_add takes, or one line of error.
TEST(TensorCoreRow, DamagedFilesAreRowsOrOneLineOfError) {
  const std::vector<std::string> seeds{
      whole, nvfp4, "base = \"hopper\"\nfraction_bits = 24\n",
      "operands = [\"e4m3\", \"e5m2\"]\nas_fp16 = true\n" + two_blocks,
      "base = \"volta\"\noutput = \"fp16_nearest_even\"\nsubnormal_accumulator = \"own_exponent\"\n"
      "underflow_zero = \"positive\"\nexponent_floor = 10\n"};
  std::vector<std::string> pieces;
  for (const std::string& seed : seeds)
    for (std::size_t begin = 0; begin < seed.size(); begin = seed.find('\n', begin) + 1)
      pieces.push_back(seed.substr(begin, seed.find('\n', begin) + 1 - begin));
  for (const char* const piece : {"1", "-1", "64", "0x7fffffffffffffff", "\"\"", "[", "]", "\n", "'''", "= ",
                                  "\xff", "\x01", "#", "nan", "[[a]]\n", "1979-05-27", "\"f16\"", ", ", "."})
    pieces.emplace_back(piece);

  std::mt19937_64 engine(20261122);
  const auto below = [&engine](std::size_t bound) { return static_cast<std::size_t>(engine() % bound); };
  int accepted = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string toml = seeds[below(seeds.size())];
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      const std::size_t place = below(toml.size() + 1);
      switch (below(4)) {
        case 0:
          toml.erase(place, below(12));
          break;
        case 1:
          toml.insert(place, pieces[below(pieces.size())]);
          break;
        case 2:
          if (place < toml.size()) toml[place] = static_cast<char>(engine());
          break;
        default: {  // one line away
          const std::size_t begin = toml.rfind('\n', place) + 1;
          toml.erase(begin, toml.find('\n', begin) - begin + 1);
        }
      }
    }
    try {
      const OwnRow own = parse_tensor_core_row(toml, "own.toml");
      ASSERT_TRUE(own.row.operands.contains(own.operands)) << toml;
      ASSERT_NO_THROW(fused_dot_add(own.row, own.operands, {}, own.operands, {}, 0)) << toml;
      ++accepted;
    } catch (const CommandError& error) {
      const std::string message = error.what();
      ASSERT_EQ(error.code, ExitCode::usage) << toml;
      ASSERT_TRUE(message.starts_with("own.toml:")) << message;
      ASSERT_EQ(message.find('\n'), std::string::npos) << message;
      ++refused;
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace fp16lab::experiments::tensor_core_row_test
