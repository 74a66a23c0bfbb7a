// reports/: the figures, and the page with its embedded numbers, from synthetic run folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/range_report.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "reports/data/run_gradients.hpp"
#include "reports/figures/figure.hpp"
#include "reports/figures/network_figure.hpp"
#include "reports/page/html.hpp"
#include "reports/page/page_detail.hpp"
#include "reports/page/report.hpp"
#include "tests/reports/report_fixture.hpp"

namespace fp16lab::reports {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

TEST_F(Reports, PageHoldsTheRecordedNumbersAndNeedsNoNetwork) {
  const std::vector<std::filesystem::path> folders = small_set();
  std::ostringstream messages;
  ReportOptions options;
  options.drawing.node = "no-such-node";
  options.graphviz = "no-such-dot";
  options.messages = &messages;
  options.title = "Title <with> & \"signs\" @DATA@";
  const std::filesystem::path path = write_report(folders, folder / "out", options);
  EXPECT_EQ(path, folder / "out" / "report.html");
  EXPECT_THAT(messages.str(), AllOf(HasSubstr("no-such-node is not installed"), HasSubstr("Debian: nodejs")));
  const std::string html = read_file(path);

  EXPECT_THAT(html, HasSubstr("<h1>Title &lt;with&gt; &amp; &quot;signs&quot;"));
  EXPECT_THAT(html, HasSubstr("two seeds: three are needed for a verdict"));
  for (const char* forbidden :
       {"src=\"http", "href=\"h", "href=\"/", "@import", "url(http", "fetch(", "XMLHttpRequest", "<link"})
    EXPECT_THAT(html, Not(HasSubstr(forbidden)));
  for (const char* slot : {"@STYLE@", "@SCRIPT@", "@POLICY@"}) EXPECT_THAT(html, Not(HasSubstr(slot)));
  const Json data = embedded_data(html);
  EXPECT_EQ(data.at("title"), "Title <with> & \"signs\" @DATA@");
  EXPECT_THAT(data.at("provenance").dump(),
              AllOf(HasSubstr(std::string(64, 'a')), HasSubstr("0123456789abcdef0123456789abcdef01234567"),
                    HasSubstr("fp16lab sweep -c demo.toml")));
  EXPECT_EQ(data.at("workloads")[0].at("overflows"),
            "Overflows, first seed: “FP16 torch” in 2 steps, first in step 3 (fc1.weight, fc1.bias, "
            "fc2.weight and 1 more).");
  const Json& configurations = data.at("workloads").at(0).at("configurations");
  ASSERT_EQ(configurations.size(), 3u);
  EXPECT_EQ(configurations[1].at("label"), "FP16 no scaling");
  EXPECT_EQ(configurations[1].at("final_values"), Json({0.3125, 0.3125 + 1.0 / 1024}));
  EXPECT_EQ(configurations[1].at("word"), "cannot tell");
  EXPECT_EQ(configurations[2].at("trace").at("skipped"), Json({{3, 4096.0}, {50, 2048.0}}));
  ASSERT_EQ(data.at("runs").size(), 6u) << "every seed of three configurations";
  EXPECT_EQ(data.at("workloads").at(0).at("start").at(0), 2) << "what loses most, by its first seed";

  // Every embedded histogram is the recorded one.
  const Json& run = data.at("runs").at(2);
  EXPECT_EQ(run.at("seed"), 1);
  const std::vector<HistogramRow> recorded = read_histograms(folder / "autoencoder-O1-none-seed1");
  const auto steps = run.at("steps").get<std::vector<std::uint64_t>>();
  const auto tensors = run.at("tensors").get<std::vector<std::string>>();
  ASSERT_EQ(steps.size() * tensors.size(), recorded.size());
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const std::size_t s = i / tensors.size(), t = i % tensors.size();
    ASSERT_EQ(recorded[i].step, steps[s]);
    ASSERT_EQ(recorded[i].tensor, tensors[t]);
    const Json& shown = run.at("histograms").at(s).at(t);
    EXPECT_EQ(shown.at(0), recorded[i].before.zero);
    std::uint64_t sum = 0;
    for (std::size_t b = 0; b < shown.at(4).size(); ++b) {
      EXPECT_EQ(shown[4][b], recorded[i].before.at(shown[3].get<int>() + static_cast<int>(b)));
      sum += shown[4][b].get<std::uint64_t>();
    }
    EXPECT_EQ(sum, recorded[i].before.finite_nonzero());
  }
  // What-if and self-check values: lost at 2^k of the last snapshot, summed here from the recorded bins.
  for (const Json& check : run.at("check")) {
    if (check.at(0) != steps.size() - 1) continue;
    std::uint64_t lost = 0;
    for (std::size_t i = recorded.size() - tensors.size(); i < recorded.size(); ++i)
      for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e)
        if (e + 1 + check.at(1).get<int>() <= -25) lost += recorded[i].before.at(e);
    EXPECT_EQ(check.at(2), lost);
    EXPECT_EQ(check.at(3), lost);
  }
  EXPECT_EQ(run.at("check").size(), 3u * ((analysis::max_log2_scale - analysis::min_log2_scale) / 4 + 1));

  // Without node there are no files of figures, and nothing half drawn.
  for (const auto& entry : std::filesystem::directory_iterator(folder / "out" / "figures"))
    EXPECT_THAT(entry.path().filename().string(), ::testing::AnyOf("draw.js", HasSubstr(".dot")));
}

TEST_F(Reports, TheNetworkIsATableAndAGraph) {
  const std::filesystem::path run = write_synthetic_run(folder / "runs", {});
  const std::string html = read_file(write_report(
      {{run}}, folder / "out", {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"}));
  const Json network = embedded_data(html).at("workloads")[0].at("network");
  EXPECT_EQ(network.at("summary"),
            "The network: 3 modules with 1010 parameters, 1.28 M multiply-adds for a batch of 128");
  EXPECT_EQ(network.at("unfilled"), true);
  EXPECT_EQ(network.at("picture"), nullptr) << "graphviz was not there";
  EXPECT_THAT(rows_of(network.at("layers")),
              AllOf(HasSubstr("2 times 128 × 10 × 100*"), HasSubstr("linear, frozen, f32")));
  const std::string dot = read_file(folder / "out/figures/network-autoencoder-on-fashion-mnist.dot");
  EXPECT_THAT(dot, AllOf(HasSubstr("subgraph \"cluster_block\""), HasSubstr("\"input\" -> \"block.fc\""),
                         HasSubstr("fc\\nlinear, frozen, f32\\nrelu\\n(N, 10)"),
                         HasSubstr("\"block.fc\" -> \"block.sum\"")));
  EXPECT_EQ(dot.find("block.relu1\" ["), std::string::npos) << "it is below fc";
  EXPECT_THAT(run_graphviz(folder / "out/figures/x.dot", folder / "out/figures/x.svg", "no-such-dot"),
              HasSubstr("Debian: graphviz"));
  EXPECT_THAT(run_graphviz(folder / "out/figures/x.dot", folder / "out/figures/x.svg", "false"),
              AllOf(HasSubstr("graphviz cannot draw"), HasSubstr("x.log")));
  EXPECT_THAT(draw_network("{}", folder / "x"), HasSubstr("expected an ending"));
  EXPECT_THROW(network_dot("{\"layers\": 3}"), std::runtime_error);
}

TEST_F(Reports, EvaluationsAreCurvesOfThePage) {
  for (const std::uint64_t every : {80, 10}) {  // once, at the end; eight times
    std::vector<std::filesystem::path> folders;
    const std::filesystem::path place = folder / std::to_string(every);
    for (const std::string level : {"O0", "O1"})
      folders.push_back(write_synthetic_run(
          place, {.level = level, .final_loss = 0.25, .steps = 80, .evaluate_every = every}));
    const std::string html = read_file(write_report(
        folders, place / "out", {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"}));
    EXPECT_THAT(embedded_data(html).at("workloads")[0].at("summary").at("table").dump(),
                HasSubstr(R"({"text":"0.25","value":0.25})"));
    const Json curve = embedded_data(html).at("workloads").at(0).at("configurations").at(1).at("evaluation");
    EXPECT_EQ(curve.at("step"), every == 10 ? Json({10, 20, 30, 40, 50, 60, 70, 80}) : Json({80}));
    EXPECT_EQ(curve.at("mean").back(), 0.25);
  }
}

TEST_F(Reports, FiguresAreFilesBesideThePage) {
  std::ostringstream messages;
  write_report(small_set(), folder / "out", {.drawing = {.pdf = true}, .messages = &messages});
  const std::filesystem::path figures = folder / "out" / "figures";
  for (const std::string stem :
       {"loss-", "quality-", "costs-", "loss-scale-", "underflow-against-scale-", "underflow-over-steps-"})
    for (const std::string ending : {".figure.json", ".svg", ".png", ".pdf"}) {
      const std::filesystem::path file = figures / (stem + "autoencoder-on-fashion-mnist" + ending);
      ASSERT_TRUE(std::filesystem::exists(file)) << file << messages.str();
      EXPECT_GT(std::filesystem::file_size(file), 500u) << file;
    }
  EXPECT_EQ(messages.str(), "");
  EXPECT_TRUE(read_file(figures / "loss-autoencoder-on-fashion-mnist.pdf").starts_with("%PDF-"));
}

TEST_F(Reports, AFigureHasTheWidthAndTheTitleThatAreAskedFor) {
  const Json panel = {
      {"kind", "plot"},
      {"series", Json::array({{{"label", "a"}, {"color", "#0072B2"}, {"points", {{1, 2}, {2, 3}}}}})},
      {"x", {{"title", "step"}}},
      {"y", {{"title", "loss"}}}};
  const nlohmann::ordered_json figure = {
      {"stem", "one"}, {"title", "Some title"}, {"caption", "words"}, {"panels", Json::array({panel})}};
  const auto drawn = [&](const DrawingOptions& options) {
    EXPECT_EQ(draw_figure(figure, folder / "drawn", options), "");
    return read_file(folder / "drawn/one.svg");
  };
  const std::string own = drawn({});
  EXPECT_THAT(own, AllOf(HasSubstr("width=\"720\""), HasSubstr("class=\"heading\">Some title</text>"),
                         HasSubstr("<desc>words</desc>")));
  const std::string narrow = drawn({.width = "3.3in", .title = false});
  EXPECT_THAT(narrow, AllOf(HasSubstr("width=\"317\""), Not(HasSubstr("\"heading\""))));
  EXPECT_EQ(read_file(folder / "drawn/one.figure.json"), figure.dump() + "\n");
  for (const std::string width :
       {"3.3", "2.4in", "wide", "500px", "4001", "-5in", "nan", "mm", "60mm", "3.3 in"})
    EXPECT_THROW(require_width(width), std::invalid_argument) << width;
  for (const std::string width : {"2.5in", "500", "4000", "84mm", "8.4cm", "240pt"})
    EXPECT_NO_THROW(require_width(width)) << width;
}

TEST_F(Reports, HostileNamesStayText) {
  SyntheticRun run{.steps = 20};
  run.extra_config = "\n[note]\ntext = \"</script><b>@PROVENANCE@\"\n";
  const std::vector<std::filesystem::path> folders{write_synthetic_run(folder, run)};
  const std::string html = read_file(write_report(
      folders, folder / "out", {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"}));
  EXPECT_THAT(html, Not(HasSubstr("</script><b>")));
  EXPECT_THAT(embedded_data(html).at("provenance").at("groups")[0].at("configuration").get<std::string>(),
              HasSubstr("</script><b>@PROVENANCE@"));
}

TEST_F(Reports, WhyNothingWasDrawnIsOneLine) {
  const nlohmann::ordered_json figure = {{"stem", "x"}, {"title", ""}, {"panels", Json::array()}};
  EXPECT_THAT(draw_figure(figure, folder, {.node = "no-such-node"}),
              HasSubstr("no figure was drawn in " + folder.string() +
                        ": no-such-node is not installed (Debian: nodejs"));
  EXPECT_THAT(draw_figure(figure, folder, {.node = "false"}),
              AllOf(HasSubstr("false failed on"), HasSubstr("draw.log")));
  EXPECT_THAT(draw_figure(figure, folder, {.rsvg = "no-such-rsvg"}),
              HasSubstr("SVG only: no-such-rsvg is not installed (Debian: librsvg2-bin)"));
  EXPECT_FALSE(std::filesystem::exists(folder / "draw.log")) << "a later success takes it away";
  EXPECT_EQ(draw_figure(figure, folder, {.rsvg = "true"}), "");
}

TEST(Html, EscapesAndEncodes) {
  EXPECT_EQ(html_escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
  // RFC 4648, section 10.
  EXPECT_EQ(data_url("t/x", ""), "data:t/x;base64,");
  EXPECT_EQ(data_url("t/x", "f"), "data:t/x;base64,Zg==");
  EXPECT_EQ(data_url("t/x", "fo"), "data:t/x;base64,Zm8=");
  EXPECT_EQ(data_url("t/x", "foo"), "data:t/x;base64,Zm9v");
  EXPECT_EQ(data_url("t/x", "foobar"), "data:t/x;base64,Zm9vYmFy");
  const Slot x[] = {{"X", "@Y@"}}, xy[] = {{"X", "1"}, {"Y", "2"}};
  EXPECT_EQ(fill_slots("a@X@b@X@c", x), "a@Y@b@Y@c");
  EXPECT_EQ(fill_slots("@Y@@X@", xy), "21");
  EXPECT_THROW(fill_slots("a@Z@", x), std::logic_error);
  EXPECT_THROW(fill_slots("a@X@", xy), std::logic_error);
}

TEST_F(Reports, ThinningKeepsFirstAndLastStepAndTheWholeReport) {
  SyntheticRun run{.steps = 200, .histograms_every = 5};
  const std::filesystem::path path = write_synthetic_run(folder, run);
  const RunSet set = load_runs(std::vector{path});
  const RunGradients gradients = load_gradients(set.runs[0], 7);
  ASSERT_EQ(gradients.snapshots.size(), 7u);
  EXPECT_EQ(gradients.snapshots.front().step, 1u);
  EXPECT_EQ(gradients.snapshots.back().step, 200u);
  std::uint64_t total = 0;
  for (const HistogramRow& row : read_histograms(path)) total += row.before.total();
  EXPECT_EQ(gradients.at_scale(1.0).total, total);
}

/// The whole demonstration grid. With FP16LAB_REPORT_OUT=FOLDER the result stays there, figures drawn, to be
/// looked at.
TEST_F(Reports, FullGrid) {
  const char* keep = std::getenv("FP16LAB_REPORT_OUT");
  const std::vector<std::filesystem::path> folders = write_synthetic_grid(folder);
  ReportOptions options;
  if (keep == nullptr) options.drawing.node = "no-such-node";
  if (keep == nullptr) options.graphviz = "no-such-dot";
  const std::string html = read_file(write_report(folders, keep != nullptr ? keep : folder / "out", options));
  const Json data = embedded_data(html);
  EXPECT_EQ(data.at("workloads").size(), 2u);
  EXPECT_EQ(data.at("runs").size(), 14u * 3u) << "every seed";
  // What both workloads have in common, side by side: 0.0681 against 0.0583 is 1.1681, and 85.2 %
  // against 85.3 %.
  EXPECT_THAT(rows_of(data.at("overview")),
              HasSubstr("  FP16 no scaling | +16.81 % worse | -0.10 points (worse) equal | 1 of 2 | "));
  const std::string cells = data.at("overview").at("rows").dump();
  EXPECT_THAT(cells, ::testing::ContainsRegex(
                         "\"class\":\"worse\",\"text\":\".16.81 % worse\",\"tip\":\"worse\",\"value\":16.8"));
  EXPECT_THAT(cells,
              ::testing::ContainsRegex("\"class\":\"equal\",\"text\":\"-0.10 points .worse. "
                                       "equal\",\"tip\":\"equal within 0.5 points[^\"]*\",\"value\":0.1"));
  EXPECT_THAT(html, HasSubstr("One FP32 run whose initial weights were moved by one ulp ends within ["));
  EXPECT_LT(html.size(), largest_page);
}

}  // namespace
}  // namespace fp16lab::reports
