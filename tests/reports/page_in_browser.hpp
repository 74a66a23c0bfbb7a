// A page in a headless browser, and a script that looks at it.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/disk/read_file.hpp"
#include "reports/page/html.hpp"
#include "tests/reports/browser.hpp"
#include "tests/reports/report_fixture.hpp"

namespace fp16lab::reports {

using Json = nlohmann::json;

/// Skips where there is no Chromium.
class PageInBrowser : public Reports {
 protected:
  void SetUp() override {
    if (const std::optional<std::string> found = Browser::find())
      browser.emplace(*found, folder / "profile");
    else
      GTEST_SKIP() << "there is no Chromium (Debian: chromium); set FP16LAB_CHROMIUM to another one";
  }

  /// What `script`, the body of an async function, returns after the page's own scripts; `window.problems`
  /// has what went wrong in those. `library`: another script, which runs before it. `frame_width`: pixels of
  /// a frame around the page; 0: none.
  Json probed(const std::filesystem::path& page, std::string_view script,
              const std::string& size = "1400,1000", const std::vector<std::string>& flags = {},
              const std::string& library = "", int frame_width = 0) const {
    std::string html = read_file(page);
    const std::string allowed = "script-src ";
    html.insert(html.find(allowed) + allowed.size(),
                "'nonce-probe' ");  // the page's own policy, and these scripts
    html.insert(html.find("<style>"), R"(<script nonce="probe">
window.problems = [];
window.addEventListener('error', event => window.problems.push(String(event.message)));
document.addEventListener('securitypolicyviolation',
                          event => window.problems.push(event.violatedDirective + ': ' + event.sample));
</script>)");
    const std::string script_begin = "<script nonce=\"probe\">";
    html.insert(html.rfind("</body>"), script_begin + library + "</script>" + script_begin +
                                           "(async () => {" + std::string(script) + R"(})().then(result => {
  const place = document.createElement('pre');
  place.id = 'probe';
  place.textContent = JSON.stringify(result).replace(/[<>&]/g, c => '\\u00' + c.charCodeAt(0).toString(16));
  parent.document.body.append(place);
}, error => { parent.document.body.append(String(error.stack)); });</script>)");
    const std::filesystem::path copy = folder / "probed.html";
    if (frame_width > 0)  // windows of browsers have a least width
      html = fmt::format(
          "<!DOCTYPE html><body><iframe style=\"width:{}px;height:900px;border:0\" srcdoc=\"{}\"></iframe>",
          frame_width, html_escape(html));
    std::ofstream(copy) << html;
    const testing_support::Finished finished = browser->document_of(copy, size, flags);
    const std::string begin = "<pre id=\"probe\">";
    const std::size_t from = finished.out.rfind(begin);
    if (finished.exit_code != 0 || from == std::string::npos) {
      ADD_FAILURE() << "exit " << finished.exit_code << ", " << finished.out.size() << " bytes of document, "
                    << finished.out.substr(finished.out.size() -
                                           std::min<std::size_t>(finished.out.size(), 600))
                    << finished.err.substr(0, 2000);
      return {};
    }
    const std::size_t to = finished.out.find("</pre>", from);
    return Json::parse(finished.out.substr(from + begin.size(), to - from - begin.size()));
  }

  std::optional<Browser> browser;
};

}  // namespace fp16lab::reports
