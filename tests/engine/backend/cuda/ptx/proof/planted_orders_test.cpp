// Can the proof fail? Faults planted in the PTX of one kernel, each of which it has to notice, saying kernel
// and output.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <variant>

#include "tests/engine/backend/cuda/ptx/proof/product_cases.hpp"
#include "tests/engine/backend/cuda/ptx/proof/proof_environment.hpp"

namespace fp16lab::engine::ptx::test {
namespace {

/// The lines of a kernel.
class Body {
 public:
  explicit Body(const std::string& text) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
  }
  std::string text() const { return fmt::format("{}\n", fmt::join(lines_, "\n")); }
  std::string& line(std::size_t index) { return lines_[index]; }
  /// The first from `from` on in which the pattern is; std::out_of_range where nvcc wrote none, for then the
  /// plant is old.
  std::size_t find(const std::string& pattern, std::size_t from = 0) const {
    const std::regex wanted(pattern);
    for (std::size_t i = from; i < lines_.size(); ++i)
      if (std::regex_search(lines_[i], wanted)) return i;
    throw std::out_of_range("the kernel has no line with " + pattern);
  }
  void replace(const std::string& pattern, const std::string& by) {
    std::string& at = line(find(pattern));
    at = std::regex_replace(at, std::regex(pattern), by);
  }

 private:
  std::vector<std::string> lines_;
};

/// Registers in braces number `which` of a line, or operand `which` if it has no braces.
std::string braces(const std::string& line, int which) {
  std::size_t begin = 0;
  for (int i = 0; i <= which; ++i) begin = line.find('{', i == 0 ? 0 : begin + 1);
  return line.substr(begin, line.find('}', begin) + 1 - begin);
}
std::string quoted(const std::string& text) {
  return std::regex_replace(text, std::regex(R"([{}%.\[\]])"), R"(\$&)");
}

struct Plant {
  std::string name;
  std::variant<GemmCase, ConvolutionCase> call;
  std::function<void(Body&)> edit;
  std::string expected;  ///< in the message

  friend void PrintTo(const Plant& plant, std::ostream* out) { *out << plant.name; }
};

constexpr GemmCase medium{.multiplied = DType::f16, .transpose_b = true, .m = 100, .n = 104, .k = 168};
constexpr GemmCase one_slice{.multiplied = DType::f16, .transpose_b = true, .m = 100, .n = 104, .k = 24};
constexpr GemmCase tail_of_8{.multiplied = DType::f16, .transpose_b = true, .m = 100, .n = 104, .k = 136};
constexpr GemmCase along_outer{.multiplied = DType::bf16, .transpose_a = true, .m = 96, .n = 104, .k = 168};
constexpr GemmCase with_bias{
    .multiplied = DType::f16, .transpose_b = true, .m = 100, .n = 104, .k = 40, .bias = DType::f32};
constexpr GemmCase tensor_float{.multiplied = DType::tf32, .m = 65, .n = 72, .k = 84};
constexpr GemmCase by_fma{.multiplied = DType::f32, .m = 65, .n = 72, .k = 33};

const ConvolutionCase planes{.multiplied = DType::f16,
                             .images = 2,
                             .inputs = 3,
                             .height = 8,
                             .width = 9,
                             .outputs = 20,
                             .taps = {3, 3},
                             .geometry = {.padding = {1, 1}}};

constexpr char step[] = R"(mma\.sync.*\.m16n8k16)";

/// Two steps of one accumulator, the second after its fragments' load and before the first one's next load.
void exchange_steps(Body& body) {
  const std::size_t first = body.find(step),
                    second =
                        body.find(step + std::string(".* ") + quoted(braces(body.line(first), 0)), first + 1);
  body.line(first) = body.line(second) + "\n" + body.line(first);
  body.line(second).clear();
}
void exchange_fmas(Body& body) {
  static const std::regex parts(R"((.*fma\.rn\.f32\s+)(%f\d+), (%f\d+), (%f\d+), (%f\d+);)");
  const std::size_t first = body.find(R"(fma\.rn\.f32)");
  std::smatch a, b;
  const std::string line = body.line(first);
  std::regex_match(line, a, parts);
  const std::size_t second = body.find(R"(fma\.rn\.f32.*, )" + quoted(a.str(2)) + ";", first + 1);
  const std::string next = body.line(second);
  std::regex_match(next, b, parts);
  body.line(first) = fmt::format("fma.rn.f32 {}, {}, {}, {};", a.str(2), b.str(3), b.str(4), a.str(5));
  body.line(second) = fmt::format("fma.rn.f32 {}, {}, {}, {};", b.str(2), a.str(3), a.str(4), b.str(5));
}

const Plant plants[] = {
    {"RegistersOfAnLdmatrix", medium,
     [](Body& body) { body.replace(R"((ldmatrix.*)\{(%r\d+),(%r\d+),)", "$1{$3,$2,"); },
     R"(output \(\d+, \d+\): block 1 of 11, k = \d+: expected a\(\d+, \d+\) b\(\d+, \d+\), got a\()"},
    {"AnLdmatrixTurned", along_outer, [](Body& body) { body.replace(R"((ldmatrix.*\.x4)\.trans)", "$1"); },
     R"(output \(\d+, \d+\): block 1 of 11, k = \d+: expected a\(\d+, \d+\) b\()"},
    {"ACopyLeftOut", one_slice, [](Body& body) { body.replace(R"(cp\.async\.cg.*)", ""); },
     "got the pattern a0a0 b\\("},
    {"ACopyFromElsewhere", one_slice,
     [](Body& body) { body.replace(R"((cp\.async\.cg.*, \[%rd\d+))", "$1+16"); },
     R"(expected a\(\d+, \d+\) (b\(\d+, \d+\)), got a\(\d+, \d+\) \1)"},
    {"StepsExchanged", medium, exchange_steps, R"(block \d+ of 11, k = \d+: expected a\(\d+, \d+\))"},
    {"AStepTwice", medium,
     [](Body& body) {
       std::string& line = body.line(body.find(step));
       line += "\n" + line;
     },
     R"(got \+0 \+ \d+ products in \d+ blocks)"},
    {"AStepLeftOut", medium, [](Body& body) { body.line(body.find(step)).clear(); },
     R"(block \d+ of 11, k = )"},
    {"AnotherBeginning", medium, [](Body& body) { body.replace(R"(0f00000000)", "0f80000000"); },
     R"(before the first product: expected \+0, got the pattern 80000000)"},
    {"ATailOf8FilledUp", tail_of_8,
     [](Body& body) { body.replace(R"((setp\.gt\.s32\s+%p\d+, %r\d+), 8;)", "$1, 7;"); },
     R"(block 9 of 9 has 16 products, not 8)"},
    {"ABiasTwice", with_bias,
     [](Body& body) {
       static const std::regex add(R"(add\.rn\.f32\s+(%f\d+), (%f\d+), (%f\d+);)");
       std::string& line = body.line(body.find(R"(add\.rn\.f32)"));
       line += "\n" + std::regex_replace(line, add, "add.rn.f32 $1, $1, $3;");
     },
     R"(got add\(.*bias\(\d+\))"},
    {"OutputsStoredElsewhere", medium,
     [](Body& body) {
       const std::size_t first = body.find(R"(st\.shared\.v2\.f32)"),
                         second = body.find(R"(st\.shared\.v2\.f32)", first + 1);
       const std::string from = braces(body.line(first), 0), to = braces(body.line(second), 0);
       body.line(first) = std::regex_replace(body.line(first), std::regex(quoted(from)), to);
       body.line(second) = std::regex_replace(body.line(second), std::regex(quoted(to)), from);
     },
     R"(output \(\d+, \d+\): block 11 of 11, k = \d+: expected a\()"},
    {"Tf32Registers", tensor_float,
     [](Body& body) { body.replace(R"((mma\.sync.*m16n8k8.*\}, )\{(%r\d+),(%r\d+),)", "$1{$3,$2,"); },
     R"(kernel MmaTile<float, 128, 128, 64, 64, 4>.*output \(\d+, \d+\): block)"},
    {"NeighboursOfAPatch", planes,
     [](Body& body) { body.replace(R"((st\.shared\.v4\.u32.*)\{(%r\d+), (%r\d+),)", "$1{$3, $2,"); },
     R"(PositionRuns<f16>.*output \(0, 0, \d+, \d+\): block \d of 2, k = \d+: expected .*w\(0, .*, got )"},
    {"FmasExchanged", by_fma, exchange_fmas,
     R"(kernel FmaTile<128, 128, 4>.*output \(\d+, \d+\): block \d+ of 33, k = \d+: expected a\()"},
};

Proof proved(SymbolicDevice& device, const Plant& plant) {
  return std::visit([&](const auto& call) { return prove(device, call); }, plant.call);
}

/// The proof of one case on texts of which one kernel is edited.
std::string verdict(const Plant& plant) {
  std::string kernel;
  {
    SymbolicDevice whole(proof_architecture(), proof_texts());
    const Proof proof = proved(whole, plant);
    EXPECT_EQ(proof.difference, "") << "without a plant";
    kernel = proof.kernels.back();
  }
  Texts texts = proof_texts();
  for (auto& [file, text] : texts) {
    const std::size_t begin = text.find(".entry " + kernel + "(");
    if (begin == text.npos) continue;
    const std::size_t end = text.find(".entry ", begin + 1);
    const std::size_t count = (end == text.npos ? text.size() : text.rfind('}', end) + 1) - begin;
    Body body(text.substr(begin, count));
    plant.edit(body);
    text.replace(begin, count, body.text());
  }
  SymbolicDevice planted(proof_architecture(), texts);
  testing::internal::CaptureStderr();
  const std::string difference = proved(planted, plant).difference;
  testing::internal::GetCapturedStderr();
  return difference;
}

class PlantedOrder : public testing::TestWithParam<Plant> {};

TEST_P(PlantedOrder, IsNoticed) {
  const std::string difference = verdict(GetParam());
  EXPECT_TRUE(std::regex_search(difference, std::regex(GetParam().expected))) << difference;
  EXPECT_THAT(difference,
              testing::HasSubstr(std::visit([](const auto& call) { return call.text(); }, GetParam().call)));
}

INSTANTIATE_TEST_SUITE_P(All, PlantedOrder, testing::ValuesIn(plants),
                         [](const auto& plant) { return plant.param.name; });

}  // namespace
}  // namespace fp16lab::engine::ptx::test
