// An observer that keeps what it was shown.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "engine/autograd/counting.hpp"

namespace fp16lab::engine::test {

/// What an observer was shown, by name.
struct SeenGradients final : Tap {
  struct Row {
    GradientKind kind{};
    DType dtype{};
    CastProbe probe;
    int times = 0;
  };
  std::map<std::string, Row> rows;
  void see(const Event& event) override {
    const auto* const counted = event.as<CountedTensor>();
    if (counted == nullptr || counted->intermediate) return;
    Row& row = rows[std::string(counted->name)];
    row.kind = counted->kind;
    row.dtype = counted->dtype;
    row.probe.before += counted->probe.before;
    row.probe.after += counted->probe.after;
    ++row.times;
  }
  std::map<std::string, std::uint64_t> totals() const {
    std::map<std::string, std::uint64_t> result;
    for (const auto& [name, row] : rows) result[name] = row.probe.before.total();
    return result;
  }
};

}  // namespace fp16lab::engine::test
