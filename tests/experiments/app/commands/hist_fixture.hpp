// fp16lab hist through the real binary, on small dumps whose zones are known by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/experiments/app/small_runs.hpp"
#include "tests/support/array_files.hpp"

namespace fp16lab::experiments {

using namespace testing_support;
using nlohmann::json;

inline std::string doubles(const std::vector<double>& values) {
  std::string bytes;
  for (const double value : values) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    bytes += little_endian(bits, 8);
  }
  return bytes;
}

/// 8 values: one zero, three that are lost at scale 1 (one of them the tie), one subnormal, two normal, one
/// overflow.
inline const std::vector<double> eight{0.0, 0x1p-30, -0x1p-26, 0x1p-25, 0x1p-20, 0.5, 1.0, -70000.0};

class Hist : public SmallRuns {
 protected:
  void SetUp() override {
    write_bytes(path("g.npy"), npy("<f8", "(2, 4)", doubles(eight)));
    write_bytes(path("a.npz"), zip({stored("w.npy", npy("<f8", "(8,)", doubles(eight), true)),
                                    deflated("b.npy", npy("<f2", "(2,)", from_hex("003c 0100"))),
                                    stored("n.npy", npy("<i8", "(1,)", std::string(8, '\0')))}));
    write_bytes(
        path("t.safetensors"),
        safetensors(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", from_hex("0000803f")));
  }
  json hist(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "hist");
    arguments.emplace_back("--json");
    const auto result = fp16lab(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    err_ = result.err;
    return json::parse(result.out);
  }
  static json tensor(const json& report, const std::string& name) {
    for (const json& entry : report.at("tensors"))
      if (entry.at("tensor") == name) return entry;
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

  std::string err_;
};

}  // namespace fp16lab::experiments
