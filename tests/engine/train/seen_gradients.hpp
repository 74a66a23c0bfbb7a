// An observer that keeps what it was shown.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "engine/autograd/observers.hpp"

namespace fp16lab::engine::test {

/// What an observer was shown, by name.
struct SeenGradients final : GradientObserver {
  struct Row {
    GradientKind kind{};
    DType dtype{};
    CastProbe probe;
    int times = 0;
  };
  std::map<std::string, Row> rows;
  void on_gradient(std::string_view name, GradientKind kind, DType dtype, const CastProbe& probe) override {
    Row& row = rows[std::string(name)];
    row.kind = kind;
    row.dtype = dtype;
    row.probe.before += probe.before;
    row.probe.after += probe.after;
    ++row.times;
  }
  std::map<std::string, std::uint64_t> totals() const {
    std::map<std::string, std::uint64_t> result;
    for (const auto& [name, row] : rows) result[name] = row.probe.before.total();
    return result;
  }
};

}  // namespace fp16lab::engine::test
