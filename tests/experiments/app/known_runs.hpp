// The runs of tests/golden/state_hashes.tsv.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace fp16lab::experiments {

inline const std::filesystem::path source_folder = FP16LAB_SOURCE_DIR;

struct KnownRun {
  std::string name, config, hash;
  std::vector<std::string> settings;
};

inline std::vector<KnownRun> known_runs() {
  std::ifstream file(source_folder / "tests/golden/state_hashes.tsv");
  std::vector<KnownRun> runs;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    KnownRun run;
    std::string arguments;
    std::getline(fields, run.name, '\t');
    std::getline(fields, arguments, '\t');
    std::getline(fields, run.hash);
    std::istringstream words(arguments);
    words >> run.config;
    for (std::string word; words >> word;) run.settings.push_back(word);
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace fp16lab::experiments
