// The playground's answers against the native library, over thousands of inputs: through fp16lab.h, whose
// kernels are vectors and share little with what the page runs, and through the fp16lab command.
#include <cmath>
#include <cstring>
#include <random>
#include <sstream>

#include "analysis/range_report.hpp"
#include "numerics/c_interface/fp16lab.h"
#include "numerics/files/run/record_json.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/reports/playground_in_browser.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::array roundings{"nearest_even", "toward_zero", "upward", "downward", "nearest_away"};
struct CFormat {
  const char* title;
  const char* name;
  fp16lab_format id;
  std::size_t bytes;
};
constexpr std::array c_formats{
    CFormat{"FP16", "f16", FP16LAB_F16, 2}, CFormat{"BF16", "bf16", FP16LAB_BF16, 2},
    CFormat{"TF32", "tf32", FP16LAB_TF32, 4}, CFormat{"E4M3", "e4m3", FP16LAB_E4M3, 1},
    CFormat{"E5M2", "e5m2", FP16LAB_E5M2, 1}};

std::uint64_t word_at(const void* data, std::size_t index, std::size_t bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, static_cast<const char*>(data) + index * bytes, bytes);
  return word;
}

/// Numbers near every edge of every format, and all over FP64's patterns and those of everyday size.
std::vector<double> telling_numbers(std::size_t count) {
  std::vector<double> numbers{0.0, -0.0, INFINITY, -INFINITY, 0x1p-1074, 0x1.fffffffffffffp1023};
  for (const double edge :
       {65504.0, 65520.0, 448.0,   464.0,    57344.0,  61440.0,  0x1p-14,  0x1p-24,  0x1p-25, 0x1p-6, 0x1p-9,
        0x1p-10, 0x1p-16, 0x1p-17, 0x1p-126, 0x1p-133, 0x1p-134, 0x1p-149, 0x1p-150, 0x1p128, 1.0})
    for (const double x :
         {edge, std::nextafter(edge, 0.0), std::nextafter(edge, INFINITY), edge * 1.5, edge * 1.0625})
      for (const double sign : {1.0, -1.0}) numbers.push_back(sign * x);
  std::mt19937_64 random(24);
  while (numbers.size() < count) {
    const std::uint64_t bits = random();
    if (numbers.size() % 4 == 0)
      numbers.push_back(double_from_bits(bits));
    else  // ties and their neighbours are frequent with few significant bits
      numbers.push_back(std::ldexp(static_cast<double>(static_cast<std::int64_t>(bits) >> (40 + bits % 20)),
                                   static_cast<int>(random() % 56) - 40));
    if (std::isnan(numbers.back())) numbers.pop_back();
  }
  return numbers;
}

TEST_F(Playground, RoundsAsTheCLibraryDoes) {
  const std::vector<double> numbers = telling_numbers(2000);
  Json given = Json::array();
  for (const double x : numbers) {
    char text[24];
    std::snprintf(text, sizeof text, "f64:%016llx", static_cast<unsigned long long>(bits_of(x)));
    given.push_back(text);
  }
  const Json answer = seen(R"(
return given.map(number => JSON.parse(fp16lab('inspect', number, ''))[0].formats.map(format => Object.values(format.rounding).map(code => code.bits.slice(2)).join(' ')));
)",
                           given);
  ASSERT_EQ(answer.size(), numbers.size());
  const Json titles = Json::array({"FP16", "BF16", "TF32", "FP32", "FP64", "E4M3", "E5M2"});
  std::size_t compared = 0;
  for (std::size_t mode = 0; mode < roundings.size(); ++mode)
    for (const CFormat& format : c_formats) {
      std::vector<std::uint32_t> rounded(numbers.size());
      ASSERT_EQ(fp16lab_round_f64(format.id, static_cast<int>(mode), numbers.data(), 1, rounded.data(), 1,
                                  numbers.size()),
                FP16LAB_OK);
      const std::size_t column =
          static_cast<std::size_t>(std::find(titles.begin(), titles.end(), format.title) - titles.begin());
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        std::istringstream codes(answer.at(i).at(column).get<std::string>());
        std::string code;
        for (std::size_t skip = 0; skip <= mode; ++skip) codes >> code;
        ++compared;
        EXPECT_EQ(std::stoull(code, nullptr, 16), word_at(rounded.data(), i, format.bytes))
            << format.title << ", " << roundings[mode] << " of " << given.at(i);
      }
    }
  for (std::size_t i = 0; i < numbers.size(); ++i) {  // FP32 by this machine's own conversion, FP64 as it is
    const std::string fp32 = answer.at(i).at(3), fp64 = answer.at(i).at(4);
    EXPECT_EQ(std::stoull(fp32.substr(0, 8), nullptr, 16), bits_of(static_cast<float>(numbers[i])))
        << given.at(i);
    EXPECT_EQ(std::stoull(fp64.substr(0, 16), nullptr, 16), bits_of(numbers[i]));
  }
  EXPECT_EQ(compared, 50000u);
}

/// A line of `fp16lab mma`.
struct DotCase {
  const TensorCoreModel* row;
  DType a_format, b_format;
  std::vector<std::uint32_t> a, b;
  std::uint32_t c;
};

std::string hex_words(std::span<const std::uint32_t> words, DType format) {
  std::string text;
  char word[12];
  for (const std::uint32_t x : words) {
    std::snprintf(word, sizeof word, "%0*x", static_cast<int>(2 * size_of(format)), x);
    text += (text.empty() ? "" : " ") + std::string(word);
  }
  return text;
}

/// Random lines of every row of the table: any pattern, and patterns of neighbouring exponents, where
/// alignment drops a few bits only.
std::vector<DotCase> dot_cases(std::size_t each) {
  std::mt19937_64 random(2024);
  std::vector<DotCase> cases;
  for (const TensorCoreModel& row : tensor_core_models())
    for (const DType a_format : dtypes<is_low_precision>)
      for (const DType b_format : dtypes<is_low_precision>) {
        if (!row.operands.contains(a_format) || !row.operands.contains(b_format)) continue;
        if (a_format != b_format && !is_byte_format(a_format)) continue;
        for (std::size_t i = 0; i < each; ++i) {
          const auto any_word = [&](DType format, bool near) {
            const auto word = static_cast<std::uint32_t>(random());
            switch (format) {
              case DType::f16:
                return near ? (word & 0x87ff) | 0x3800U : word & 0xffff;
              case DType::bf16:
                return near ? (word & 0x83ff) | 0x3e00U : word & 0xffff;
              case DType::e4m3:
              case DType::e5m2:
                return near ? (word & 0x9f) | 0x20U : word & 0xff;
              case DType::e3m2:
              case DType::e2m3:
                return word & 0x3f;
              case DType::e2m1:
                return word & 0xf;
              default:
                return near ? (word & 0x81ffffffU) | 0x3e000000U : word;
            }
          };
          const bool near = i % 3 != 0;
          DotCase line{&row, a_format, b_format, {}, {}, any_word(row.accumulator(), near)};
          if (i % 2 == 0) line.c = 0;
          for (std::size_t k = 1 + random() % (near ? 20 : 5); k-- > 0;) {
            line.a.push_back(any_word(a_format, near));
            line.b.push_back(any_word(b_format, near));
          }
          cases.push_back(std::move(line));
        }
      }
  return cases;
}

Json json_of(const DotCase& line) {
  return {line.row->name,
          name_of(line.a_format),
          name_of(line.b_format),
          name_of(line.row->accumulator()),
          hex_words(line.a, line.a_format),
          hex_words(line.b, line.b_format),
          hex_words(std::array{line.c}, line.row->accumulator())};
}

/// Words as an array of the format's own elements.
std::vector<std::uint8_t> packed(std::span<const std::uint32_t> words, DType format) {
  std::vector<std::uint8_t> bytes(words.size() * size_of(format));
  for (std::size_t i = 0; i < words.size(); ++i)
    std::memcpy(&bytes[i * size_of(format)], &words[i], size_of(format));
  return bytes;
}

TEST_F(Playground, MultipliesAsTheCLibraryDoes) {
  const std::vector<DotCase> cases = dot_cases(45);
  ASSERT_GT(cases.size(), 1500u);
  Json given = Json::array();
  for (const DotCase& line : cases) given.push_back(json_of(line));
  const Json answer = seen("return given.map(line => JSON.parse(fp16lab('dot', ...line)).d.bits);", given);
  ASSERT_EQ(answer.size(), cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const DotCase& line = cases[i];
    std::uint32_t d = 0;
    ASSERT_EQ(fp16lab_dot(std::string(line.row->name).c_str(), static_cast<int>(line.row->accumulator()),
                          static_cast<int>(line.a_format), packed(line.a, line.a_format).data(), 1,
                          static_cast<int>(line.b_format), packed(line.b, line.b_format).data(), 1,
                          line.a.size(), &line.c, &d),
              FP16LAB_OK)
        << fp16lab_last_error();
    EXPECT_EQ(answer.at(i), hex_words(std::array{d}, line.row->accumulator())) << given.at(i);
  }
}

TEST_F(Playground, SaysWhatTheCommandsSay) {
  const std::vector<std::string> values{"0.1",
                                        "65519.99",
                                        "65520",
                                        "2^-25",
                                        "-1.5e-8",
                                        "0x1.8p-3",
                                        "inf",
                                        "-nan",
                                        "f16:7c01",
                                        "e4m3:7f",
                                        "448",
                                        "464",
                                        "1e400",
                                        "-0",
                                        "bf16:0x8000",
                                        "0.00006666666",
                                        "1e-300",
                                        "f64:0000000000000001",
                                        "3.14159265358979323846264338327950288",
                                        "f32:7f7fffff"};
  std::vector<std::string> arguments{"inspect", "--json"};
  arguments.insert(arguments.end(), values.begin(), values.end());
  const std::vector<DotCase> cases = dot_cases(2);
  Json given = {{"values", values}, {"lines", Json::array()}};
  for (const DotCase& line : cases) given["lines"].push_back(json_of(line));
  const Json answer = seen(R"(return {
  values: given.values.map(value => JSON.parse(fp16lab('inspect', value, ''))[0]),
  lines: given.lines.map(line => JSON.parse(fp16lab('dot', ...line))),
  wrong: ['0x', '1e', 'f16:12345', '6,99:1'].map(value => JSON.parse(fp16lab('inspect', value, '')).error)};
)",
                           given);
  ASSERT_FALSE(answer.is_null());
  EXPECT_EQ(answer.at("values"), Json::parse(native(arguments)));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Json& line = given.at("lines").at(i);
    const auto word = [&](std::size_t part) { return line.at(part).get<std::string>(); };
    EXPECT_EQ(answer.at("lines").at(i),
              Json::parse(native({"mma", "--model", word(0), "--in", word(1), "--in-b", word(2), "--acc",
                                  word(3), "--explain", "--json"},
                                 word(4) + "\t" + word(5) + "\t" + word(6) + "\n")))
        << line;
  }
  for (const Json& message : answer.at("wrong")) EXPECT_TRUE(message.is_string()) << message;
}

std::vector<HistogramRow> recorded_rows() {
  std::ifstream file(std::filesystem::path(FP16LAB_SOURCE_DIR) /
                     "reports/playground/recorded/histograms.jsonl");
  std::vector<HistogramRow> rows;
  for (std::string line; std::getline(file, line);)
    rows.push_back(run_json::parse_json_line<HistogramRow>(line));
  return rows;
}

TEST_F(Playground, CountsZonesAsTheLibraryDoes) {
  const std::vector<HistogramRow> rows = recorded_rows();
  ASSERT_EQ(rows.size(), 48u);
  const std::vector<const char*> formats{"f16", "bf16", "e4m3", "e5m2"};
  const std::vector<int> scales{-10, -3, 0, 1, 3, 8, 17, 24};
  const auto asked = [](const HistogramRow& row) {
    return row.step == 1 || row.step == 24 || row.step == 56;
  };
  // What the page shows, taken from its table.
  const Json answer = seen(R"(
const shown = [];
for (const [tensor, step] of given.rows) {
  type('tensor', tensor);
  type('step', String(step));
  for (const format of given.formats) {
    type('format', format);
    for (const scale of given.scales) {
      type('scale', scale);
      shown.push([...document.querySelectorAll('#rates tr[data-zone]')].map(row => [Number(row.dataset.lower), Number(row.dataset.upper), row.cells[2].textContent]));
    }
  }
}
return {shown, problems};
)",
                           [&] {
                             Json given = {{"rows", Json::array()}, {"formats", formats}, {"scales", scales}};
                             for (const HistogramRow& row : rows)
                               if (asked(row)) given["rows"].push_back({row.tensor, row.step});
                             return given;
                           }());
  ASSERT_FALSE(answer.is_null());
  EXPECT_EQ(answer.at("problems"), Json::array());
  std::size_t i = 0;
  for (const HistogramRow& row : rows) {
    if (!asked(row)) continue;
    analysis::ScaledHistograms gradients;
    gradients.add(row.before, row.loss_scale);
    for (const char* format : formats)
      for (const int scale : scales) {
        const Json& shown = answer.at("shown").at(i++);
        const RangeCounts counts =
            gradients.at_scale(range_of(*dtype_called<is_floating>(format)), std::ldexp(1.0, scale));
        for (std::size_t zone = 0; zone < 4; ++zone) {
          EXPECT_EQ(shown.at(zone).at(0), counts[zone].lower) << row.tensor << row.step << format << scale;
          EXPECT_EQ(shown.at(zone).at(1), counts[zone].upper) << row.tensor << row.step << format << scale;
        }
      }
  }
  EXPECT_EQ(i, 18u * 4u * 8u);
}

}  // namespace
}  // namespace fp16lab::reports
