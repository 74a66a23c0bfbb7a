// Small training runs for tests of the command line: 400 + 100 made-up images, a 784-16-10 network, 40 steps.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/idx_files.hpp"
#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {

inline const std::string fp16lab_binary = std::string(FP16LAB_BIN_DIR) + "/fp16lab";

/// The shipped language models with 16 numbers a symbol.
inline const std::vector<std::string> small_lstm{"model.layer.embedding.embedding_dim=16",
                                                 "model.layer.lstm.hidden_size=16"};
inline const std::vector<std::string> small_transformer{
    "model.layer.tokens.embedding_dim=16",      "model.layer.positions.embedding_dim=16",
    "model.layer.h{}.attn.num_heads=2",         "model.layer.h{}.mlp.fc.out_features=64",
    "model.layer.h{}.mlp.proj.out_features=16",
};

class SmallRuns : public testing::Test {
 protected:
  /// The network that configurations have.
  std::string model_ = R"(layer = [{ type = "flatten" }, { type = "mlp", widths = [16, 10] }])";

  /// A configuration file; the data set is made at the first call.
  std::filesystem::path write_config(const std::string& steps = "40") {
    if (!std::filesystem::exists(folder_ / "data"))
      testing_support::write_small_fashion(folder_ / "data", 400, 100);
    std::filesystem::path path = folder_ / "small.toml";
    testing_support::write_bytes(path, "[model]\n" + model_ + "\n[data]\npath = \"" +
                                           (folder_ / "data").string() +
                                           "\"\n[train]\nbatch_size = 20\nsteps = " + steps +
                                           "\n[amp]\nlevel = \"O1\"\n[observe]\nhistograms_every = 20\n");
    return path;
  }

  testing_support::Finished fp16lab(const std::vector<std::string>& arguments) const {
    return testing_support::run_program(fp16lab_binary, arguments, folder_);
  }
  /// A program of the build, run with this test's folder as its working directory.
  testing_support::Finished run_inside(const std::string& program, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-c", "cd \"$0\" && exec \"$@\"", folder_.string(),
                                         (std::filesystem::path(FP16LAB_BIN_DIR) / program).string()});
    return testing_support::run_program("/bin/sh", arguments, folder_);
  }
  /// sweep.toml: small.toml with these seeds under each name, and variants with their settings.
  std::string write_sweep(
      const std::vector<std::string>& workloads, const std::string& seeds,
      const std::vector<std::pair<std::string, std::vector<std::string>>>& variants) const {
    std::string text;
    for (const std::string& name : workloads)
      text += "[[workload]]\nname = \"" + name + "\"\nconfig = \"small.toml\"\nseeds = [" + seeds + "]\n";
    for (const auto& [name, settings] : variants) {
      text += "[[variant]]\nname = \"" + name + "\"\nset = [";
      for (const std::string& setting : settings) text += '"' + setting + "\", ";
      text += "]\n";
    }
    testing_support::write_bytes(folder_ / "sweep.toml", text);
    return path("sweep.toml");
  }
  testing_support::Finished train(const std::string& out, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"train", "-c", write_config().string(), "-o", path(out)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return fp16lab(arguments);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string read(const std::string& name) const { return testing_support::slurp(folder_ / name); }

  /// steps.csv without the seconds.
  std::string steps(const std::string& run) const {
    return std::regex_replace(read(run + "/steps.csv"), std::regex(",[^,\n]*(,[^,\n]*\n)"), "$1");
  }

  /// Column `name` of a CSV file, top to bottom.
  std::vector<std::string> column(const std::string& file, const std::string& name) const {
    std::vector<std::vector<std::string>> rows(1);
    for (const char c : read(file)) {
      if (rows.back().empty()) rows.back().emplace_back();
      if (c == '\n')
        rows.emplace_back();
      else if (c == ',')
        rows.back().emplace_back();
      else
        rows.back().back() += c;
    }
    rows.pop_back();
    std::vector<std::string> values;
    for (std::size_t i = 0; i < rows.front().size(); ++i)
      if (rows.front()[i] == name)
        for (std::size_t r = 1; r < rows.size(); ++r) values.push_back(rows[r].at(i));
    return values;
  }

  testing_support::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

/// Bad input ends with this: one line on stderr, nothing on stdout.
inline void expect_one_line_error(const testing_support::Finished& result, int exit_code,
                                  const std::string& part) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find(part), std::string::npos) << "expected \"" << part << "\" in: " << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_NE(result.err.find("error: "), std::string::npos) << result.err;
}

}  // namespace fp16lab::experiments
