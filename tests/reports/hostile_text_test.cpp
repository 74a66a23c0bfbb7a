// A received folder whose every text is hostile: nothing that it holds may be executed, end a string, a
// comment or an element, or reach a terminal. The canary is a file that a shell would make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/files/run/tensorboard_events.hpp"
#include "numerics/text/text.hpp"
#include "reports/figures/comparison_figure.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/network_figure.hpp"
#include "reports/figures/order_figure.hpp"
#include "reports/figures/question_figures.hpp"
#include "reports/figures/range_figure.hpp"
#include "reports/page/report.hpp"
#include "tests/reports/report_fixture.hpp"
#include "tests/reports/synthetic_replays.hpp"
#include "tests/support/older_manifest.hpp"
#include "tests/support/spawn.hpp"

namespace fp16lab::reports {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using OrderedJson = nlohmann::ordered_json;
using testing_support::run_program;

/// A line break, quotes, a substitution of every shell, braces that do not match, controls of terminals, the
/// end of a script element, an attribute, an entity that XML has no character for, and a backslash at the
/// end.
const std::string hostile =
    "v\nsystem(\"touch CANARY\")\n!touch CANARY\n#'; touch CANARY; '\"; system(\"touch CANARY\") #`touch "
    "CANARY`"
    "$(touch CANARY)@kind}} {\t\a\r\x1b[31m\x7f\xc2\x9b\xe2\x80\xae\xe2\x80\xa8%s%n</script><canary "
    "onload=\"x\"><!--\" canary=\"x&#1;&lt;]]>\\U+0001\\n\\N^_~, 2^10\\";

/// Programs that are not installed are not asked.
std::string found(const std::string& program) {
  for (const char* place : {"/usr/bin/", "/usr/local/bin/", "/bin/"})
    if (std::filesystem::exists(place + program)) return place + program;
  return "";
}

class HostileText : public Reports {
 protected:
  /// Expects that no file below `place` lets a text run or mark up anything.
  void expect_harmless(const std::filesystem::path& place) const {
    std::vector<std::string> pictures;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place)) {
      const std::string ending = entry.path().extension().string();
      EXPECT_NE(entry.path().filename(), "CANARY") << entry.path() << ": a command was executed";
      EXPECT_NE(ending, ".log") << entry.path() << ": " << testing_support::slurp(entry.path());
      if (ending == ".svg") pictures.push_back(entry.path().string());
      const bool described = entry.path().string().ends_with(".figure.json");
      if (!described && ending != ".svg" && ending != ".dot" && ending != ".html") continue;
      const std::string text = testing_support::slurp(entry.path());
      std::string printable_text = text;
      std::erase_if(printable_text, [](char c) { return c == '\n' || c == '\t'; });
      EXPECT_TRUE(is_printable(printable_text)) << entry.path();
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);)
        EXPECT_FALSE(ending != ".html" && (line.starts_with("system") || line.starts_with("!")))
            << entry.path() << ": " << line;
      if (ending == ".html") expect_harmless_page(text);
      if (described) {
        EXPECT_TRUE(std::filesystem::exists(entry.path().parent_path() /
                                            (entry.path().stem().stem().string() + ".svg")))
            << entry.path();
      }
    }
    EXPECT_FALSE(std::filesystem::exists("CANARY"));
    if (found("python3").empty() || pictures.empty()) return;
    std::vector<std::string> arguments{
        "-c",
        "import sys, xml.parsers.expat as x\nfor f in sys.argv[1:]:\n  data = open(f, 'rb').read()\n  try: "
        "x.ParserCreate().Parse(data, True)\n  except x.ExpatError as e: "
        "sys.exit(f'{f}: {e}: {data.splitlines()[e.lineno - 1]}')"};
    arguments.insert(arguments.end(), pictures.begin(), pictures.end());
    const auto parsed = run_program(found("python3"), arguments, folder);
    EXPECT_EQ(parsed.exit_code, 0) << parsed.err;
  }

  static void expect_harmless_page(const std::string& html) {
    EXPECT_THAT(html, Not(HasSubstr("<canary")));
    std::string markup = html;
    const std::size_t data = markup.find("id=\"data\">");
    markup.erase(data, markup.find("</script>", data) - data);  // JSON, which has quotes of its own
    EXPECT_EQ(markup.find("\" canary="), std::string::npos)
        << markup.substr(markup.find("\" canary=") - 200, 300);
    const std::regex script("<script|</script", std::regex::icase);
    const auto count =
        std::distance(std::sregex_iterator(html.begin(), html.end(), script), std::sregex_iterator());
    EXPECT_EQ(count, 4) << "the data and the script of the page";
    EXPECT_NO_THROW(embedded_data(html));
  }
};

/// Puts `text` before every string of `json` that `reads` still accepts then, one after the other, so that a
/// field that is added is covered by itself. What is refused is refused in one printable line.
struct Hostility {
  std::size_t accepted = 0, refused = 0;
};
template <class Reads>
Hostility make_hostile(OrderedJson& json, const std::string& path, const Reads& reads) {
  Hostility all;
  const auto try_it = [&](const auto& change, const auto& change_back) {
    change();
    try {
      reads();
      ++all.accepted;
    } catch (const std::runtime_error& error) {
      std::string what = error.what();
      if (what.starts_with(path)) what.erase(0, path.size());  // printing makes the path printable
      EXPECT_TRUE(is_printable(what)) << what;
      EXPECT_LT(std::string_view(error.what()).size(), 4000u);
      change_back();
      ++all.refused;
    }
  };
  const auto visit = [&](const auto& self, OrderedJson& value) -> void {
    if (value.is_string()) {
      const std::string before = value;
      try_it([&] { value = hostile + before; }, [&] { value = before; });
      return;
    }
    if (value.is_object()) {  // a key more, and the ones that are there under another name
      const OrderedJson before = value;
      try_it([&] { value[hostile] = before.empty() ? OrderedJson(1) : before.begin().value(); },
             [&] { value = before; });
    }
    if (value.is_structured())
      for (OrderedJson& part : value) self(self, part);
  };
  visit(visit, json);
  return all;
}

std::string json_text(const OrderedJson& json) { return json.dump(-1, ' ', false) + "\n"; }

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// Every text of a configuration but those that say what kind of run it is.
std::string hostile_toml(const std::string& toml) {
  std::string text, quoted = OrderedJson(hostile).dump();
  quoted = quoted.substr(1, quoted.size() - 2);
  for (std::size_t at = quoted.find('\x7f'); at != std::string::npos; at = quoted.find('\x7f'))
    quoted.replace(at, 1, "\\u007f");
  std::istringstream lines(toml);
  for (std::string line; std::getline(lines, line);) {
    const bool kind = line.starts_with("level") || line.starts_with("policy") || line.starts_with("dtype");
    const std::size_t begin = line.find(" = \"");
    if (!kind && begin != std::string::npos) line.insert(begin + 4, quoted);
    text += line + "\n";
  }
  return text + "[[note.row]]\nname = \"" + quoted + "\"\ntype = \"" + quoted + "\"\n\"" + quoted +
         "\" = \"" + quoted + "\"\n[\"" + quoted + "\"]\n\"" + quoted + "\" = [\"" + quoted + "\"]\n";
}

TEST_F(HostileText, OfARunFolderReachesNoLanguage) {
  std::string name = hostile;
  std::erase(name, '/');
  const std::filesystem::path sweep = folder / name.substr(0, 100);
  std::vector<std::filesystem::path> runs;
  for (const std::string level : {"O0", "O1"})
    for (const std::uint64_t seed : {1, 2}) {
      SyntheticRun run{.seed = seed, .level = level, .steps = 20, .histograms_every = 10, .skips = {3}};
      if (level == "O1") run.policy = "dynamic";
      const std::filesystem::path made = write_synthetic_run(sweep, run);
      runs.push_back(sweep / (name.substr(0, 60) + made.filename().string()));
      std::filesystem::rename(made, runs.back());
    }
  Hostility all;
  for (const std::filesystem::path& run : runs) {
    OrderedJson manifest =
        OrderedJson::parse(testing_support::without_digests(testing_support::slurp(run / "manifest.json")));
    manifest["config"] = hostile_toml(manifest["config"]);
    // What this run does not have.
    manifest["name"] = "variant";
    manifest["gpu"] = "GPU";
    manifest["driver"] = "1.0";
    manifest["backend"] = {{"device", "cuda"},    {"tensor_core", "hopper"}, {"note", "none"},
                           {"capability", "9.0"}, {"runtime", "12"},         {"gemm", "mma"}};
    manifest["ranks"] = {{"library", "MPI"}, {"hosts", {"node"}}};
    manifest["resumptions"] = {{{"step", 3}, {"time", "now"}, {"git_hash", "0123"}}};
    const std::string config = manifest["config"];
    manifest.erase("config");  // it has a language of its own
    const Hostility made = make_hostile(manifest, run.string(), [&] {
      OrderedJson whole = manifest;
      whole["config"] = config;
      write(run / "manifest.json", json_text(whole));
      read_run_folder(run);
    });
    manifest["config"] = config;
    write(run / "manifest.json", json_text(manifest));
    EXPECT_GE(made.accepted, 30u);
    all.accepted += made.accepted;
    all.refused += made.refused;

    for (const char* file : {"histograms.jsonl", "overflows.jsonl"}) {
      std::istringstream lines(testing_support::slurp(run / file));
      std::string text;
      for (std::string line; std::getline(lines, line);) {
        OrderedJson row = OrderedJson::parse(line);
        if (text.empty() || file[0] == 'o') {
          const std::string before = testing_support::slurp(run / file);
          make_hostile(row, run.string(), [&] {
            write(run / file, json_text(row));
            for_each_histogram(run, [](const HistogramRow&) {});
            read_overflows(run);
          });
          write(run / file, before);
        } else {
          row["tensor"] = hostile + row["tensor"].get<std::string>();
        }
        text += json_text(row);
      }
      write(run / file, text);
    }
    std::string evaluations = testing_support::slurp(run / "evaluations.csv"),
                split = "\a\x1b[31m`touch CANARY`$(touch CANARY)<canary>\\test";
    for (std::size_t at = 0; (at = evaluations.find(",test", at)) != std::string::npos; at += split.size())
      evaluations.replace(at + 1, 4, split);
    write(run / "evaluations.csv", evaluations);
  }
  EXPECT_GE(all.refused, 4u) << "what must be one of a few words";

  OrderedJson replay = OrderedJson::parse(to_json(synthetic_replay("run", 40)));
  make_hostile(replay, "", [&] { parse_replay(replay.dump()); });
  write(sweep / "replay.json", replay.dump());

  std::ostringstream messages;
  const std::filesystem::path page =
      write_report({{sweep}}, sweep, {.title = "fp16lab: " + name, .messages = &messages});
  std::string said = messages.str();
  std::erase(said, '\n');
  EXPECT_TRUE(is_printable(said)) << said;
  EXPECT_EQ(page, sweep / "report.html");
  expect_harmless(folder);
  for (const char* stem : {"loss-", "quality-", "costs-", "network-", "loss-scale-", "histogram-",
                           "underflow-against", "underflow-over", "replay-scales", "replay-league"}) {
    bool drawn = false;
    for (const auto& entry : std::filesystem::directory_iterator(sweep / "figures"))
      drawn |= entry.path().filename().string().starts_with(stem);
    EXPECT_TRUE(drawn) << stem;
  }
}

TEST_F(HostileText, OfNamesReachesNoFigureOfItsOwnLanguage) {
  ReplayFile replay = synthetic_replay(hostile, 40);
  for (ReplayedPolicy& policy : replay.policies)
    policy.label = policy.note = policy.source = hostile + policy.label;
  draw_replay(replay, folder / "replay");

  ScaledTensor tensor{.name = hostile, .values = {}};
  tensor.values.bins.fill(3);
  analysis::RangeReport report;
  report.add(hostile, tensor.values, 1);
  EXPECT_EQ(draw_range_figure({.subject = hostile, .scale = {}}, {{tensor}}, report, folder / "hist").problem,
            "");

  analysis::RunComparison comparison{.name_a = hostile, .name_b = "x/" + hostile};
  for (std::uint64_t step = 1; step <= 3; ++step)
    comparison.steps.common.push_back({StepRow{.step = step, .loss = 1, .loss_scale = 2},
                                       StepRow{.step = step, .loss = 1.5, .loss_scale = 4}});
  draw_comparison(comparison, folder / "compare");

  EXPECT_EQ(draw_order({3, {{0, 1}, {2, 3}}}, hostile, "order", folder / "order"), "");

  const std::array<std::string_view, 2> pairs{hostile, "b"};
  const std::array distances{0.1, 0.2, 0.3, 0.4, 0.5};
  draw_distances({hostile, pairs},
                 std::array{DistanceRow{hostile, 0, 1, distances}, DistanceRow{hostile, 1, 1, distances}},
                 folder / "distances");
  const std::array workloads{hostile};
  draw_highest_scales(workloads, std::array{AllowedScaleRow{hostile, replay.band}}, folder / "scales");
  draw_prediction(workloads, std::array{LossCostRow{hostile, 1, 1, 1, {0, 2}, 3}}, folder / "prediction");
  expect_harmless(folder);
}

TEST_F(HostileText, OfANetworkIsAStringOfDot) {
  OrderedJson layer{{"layer", hostile + ".a"}, {"type", hostile},    {"inputs", {hostile}},
                    {"output", hostile},       {"parameters", 1},    {"frozen", true},
                    {"to_float", hostile},     {"multiply_adds", 1}, {"products", OrderedJson::array()}};
  OrderedJson second = layer;
  second["layer"] = hostile + ".b";
  second["inputs"] = {hostile + ".a"};
  const std::string model = OrderedJson{{"name", hostile}, {"layers", {layer, second}}}.dump();
  std::string dot = network_dot(model);
  // Outside of strings, in which a backslash takes the next character along, it is what it would be of any
  // names.
  const std::regex string(R"re("([^"\\]|\\.)*")re");
  const std::string skeleton = std::regex_replace(dot, string, "S");
  EXPECT_TRUE(std::regex_match(skeleton, std::regex(R"([\w\s\[\]{};=,.\->]*)"))) << skeleton;
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '\n'), std::count(skeleton.begin(), skeleton.end(), '\n'));
  const std::string problem = draw_network(model, folder / "network.svg");
  if (!found("dot").empty()) {
    EXPECT_EQ(problem, "");
    EXPECT_THAT(testing_support::slurp(folder / "network.svg"), HasSubstr("touch CANARY"));
  }
  expect_harmless(folder);
}

TEST_F(HostileText, IsATagOfTensorboardInUtf8) {
  const std::string tag = hostile + "\xff";
  std::filesystem::path file;
  {
    TensorboardWriter writer(folder, 1);
    ExponentHistogram histogram;
    histogram.bins.fill(1);
    writer.exponents(1, 0, tag, histogram);
    writer.scalars(1, 0, std::vector{EventScalar{tag, 1.0}});
    file = writer.path();
  }
  const std::string bytes = testing_support::slurp(file);
  const std::size_t first = bytes.find(printable(tag));
  ASSERT_NE(first, std::string::npos);
  EXPECT_NE(bytes.find(printable(tag), first + 1), std::string::npos);
  EXPECT_EQ(bytes.find(hostile), std::string::npos);
}

// An XML parser shows what it reads in a picture: the names, but for what moves a terminal or turns lines
// round.
TEST_F(HostileText, IsReadBackFromAPicture) {
  const std::vector<std::string> pieces{"\"",
                                        "\\",
                                        "`",
                                        "'",
                                        "{",
                                        "}",
                                        "@kind",
                                        "#",
                                        "$",
                                        "%s",
                                        "%",
                                        "$(touch CANARY)",
                                        "`touch CANARY`",
                                        "\n",
                                        "\a",
                                        "\t",
                                        "\xff",
                                        "7",
                                        "0",
                                        "a",
                                        " ",
                                        "^",
                                        "_",
                                        "&",
                                        "~",
                                        "\\n",
                                        "\\U+2265",
                                        "\\1",
                                        "é",
                                        "≤",
                                        "\"; x",
                                        "\xc2\x9b",
                                        "{/:Bold x}",
                                        "[",
                                        ";",
                                        "!system(1)",
                                        "\nsystem(\"touch CANARY\")\n"};
  std::mt19937 random(37);
  nlohmann::ordered_json series = nlohmann::ordered_json::array();
  for (int i = 0; i < 400; ++i) {
    std::string text = "<";
    for (std::size_t length = 1 + random() % 7; length > 0; --length)
      text += pieces[random() % pieces.size()];
    series.push_back({{"label", text + ">"}, {"color", "#0072B2"}, {"points", {{0, i}, {1, i}}}});
  }
  const nlohmann::ordered_json figure = {
      {"stem", "names"},
      {"title", hostile},
      {"caption", hostile},
      {"panels", nlohmann::ordered_json::array({{{"kind", "plot"},
                                                 {"series", std::move(series)},
                                                 {"x", {{"title", hostile}}},
                                                 {"y", {{"title", ""}}}}})}};
  ASSERT_EQ(draw_figure(figure, folder), "");
  const auto read = run_program(found("python3"),
                                {"-c", R"(
import json, sys, unicodedata, xml.etree.ElementTree as tree
figure = json.load(open(sys.argv[1]))
bidi = set('\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069')
shown = lambda c: ' ' if c in '\n\t' else '\ufffd' if unicodedata.category(c) == 'Cc' or c in bidi or c in '\u2028\u2029' else c
expected = [''.join(map(shown, s['label'])) for s in figure['panels'][0]['series']]
texts = [t.text for t in tree.parse(sys.argv[2]).iter('{http://www.w3.org/2000/svg}text')]
missing = [e for e in expected if e not in texts]
sys.exit(repr(missing[:3]) if missing or len(expected) != 400 else 0))",
                                 (folder / "names.figure.json").string(), (folder / "names.svg").string()},
                                folder);
  EXPECT_EQ(read.exit_code, 0) << read.err;
  expect_harmless(folder);
}

}  // namespace
}  // namespace fp16lab::reports
