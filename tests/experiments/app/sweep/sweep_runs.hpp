// A sweep of four small runs through the real binary.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {

class SweepRuns : public SmallRuns {
 protected:
  std::filesystem::path write_sweep(const std::string& steps = "40") {
    write_config(steps);
    std::filesystem::path path = folder_ / "sweep.toml";
    testing_support::write_bytes(
        path,
        "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\nseeds = [1, 2]\n"
        "[[variant]]\nname = \"fp32\"\nset = [\"amp.level=O0\"]\n"
        "[[variant]]\nname = \"fixed-2p3\"\n"
        "set = [\"amp.level=O1\", \"scaler.policy=fixed\", \"scaler.initial_scale=2^3\"]\n");
    return path;
  }
  testing_support::Finished sweep(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"sweep", "-c", write_sweep().string(), "-o", path("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return fp16lab(arguments);
  }
  /// When a run's folder was finished last.
  std::string written(const std::string& run) const { return read("out/" + run + "/manifest.json"); }
  /// The hashes of all steps; `run` as "out/NAME".
  std::vector<std::string> digests(const std::string& run) const {
    return column(run + "/steps.csv", "state_hash");
  }
  std::size_t rows(const std::string& run) const {
    const std::string text = read("out/" + run + "/steps.csv");
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  template <class Condition>
  static bool wait_for(Condition condition) {
    const auto start = std::chrono::steady_clock::now();
    while (!condition()) {
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(60)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
};

inline const std::vector<std::string> all_runs{"small-fp32-seed1", "small-fp32-seed2",
                                               "small-fixed-2p3-seed1", "small-fixed-2p3-seed2"};

}  // namespace fp16lab::experiments
