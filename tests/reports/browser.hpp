// A headless Chromium for tests of pages.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/spawn.hpp"

namespace fp16lab::reports {

class Browser {
 public:
  /// $FP16LAB_CHROMIUM, else chromium on PATH; nothing where there is none.
  static std::optional<std::string> find() {
    if (const char* chosen = std::getenv("FP16LAB_CHROMIUM"); chosen != nullptr && *chosen != 0)
      return chosen;
    std::stringstream places(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
    for (std::string place; std::getline(places, place, ':');)
      for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
        if (std::filesystem::exists(std::filesystem::path(place) / name)) return place + "/" + name;
    return {};
  }

  /// `profile`: a folder of its own, so that browsers that run at the same time do not meet.
  Browser(std::string program, std::filesystem::path profile)
      : program_(std::move(program)), profile_(std::move(profile)) {
    std::filesystem::create_directories(profile_);
  }

  /// The page's document as text after all its scripts have run, in a window of `size`, with more `flags`.
  testing_support::Finished document_of(const std::filesystem::path& page,
                                        const std::string& size = "1400,1000",
                                        std::vector<std::string> flags = {}) const {
    flags.insert(flags.end(), {"--window-size=" + size, "--dump-dom", "file://" + page.string()});
    return run(std::move(flags));
  }

  testing_support::Finished print(const std::filesystem::path& page, const std::filesystem::path& pdf) const {
    return run({"--no-pdf-header-footer", "--print-to-pdf=" + pdf.string(), "file://" + page.string()});
  }

 private:
  testing_support::Finished run(std::vector<std::string> arguments) const {
    std::vector<std::string> all{"/usr/bin/timeout",  // a browser that hangs must not hang the test
                                 "60",
                                 program_,
                                 "--headless",
                                 "--no-sandbox",  // containers have no user namespaces
                                 "--disable-gpu",
                                 "--disable-dev-shm-usage",
                                 "--disable-extensions",
                                 "--disable-background-networking",
                                 "--disable-component-update",
                                 "--no-first-run",
                                 "--virtual-time-budget=20000",
                                 "--user-data-dir=" + profile_.string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return testing_support::run_program(all.front(), {all.begin() + 1, all.end()}, profile_);
  }

  std::string program_;
  std::filesystem::path profile_;
};

/// axe.min.js of $FP16LAB_AXE, else of PyPI's axe-core-python; empty where there is neither.
inline std::string axe_core() {
  if (const char* chosen = std::getenv("FP16LAB_AXE"); chosen != nullptr && *chosen != 0)
    return testing_support::slurp(chosen);
  const testing_support::Finished found = testing_support::run_program(
      "/usr/bin/env",
      {"python3", "-c",
       "import importlib.util as u; s = u.find_spec('axe_core_python'); "
       "print(s.submodule_search_locations[0] + '/axe.min.js' if s else '', end='')"},
      std::filesystem::temp_directory_path());
  return found.exit_code != 0 || found.out.empty() ? "" : testing_support::slurp(found.out);
}

}  // namespace fp16lab::reports
