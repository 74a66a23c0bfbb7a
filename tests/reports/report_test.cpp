// reports/: grouping, labels, verdict table, figures, and the page's embedded numbers, from synthetic run
// folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/range_report.hpp"
#include "numerics/files/run_folder.hpp"
#include "reports/figure_style.hpp"
#include "reports/gnuplot.hpp"
#include "reports/html.hpp"
#include "reports/rate_text.hpp"
#include "reports/report.hpp"
#include "reports/run_gradients.hpp"
#include "reports/series.hpp"
#include "reports/summary.hpp"
#include "tests/reports/synthetic_runs.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::reports {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Reports : public ::testing::Test {
 protected:
  /// FP32, no scaling and dynamic, two seeds each; losses exact in binary.
  std::vector<std::filesystem::path> small_set() const {
    std::vector<std::filesystem::path> runs;
    for (const std::uint64_t seed : {2, 1}) {  // not in order, on purpose
      const double shift = seed == 1 ? 0.0 : 1.0 / 1024;
      SyntheticRun run{.seed = seed, .steps = 100};
      run.policy = "dynamic";
      run.initial_scale = 4096;
      run.skips = {3, 50};
      run.final_loss = 0.25 + shift;
      runs.push_back(write_synthetic_run(folder, run));
      run.policy = "none";
      run.skips.clear();
      run.final_loss = 0.3125 + shift;
      runs.push_back(write_synthetic_run(folder, run));
      run.level = "O0";
      run.final_loss = 0.25 + shift;
      runs.push_back(write_synthetic_run(folder, run));
    }
    return runs;
  }

  testing_support::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "no exception";
  return {};
}

Json embedded_data(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t from = html.find(begin) + begin.size();
  return Json::parse(html.substr(from, html.find("</script>", from) - from));
}

// ---- labels and grouping ------------------------------------------------------------------------

std::string label_of(std::string_view toml) { return configuration_of(flatten_toml(toml, "test")).label; }

TEST(Labels, SayPrecisionAndScaling) {
  EXPECT_EQ(label_of("[amp]\nlevel='O0'\n[scaler]\npolicy='none'\ninitial_scale=65536.0"), "FP32");
  EXPECT_EQ(label_of("amp.level='O1'\namp.dtype='f16'\nscaler.policy='none'"), "FP16 no scaling");
  EXPECT_EQ(label_of("amp.level='O1'\nscaler.policy='fixed'\nscaler.initial_scale=8.0"), "FP16 S=2^3");
  EXPECT_EQ(label_of("amp.level='O1'\nscaler.policy='fixed'\nscaler.initial_scale=8"), "FP16 S=2^3");
  EXPECT_EQ(label_of("amp.level='O1'\nscaler.policy='fixed'\nscaler.initial_scale=0.125"), "FP16 S=2^-3");
  EXPECT_EQ(label_of("amp.level='O1'\nscaler.policy='fixed'\nscaler.initial_scale=1000"), "FP16 S=1000");
  EXPECT_EQ(label_of("amp.level='O1'\nscaler.policy='dynamic'"), "FP16 dynamic");
  EXPECT_EQ(label_of("amp.level='O2'\namp.dtype='bf16'\nscaler.policy='none'"), "BF16 O2 no scaling");
  EXPECT_EQ(pretty("FP16 S=2^-13, 2^4 and x^2"), "FP16 S=2⁻¹³, 2⁴ and x^2");
  EXPECT_NE(slug("FP16 S=2^3"), slug("FP16 S=2^-3"));
  EXPECT_EQ(slug("Classifier on X (a=b)"), "classifier-on-x-a-b");
  EXPECT_THAT(message_of([] { flatten_toml("a = 1\nb = = 2", "m.json"); }),
              AllOf(HasSubstr("m.json"), HasSubstr("line 2")));
  const FlatConfig flat = flatten_toml("[a]\nb=[1, 2]\nc=true\nd='x'", "test");
  EXPECT_EQ(flat.at("a.c"), "true");
  EXPECT_EQ(flat.at("a.d"), "x");
  EXPECT_EQ(flat.size(), 3u);
}

TEST_F(Reports, GroupsBySeedAndOrdersConfigurations) {
  const std::vector<std::filesystem::path> folders = small_set();
  const RunSet set = load_runs(folders);
  ASSERT_EQ(set.workloads.size(), 1u);
  EXPECT_EQ(set.workloads[0].name, "autoencoder on fashion-mnist");
  EXPECT_EQ(set.workloads[0].run_count(), 6u);
  std::vector<std::string> labels;
  for (const Configuration& configuration : set.workloads[0].configurations) {
    labels.push_back(configuration.label);
    ASSERT_EQ(configuration.runs.size(), 2u);
    EXPECT_EQ(set.runs[configuration.runs[0]].seed, 1u);
    EXPECT_EQ(set.runs[configuration.runs[1]].seed, 2u);
  }
  EXPECT_THAT(labels, ElementsAre("FP32", "FP16 no scaling", "FP16 dynamic"));
  EXPECT_TRUE(set.notes.empty());
  EXPECT_THAT(message_of([] { load_runs({}); }), HasSubstr("no run folders"));
}

TEST_F(Reports, NamesThatWouldClashSayWhereTheyDiffer) {
  SyntheticRun run{.steps = 20};
  run.policy = "dynamic";
  std::vector<std::filesystem::path> folders{write_synthetic_run(folder / "a", run)};
  run.extra_config = "\n[optimizer]\nlr = 0.5\n";  // another workload of the same name
  folders.push_back(write_synthetic_run(folder / "b", run));
  run.extra_config = "";
  run.initial_scale = 1024;  // another configuration of the same label
  folders.push_back(write_synthetic_run(folder / "c", run));
  const RunSet set = load_runs(folders);
  ASSERT_EQ(set.workloads.size(), 2u);
  EXPECT_EQ(set.workloads[0].name, "autoencoder on fashion-mnist");
  EXPECT_EQ(set.workloads[1].name, "autoencoder on fashion-mnist (optimizer.lr=0.5)");
  EXPECT_EQ(set.workloads[0].configurations[0].label, "FP16 dynamic (scaler.initial_scale=1024.0)");
  EXPECT_EQ(set.workloads[0].configurations[1].label, "FP16 dynamic (scaler.initial_scale=65536.0)");
}

/// A sweep over workloads and variants that differ in many keys: its folders' names are shorter than the differences.
TEST_F(Reports, ManyDifferencesGiveWayToWhatTheSweepCallsThem) {
  std::vector<std::filesystem::path> folders;
  const auto add = [&](const std::string& name, SyntheticRun run, const std::string& extra) {
    run.steps = 20;
    run.extra_config = extra;
    const std::filesystem::path written = write_synthetic_run(folder / "written", run);
    std::filesystem::rename(written, folder / name);
    folders.push_back(folder / name);
  };
  const std::string wide = "\n[optimizer]\nlr = 0.5\nmomentum = 0.125\nweight_decay = 0.0625\n",
                    slow = "\n[optimizer]\nlr = 0.25\nmomentum = 0.5\nweight_decay = 0.5\n";
  for (const std::uint64_t seed : {1, 2}) {
    const std::string end = "-seed" + std::to_string(seed);
    add("nine_layers-fp32" + end, {.seed = seed, .level = "O0"}, wide);
    add("nine_layers-with-guard" + end, {.seed = seed, .policy = "dynamic", .initial_scale = 1024},
        "guard_of_many_layers = ['fc1', 'fc2', 'fc3', 'fc4', 'fc5']\n" + wide);
    add("nine_layers-no-guard" + end, {.seed = seed, .policy = "dynamic", .initial_scale = 4096}, wide);
    add("other-fp32" + end, {.seed = seed, .level = "O0"}, slow);
  }
  const RunSet set = load_runs(folders);
  ASSERT_EQ(set.workloads.size(), 2u);
  EXPECT_EQ(set.workloads[0].name, "nine_layers: autoencoder on fashion-mnist");
  EXPECT_EQ(set.workloads[1].name, "other-fp32: autoencoder on fashion-mnist");
  ASSERT_EQ(set.workloads[0].configurations.size(), 3u);
  EXPECT_EQ(set.workloads[0].configurations[0].label, "FP32") << "a name that nobody shares stays";
  EXPECT_EQ(set.workloads[0].configurations[1].label, "with-guard: FP16 dynamic");
  EXPECT_EQ(set.workloads[0].configurations[2].label, "no-guard: FP16 dynamic");
}

TEST(Slug, StaysAFileName) {
  const std::string long_name(400, 'a');
  EXPECT_EQ(slug(std::string(longest_slug, 'a')), std::string(longest_slug, 'a'));
  EXPECT_EQ(slug(long_name).size(), longest_slug);
  EXPECT_NE(slug(long_name), slug(long_name + "b")) << "what is cut off still counts";
}

// ---- how things are drawn and written ---------------------------------------------------------

TEST(RateText, IsShortAndHonestAtBothEnds) {
  EXPECT_EQ(rate_text(0.0), "0 %");
  EXPECT_EQ(rate_text(1e-12), "< 0.01 %");  // never "0 %": something was lost
  EXPECT_EQ(rate_text(0.000099), "< 0.01 %");
  EXPECT_EQ(rate_text(0.000101), "0.01 %");
  EXPECT_EQ(rate_text(0.0035), "0.35 %");
  EXPECT_EQ(rate_text(0.00996), "1.0 %");
  EXPECT_EQ(rate_text(0.042), "4.2 %");
  EXPECT_EQ(rate_text(0.0996), "10 %");
  EXPECT_EQ(rate_text(0.831), "83 %");
  EXPECT_EQ(rate_text(0.994), "99.4 %");
  EXPECT_EQ(rate_text(0.9999), "> 99.9 %");  // never "100 %": something was left
  EXPECT_EQ(rate_text(1.0), "100 %");
  using Interval = analysis::RateInterval;
  EXPECT_EQ(rate_text(Interval{0.5, 0.5}), "50 %");
  EXPECT_EQ(rate_text(Interval{0.91, 0.93}), "91–93 %");
  EXPECT_EQ(rate_text(Interval{0, 1e-9}), "< 0.01 %");
  EXPECT_EQ(rate_text(Interval{1e-9, 0.5}), "0–50 %");
  EXPECT_EQ(rate_text(Interval{0.5, 1 - 1e-9}), "50–100 %");
  EXPECT_EQ(rate_text(Interval{1 - 1e-9, 1}), "> 99.9 %");
  EXPECT_EQ(rate_text(Interval{0, 1}), "0–100 %");
}

TEST(LineStyles, LinesThatCoincideLeaveEachOtherVisible) {
  for (const std::size_t scales : {0, 1, 2, 4, 5}) {  // FP32, no scaling, so many fixed scales, dynamic
    Workload workload;
    const auto add = [&](Precision precision, Scaling scaling) {
      Configuration configuration;
      configuration.id.precision = precision;
      configuration.id.scaling = scaling;
      workload.configurations.push_back(configuration);
    };
    add(Precision::fp32, Scaling::none);
    add(Precision::low, Scaling::none);
    for (std::size_t i = 0; i < scales; ++i) add(Precision::low, Scaling::fixed);
    add(Precision::low, Scaling::adaptive);
    const std::vector<LineStyle> styles = styles_of(workload);
    ASSERT_EQ(styles.size(), workload.configurations.size());
    for (std::size_t low = 0; low < styles.size(); ++low) {
      bool visible = true;  // past all that is drawn over it
      for (std::size_t high = low + 1; high < styles.size(); ++high) {
        const LineStyle &under = styles[low], &over = styles[high];
        EXPECT_NE(under.color, over.color);
        EXPECT_LE(over.width, under.width);
        // Dashes of lines in one row start together, so a longer one reaches past the end of a shorter.
        const bool longer = over.gap > 0 && (under.gap == 0 || under.dash >= over.dash + 3);
        if (over.width < under.width - 1.5) continue;  // shows at its sides
        visible &= longer && (under.gap == 0 || under.dash + under.gap == over.dash + over.gap);
      }
      EXPECT_TRUE(visible) << "line " << low << " of " << styles.size();
    }
  }
  EXPECT_EQ(line_spec({"#123456", 4, 12, 6}), "lw 4 dt (6,3) lc rgb \"#123456\"");
  EXPECT_EQ(line_spec({"#123456", 4, 18, 0}), "lw 4 dt 1 lc rgb \"#123456\"");
}

// ---- series -------------------------------------------------------------------------------------

TEST_F(Reports, BandsAverageStretchesPerSeedAndSpanTheSeeds) {
  std::vector<std::filesystem::path> folders;
  for (const std::uint64_t seed : {1, 2}) {
    Manifest manifest;
    manifest.config = "[train]\nseed = " + std::to_string(seed) + "\n";
    RunWriter writer(folder / std::to_string(seed), manifest);
    // Seed 1: losses 1, 3 | 5, 7 | NaN, 11; seed 2: twice as much.
    const double losses[] = {1, 3, 5, 7, NAN, 11};
    for (std::uint64_t step = 1; step <= 6; ++step)
      writer.append(StepRow{.step = step, .loss = losses[step - 1] * static_cast<double>(seed)});
    writer.finish(ExitState::finished);
    folders.push_back(writer.folder());
  }
  const RunSet set = load_runs(folders);
  const Band band = training_loss(set, set.workloads.at(0).configurations.at(0), 3);
  EXPECT_THAT(band.step, ElementsAre(1, 3, 5));
  EXPECT_THAT(band.low, ElementsAre(2, 6, 11));
  EXPECT_THAT(band.high, ElementsAre(4, 12, 22));
  EXPECT_THAT(band.mean, ElementsAre(3, 9, 16.5));
}

TEST(ScaleTraceTest, KeepsChangesAndSkips) {
  std::vector<StepRow> steps(6);
  const double scales[] = {8, 8, 4, 4, 4, 4};
  for (std::size_t i = 0; i < 6; ++i) steps[i] = {.step = i + 1, .loss_scale = scales[i], .skipped = i == 1};
  const ScaleTrace trace = scale_trace(steps);
  ASSERT_EQ(trace.changes.size(), 3u);
  EXPECT_EQ(trace.changes[0].step, 1u);
  EXPECT_EQ(trace.changes[1].step, 3u);
  EXPECT_EQ(trace.changes[1].scale, 4.0);
  EXPECT_EQ(trace.changes[2].step, 6u);
  ASSERT_EQ(trace.skipped.size(), 1u);
  EXPECT_EQ(trace.skipped[0].step, 2u);
  EXPECT_EQ(trace.skipped[0].scale, 8.0);
  EXPECT_TRUE(scale_trace({}).changes.empty());
}

// ---- summary ------------------------------------------------------------------------------------

TEST_F(Reports, SummaryHasExactDifferencesAndVerdicts) {
  const std::vector<std::filesystem::path> folders = small_set();
  const RunSet set = load_runs(folders);
  const WorkloadSummary summary = summarise(set, set.workloads[0]);
  EXPECT_EQ(summary.metric.name, "test loss");
  ASSERT_EQ(summary.rows.size(), 3u);
  EXPECT_TRUE(summary.rows[0].is_reference);
  EXPECT_THAT(summary.rows[1].final_values, ElementsAre(0.3125, 0.3125 + 1.0 / 1024));
  ASSERT_TRUE(summary.rows[1].against_reference.has_value());
  EXPECT_EQ(summary.rows[1].against_reference->verdict, analysis::Verdict::behind);
  EXPECT_EQ(summary.rows[1].against_reference->difference_percent, 100 * 0.0625 / (0.25 + 1.0 / 2048));
  EXPECT_EQ(summary.rows[1].against_reference->spread, 1.0 / 1024);
  EXPECT_EQ(summary.rows[2].against_reference->verdict, analysis::Verdict::within_spread);
  EXPECT_EQ(summary.rows[2].against_reference->difference_percent, 0.0);
  EXPECT_EQ(summary.rows[2].skipped, 4u);
  EXPECT_EQ(summary.rows[2].last_scale, 1024.0);
  EXPECT_THAT(
      summary.words,
      AllOf(HasSubstr("FP16 no scaling ends at 0.31299, 24.95 % worse: more than three times the spread"),
            HasSubstr("FP16 dynamic is level with FP32"), HasSubstr("skipped 4 of 200 steps")));
  const std::string table = summary_table(folders);
  EXPECT_THAT(table,
              ::testing::ContainsRegex(
                  "FP16 no scaling +2 +0.31299 +\\+24.95 % +0.00098 .*behind by more than 3 x spread\n"));
  EXPECT_THAT(table, ::testing::ContainsRegex("FP32 +2 +0.25049 .*reference\n"));
}

TEST_F(Reports, AccuracyIsTheMetricWhereEveryRunHasOne) {
  std::vector<std::filesystem::path> folders;
  for (const std::uint64_t seed : {1, 2})
    for (const std::string level : {"O0", "O1"}) {
      SyntheticRun run{.model = "classifier", .seed = seed, .level = level, .steps = 20};
      run.final_accuracy = level == "O0" ? 0.75 : 0.5;
      folders.push_back(write_synthetic_run(folder, run));
    }
  const RunSet set = load_runs(folders);
  const WorkloadSummary summary = summarise(set, set.workloads[0]);
  EXPECT_EQ(summary.metric.name, "test accuracy");
  EXPECT_EQ(summary.rows[1].against_reference->verdict, analysis::Verdict::behind);
  EXPECT_EQ(difference_text(summary.metric, *summary.rows[1].against_reference), "-25.00 pp");
  EXPECT_EQ(value_text(summary.metric, 0.5), "50.00 %");
}

TEST_F(Reports, BitsPerCharacterAreTheMetricWhereEveryRunHasThem) {
  std::vector<std::filesystem::path> folders;
  for (const std::uint64_t seed : {1, 2})
    for (const std::string level : {"O0", "O1"})
      folders.push_back(
          write_synthetic_run(folder, {.model = "charlm_lstm",
                                       .seed = seed,
                                       .level = level,
                                       .final_loss = (level == "O0" ? 2.0 : 2.5) * std::log(2.0),
                                       .bits_per_character = true,
                                       .steps = 20,
                                       .evaluate_every = 5}));
  const RunSet set = load_runs(folders);
  const WorkloadSummary summary = summarise(set, set.workloads[0]);
  EXPECT_EQ(summary.metric.name, "test bits per character");
  EXPECT_EQ(summary.metric.better, analysis::Better::lower);
  // 2.0 ln 2 / ln 2: one product and one quotient, each off by at most half an ulp.
  EXPECT_NEAR(summary.rows[0].final_values.at(0), 2.0, 0x1p-51);
  EXPECT_NEAR(summary.rows[0].final_losses.at(0), 2.0 * std::log(2.0), 0x1p-51);
  EXPECT_EQ(difference_text(summary.metric, *summary.rows[1].against_reference), "+25.00 %");
  EXPECT_THAT(summary_table(folders), HasSubstr("bits per character"));

  ReportOptions options;
  options.chart_js = folder / "chart.js";
  std::ofstream(options.chart_js) << "var Chart;";
  options.gnuplot = "no-such-gnuplot";
  const std::string html = read_file(write_report(folders, folder / "out", options));
  EXPECT_THAT(html, HasSubstr("<h3>Loss and bits per character on the test set</h3>"));
  EXPECT_THAT(html, HasSubstr("data-chart=\"quality\""));
  EXPECT_THAT(html, HasSubstr("<th>test bits per character</th><th>loss</th>"));
  const Json curve = embedded_data(html).at("workloads").at(0).at("configurations").at(1).at("quality");
  EXPECT_EQ(curve.at("step").get<std::vector<double>>(), (std::vector<double>{5, 10, 15, 20}));
  EXPECT_NEAR(curve.at("mean").back().get<double>(), 2.5, 1e-5) << "six digits are drawn";
}

TEST_F(Reports, UnfinishedRunsAreNotedAndNotJudgedAndDivergedOnesAre) {
  SyntheticRun run{.level = "O0", .final_loss = 0.25, .steps = 60};
  std::vector<std::filesystem::path> folders{write_synthetic_run(folder, run)};
  run.seed = 2;
  folders.push_back(write_synthetic_run(folder, run));
  run.level = "O1";
  run.state = "diverged";
  folders.push_back(write_synthetic_run(folder, run));
  run.policy = "dynamic";
  run.state = "running";
  folders.push_back(write_synthetic_run(folder, run));
  std::ofstream(folders.back() / run_file::steps, std::ios::app) << "61,0.1";
  const RunSet set = load_runs(folders);
  const WorkloadSummary summary = summarise(set, set.workloads[0]);
  EXPECT_EQ(summary.rows[1].against_reference->verdict, analysis::Verdict::diverged);
  EXPECT_TRUE(summary.rows[2].final_values.empty());
  EXPECT_FALSE(summary.rows[2].against_reference.has_value());
  EXPECT_THAT(set.notes, ::testing::Contains(HasSubstr("has not finished (or was killed) after 60 steps")));
  EXPECT_THAT(set.notes, ::testing::Contains(HasSubstr("diverged: loss non-finite")));
  EXPECT_THAT(set.notes, ::testing::Contains(HasSubstr("steps.csv: the last line is cut off")));
  EXPECT_THAT(summary_table(folders), AllOf(HasSubstr("no finished run"), HasSubstr("diverged")));
  // The page copes with all of it.
  EXPECT_NO_THROW(write_report(folders, folder / "out", {.gnuplot = "no-such-gnuplot"}));
}

// ---- figures and page ---------------------------------------------------------------------------

TEST_F(Reports, PageHoldsTheRecordedNumbersAndNeedsNoNetwork) {
  const std::vector<std::filesystem::path> folders = small_set();
  std::ostringstream messages;
  const std::filesystem::path chart_js = folder / "chart.js";
  std::ofstream(chart_js) << "var Chart;";
  ReportOptions options;
  options.chart_js = chart_js;
  options.gnuplot = "no-such-gnuplot";
  options.messages = &messages;
  options.title = "Title <with> & \"signs\" @DATA@";
  const std::filesystem::path path = write_report(folders, folder / "out", options);
  EXPECT_EQ(path, folder / "out" / "report.html");
  EXPECT_THAT(messages.str(), AllOf(HasSubstr("no-such-gnuplot is not installed"), HasSubstr("gnuplot-nox")));
  const std::string html = read_file(path);

  EXPECT_THAT(html, HasSubstr("<h1>Title &lt;with&gt; &amp; &quot;signs&quot;"));
  EXPECT_THAT(html, HasSubstr("<script>var Chart;</script>"));
  EXPECT_THAT(html, HasSubstr("behind by more than 3 x spread"));
  for (const char* forbidden :
       {"src=\"http", "href=", "@import", "url(http", "fetch(", "XMLHttpRequest", "<link"})
    EXPECT_THAT(html, Not(HasSubstr(forbidden)));
  for (const char* slot :
       {"@STYLE@", "@SCRIPT@", "@SUMMARY@", "@WORKLOADS@", "@PROVENANCE@", "@EXPLORER@", "@CHART_LIBRARY@"})
    EXPECT_THAT(html, Not(HasSubstr(slot)));
  EXPECT_THAT(html,
              AllOf(HasSubstr(std::string(64, 'a')), HasSubstr("0123456789abcdef0123456789abcdef01234567"),
                    HasSubstr("fp16lab sweep -c demo.toml"),
                    HasSubstr("Overflows, first seed: FP16 dynamic in 2 steps, first in step 3 (fc1.weight, "
                              "fc1.bias, fc2.weight and 1 more).")));

  const Json data = embedded_data(html);
  const Json& configurations = data.at("workloads").at(0).at("configurations");
  ASSERT_EQ(configurations.size(), 3u);
  EXPECT_EQ(configurations[1].at("label"), "FP16 no scaling");
  EXPECT_EQ(configurations[1].at("final_values"), Json({0.3125, 0.3125 + 1.0 / 1024}));
  EXPECT_EQ(configurations[1].at("verdict"), "behind by more than 3 x spread");
  EXPECT_EQ(configurations[2].at("trace").at("skipped"), Json({{3, 4096.0}, {50, 2048.0}}));
  ASSERT_EQ(data.at("runs").size(), 3u);

  // Every embedded histogram is the recorded one.
  const Json& run = data.at("runs").at(1);
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
  EXPECT_EQ(run.at("check").size(), 3u * (analysis::max_log2_scale - analysis::min_log2_scale + 1));

  // Without gnuplot the scripts and data are there all the same, and nothing half drawn.
  for (const char* stem :
       {"loss-", "quality-", "loss-scale-", "underflow-against-scale-", "underflow-over-steps-"})
    for (const char* ending : {".gp", ".dat"})
      EXPECT_TRUE(std::filesystem::exists(folder / "out" / "figures" /
                                          (std::string(stem) + "autoencoder-on-fashion-mnist" + ending)))
          << stem << ending;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "out" / "figures"))
    EXPECT_THAT(entry.path().extension().string(), ::testing::AnyOf(".gp", ".dat"));
}

TEST_F(Reports, EvaluationsAreDrawnWhereTheyMakeACurve) {
  const std::filesystem::path chart_js = folder / "chart.js";
  std::ofstream(chart_js) << "var Chart;";
  ReportOptions options;
  options.chart_js = chart_js;
  options.gnuplot = "no-such-gnuplot";
  for (const std::uint64_t every : {80, 10}) {  // once, at the end; eight times
    std::vector<std::filesystem::path> folders;
    const std::filesystem::path place = folder / std::to_string(every);
    for (const std::string level : {"O0", "O1"})
      folders.push_back(write_synthetic_run(
          place, {.level = level, .final_loss = 0.25, .steps = 80, .evaluate_every = every}));
    const std::string html = read_file(write_report(folders, place / "out", options));
    EXPECT_EQ(html.find("data-chart=\"evaluation\"") != std::string::npos, every == 10);
    EXPECT_EQ(html.find("Loss on the test set") != std::string::npos, every == 10);
    EXPECT_THAT(html, HasSubstr("<td>0.25</td>"));  // the table has the number in any case
    const Json curve = embedded_data(html).at("workloads").at(0).at("configurations").at(1).at("evaluation");
    EXPECT_EQ(curve.at("step"), every == 10 ? Json({10, 20, 30, 40, 50, 60, 70, 80}) : Json({80}));
    EXPECT_EQ(curve.at("mean").back(), 0.25);
  }
}

TEST_F(Reports, WithoutChartJsThePageIsStillComplete) {
  const std::vector<std::filesystem::path> folders = small_set();
  std::ostringstream messages;
  ReportOptions options;
  options.chart_js = folder / "missing.js";
  options.messages = &messages;
  const std::string html = read_file(write_report(folders, folder / "out", options));
  EXPECT_THAT(messages.str(), AllOf(HasSubstr("missing.js"), HasSubstr("FP16LAB_CHARTJS")));
  EXPECT_THAT(html, HasSubstr("Chart.js was not found"));
  EXPECT_THAT(html, Not(HasSubstr("data-chart=")));
  EXPECT_EQ(embedded_data(html).at("runs").size(), 3u);
  if (!std::filesystem::exists(folder / "out/figures/loss-autoencoder-on-fashion-mnist.svg"))
    GTEST_SKIP() << "gnuplot is not installed: still figures were not looked at";
  EXPECT_THAT(html, HasSubstr("src=\"data:image/svg+xml;base64,"));
  for (const auto& entry : std::filesystem::directory_iterator(folder / "out" / "figures")) {
    EXPECT_THAT(entry.path().extension().string(), ::testing::AnyOf(".gp", ".dat", ".svg", ".png"));
    EXPECT_GT(std::filesystem::file_size(entry.path()), 100u) << entry.path();
  }
}

TEST_F(Reports, HostileNamesStayText) {
  SyntheticRun run{.steps = 20};
  run.extra_config = "\n[note]\ntext = \"</script><b>@PROVENANCE@\"\n";
  const std::vector<std::filesystem::path> folders{write_synthetic_run(folder, run)};
  const std::string html = read_file(write_report(folders, folder / "out", {.gnuplot = "no-such-gnuplot"}));
  EXPECT_THAT(html, Not(HasSubstr("</script><b>")));
  EXPECT_THAT(html, HasSubstr("&lt;/script&gt;&lt;b&gt;"));
}

TEST_F(Reports, EnvironmentNamesTheChartLibrary) {
  SyntheticRun run{.steps = 20};
  const std::vector<std::filesystem::path> folders{write_synthetic_run(folder, run)};
  std::ofstream(folder / "mine.js") << "/* my charts */";
  ASSERT_EQ(::setenv("FP16LAB_CHARTJS", (folder / "mine.js").c_str(), 1), 0);
  const std::string html = read_file(write_report(folders, folder / "out", {.gnuplot = "no-such-gnuplot"}));
  ::unsetenv("FP16LAB_CHARTJS");
  EXPECT_THAT(html, HasSubstr("<script>/* my charts */</script>"));
}

TEST_F(Reports, GnuplotProblemsAreOneLine) {
  std::ofstream(folder / "bad.gp") << "this is no gnuplot\n";
  EXPECT_THAT(run_gnuplot("no-such-gnuplot", folder / "bad.gp"),
              HasSubstr("no-such-gnuplot is not installed"));
  EXPECT_THAT(run_gnuplot("false", folder / "bad.gp"),
              AllOf(HasSubstr("gnuplot failed on"), HasSubstr("bad.gp.log")));
  EXPECT_EQ(run_gnuplot("true", folder / "bad.gp"), "");
  EXPECT_EQ(gnuplot_string("a\"b\\c"), "\"a\\\"b\\\\c\"");
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
  EXPECT_EQ(gradients.report.merged().at_scale(1.0).total, total);
}

/// The whole demonstration grid. With FP16LAB_REPORT_OUT=FOLDER the result stays there, figures drawn, to be
/// looked at.
TEST_F(Reports, FullGrid) {
  const char* keep = std::getenv("FP16LAB_REPORT_OUT");
  const std::vector<std::filesystem::path> folders = write_synthetic_grid(folder);
  ReportOptions options;
  if (keep == nullptr) options.gnuplot = "no-such-gnuplot";
  const std::string html = read_file(write_report(folders, keep != nullptr ? keep : folder / "out", options));
  const Json data = embedded_data(html);
  EXPECT_EQ(data.at("workloads").size(), 2u);
  EXPECT_EQ(data.at("runs").size(), 14u);
  EXPECT_LT(html.size(), 4'000'000u);
}

}  // namespace
}  // namespace fp16lab::reports
