// fp16lab hist on the user's own dumps: what is counted, what is said, what is drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/experiments/app/commands/hist_fixture.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Hist, CountsADumpAtAnyScale) {
  const json at_one = tensor(hist({path("g.npy")}), "g");
  EXPECT_EQ(at_one.at("total"), 8);
  EXPECT_EQ(at_one.at("zero"), 1);
  EXPECT_EQ(at_one.at("lost"), json({3, 3}));
  EXPECT_EQ(at_one.at("subnormal"), json({1, 1}));
  EXPECT_EQ(at_one.at("normal"), json({2, 2}));
  EXPECT_EQ(at_one.at("overflow"), json({1, 1}));
  // 2^5 brings 2^-30 to 2^-25, which is still lost, and the other two above it.
  EXPECT_EQ(tensor(hist({path("g.npy"), "--scale", "2^5"}), "g").at("lost"), json({1, 1}));
  EXPECT_EQ(tensor(hist({path("g.npy"), "--scale", "64"}), "g").at("lost"), json({0, 0}));
  // Values that carry 2^5 already are judged by what is left of it.
  const json carried = hist({path("g.npy"), "--recorded-scale", "2^5"});
  EXPECT_EQ(carried.at("scale"), 32);
  EXPECT_EQ(tensor(carried, "g").at("lost"), json({3, 3}));
  EXPECT_EQ(tensor(hist({path("g.npy"), "--recorded-scale", "2^5", "--scale", "2^10"}), "g").at("lost"),
            json({1, 1}));
}

TEST_F(Hist, ListsArraysOfAllFilesAndWhatItLeavesOut) {
  const json one = hist({path("a.npz")});
  EXPECT_EQ(tensor(one, "w").at("total"), 8);
  EXPECT_EQ(tensor(one, "b").at("total"), 2);
  ASSERT_EQ(one.at("arrays").size(), 2u);
  EXPECT_EQ(one.at("arrays")[0].at("shape"), json({8}));
  EXPECT_EQ(one.at("arrays")[0].at("dtype"), "<f8");
  EXPECT_EQ(one.at("arrays")[0].at("fortran_order"), true);
  EXPECT_EQ(one.at("arrays")[0].at("format"), "npz");
  EXPECT_EQ(one.at("skipped"), json::parse(R"([{"file": ")" + path("a.npz") +
                                           R"(", "name": "n", "reason": "<i8 (1,): integers"}])"));
  EXPECT_THAT(err_, HasSubstr("'n' is skipped: <i8 (1,): integers"));

  const json all = hist({path("*.np?"), path("t.safetensors"), path("g.npy"), "--quiet"});
  EXPECT_EQ(err_, "");
  std::vector<std::string> names;
  for (const json& entry : all.at("tensors")) names.push_back(entry.at("tensor"));
  EXPECT_THAT(names, ElementsAre(path("a.npz") + ":w", path("a.npz") + ":b", path("g.npy"),
                                 path("t.safetensors") + ":x"))
      << "alphabetical within a pattern, every file once";
  EXPECT_EQ(all.at("merged").at("total"), 8 + 2 + 8 + 1);
  EXPECT_EQ(all.at("merged").at("lost"), json({6, 6}));
}

TEST_F(Hist, SaysWhereFp64LeavesFp32) {
  write_bytes(path("far.npy"), npy("<f8", "(3,)", doubles({0x1p-200, 0x1p200, 1.0})));
  const json report = hist({path("far.npy")});
  EXPECT_EQ(report.at("arrays")[0].at("below_fp32"), 1);
  EXPECT_EQ(report.at("arrays")[0].at("above_fp32"), 1);
  EXPECT_EQ(tensor(report, "far").at("zero"), 0);
  EXPECT_EQ(tensor(report, "far").at("infinite"), 0);
  EXPECT_EQ(tensor(report, "far").at("lost"), json({1, 1}));
  EXPECT_EQ(tensor(report, "far").at("overflow"), json({1, 1}));
  EXPECT_THAT(err_, HasSubstr("1 FP64 values are below FP32's smallest number"));
  EXPECT_THAT(err_, HasSubstr("1 finite FP64 values are beyond FP32's largest number"));
}

TEST_F(Hist, TakesAFormatInEverySpellingThatItPrints) {
  const json plain = hist({path("g.npy"), "--format", "f16,bf16,e4m3"});
  for (const char* const spelled : {"FP16,BF16,E4M3", "fp16,bf16,e4m3", "F16,Bf16,e4M3"})
    EXPECT_EQ(hist({path("g.npy"), "--format", spelled}), plain) << spelled;
  expect_one_line_error(fp16lab({"hist", path("g.npy"), "--format", "FP61"}), 2, "--format FP61: known are");
  expect_one_line_error(fp16lab({"hist", path("g.npy"), "--format", "FP32"}), 2, "--format FP32: known are");
}

TEST_F(Hist, MistakesAreOneLine) {
  expect_one_line_error(fp16lab({"hist", path("absent.npy")}), 2, "absent.npy: no such file or run folder");
  expect_one_line_error(fp16lab({"hist", path("*.nothing")}), 2, "*.nothing: no file matches");
  expect_one_line_error(fp16lab({"hist", path("dumps/*.npz")}), 2,
                        "dumps/*.npz: folder " + path("dumps") + " does not exist");
  expect_one_line_error(fp16lab({"hist", path("d*/*.npz")}), 2, "d*/*.npz: no file matches");
  expect_one_line_error(fp16lab({"hist", folder_.string()}), 2, "a folder without a manifest.json");
  expect_one_line_error(fp16lab({"hist", path("g.npy"), "--step", "3"}), 2,
                        "--step 3: only run folders have steps");
  expect_one_line_error(fp16lab({"hist", path("g.npy"), "--scale", "-1"}), 2,
                        "--scale -1: expected a finite number");
  expect_one_line_error(fp16lab({"hist", path("g.npy"), "--recorded-scale", "x"}), 2, "--recorded-scale");
  write_bytes(path("i.npy"), npy("<i8", "(1,)", std::string(8, '\0')));
  expect_one_line_error(fp16lab({"hist", path("i.npy")}), 1,
                        "i.npy: nothing to count: 'i' is <i8 (1,): integers");
  write_bytes(path("e.npz"), zip({}));
  expect_one_line_error(fp16lab({"hist", path("e.npz")}), 1, "e.npz: nothing to count: it holds no array");
  write_bytes(path("cut.npy"), npy("<f8", "(9,)", doubles(eight)));
  expect_one_line_error(fp16lab({"hist", path("g.npy"), path("cut.npy")}), 1,
                        "cut.npy: byte 192: the data end here, after 64 of the 72 bytes of <f8 (9,)");
}

/// Every count interval of a tensor's entry, also of its what-if scales.
void expect_exact(const json& entry) {
  for (const char* const zone : {"lost", "subnormal", "normal", "overflow"}) {
    EXPECT_EQ(entry.at(zone)[0], entry.at(zone)[1]) << zone;
    for (const json& point : entry.at("what_if")) EXPECT_EQ(point.at(zone)[0], point.at(zone)[1]) << zone;
  }
  EXPECT_EQ(entry.at("l1").at("lost")[0], entry.at("l1").at("lost")[1]);
}

TEST_F(Hist, ArraysAreCountedValueByValue) {
  // All finite FP16 numbers, those near 65504 among them: none overflows in FP16, none is lost.
  std::string halves;
  std::vector<double> values;
  for (int code = 0; code < 0x10000; ++code) {
    if ((code & 0x7c00) == 0x7c00) continue;
    halves += little_endian(static_cast<std::uint64_t>(code), 2);
    const int field = code >> 10 & 31, fraction = code & 1023;
    values.push_back(field == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, field - 25));
  }
  write_bytes(path("h.npy"), npy("<f2", "(" + std::to_string(values.size()) + ",)", halves));
  const json at_one = hist({path("h.npy")});
  EXPECT_EQ(tensor(at_one, "h").at("overflow"), json({0, 0}));
  EXPECT_EQ(tensor(at_one, "h").at("lost"), json({0, 0}));
  const auto table = fp16lab({"hist", path("h.npy"), "--all"});
  EXPECT_THAT(table.out, ::testing::ContainsRegex("\nh +63488 +0\\.0032 +0 +[0-9.]+ +[0-9.]+ +0\n"));
  const std::vector<std::pair<std::string, long double>> scales{
      {"1", 1}, {"3", 3}, {"2^-7", 0x1p-7L}, {"0.75", 0.75L}};
  for (const auto& [text, scale] : scales) {
    const json report = hist({path("h.npy"), "--scale", text});
    const json& entry = report.at("tensors")[0];
    expect_exact(entry);
    std::uint64_t lost = 0, subnormal = 0, overflow = 0;
    for (const double value : values) {
      const long double y = value * scale;
      lost += y > 0 && y <= 0x1p-25L;
      subnormal += y > 0x1p-25L && y < 0x1p-14L;
      overflow += y >= 65520;
    }
    EXPECT_EQ(entry.at("lost")[0], lost) << text;
    EXPECT_EQ(entry.at("subnormal")[0], subnormal) << text;
    EXPECT_EQ(entry.at("overflow")[0], overflow) << text;
  }
}

TEST_F(Hist, SeveralFormatsInOneCommand) {
  const json both = hist({path("g.npy"), "--format", "f16,bf16", "--format", "e5m2"});
  ASSERT_EQ(both.at("formats").size(), 3u);
  EXPECT_EQ(both.at("arrays").size(), 1u);
  std::vector<std::string> names;
  for (const json& document : both.at("formats")) {
    names.push_back(document.at("format"));
    expect_exact(document.at("merged"));
  }
  EXPECT_THAT(names, ElementsAre("f16", "bf16", "e5m2"));
  EXPECT_EQ(both.at("formats")[0].at("merged").at("lost"), json({3, 3}));
  EXPECT_EQ(both.at("formats")[1].at("merged").at("lost"), json({0, 0}));
  EXPECT_EQ(both.at("formats")[1].at("merged").at("overflow"), json({0, 0}));
  EXPECT_EQ(both.at("formats")[2].at("merged").at("lost"), json({4, 4}));  // 2^-20 too: the tie is 2^-17
  EXPECT_EQ(hist({path("g.npy"), "--format", "bf16"}).at("format"), "bf16");
  const auto table = fp16lab({"hist", path("g.npy"), "--format", "f16,bf16", "-o", path("figures"), "--all"});
  EXPECT_THAT(table.out, HasSubstr("All tensors at loss scale 2^0, by format"));
  EXPECT_THAT(table.out, HasSubstr("Gradients in BF16 at loss scale 2^0"));
  EXPECT_THAT(table.out, HasSubstr("BF16 needs no loss scale: the values fit up to 2^111 ("));
  EXPECT_THAT(read("figures/hist-g-npy-bf16.figure.json"), HasSubstr("Gradient magnitudes in BF16"));
  EXPECT_TRUE(std::filesystem::exists(path("figures/hist-g-npy-f16.svg")));
  expect_one_line_error(fp16lab({"hist", path("g.npy"), "--format", "f16,fp8"}), 2,
                        "--format fp8: known are f16, bf16, e4m3, e5m2");
}

TEST_F(Hist, IncludedAndExcludedTensors) {
  std::string header = "{", data;
  for (const char* const name : {"fc1.weight", "fc1.bias", "fc2.weight", "fc10.weight"}) {
    header += (header.size() > 1 ? "," : "") + std::string("\"") + name +
              R"(":{"dtype":"F32","shape":[1],"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + 4) + "]}";
    data += from_hex("0000803f");
  }
  write_bytes(path("s.safetensors"), safetensors(header + "}", data));
  const auto names = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), path("s.safetensors"));
    std::vector<std::string> result;
    const json report = hist(arguments);
    for (const json& entry : report.at("tensors")) result.push_back(entry.at("tensor"));
    return result;
  };
  EXPECT_THAT(names({"--include", "fc1"}), ElementsAre("fc1.weight", "fc1.bias"));
  EXPECT_THAT(names({"--exclude", "*.bias", "--exclude", "fc10"}), ElementsAre("fc1.weight", "fc2.weight"));
  EXPECT_THAT(names({"--include", "*.weight", "--include", "fc1.bias", "--exclude", "fc?"}),
              ElementsAre("fc10.weight"));
  expect_one_line_error(
      fp16lab({"hist", path("s.safetensors"), "--include", "fc3"}), 2,
      "--include fc3: no tensor has such a name; there are fc1.bias, fc1.weight, fc10.weight, "
      "fc2.weight; did you mean 'fc1'?");
  expect_one_line_error(fp16lab({"hist", path("s.safetensors"), "--exclude", "*.weigth"}), 2,
                        "--exclude *.weigth: no tensor has such a name");
  expect_one_line_error(fp16lab({"hist", path("s.safetensors"), "--exclude", "*"}), 2, "nothing is left");
  ASSERT_EQ(train("run").exit_code, 0);
  const json run = hist({path("run"), "--include", "fc1.weight"});
  ASSERT_EQ(run.at("tensors").size(), 1u);
  expect_one_line_error(fp16lab({"hist", path("run"), "--include", "fc9", "--quiet"}), 2, "--include fc9");
}

TEST_F(Hist, OfADumpOfItsOwnOnlyTheGradients) {
  ASSERT_EQ(train("run", {"--dump-gradients", "2", path("step.safetensors")}).exit_code, 0);
  const json dump = hist({path("step.safetensors")});
  std::vector<std::string> names;
  for (const json& entry : dump.at("tensors")) names.push_back(entry.at("tensor"));
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_THAT(err_, HasSubstr("5 tensors are left out: the dump says that they are no gradients"));
  EXPECT_EQ(hist({path("step.safetensors"), "--include", "parameter.*"}).at("tensors").size(), 4u);

  // An older dump says it by its own keys, and by names; gradients that were still scaled carry their scale.
  const std::string layout = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("parameter.w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)"
                             R"("batch.0.inputs":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  const std::string numbers = from_hex("0000803f 0000003f 0000003f");
  write_bytes(
      path("old.safetensors"),
      safetensors(
          R"({"__metadata__":{"step":"1","loss":"2","loss_scale":"1024","found_inf":"0","scaled":"1"},)" +
              layout,
          numbers));
  const json old = hist({path("old.safetensors")});
  ASSERT_EQ(old.at("tensors").size(), 1u);
  EXPECT_EQ(old.at("tensors")[0].at("tensor"), "w");
  EXPECT_EQ(old.at("recorded_scale"), 1024);
  EXPECT_EQ(old.at("skipped").size(), 2u);
  EXPECT_EQ(hist({path("old.safetensors"), "--recorded-scale", "1"}).at("recorded_scale"), 1);
  // The same names in anybody's file are gradients.
  write_bytes(path("any.safetensors"), safetensors("{" + layout, numbers));
  EXPECT_EQ(hist({path("any.safetensors")}).at("tensors").size(), 3u);
}

TEST_F(Hist, PyTorchFilesAreToldHowToConvert) {
  write_bytes(path("m.pt"), zip({stored("m/data.pkl", from_hex("80025d712e")), stored("m/data/0", "0000"),
                                 stored("m/version", "3\n")}));
  write_bytes(path("legacy.bin"), from_hex("80028a0a6cfc9c46f920 6aa85019 2e80024de903"));
  for (const char* const name : {"m.pt", "legacy.bin"}) {
    const auto result = fp16lab({"hist", path(name)});
    expect_one_line_error(result, 2,
                          std::string(name) +
                              ": a PyTorch file, which holds Python objects; convert it "
                              "with: python3 -c 'import sys, torch, safetensors.torch");
    EXPECT_THAT(result.err, HasSubstr("torch.load(sys.argv[1], map_location=\"cpu\", weights_only=True)"));
  }
  EXPECT_THAT(fp16lab({"hist", path("m.pt")}).err,
              HasSubstr("sys.argv[2])' " + path("m.pt") + " " + path("m.safetensors") + "\n"));
  // It is a command that people paste.
  write_bytes(path("$(touch x)'\n.pt"), zip({stored("m/data.pkl", from_hex("80025d712e"))}));
  EXPECT_THAT(fp16lab({"hist", path("$(touch x)'\n.pt")}).err, HasSubstr("$(touch x)\\'\\x0a.pt' $'"));
}

TEST_F(Hist, NamesCannotWriteToTheTerminal) {
  write_bytes(path("evil.npz"), zip({stored("\x1b[31m\n.npy", npy("<f2", "(1,)", from_hex("003c")))}));
  const auto result = fp16lab({"hist", path("evil.npz")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("\\x1b[31m\\x0a"));
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("\x1b")));
}

TEST_F(Hist, DrawsOneFigureWithItsData) {
  const auto result = fp16lab({"hist", path("a.npz"), "--scale", "2^5", "-o", path("figures")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json figure = nlohmann::json::parse(read("figures/hist-a-npz.figure.json"));
  EXPECT_THAT(figure.at("title"), HasSubstr("at loss scale 2⁵"));
  // All tensors, w, b. The bin of 2^-30, (2^-31, 2^-30], has one of w's seven values; the scale moves it by 2^5, where it is lost.
  const nlohmann::json& panels = figure.at("panels");
  ASSERT_EQ(panels.size(), 3u);
  EXPECT_EQ(panels[0].at("title"), "all 2 tensors");
  const nlohmann::json& w = panels[1];
  EXPECT_EQ(w.at("title"), "w");
  EXPECT_EQ(w.at("ratio"), 32);
  EXPECT_EQ(w.at("histogram")[3], -31);
  EXPECT_EQ(w.at("histogram")[4][0], 1);
  EXPECT_EQ(w.at("zones").at("finite"), 7);
  EXPECT_EQ(w.at("zones").at("lost"), nlohmann::json({1, 1}));
  EXPECT_EQ(panels[2].at("title"), "b");
  EXPECT_THAT(result.err, HasSubstr("hist-a-npz.png"));
  EXPECT_THAT(read("figures/hist-a-npz.svg"), HasSubstr("<svg"));
  EXPECT_GT(std::filesystem::file_size(path("figures/hist-a-npz.png")), 10'000u);
}

TEST_F(Hist, ARunAndADumpInOneCall) {
  ASSERT_EQ(train("run").exit_code, 0);
  const auto result = fp16lab({"hist", path("run"), path("g.npy"), "-o", path("both")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("fc1.weight"));
  EXPECT_LT(result.out.find("fc1.weight"), result.out.find("\ng "));
  EXPECT_TRUE(std::filesystem::exists(path("both/hist-run-step-40.svg")));
  EXPECT_TRUE(std::filesystem::exists(path("both/hist-g-npy.svg")));
}

/// A header may name any number of tensors: memory follows the file, not 8 kB of counters a tensor.
TEST_F(Hist, ManyEmptyTensorsTakeNoMoreMemoryThanTheFileIsLong) {
  std::string header = "{";
  for (int i = 0; i < 300'000; ++i)
    header += "\"t" + std::to_string(i) + "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},";
  header += "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  write_bytes(path("many.safetensors"), safetensors(header, from_hex("0000803f")));
  const auto result = fp16lab({"hist", path("many.safetensors")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LT(result.peak_kb, 600'000) << "kB, for a file of " << header.size() << " bytes";
}

/// ... nor do small ones: what is kept of a tensor follows its values.
TEST_F(Hist, ManySmallTensorsTakeLittleMemory) {
  constexpr int tensors = 60'000;
  std::string header = "{", data;
  for (int i = 0; i < tensors; ++i) {
    header += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) +
              "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" + std::to_string(4 * i) + "," +
              std::to_string(4 * i + 4) + "]}";
    data += from_hex("0000803f");
  }
  write_bytes(path("small.safetensors"), safetensors(header + "}", data));
  const auto result = fp16lab({"hist", path("small.safetensors")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LT(result.peak_kb, 350'000) << "kB, for " << tensors << " tensors: 8 kB a tensor would be more";
}

// ---- files of types that are not counted ----------------------------------------------------------------

/// The dtypes of the safetensors format that we do not count, with sizes of their own, and one that may come.
TEST_F(Hist, TensorsOfOtherTypesAreSkippedByNameInEveryContainer) {
  write_bytes(path("mixed.safetensors"),
              safetensors(R"({"c":{"dtype":"C64","shape":[1],"data_offsets":[0,8]},)"
                          R"("scales":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[8,10]},)"
                          R"("packed":{"dtype":"F4","shape":[4],"data_offsets":[10,12]},)"
                          R"("amd":{"dtype":"F8_E4M3FNUZ","shape":[2],"data_offsets":[12,14]},)"
                          R"("new":{"dtype":"F99","shape":[3],"data_offsets":[14,20]},)"
                          R"("x":{"dtype":"F32","shape":[1],"data_offsets":[20,24]}})",
                          std::string(20, '\1') + from_hex("0000803f")));
  const json whole = hist({path("mixed.safetensors")});
  ASSERT_EQ(whole.at("tensors").size(), 1u);
  ASSERT_EQ(whole.at("skipped").size(), 5u);
  EXPECT_EQ(whole.at("skipped")[1].at("name"), "scales");
  EXPECT_EQ(whole.at("skipped")[1].at("reason"), "F8_E8M0 (2,): its type is not counted");
  EXPECT_THAT(err_, HasSubstr("'packed' is skipped: F4 (4,): its type is not counted"));
  EXPECT_EQ(hist({path("mixed.safetensors"), "--include", "x"}).at("skipped").size(), 0u);
  expect_one_line_error(fp16lab({"hist", path("mixed.safetensors"), "--include", "new"}), 2,
                        "nothing is left");
}

/// 1, 2^-20, 2^-30 and 65536: all in the bits of BF16, and the first two in those of E5M2.
TEST_F(Hist, BytesAndWordsAreCountedAsWhatTheUserSaysThatTheyAre) {
  const std::string bf16 = from_hex("803f 8035 8030 8047"), swapped = from_hex("3f80 3580 3080 4780");
  write_bytes(path("u2.npy"), npy("<u2", "(4,)", bf16));
  write_bytes(path("big.npy"), npy(">u2", "(4,)", swapped));
  write_bytes(path("V2.npy"), npy("|V2", "(4,)", bf16));
  write_bytes(path("words.npz"), zip({stored("i2.npy", npy("<i2", "(4,)", bf16)),
                                      stored("half.npy", npy("<f2", "(1,)", from_hex("003c")))}));
  write_bytes(path("words.safetensors"),
              safetensors(R"({"w":{"dtype":"U16","shape":[4],"data_offsets":[0,8]}})", bf16));
  for (const char* file : {"u2.npy", "big.npy", "V2.npy", "words.npz", "words.safetensors"}) {
    SCOPED_TRACE(file);
    const json report = hist({path(file), "--as", "bf16"});
    const json& array = report.at("arrays")[0];
    EXPECT_EQ(array.at("taken_as"), "bf16");
    const json counts = tensor(report, array.at("tensor"));
    EXPECT_EQ(counts.at("total"), 4);
    for (const char* zone : {"lost", "subnormal", "normal", "overflow"})
      EXPECT_EQ(counts.at(zone), json({1, 1})) << zone;
  }
  EXPECT_EQ(hist({path("words.npz"), "--as", "BF16"}).at("arrays")[1].at("taken_as"), nullptr)
      << "what has a type keeps it";

  const std::string e5m2 = from_hex("3c 01 7b");          // 1, 2^-16, 57344
  write_bytes(path("f1.npy"), npy("<f1", "(3,)", e5m2));  // as ml_dtypes writes float8_e5m2
  write_bytes(path("u1.npy"), npy("|u1", "(3,)", e5m2));
  for (const char* file : {"f1.npy", "u1.npy"}) {
    const json counts = hist({path(file), "--as", "e5m2", "--format", "e5m2"}).at("tensors")[0];
    EXPECT_EQ(counts.at("subnormal"), json({1, 1})) << file;
    EXPECT_EQ(counts.at("normal"), json({2, 2})) << file;
  }
  EXPECT_EQ(hist({path("u1.npy"), path("u2.npy"), "--as", "e4m3,bf16"}).at("arrays").size(), 2u);

  const auto refused = [this](std::vector<std::string> arguments, const std::string& why) {
    arguments.insert(arguments.begin(), "hist");
    expect_one_line_error(fp16lab(arguments), 2, why);
  };
  expect_one_line_error(fp16lab({"hist", path("u2.npy"), "--as", "e4m3"}), 1,
                        "nothing to count: 'u2' is <u2 (4,): integers (are they BF16 or FP16?");
  refused({path("g.npy"), "--as", "bf16"},
          "--as bf16: no array of 2-byte elements without a floating-point type is asked for");
  refused({path("u1.npy"), "--as", "e4m3,e5m2"}, "--as e4m3,e5m2: both have 1 byte");
  refused({path("u1.npy"), "--as", "f32"}, "--as f32");
  expect_one_line_error(fp16lab({"hist", path("f1.npy")}), 1, "--as e4m3 or --as e5m2 counts them");
}

/// What underflowed before the dump was written is a zero in it.
TEST_F(Hist, SaysThatTheTypeOfADumpMayHaveMadeItsZeros) {
  write_bytes(path("half.npy"), npy("<f2", "(4,)", from_hex("003c 0000 0000 0100")));
  hist({path("half.npy")});
  EXPECT_THAT(
      err_,
      HasSubstr("half: 50 % of its values are zeros, which its own type, FP16, may have made; no scale"));
  hist({path("half.npy"), "--quiet"});
  EXPECT_EQ(err_, "");
  hist({path("g.npy")});
  EXPECT_EQ(err_, "") << "FP64 makes none";
}

}  // namespace
}  // namespace fp16lab::experiments
