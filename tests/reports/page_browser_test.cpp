// What a visitor meets: the first screen, explanations, tables and figures that can be taken along, the
// address, small windows, and whether everybody can read it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/formats/bits.hpp"
#include "reports/page/report.hpp"
#include "tests/reports/page_in_browser.hpp"
#include "tests/reports/synthetic_replays.hpp"

namespace fp16lab::reports {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const ReportOptions undrawn{.drawing = {.node = "no-such-node"}, .graphviz = "no-such-dot"};

/// For every workload: the places of its verdict, pictures and answers, and the text of the answers.
constexpr std::string_view first_screens = R"(
const screens = [];
for (const button of document.querySelectorAll('[data-choose]')) {
  button.click();
  const i = Number(button.dataset.choose), screen = document.getElementById('workload-' + i), parts = {}, texts = {};
  for (const [name, part] of Object.entries({verdict: '.verdict', bars: '.bars', wrong: '#wrong-' + i, costs: '#costs-' + i,
      fixes: '#fixes-' + i, histogram: '.zones svg', slider: '.zones input[type=range]', curves: '.training svg'})) {
    const node = screen.querySelector(part), box = node?.getBoundingClientRect();
    parts[name] = box ? [box.left, box.top, box.right, box.bottom, box.width * box.height].map(Math.round) : null;
    texts[name] = node?.textContent;
  }
  screens.push({parts, texts, caption: screen.querySelector('.zones figcaption').textContent, scrolled: scrollY, wide: innerWidth});
}
return {screens, problems, subtitle: document.querySelector('.subtitle').textContent};
)";

TEST_F(PageInBrowser, ThreeQuestionsAreAnsweredOnTheFirstScreen) {
  const std::vector<std::filesystem::path> runs = write_synthetic_grid(folder / "runs");
  const std::filesystem::path page = write_report(runs, folder / "out", undrawn);
  const Json seen = probed(page, first_screens, "1400,900");
  ASSERT_FALSE(seen.is_null());
  EXPECT_EQ(seen.at("problems"), Json::array());
  ASSERT_EQ(seen.at("screens").size(), 2u);
  for (const Json& screen : seen.at("screens")) {
    EXPECT_EQ(screen.at("scrolled"), 0);
    ASSERT_EQ(screen.at("wide"), 1400);
    for (const auto& [name, box] : screen.at("parts").items()) {
      ASSERT_TRUE(box.is_array()) << name;
      EXPECT_GE(box.at(0), 0) << name;
      EXPECT_GE(box.at(1), 0) << name;
      EXPECT_LE(box.at(2), 1400) << name;
      EXPECT_LE(box.at(3), 900) << name << " is below the first screen";
      EXPECT_GT(box.at(4), 400) << name << " is not to be seen";
    }
  }
  // By the grid: without scaling the autoencoder ends 0.0681 / 0.0583 = 16.8 % higher, the classifier
  // does not.
  const RunSet set = load_runs(runs);
  const std::vector<WorkloadSummary> summaries = summarise(set);
  const Json &harmed = seen.at("screens").at(0).at("texts"), &whole = seen.at("screens").at(1).at("texts");
  const SummaryRow& row = summaries.at(0).rows.at(2);
  ASSERT_EQ(row.label, "FP16 no scaling");
  EXPECT_EQ(harmed.at("verdict"), "worse");
  EXPECT_THAT(harmed.at("wrong").get<std::string>(),
              AllOf(HasSubstr("In FP16 no scaling the casts make " + underflow_text(row) +
                              " of all non-zero gradients zero (3 seeds)"),
                    ::testing::ContainsRegex("% of its own .seed 1, [0-9]+ recorded steps")));
  EXPECT_THAT(harmed.at("costs").get<std::string>(),
              AllOf(HasSubstr("The test loss ends worse than FP32’s: +16.81 % (worse) [+"),
                    HasSubstr("against its twin it is worse too")));
  EXPECT_THAT(harmed.at("fixes").get<std::string>(),
              AllOf(HasSubstr("FP16 torch"), HasSubstr(" of values lost, "),
                    HasSubstr(" fix it. By FP32’s histograms (seed 1, "),
                    HasSubstr(" times what the precision of FP16 costs by itself at any scale from 2")));
  EXPECT_EQ(whole.at("verdict"), "equal");
  // 85.2 % against 85.3 %.
  EXPECT_THAT(whole.at("costs").get<std::string>(), HasSubstr("-0.10 points (worse); FP32’s own noise is ["));
  EXPECT_THAT(
      harmed.at("bars").get<std::string>(),
      AllOf(HasSubstr("+16.81 % (worse)"), HasSubstr("difference (%)"), HasSubstr("dashed: margin ±1 %")));
  EXPECT_THAT(seen.at("subtitle").get<std::string>(), HasSubstr("on an emulated Hopper tensor core (CPU)"));
  EXPECT_THAT(whole.at("costs").get<std::string>(), HasSubstr("is equal to FP32’s within 0.5 points"));
  EXPECT_THAT(seen.at("screens").at(0).at("caption").get<std::string>(),
              HasSubstr("of its own non-zero values"));
}

constexpr std::string_view manners = R"(
const saved = [], get = id => document.getElementById(id), soon = () => new Promise(done => setTimeout(done, 50));
URL.createObjectURL = blob => { saved.push(blob); return '#'; };
HTMLAnchorElement.prototype.click = () => {};
window.dispatchEvent(new Event('beforeprint'));
window.dispatchEvent(new Event('afterprint'));
// Explanations.
const heads = [...document.querySelectorAll('table.sortable th button')], tip = get('tip'), unexplained = [];
for (const head of [...heads, ...document.querySelectorAll('.tip')].filter(node => node.checkVisibility())) {
  head.focus();
  if (tip.hidden || tip.textContent.length < 4 || tip.textContent !== head.dataset.tip || head.getAttribute('aria-describedby') !== 'tip') unexplained.push(head.textContent);
}
document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}));
const away = tip.hidden;
heads[0].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
const hovered = tip.hidden ? '' : tip.textContent;
// Captions are sentences.
const captions = [...document.querySelectorAll('figcaption')].filter(c => c.checkVisibility()).map(c => c.textContent);
// A table is filtered and saved.
const table = document.querySelector('table.sortable'), tools = table.parentNode.previousElementSibling, filter = tools.querySelector('input');
filter.value = 'lost mass';
filter.dispatchEvent(new Event('input'));
const kept = [...table.tBodies[0].rows].filter(row => !row.hidden).map(row => row.cells[0].textContent), counted = tools.querySelector('output').textContent;
tools.querySelector('button').click();
filter.value = '';
filter.dispatchEvent(new Event('input'));
// Every figure is saved as a picture that needs no style sheet.
const buttons = [...document.querySelectorAll('figure button.save, .foot button.save')].filter(b => b.checkVisibility());
buttons.forEach(button => button.click());
const [csv, ...pictures] = await Promise.all(saved.map(blob => blob.text()));
const unfit = pictures.filter(text => {
  const root = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement;
  return root.nodeName !== 'svg' || text.includes('var(--') || root.querySelectorAll('text').length < 2;
}).length;
// The address keeps what is chosen.
const choose = (id, value, type) => { get(id).value = value; get(id).dispatchEvent(new Event(type, {bubbles: true})); };
choose('run', get('run').options[1].value, 'change');
choose('seed', get('seed').options[1].value, 'change');
choose('tensor', 1, 'change');
choose('scale', 5, 'input');
const told = Object.fromEntries(new URLSearchParams(location.hash.slice(1))), hash = location.hash;
choose('run', get('run').options[0].value, 'change');
choose('scale', 0, 'input');
location.hash = hash;
await soon();
const back = [get('run').selectedOptions[0].textContent, get('seed').selectedOptions[0].textContent, get('tensor').selectedIndex, get('scale').value, get('scale-value-0').textContent];
location.hash = '#tables';
await soon();
const after = get('scale').value, beside = [...document.querySelectorAll('#beside figcaption')].map(c => c.textContent.split(' ')[0]);
// Arrow keys read a chart.
const chart = document.querySelector('.training svg.chart');
chart.focus();
chart.dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}));
return {problems, unexplained, away, hovered, captions, kept, counted, csv, pictures: pictures.length, buttons: buttons.length, unfit, told, back, after,
  beside, read: get('tip').textContent, explained: heads.length, boxes: document.querySelectorAll('#step-figure .box').length, step: document.querySelector('#step-figure svg').getAttribute('aria-label'),
  formats: document.querySelector('#format-figure figcaption').textContent};
)";

TEST_F(PageInBrowser, ExplainsFiltersSavesAndRemembers) {
  std::vector<std::filesystem::path> folders = small_set();
  write_replay(folder / "replay", synthetic_replay("net", 300));
  folders.push_back(folder / "replay");
  const Json seen = probed(write_report(folders, folder / "out", undrawn), manners);
  ASSERT_FALSE(seen.is_null());
  EXPECT_EQ(seen.at("problems"), Json::array());
  EXPECT_GT(seen.at("explained"), 15);
  EXPECT_EQ(seen.at("unexplained"), Json::array());
  EXPECT_EQ(seen.at("away"), true);
  EXPECT_THAT(seen.at("hovered").get<std::string>(), HasSubstr("Click to sort."));
  EXPECT_GT(seen.at("captions").size(), 8u);
  for (const std::string caption : seen.at("captions"))
    EXPECT_THAT(caption, ::testing::MatchesRegex("[^a-z].*[.]|[a-z][a-z0-9.]* .*[.]")) << "is no sentence";

  EXPECT_EQ(seen.at("kept"), Json({"lost-mass ◆"}));
  EXPECT_EQ(seen.at("counted"), "1 of 24");
  const std::string csv = seen.at("csv");
  EXPECT_TRUE(
      csv.starts_with("policy,skips,wasted,unused,lost values,lost L1,lost L2,1 − cosine,last scale\r\n"
                      "lost-mass"))
      << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 2) << "what the filter left";
  EXPECT_EQ(seen.at("pictures"), seen.at("buttons"));
  EXPECT_GT(seen.at("pictures"), 9);
  EXPECT_EQ(seen.at("unfit"), 0);
  EXPECT_EQ(seen.at("told"), Json({{"workload", "autoencoder on fashion-mnist"},
                                   {"run", "FP16 no scaling"},
                                   {"seed", "2"},
                                   {"kind", "gradients"},
                                   {"tensor", "fc1.bias"},
                                   {"step", "100"},
                                   {"scale", "5"}}));
  EXPECT_EQ(seen.at("back"), Json({"FP16 no scaling", "2", 2, "5", "2⁵ (recorded with 2⁰)"}));
  EXPECT_EQ(seen.at("after"), "5") << "a link to a section changes nothing";
  EXPECT_EQ(seen.at("beside"), Json({"FP16", "BF16", "E5M2", "E4M3"}));
  EXPECT_THAT(seen.at("read").get<std::string>(), AllOf(HasSubstr("step "), HasSubstr("\nFP16 torch: ")));
  EXPECT_EQ(seen.at("boxes"), 8);
  EXPECT_THAT(seen.at("step").get<std::string>(),
              AllOf(HasSubstr("Cast: to FP16, once a step"), HasSubstr("to zero"), HasSubstr("Decide:")));
  EXPECT_THAT(seen.at("formats").get<std::string>(), HasSubstr("FP16 becomes zero at 2⁻²⁵"));
}

/// Names, zones and axes as they are drawn: every gradient lies in (2^-15, 2^-14], where FP16 has one normal
/// number.
TEST_F(PageInBrowser, DrawsWhatItSays) {
  std::vector<std::filesystem::path> folders;
  for (const std::string name : {"fp32", "none", "mine"}) {
    Manifest manifest;
    manifest.name = name;
    manifest.config = "[model]\nname = \"net\"\n[amp]\nlevel = \"" +
                      std::string(name == "fp32" ? "O0" : "O1") + "\"\n[scaler]\npolicy = \"" +
                      (name == "mine" ? "torch" : "none") + "\"\n";
    manifest.backend = BackendRecord{.device = "emulated", .tensor_core = "hopper"};
    RunWriter writer(folder / "runs" / name, manifest);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      writer.append(StepRow{.step = step, .loss = 1, .loss_scale = 1, .seconds = 0.5});
      HistogramRow row{.step = step,
                       .tensor = "fc1.weight",
                       .kind = "weight",
                       .dtype = name == "fp32" ? DType::f32 : DType::f16,
                       .loss_scale = 1};
      for (int i = 0; i < 8; ++i) row.before.count(bits_of(i == 0 ? 0x1p-14f : 0x1.8p-15f));
      row.after = row.before;
      writer.append(row);
      if (name == "mine")
        for (const std::string layer : {"fc1", "fc2"})
          writer.append(RecipeRow{.step = step,
                                  .tensor = layer + ".output",
                                  .product = "dw",
                                  .values = 100,
                                  .made_zero = layer == "fc1" ? 10u * step : 0u,
                                  .saturated = 1,
                                  .blocks = 4,
                                  .least_headroom = 0,
                                  .mean_headroom = layer == "fc1" ? 1 : 2});
    }
    writer.finish(ExitState::finished);
    folders.push_back(writer.folder());
  }
  const Json seen = probed(write_report(folders, folder / "out", undrawn), R"(
window.dispatchEvent(new Event('beforeprint'));
window.dispatchEvent(new Event('afterprint'));
const bars = [...document.querySelectorAll('#histogram g')].map(bar => [bar.querySelector('title').textContent, [...bar.querySelectorAll('rect')].map(part => part.getAttribute('fill'))]);
const texts = place => [...document.querySelectorAll(place + ' text')].map(text => text.firstChild.textContent);
return {problems, bars, zones: document.querySelector('#histogram title').textContent, caption: document.querySelector('.zones figcaption').textContent,
  names: [...document.querySelectorAll('#run option')].map(option => option.textContent), called: document.querySelector('.answers em').dataset.tip, chip: document.querySelector('.answers em').textContent,
  table: [...document.querySelectorAll('table.sortable')].map(table => table.textContent).join(' '), words: document.getElementById('words').textContent,
  heat: texts('#heat'), whatIf: texts('#what-if-place'), frames: document.querySelectorAll('#heat rect[fill=none][pointer-events]').length,
  bars2: texts('[data-costs]'), blocks: texts('[data-blocks]'), recipes: JSON.parse(document.getElementById('data').textContent).workloads[0].configurations.map(c => c.blocks ?? null), step: document.querySelector('#step-figure svg').getAttribute('aria-label'), titles: [...document.querySelectorAll('#beside h4')].map(title => title.textContent),
  overflow: document.querySelector('#beside > :last-child figcaption').textContent, heads: [...document.querySelectorAll('h2')].map(head => head.textContent)};
)");
  ASSERT_FALSE(seen.is_null());
  EXPECT_EQ(seen.at("problems"), Json::array());
  EXPECT_EQ(seen.at("bars").dump(),
            "[[\"(2⁻¹⁵, 2⁻¹⁴]: 8 values, 100 %; of these only 2⁻¹⁴ itself is normal\","
            "[\"url(#p-subnormal)\"]]]");
  EXPECT_THAT(seen.at("caption").get<std::string>(),
              HasSubstr("A range means that a zone’s edge cuts a bin"));
  EXPECT_THAT(seen.at("zones").get<std::string>(), HasSubstr("A range means"));
  // The short name, and the users' one on hover and in the table.
  EXPECT_EQ(seen.at("names"), Json({"FP32", "FP16 no scaling", "FP16 torch"}));
  EXPECT_EQ(seen.at("chip"), "FP16 no scaling");
  EXPECT_EQ(seen.at("called"), "Its runs are named “none”.");
  EXPECT_THAT(seen.at("table").get<std::string>(), HasSubstr("FP16 no scaling none"));
  EXPECT_THAT(seen.at("words").get<std::string>(),
              AllOf(HasSubstr("“FP16 no scaling”"), Not(HasSubstr("none:"))));
  EXPECT_THAT(seen.at("heat"), ::testing::Contains("< 0.1 %"));
  EXPECT_EQ(seen.at("frames"), 1) << "one group of tensors";
  EXPECT_THAT(seen.at("whatIf"), AllOf(::testing::Contains("0.1"), ::testing::Contains("≤ 0.001")));
  EXPECT_THAT(seen.at("bars2"),
              AllOf(::testing::Contains("FP32 (O0)"), ::testing::Contains("FP16 mixed (O1)"),
                    ::testing::Contains("ms a step (emulated: not a GPU’s speed)")));
  EXPECT_THAT(seen.at("blocks"),
              AllOf(::testing::Contains("values made zero (%)"), ::testing::Contains("headroom (binades)"),
                    ::testing::Contains("gradient, dw")));
  const Json& lost = seen.at("recipes").at(2);
  EXPECT_EQ(seen.at("recipes").at(1), nullptr);
  EXPECT_EQ(lost.at("step"), Json({1, 2}));
  EXPECT_EQ(lost.at("operands").at(4).dump(),
            R"({"headroom":[1.5,1.5],"label":"gradient, dw","saturated":[1,1],"zeroed":[5,10]})");
  EXPECT_EQ(lost.at("operands").at(0).at("zeroed"), Json({nullptr, nullptr})) << "nothing recorded";
  EXPECT_THAT(seen.at("step").get<std::string>(), HasSubstr("emulated hopper tensor core"));
  EXPECT_EQ(seen.at("titles"), Json({"FP16", "BF16", "E5M2", "E4M3"}));
  EXPECT_THAT(seen.at("overflow").get<std::string>(), HasSubstr("would overflow."));
  EXPECT_THAT(seen.at("heads"), ::testing::Contains("Policies"));
}

TEST_F(PageInBrowser, FitsInSmallWindows) {
  std::vector<std::filesystem::path> folders = small_set();
  write_replay(folder / "replay", synthetic_replay("net", 300));
  folders.push_back(folder / "replay");
  const Json seen = probed(write_report(folders, folder / "out", undrawn), R"(
window.dispatchEvent(new Event('beforeprint'));
window.dispatchEvent(new Event('afterprint'));
const wide = [...document.querySelectorAll('body *')].filter(node => !node.closest('.scroll, .traces, pre, svg, .unseen') && node.getBoundingClientRect().right > innerWidth + 1);
return {inner: innerWidth, page: document.scrollingElement.scrollWidth, wide: wide.slice(0, 5).map(node => node.outerHTML.slice(0, 120))};
)",
                           "1400,1000", {}, "", 400);
  ASSERT_FALSE(seen.is_null());
  EXPECT_EQ(seen.at("inner"), 400);
  EXPECT_LE(seen.at("page"), 400) << seen.dump();
  EXPECT_EQ(seen.at("wide"), Json::array());
}

/// Markup that got into the page all the same would find that its policy lets nothing run but the page's own
/// script.
TEST_F(PageInBrowser, RunsNoScriptAndNoStyleSheetButItsOwn) {
  const std::filesystem::path page = write_report(small_set(), folder / "out", undrawn);
  std::string html = read_file(page);
  html.insert(
      html.find("</main>"),
      "<script>window.foreign = 'script'</script><img src=\"x.png\" onerror=\"window.foreign = 'handler'\">"
      "<a id=\"link\" href=\"javascript:window.foreign = 'link'\">x</a><style>main { display: none "
      "}</style>");
  std::ofstream(page) << html;
  const Json seen = probed(page, R"(
document.getElementById('link').click();
await new Promise(resume => setTimeout(resume, 50));
return {foreign: window.foreign ?? 'nothing', display: getComputedStyle(document.querySelector('main')).display,
        refused: problems.map(problem => problem.split(':')[0]).sort(), charts: document.querySelectorAll('svg').length};)");
  ASSERT_FALSE(seen.is_null());
  EXPECT_EQ(seen.at("foreign"), "nothing");
  EXPECT_NE(seen.at("display"), "none");
  EXPECT_GT(seen.at("charts"), 3) << "the page's own script ran";
  for (const std::string directive : {"script-src-elem", "script-src-attr", "style-src-elem", "img-src"})
    EXPECT_THAT(seen.at("refused"), ::testing::Contains(directive));
}

TEST_F(PageInBrowser, BreaksNoRuleOfWcag) {
  const std::string library = axe_core();
  if (library.empty())
    GTEST_SKIP()
        << "there is no axe-core (pip install axe-core-python, or set FP16LAB_AXE to its axe.min.js)";
  ASSERT_EQ(library.find("</script"), std::string::npos);
  std::vector<std::filesystem::path> folders = write_synthetic_grid(folder / "runs");
  write_replay(folder / "replay", synthetic_replay("net", 300));
  folders.push_back(folder / "replay");
  const std::filesystem::path page = write_report(folders, folder / "out", undrawn);
  for (const char* scheme : {"1", "0"}) {  // light, dark
    const Json seen =
        probed(page, R"(
window.dispatchEvent(new Event('beforeprint'));
window.dispatchEvent(new Event('afterprint'));
document.querySelectorAll('details').forEach(details => { details.open = true; });
const result = await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations']});
return {dark: matchMedia('(prefers-color-scheme: dark)').matches, passes: result.passes.length,
  violations: result.violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + ' ' + n.failureSummary).join(' | '))};
)",
               "1400,1000", {std::string("--blink-settings=preferredColorScheme=") + scheme}, library);
    ASSERT_FALSE(seen.is_null());
    EXPECT_EQ(seen.at("dark"), *scheme == '0');
    EXPECT_GT(seen.at("passes"), 15) << "rules were asked";
    EXPECT_EQ(seen.at("violations"), Json::array());
  }
}

}  // namespace
}  // namespace fp16lab::reports
