// The page in a real browser: sliders are moved, and the rates that the page then shows are compared with
// count_ranges on the recorded histograms. Skipped where there is no Chromium.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/observed_output.hpp"
#include "analysis/range_report.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/histogram/zones.hpp"
#include "reports/data/league.hpp"
#include "reports/data/rate_text.hpp"
#include "reports/embedded.hpp"
#include "reports/page/page_detail.hpp"
#include "reports/page/report.hpp"
#include "tests/reports/page_in_browser.hpp"
#include "tests/reports/synthetic_replays.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::array tensors{"fc1.weight", "fc1.input"};
constexpr std::array<std::uint64_t, 3> steps{1, 20, 40};

/// Many bins have values, every bin another number of them: a bin in the wrong zone changes the sums. Of
/// three histograms one is as an older version wrote it, one holds every bin, and one ends inside the bins
/// that edges cut: its greatest value is a neighbour of 65520 (or itself) over a power of two, its smallest
/// one of 2^-17.
ExponentHistogram full_histogram(std::uint64_t salt) {
  ExponentHistogram histogram;
  int first = ExponentHistogram::min_exponent, last = ExponentHistogram::max_exponent;
  if (salt % 3 == 1) {
    histogram.smallest = 1;
    histogram.greatest = 0x7f000001;
  } else if (salt % 3 == 2) {
    const auto down = static_cast<int>(salt % 5) * 3;
    const float edge = std::ldexp(65520.0f, -down);
    histogram.greatest = bits_of(edge) + static_cast<std::uint32_t>(salt / 3 % 3) - 1;
    histogram.smallest = bits_of(std::ldexp(1.0f, -17 - down)) + static_cast<std::uint32_t>(salt / 3 % 2);
    last = 15 - down;
    first = histogram.smallest == bits_of(std::ldexp(1.0f, -17 - down)) ? -18 - down : -17 - down;
  }
  for (int e = first; e <= last; ++e) {
    const auto bin = static_cast<std::size_t>(e - ExponentHistogram::min_exponent);
    histogram.bins[bin] = 1000 * salt + 7 * bin + 1;
  }
  histogram.zero = 11 * salt;
  histogram.infinite = salt % 3;
  histogram.nan = salt % 2;
  return histogram;
}

/// What some cast stored: another number of zeros than any rule would give.
ExponentHistogram stored_histogram(std::uint64_t salt) {
  ExponentHistogram histogram = full_histogram(salt);
  histogram.zero += 17 * salt + 3;
  return histogram;
}

/// The numbers of the two tensors.
using Formats = std::array<DType, 2>;
/// scales[step][tensor]
using Scales = std::array<std::array<double, 2>, 3>;

std::filesystem::path write_run(const std::filesystem::path& folder, std::string_view policy,
                                const Scales& scales, const Formats& formats) {
  Manifest manifest;
  manifest.config =
      "[model]\nname = \"net\"\n[amp]\nlevel = \"O1\"\n[scaler]\npolicy = \"" + std::string(policy) + "\"\n";
  RunWriter writer(folder / policy, manifest);
  std::size_t observed = 0;
  for (std::uint64_t step = 1; step <= steps.back(); ++step) {
    writer.append(StepRow{.step = step, .loss = 1.0 / static_cast<double>(step), .loss_scale = scales[0][0]});
    if (observed == steps.size() || step != steps[observed]) continue;
    for (std::size_t t = 0; t < tensors.size(); ++t)
      writer.append(HistogramRow{.step = step,
                                 .tensor = tensors[t],
                                 .kind = t == 0 ? "weight" : "activation",
                                 .dtype = formats[t],
                                 .loss_scale = scales[observed][t],
                                 .before = full_histogram(10 * policy.size() + 2 * observed + t + 1),
                                 .after = stored_histogram(10 * policy.size() + 2 * observed + t + 1)});
    ++observed;
  }
  writer.finish(ExitState::finished);
  return writer.folder();
}

/// Runs after the page's scripts: moves the sliders as a user does and writes what the page shows into the
/// document.
constexpr std::string_view probe = R"(
window.dispatchEvent(new Event('beforeprint'));  // figures that are out of sight are drawn now
window.dispatchEvent(new Event('afterprint'));
document.getElementById('heat')?.scrollIntoView();
await new Promise(done => setTimeout(done, 300));  // figures in sight follow the sliders at once
const get = id => document.getElementById(id);
const set = (id, value, type) => {
  get(id).value = value;
  get(id).dispatchEvent(new Event(type, {bubbles: true}));
};
const shown = () => [...document.querySelectorAll('#rates tr[data-zone]')].map(
  row => [row.dataset.zone, Number(row.dataset.lower), Number(row.dataset.upper), row.cells[1].textContent]);
const runs = JSON.parse(get('data').textContent).runs, moves = [], heat = [];
runs.forEach((run, r) => {
  set('run', r, 'change');
  for (const tensor of [-1, 0, 1]) {
    set('tensor', tensor, 'change');
    run.steps.forEach((step, s) => {
      set('step', s, 'input');
      get('recorded').click();
      moves.push([run.name, tensor, step, null, shown()]);
      for (const k of [-10, 0, 11, 24]) {
        set('scale', k, 'input');
        moves.push([run.name, tensor, step, k, shown()]);
      }
    });
  }
  for (const [id, k] of [['heat-own', 24], ['heat-slider', 5]]) {
    set('scale', k, 'input');
    get(id).click();
    heat.push([run.name, id === 'heat-own' ? null : k, [...document.querySelectorAll('#heat rect.cell title')].map(title => title.textContent)]);
  }
});
set('run', 0, 'change');
set('tensor', -1, 'change');
set('step', 1, 'input');
set('scale', 3, 'input');
const league = document.querySelector('#replays table.sortable'), order = () => [...league.tBodies[0].rows].map(row => row.cells[0].querySelector('span').textContent);
const sorted = [order()];
league.tHead.rows[0].cells[1].querySelector('button').click();
sorted.push(order());
league.tHead.rows[0].cells[1].querySelector('button').click();
sorted.push(order());
const result = {moves, heat, sorted, problems: window.problems, names: runs.map(run => run.name), title: document.title,
  foreign: document.querySelectorAll('.foreign').length, scripts: document.scripts.length,
  sections: [...document.querySelectorAll('section')].map(section => section.id),
  selfCheck: get('self-check').textContent,
  sliders: ['step', 'scale'].map(id => [get(id).type, get(id).labels.length, get(id).getAttribute('aria-valuetext'), get(id).tabIndex]),
  strips: document.querySelectorAll('svg.strip').length,
  fetched: performance.getEntriesByType('resource').map(entry => entry.name).filter(name => !name.startsWith('data:'))};
return result;
)";

TEST_F(PageInBrowser, SlidersShowWhatCountRangesCounts) {
  // Powers of two that change; scales that are none; one scale a tensor, some of them beyond the slider's
  // usual ends (2^-90 moves the bin of FP32's subnormals into sight, and 65512 / 65536 an end of a bin
  // between 65504 and 65520).
  const std::map<std::string, Scales> scales_of{
      {"torch", {{{65536, 65536}, {32768, 32768}, {0x1p-12, 0x1p-12}}}},
      {"paddle-static", {{{1000, 1000}, {819.2, 819.2}, {1.0 / 3, 65536.0 / 65512}}}},
      {"ada-loss", {{{1, 1024}, {0x1p-90, 8}, {0x1p26, 3}}}},
      {"mxnet", {{{8, 8}, {1, 1}, {1.0 / 3, 1.0 / 3}}}},
  };
  const std::map<std::string, Formats> formats_of{{"torch", {DType::f16, DType::f16}},
                                                  {"paddle-static", {DType::bf16, DType::e5m2}},
                                                  {"ada-loss", {DType::e4m3, DType::bf16}},
                                                  {"mxnet", {DType::e5m2, DType::f32}}};
  std::vector<std::filesystem::path> folders;
  for (const auto& [policy, scales] : scales_of)
    folders.push_back(write_run(folder / "runs", policy, scales, formats_of.at(policy)));
  const ReplayFile replay = synthetic_replay("net", 300);
  write_replay(folder / "replay", replay);
  folders.push_back(folder / "replay");
  const Json seen = probed(
      write_report(folders, folder / "out", {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"}),
      probe);
  ASSERT_FALSE(seen.is_null());

  EXPECT_EQ(seen.at("problems"), Json::array());
  EXPECT_EQ(seen.at("fetched"), Json::array()) << "the page must not need a network";
  EXPECT_THAT(seen.at("selfCheck").get<std::string>(), ::testing::HasSubstr("Self-check passed"));
  // Native sliders with a label take arrow keys, Home and End, and announce their value.
  EXPECT_EQ(seen.at("sliders"),
            Json({{"range", 1, "step 20", 0}, {"range", 1, "2³ (recorded with one scale a tensor)", 0}}));

  // Every move of a slider against the library.
  ASSERT_EQ(seen.at("moves").size(), 4u * 3u * 3u * 5u);
  std::set<std::uint64_t> different;
  for (const Json& move : seen.at("moves")) {
    const std::string policy = move.at(0);
    const int tensor = move.at(1);
    const std::size_t observed =
        static_cast<std::size_t>(std::find(steps.begin(), steps.end(), move.at(2)) - steps.begin());
    RangeCounts expected;
    std::uint64_t finite = 0;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (tensor >= 0 && static_cast<std::size_t>(tensor) != t) continue;
      const DType format = formats_of.at(policy)[t];
      if (tensor < 0 && format == DType::f32) continue;  // all that are rounded
      const ExponentHistogram histogram = full_histogram(10 * policy.size() + 2 * observed + t + 1);
      const double recorded = scales_of.at(policy).at(observed).at(t);
      const double ratio = move.at(3).is_null() ? 1.0 : std::exp2(move.at(3).get<int>()) / recorded;
      expected += count_ranges(histogram, range_of(format), ratio);
      finite += histogram.finite_nonzero();
    }
    std::map<std::string, Json> zones;
    for (const Json& row : move.at(4)) zones[row.at(0)] = row;
    const auto check = [&](const std::string& zone, const CountInterval& counts) {
      EXPECT_EQ(zones.at(zone).at(1), counts.lower) << zone << " of " << move.dump().substr(0, 60);
      EXPECT_EQ(zones.at(zone).at(2), counts.upper) << zone << " of " << move.dump().substr(0, 60);
      const auto of = static_cast<double>(finite);
      EXPECT_EQ(zones.at(zone).at(3),
                rate_text(analysis::RateInterval{static_cast<double>(counts.lower) / of,
                                                 static_cast<double>(counts.upper) / of}));
    };
    check("lost", expected.lost);
    check("subnormal", expected.subnormal);
    check("normal", expected.normal);
    check("overflow", expected.overflow);
    EXPECT_EQ(zones.at("zero").at(1), expected.zero);
    EXPECT_EQ(zones.at("finite").at(1), finite);
    // The page shows what the cast did at the recorded scale, and nowhere else.
    const bool cast = move.at(3).is_null() && (tensor != 1 || policy != "mxnet");
    EXPECT_EQ(zones.count("made-zero"), cast ? 1u : 0u) << move.dump().substr(0, 60);
    if (cast && tensor >= 0) {
      EXPECT_EQ(zones.at("made-zero").at(1),
                17 * (10 * policy.size() + 2 * observed + static_cast<std::size_t>(tensor) + 1) + 3);
    }
    different.insert(expected.lost.upper);
  }
  EXPECT_GT(different.size(), 60u) << "the sliders must make a difference";

  // The heat map, at the recorded scales and at the slider's.
  ASSERT_EQ(seen.at("heat").size(), 8u);
  for (const Json& map : seen.at("heat")) {
    const std::string policy = map.at(0);
    ASSERT_EQ(map.at(2).size(), tensors.size() * steps.size());
    for (std::size_t t = 0; t < tensors.size(); ++t)
      for (std::size_t s = 0; s < steps.size(); ++s) {
        const std::size_t salt = 10 * policy.size() + 2 * s + t + 1;
        const DType format = formats_of.at(policy)[t];
        const bool recorded = map.at(1).is_null();
        const double rate =
            recorded ? cast_counts(full_histogram(salt), stored_histogram(salt)).underflow_rate()
                     : underflow_rate(full_histogram(salt), range_of(format),
                                      std::exp2(map.at(1).get<int>()) / scales_of.at(policy).at(s).at(t));
        EXPECT_EQ(map.at(2).at(t * steps.size() + s),
                  std::string(tensors[t]) + ", step " + std::to_string(steps[s]) + ": " +
                      (recorded && format == DType::f32 ? std::string("nothing was rounded")
                                                        : rate_text(rate) + " round to zero"));
      }
  }

  // The league: as it comes, by skips, and by skips downwards.
  std::vector<std::string> names, by_skips;
  std::vector<std::size_t> order = league_order(replay);
  for (const std::size_t i : order) names.push_back(replay.policies[i].label);
  EXPECT_EQ(seen.at("sorted").at(0), Json(names));
  const auto skips = [&](std::size_t i) { return replay.policies[i].skips.upper; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return skips(a) < skips(b); });
  for (const std::size_t i : order) by_skips.push_back(replay.policies[i].label);
  EXPECT_EQ(seen.at("sorted").at(1), Json(by_skips));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return skips(a) > skips(b); });
  by_skips.clear();
  for (const std::size_t i : order) by_skips.push_back(replay.policies[i].label);
  EXPECT_EQ(seen.at("sorted").at(2), Json(by_skips));
  EXPECT_EQ(seen.at("strips"), names.size()) << "a strip for every policy: no two did the same";
}

/// [first, last, certainly in first, certainly in last] of a bin of a histogram with these extremes, as
/// numbers.
Json zones_json(std::uint32_t smallest, std::uint32_t greatest, int bin, const ZoneEdges<Binary32>& edges) {
  ExponentHistogram histogram;
  histogram.smallest = smallest;
  histogram.greatest = greatest;
  const BinZones zones = zones_of_bin(histogram, bin, edges);
  return {static_cast<int>(zones.first), static_cast<int>(zones.last), zones.at_first, zones.at_last};
}

/// The page has a rule of its own in zones.js. Every bin of every format, with its extremes unknown and
/// known, at scales that move edges to ends of bins and at others; and the FP32 numbers on both sides of
/// every edge.
TEST_F(PageInBrowser, ZonesOfEveryBinAreTheLibrarys) {
  // No powers of two, and such that FP32 has no numbers between them and one.
  std::vector<double> scales{1.0 / 3, 819.2, 1000, 65536.0 / 65512, 65520.0 / 65536, 0x1.8p-90, 0x1p100 / 3};
  for (const double beside_one : {1 - 0x1p-53, 1 - 0x1p-24, 1 + 0x1p-52, 1 + 0x1p-24})
    scales.push_back(beside_one);
  for (const int k : {-140, -90, -41, -25, -14, -1, 0, 1, 11, 16, 24, 60, 110, 140})
    scales.push_back(std::ldexp(1.0, k));
  Json cases = Json::array(), expected = Json::array();
  for (const DType format : dtypes<has_range>)
    for (const Observed observed : {Observed::gradients, Observed::updates})
      for (const double scale : scales) {
        const FormatRange range = analysis::judged_range(observed, format);
        const ZoneEdges<Binary32> edges(range, scale);
        const Json known{{"tie", range.tie_to_zero},  // as format_json of figure_json.hpp has it
                         {"normal", range.smallest_normal},
                         {"overflow", range.overflow_threshold()},
                         {"reached", range.threshold_overflows}};
        Json beside = Json::array(), answers = Json::array();
        for (const auto& [smallest, greatest] : {std::pair(0u, 0u), {1u, Binary32::max_finite}})
          for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin)
            answers.push_back(zones_json(smallest, greatest, bin, edges));
        for (const std::uint32_t last : edges.last())
          for (const std::uint32_t bits : {last, last + 1}) {
            if (bits == 0 || bits > Binary32::max_finite) continue;
            const int bin = ExponentHistogram::bin_of(bits);
            beside.push_back({bits, bin + ExponentHistogram::min_exponent});
            answers.push_back(zones_json(bits, bits, bin, edges));
          }
        cases.push_back({known, scale, beside});
        expected.push_back(answers);
      }
  // The page's script has a scope of its own: its rule once more, outside of it.
  std::string_view rule = embedded::report_js.substr(embedded::report_js.find("// Powers of two by halving"));
  rule = rule.substr(0, rule.find("// Counts of the zones as"));
  const std::filesystem::path page = write_report(
      small_set(), folder / "out", {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"});
  const Json seen = probed(page, "const cases = " + cases.dump() + R"(;
const bins = Array.from({length: 278}, (_, bin) => bin - 150), greatest = floatOfBits(0x7f7fffff);
const zones = (e, least, most, ratio, range) => zonesOfBin([0, 0, 0, 0, [], least, most], e, ratio, range);
return cases.map(([range, ratio, beside]) => [
  ...bins.map(e => zones(e, 0, 0, ratio, range)), ...bins.map(e => zones(e, floatOfBits(1), greatest, ratio, range)),
  ...beside.map(([bits, e]) => zones(e, floatOfBits(bits), floatOfBits(bits), ratio, range))]);
)",
                           "1400,1000", {}, std::string(rule));
  ASSERT_EQ(seen.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(seen[i].size(), expected[i].size());
    for (std::size_t k = 0; k < expected[i].size(); ++k)
      ASSERT_EQ(seen[i][k], expected[i][k]) << "question " << k << " of " << cases[i].dump();
  }
}

/// Everything that folders, manifests, histograms and replays may hold, as an attack: a comment that swallows
/// a script's end tag, tags, ends of scripts and of attributes. What the page has of it must be text.
TEST_F(PageInBrowser, WhatFoldersHoldIsTextAndNeverMarkup) {
  const std::string attack = "<!--<script></script><b class=foreign>'\"&amp;";
  const std::string name = "<!--<script>x";  // the folder's
  const auto write = [&](const std::filesystem::path& place, const std::string& text) {
    Manifest manifest;
    std::string quoted;
    for (const char c : text) quoted += (c == '"' ? "\\" : "") + std::string(1, c);
    manifest.config = "[model]\nname = \"" + quoted + "\"\n[amp]\nlevel = \"O1\"\n[scaler]\npolicy = \"" +
                      quoted + "\"\n[data]\nname = \"" + quoted + "\"\n";
    manifest.argv = {"fp16lab", "train", text};
    manifest.git_hash = manifest.cpu = manifest.compiler = manifest.flags = manifest.gemm_target = text;
    manifest.gpu = manifest.driver = text;
    manifest.backend =
        BackendRecord{.device = text, .tensor_core = text, .note = text, .runtime = text, .gemm = text};
    manifest.data = {{text, text}};
    RunWriter writer(place, manifest);
    for (const std::uint64_t step : steps) {
      for (const char* tensor : tensors)
        writer.append(
            HistogramRow{.step = step, .tensor = tensor + text, .kind = text, .before = full_histogram(3)});
      writer.append(OverflowRow{.step = step, .optimizers = {text}, .parameters = {text}});
    }
    for (std::uint64_t step = 1; step <= steps.back(); ++step)
      writer.append(StepRow{.step = step, .loss = 1, .found_inf = step == 2});
    for (const std::uint64_t step : {1, 40})
      writer.append(EvaluationRow{
          .step = step, .split = text.substr(0, text.find('\'')), .loss = 0.5, .bits_per_character = 1});
    writer.finish(ExitState::finished, text);
    return place;
  };
  ReplayFile replay = synthetic_replay(attack, 300);
  replay.run = attack;
  replay.notes = {attack};
  for (ReplayedPolicy& policy : replay.policies) policy.source = policy.note = attack;
  replay.policies.front().label += attack;
  write_replay(folder / "replay", replay);

  const auto seen_with = [&](const std::string& run, const std::string& text, const std::string& out) {
    return probed(
        write_report(std::vector{write(folder / "runs" / out / run, text), folder / "replay"}, folder / out,
                     {.title = text, .drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"}),
        probe);
  };
  const Json harmless = seen_with("plain", "plain", "one"), seen = seen_with(name, attack, "two");
  ASSERT_FALSE(harmless.is_null());
  ASSERT_FALSE(seen.is_null());
  EXPECT_EQ(seen.at("problems"), Json::array());
  EXPECT_EQ(seen.at("foreign"), 0);
  EXPECT_THAT(seen.at("selfCheck").get<std::string>(), ::testing::HasSubstr("Self-check passed"));
  for (const char* part : {"scripts", "sections", "sliders", "strips", "fetched"})
    EXPECT_EQ(seen.at(part), harmless.at(part)) << part;
  EXPECT_EQ(seen.at("moves").size(), harmless.at("moves").size());
  EXPECT_EQ(seen.at("names"), Json({name})) << "every byte of it";
  EXPECT_EQ(seen.at("title"), attack);
  const std::string data = read_file(folder / "two" / "report.html");
  const std::size_t begin = data.find("id=\"data\">") + 10;
  EXPECT_EQ(data.substr(begin, data.find("</script>", begin) - begin).find('<'), std::string::npos);
}

/// Every text of every picture is within it: names as long as users make them, many configurations, many
/// tensors.
TEST_F(PageInBrowser, NoFigureCutsItsWordsOff) {
  std::vector<std::filesystem::path> folders;
  const std::vector<std::string> names{"fp32", "none", "a-variant-whose-name-is-as-long-as-people-make-them",
                                       "b",    "c",    "d",
                                       "e",    "f",    "g",
                                       "h",    "i",    "j",
                                       "k",    "l",    "m",
                                       "n"};
  for (std::size_t i = 0; i < names.size(); ++i)
    for (const std::uint64_t seed : {1, 2}) {
      Manifest manifest;
      manifest.name = names[i];
      manifest.config = fmt::format(
          "[model]\nname = \"a_network_with_quite_a_long_name_of_its_own\"\n[data]\nname = "
          "\"fashion-mnist\"\n[train]\nseed = {}\n[amp]\nlevel = \"{}\"\ndialect = "
          "\"mindspore\"\n[scaler]\npolicy = \"{}\"\ninitial_scale = {}.0\n",
          seed, i == 0 ? "O0" : "O2", i < 2 ? "none" : "fixed", 1 << i);
      RunWriter writer(folder / "runs" / fmt::format("{}-{}", i, seed), manifest);
      for (std::uint64_t step = 1; step <= 20; ++step) {
        writer.append(StepRow{.step = step,
                              .loss = (1.0 + 0.1 * static_cast<double>(seed)) / static_cast<double>(step),
                              .loss_scale = static_cast<double>(1 << i)});
        if (step % 5 != 0) continue;
        for (int layer = 0; layer < 15; ++layer) {
          HistogramRow row{
              .step = step,
              .tensor = fmt::format("encoder.layers.{}.self_attention.query_projection.weight", layer),
              .kind = layer % 2 == 0 ? "weight" : "activation",
              .dtype = i == 0 ? DType::f32 : DType::f16,
              .loss_scale = static_cast<double>(1 << i)};
          for (int e = -40; e < 10; e += 1 + layer % 3) row.before.count(bits_of(std::ldexp(1.0f, e)));
          row.before.zero = 5;
          row.after = row.before;
          writer.append(row);
        }
      }
      writer.append(EvaluationRow{.step = 20, .split = "test", .loss = 0.5 + 0.01 * static_cast<double>(i)});
      writer.finish(ExitState::finished);
      folders.push_back(writer.folder());
    }
  write_replay(folder / "replay",
               synthetic_replay("a_run_with_a_name_that_fills_more_than_a_line-of-any-title-it-gets", 300));
  folders.push_back(folder / "replay");
  std::ostringstream messages;
  for (const char* width : {"", "3.3in"})
    write_report(folders, folder / ("out" + std::string(width)),
                 {.drawing = {.rsvg = "true", .width = width}, .messages = &messages});
  ASSERT_EQ(messages.str(), "");

  std::string html = "<!DOCTYPE html><meta charset=\"utf-8\"><body>";
  std::size_t pictures = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".svg") continue;
    const std::string svg = read_file(entry.path());
    html += fmt::format("<div data-name=\"{}\">{}</div>\n", entry.path().stem().string(),
                        svg.substr(svg.find("<svg")));
    ++pictures;
  }
  EXPECT_GE(pictures, 40u);
  html += R"(<pre id="probe"></pre><script>
const cut = [];
let texts = 0;
for (const place of document.querySelectorAll('div')) {
  const picture = place.querySelector('svg'), box = picture.getBoundingClientRect();
  for (const text of picture.querySelectorAll('text')) {
    const own = text.getBoundingClientRect();
    if (own.width === 0) continue;
    ++texts;
    if (own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1)
      cut.push(place.dataset.name + ': ' + text.textContent.trim());
  }
}
document.getElementById('probe').textContent = JSON.stringify({cut, texts}).replace(/[<>&]/g, '?');
</script></body>)";
  const std::filesystem::path page = folder / "pictures.html";
  std::ofstream(page) << html;
  const testing_support::Finished finished = browser->document_of(page);
  const std::string begin = "<pre id=\"probe\">";
  const std::size_t from = finished.out.rfind(begin);
  ASSERT_NE(from, std::string::npos) << finished.err.substr(0, 2000);
  const Json seen = Json::parse(
      finished.out.substr(from + begin.size(), finished.out.find("</pre>", from) - from - begin.size()));
  EXPECT_EQ(seen.at("cut"), Json::array());
  EXPECT_GT(seen.at("texts").get<int>(), 300);
}

TEST_F(PageInBrowser, PrintsToPages) {
  std::vector<std::filesystem::path> folders = small_set();
  write_replay(folder / "replay", synthetic_replay("net", 300));
  folders.push_back(folder / "replay");
  const std::filesystem::path page =
      write_report(folders, folder / "out", {.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"});
  const std::filesystem::path pdf = folder / "page.pdf";
  const testing_support::Finished finished = browser->print(page, pdf);
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const std::string printed = read_file(pdf);
  EXPECT_TRUE(printed.starts_with("%PDF-"));
  std::size_t pages = 0;
  for (std::size_t at = printed.find("/Type /Page"); at != std::string::npos;
       at = printed.find("/Type /Page", at + 1))
    pages += printed.compare(at, 12, "/Type /Pages") == 0 ? 0 : 1;
  EXPECT_GE(pages, 4u);
  EXPECT_LE(pages, 14u) << "no page for every line";
}

}  // namespace
}  // namespace fp16lab::reports
