// What the suites on a device share: the device, sizes, and the listener that writes down what fails.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/questions/device_side.hpp"
#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::device {

using engine::cases::Kept;
using engine::cases::Operand;

struct Settings {
  experiments::DeviceSide side;
  int threads = 1;  ///< the emulated side's
  std::uint64_t seed = 1;
  bool quick = false;  ///< fewer sizes and small tensors
  std::filesystem::path out;

  /// `full` on a GPU, `quick_value` with --quick, `rehearsed` on the PTX machine.
  template <class T>
  T sized(const T& full, const T& quick_value, const T& rehearsed) const {
    return side.rehearsal ? rehearsed : quick ? quick_value : full;
  }
};

/// Device, driver, clocks of SM and memory, versions, build, processor: names and values.
std::vector<std::pair<std::string, std::string>> facts(const Settings& settings);

/// A tool of the CUDA Toolkit, from PATH, CUDA_HOME/bin or /usr/local/cuda/bin; empty: it is not there.
std::filesystem::path cuda_tool(const std::string& name);

/// Writes a folder OUT/bundles/SUITE-TEST when a test begins, and removes it when the test passes. So each
/// test that fails leaves one, and so does a test that ends its process or is killed. It holds bundle.json
/// (facts, environment, messages, the commands that run that test again) and, where the test gave arrays,
/// arrays.safetensors.
class BundleListener final : public testing::EmptyTestEventListener {
 public:
  explicit BundleListener(const Settings& settings);
  void OnTestStart(const testing::TestInfo& test) override;
  void OnTestPartResult(const testing::TestPartResult& result) override;
  void OnTestEnd(const testing::TestInfo& test) override;

  /// Arrays of the test that runs: "operand 0", "expected 2", "got 2". They are written if it fails. `got`
  /// may be empty. A bundle has at most 64 MiB of them; what is too large is left out, and bundle.json says
  /// so.
  void keep(const std::vector<Operand>& operands, const std::vector<Kept>& expected,
            const std::vector<Kept>& got);

 private:
  void write(const testing::TestInfo& test, const std::string& failure);
  std::filesystem::path folder_of(const testing::TestInfo& test) const;

  const Settings* settings_;
  std::string failure_;
  std::vector<Operand> operands_;
  std::vector<Kept> expected_, got_;
};

/// Both back ends, which all tests of a process share.
struct BackEnds {
  std::unique_ptr<engine::Backend> emulated, device;
  /// The test after which the device gave nothing but errors (CUDA calls such errors sticky): only another
  /// process can use it again. The other tests then skip.
  std::string lost_in = {};
};

/// Registers the suites device, large, capture, counts, products, verbs and tiles with GoogleTest: a test for
/// each case. A case's data are a pure function of its name and the seed, so a test that is run alone has the
/// same data. All three must outlive the tests.
void register_suites(const Settings& settings, BackEnds& back_ends, BundleListener& bundles);

}  // namespace fp16lab::device
