// The playground as its visitors use it: by typing, by keys, by a link, in a small window, in the dark, and
// whether everybody can read it.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/reports/playground_in_browser.hpp"

namespace fp16lab::reports {
namespace {

TEST_F(Playground, ShowsWhatIsTypedAndKeepsItInTheAddress) {
  const std::string use = R"(
const cards = () => Object.fromEntries([...document.querySelectorAll('.card')].map(card => [card.dataset.format, card.querySelector('.worth').textContent]));
const words = () => [...document.querySelectorAll('#results tr[data-row]')].map(row => [row.dataset.row, row.dataset.word]);
const look = () => ({cards: cards(), words: words(), chosen: document.querySelector('#results .chosen')?.dataset.row ?? null, scale: by('scale-value').textContent,
  error: by('value-error').hidden ? null : by('value-error').textContent, vectorError: by('vector-error').hidden ? null : by('vector-error').textContent,
  dropped: [...document.querySelectorAll('#steps .aligned .dropped')].map(bits => bits.textContent).join(' '), hash: location.hash, problems,
  fetched: performance.getEntriesByType('resource').map(entry => entry.name).filter(name => !name.startsWith('data:'))});
)";
  const Json first = seen(use + R"(
const begin = look();
type('value', '65519.99');
type('own', '5,11');
type('a', '1 2^-12');
type('b', '1, 2^-12');
type('c', '0');
type('scale', '3');
document.querySelector('#results tr[data-row=ampere] button').click();
const typed = look();
type('value', '1e');
type('b', '1');
const wrong = look();
return {begin, typed, wrong};
)");
  ASSERT_FALSE(first.is_null());
  for (const auto& [name, look] : first.items()) {
    EXPECT_EQ(look.at("problems"), Json::array()) << name;
    EXPECT_EQ(look.at("fetched"), Json::array()) << "the page must not need a network";
  }
  // By the table of tensor cores: 1 + 2^-23 + ...: Volta has blocks of 4 and 23 bits, Ampere 8 and 24, Hopper and
  // Blackwell 16 and 25.
  const Json& begin = first.at("begin");
  EXPECT_EQ(begin.at("words"),
            Json::parse(R"([["volta", "3f800001"], ["turing", "3f800002"], ["ampere", "3f800002"],
      ["ada", "3f800002"], ["hopper", "3f800005"], ["hopper-wgmma", "3f800005"], ["blackwell", "3f800005"],
      ["blackwell-tcgen05", "3f800005"]])"));
  EXPECT_EQ(begin.at("cards").size(), 8u);
  const Json& typed = first.at("typed");
  EXPECT_EQ(typed.at("cards").at("FP16"), "65504 = 0x7bff, normal (inexact)");
  EXPECT_EQ(typed.at("cards").at("5,11"), typed.at("cards").at("FP16"));
  EXPECT_EQ(typed.at("cards").at("E4M3"), "nan = 0x7f, nan (overflow, inexact)");
  EXPECT_EQ(typed.at("scale"), "2³");
  EXPECT_EQ(typed.at("chosen"), "ampere");
  EXPECT_EQ(typed.at("dropped"), "") << "2^-24 is Ampere's last bit";
  EXPECT_THAT(first.at("wrong").at("error").get<std::string>(), ::testing::HasSubstr("'1e' is not a number"));
  EXPECT_THAT(first.at("wrong").at("vectorError").get<std::string>(),
              ::testing::HasSubstr("a has 2 elements and b has 1"));

  // The address alone brings the same page; Volta's last bit is 2^-23.
  const std::string hash = typed.at("hash").get<std::string>().substr(1);
  const Json again = seen(use + R"(
const same = look();
location.hash = location.hash.replace('row=ampere', 'row=volta');
await new Promise(resume => setTimeout(resume, 50));
return {same, volta: look()};
)",
                          {}, hash);
  ASSERT_FALSE(again.is_null());
  EXPECT_EQ(again.at("same").at("cards"), typed.at("cards"));
  EXPECT_EQ(again.at("same").at("words"), typed.at("words"));
  EXPECT_EQ(again.at("same").at("chosen"), "ampere");
  EXPECT_EQ(again.at("same").at("scale"), "2³");
  EXPECT_EQ(again.at("volta").at("chosen"), "volta");
  EXPECT_EQ(again.at("volta").at("dropped"), "1");

  // An address may hold anything.
  const Json strange = seen(
      use + "return look();", {},
      "operands=x&accumulator=y&format=z&scale=1e9&tensor=t&step=-&row=constructor&value=%3Cb%3E&a=&own=9");
  ASSERT_FALSE(strange.is_null());
  EXPECT_EQ(strange.at("problems"), Json::array());
  EXPECT_EQ(strange.at("scale"), "2²⁴");
}

TEST_F(Playground, IsDrawnAndDraggedByKeys) {
  const Json answer = seen(R"(
type('a', '1 1');
type('b', '1 1');
by('pad-a').focus();
press('pad-a', 'ArrowRight');
press('pad-a', 'ArrowDown');
const halved = by('a').value;
press('pad-a', 'End');
for (let i = 0; i < 30; ++i) press('pad-a', 'ArrowDown');
const negative = by('a').value, says = by('pad-a').getAttribute('aria-valuetext');
return {halved, negative, says, focusable: ['value', 'pad-a', 'pad-b', 'scale', 'copy'].map(id => by(id).tabIndex), problems};
)");
  ASSERT_FALSE(answer.is_null());
  EXPECT_EQ(answer.at("halved"), "1 2^-1");
  EXPECT_EQ(answer.at("negative"), "1 -2^-19") << "24 levels down to zero, and 6 more";
  EXPECT_EQ(answer.at("says"), "a[1] = -1.907349e-06");
  EXPECT_EQ(answer.at("focusable"), Json({0, 0, 0, 0, 0}));
  EXPECT_EQ(answer.at("problems"), Json::array());
}

TEST_F(Playground, FitsASmallWindow) {
  const Json answer = seen(R"(
const wide = [...document.querySelectorAll('body *')].filter(node => !node.closest('.scroll, svg') && node.getBoundingClientRect().right > innerWidth + 1);
return {inner: innerWidth, page: document.scrollingElement.scrollWidth, wide: wide.slice(0, 5).map(node => node.outerHTML.slice(0, 160))};
)",
                           {}, "value=65519.99", 400);
  ASSERT_FALSE(answer.is_null());
  EXPECT_EQ(answer.at("inner"), 400);
  EXPECT_LE(answer.at("page"), 400);
  EXPECT_EQ(answer.at("wide"), Json::array()) << "but for what scrolls by itself";
}

using PlaygroundForAll = Playground;

TEST_F(PlaygroundForAll, BreaksNoRuleOfWcag) {
  const std::string library = axe_core();
  if (library.empty())
    GTEST_SKIP()
        << "there is no axe-core (pip install axe-core-python, or set FP16LAB_AXE to its axe.min.js)";
  for (const bool dark : {false, true}) {
    const Json answer = seen(R"(
const found = await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations']});
return {passes: found.passes.length, paper: getComputedStyle(document.body).backgroundColor,
  violations: found.violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + ' ' + n.failureSummary).join(' | '))};
)",
                             {}, "value=65519.99", dark ? 400 : 1400, dark, library);
    ASSERT_FALSE(answer.is_null());
    EXPECT_EQ(answer.at("paper") == "rgb(255, 255, 255)", !dark);
    EXPECT_GT(answer.at("passes"), 15) << "rules were asked";
    EXPECT_EQ(answer.at("violations"), Json::array());
  }
}

}  // namespace
}  // namespace fp16lab::reports
