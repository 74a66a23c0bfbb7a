// The playground in a headless browser. Tests are skipped where the page is not built, or where there is no
// Chromium.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/reports/browser.hpp"
#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::reports {

using Json = nlohmann::json;
using testing_support::Finished, testing_support::run_program, testing_support::slurp;

inline const std::filesystem::path page_file = FP16LAB_PLAYGROUND;
inline const std::filesystem::path program = std::filesystem::path(FP16LAB_BIN_DIR) / "fp16lab";

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

class Playground : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(page_file))
      GTEST_SKIP() << (FP16LAB_HAVE_EMSCRIPTEN
                           ? "the page is not built (cmake --build build --target playground)"
                           : "there is no Emscripten (Debian: emscripten)");
    if (const std::optional<std::string> found = Browser::find())
      browser_.emplace(*found, folder_.path() / "profile");
    else
      GTEST_SKIP() << "there is no Chromium (Debian: chromium); set FP16LAB_CHROMIUM to another one";
  }

  /// What `script`, the body of an async function, returns on the page. It has `given`, `problems` (uncaught
  /// errors), `by(id)`, `type(id, value)` and `press(id, key)`. `width`: the window's.
  Json seen(const std::string& script, const Json& given = {}, const std::string& hash = "", int width = 1400,
            bool dark = false, const std::string& library = "") const {
    std::string html = slurp(page_file);
    if (dark)  // another style sheet than the policy knows
      html = replaced(replaced(html, "@media (prefers-color-scheme: dark)", "@media all"), "style-src-elem",
                      "unknown");
    html = replaced(html, "script-src ",
                    "script-src 'nonce-probe' ");  // the page's own policy, and these scripts
    html.insert(
        html.find("<style>"),
        "<script nonce=\"probe\">window.problems = []; document.addEventListener('securitypolicyviolation', "
        "event => problems.push(event.violatedDirective + ': ' + event.sample)); "
        "window.addEventListener('error', event => problems.push(String(event.message))); "
        "window.addEventListener('unhandledrejection', event => "
        "problems.push(String(event.reason)));</script>");
    html.insert(html.rfind("</body>"), replaced(replaced(replaced(R"(<script nonce="probe">@LIBRARY@</script>
<script type="application/json" id="given">@GIVEN@</script>
<script nonce="probe">(async () => {
const by = id => document.getElementById(id), given = JSON.parse(by('given').textContent);
const type = (id, value) => { by(id).value = value; by(id).dispatchEvent(new Event('input', {bubbles: true})); };
const press = (id, key) => by(id).dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
for (let i = 0; i < 200 && !window.fp16lab; ++i) await new Promise(resume => setTimeout(resume, 20));
let result;
try { result = await (async () => {@SCRIPT@})(); } catch (error) { result = {thrown: String(error)}; }
parent.postMessage(JSON.stringify(result ?? null), '*');
})();</script>)",
                                                                  "@SCRIPT@", script),
                                                         "@GIVEN@", replaced(given.dump(), "<", "\\u003c")),
                                                "@LIBRARY@", library));
    std::ofstream(folder_.path() / "inner.html") << html;
    // A window of any width is a frame of the browser's.
    std::ofstream(folder_.path() / "outer.html")
        << R"(<!DOCTYPE html><body><pre id="answer"></pre><script>addEventListener('message', event => {
document.getElementById('answer').textContent = event.data; });</script><iframe src="inner.html)"
        << (hash.empty() ? "" : "#" + hash) << R"(" style="border:0;height:1000px;width:)" << width
        << "px\"></iframe>";
    const Finished finished = browser_->document_of(folder_.path() / "outer.html");
    const std::string begin = "<pre id=\"answer\">";
    const std::size_t from = finished.out.find(begin), to = finished.out.find("</pre>", from);
    if (finished.exit_code != 0 || from == std::string::npos || to == from + begin.size()) {
      ADD_FAILURE() << "exit " << finished.exit_code << ", " << finished.out.size() << " bytes of document";
      return {};
    }
    std::string text = finished.out.substr(from + begin.size(), to - from - begin.size());
    for (const auto& [escaped, plain] :
         {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&nbsp;", "\u00a0"}, {"&amp;", "&"}})
      text = replaced(text, escaped, plain);
    Json answer = Json::parse(text);
    if (answer.is_object() && answer.contains("thrown")) {
      ADD_FAILURE() << answer.at("thrown");
      return {};
    }
    return answer;
  }

  /// The fp16lab command's output for `input` on its standard input.
  std::string native(const std::vector<std::string>& arguments, const std::string& input = "") const {
    const std::filesystem::path file = folder_.path() / "input";
    std::ofstream(file) << input;
    std::string command = "exec \"$0\" \"$@\" < '" + file.string() + "'";
    std::vector<std::string> all{"-c", command, program.string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Finished finished = run_program("/bin/sh", all, folder_.path());
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return finished.out;
  }

 private:
  testing_support::TemporaryFolder folder_;
  std::optional<Browser> browser_;
};

}  // namespace fp16lab::reports
