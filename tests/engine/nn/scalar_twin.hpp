// An oracle for modules: scalar reverse-mode differentiation in FP64, of any order, with the error that an
// FP32 evaluation of the same expression may have. It shares no code with the engine.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace fp16lab::engine::test {

class ScalarGraph;

/// A number on a graph; arithmetic on it is recorded.
struct Real {
  ScalarGraph* graph = nullptr;
  std::int32_t id = -1;
  double value() const;
};

class ScalarGraph {
 public:
  enum class Kind : std::uint8_t { leaf, add, subtract, multiply, divide, exp, log, tanh, square_root };

  /// An exact number: an input or a constant.
  Real leaf(double value) { return push(Kind::leaf, -1, -1, value); }
  std::vector<Real> leaves(std::span<const float> values) {
    std::vector<Real> all;
    all.reserve(values.size());
    for (const float value : values) all.push_back(leaf(static_cast<double>(value)));
    return all;
  }

  Real apply(Kind kind, const Real& x, const Real& y = {}) {
    const double a = x.value(), b = y.id < 0 ? 0.0 : y.value();
    switch (kind) {
      case Kind::add:
        return push(kind, x.id, y.id, a + b);
      case Kind::subtract:
        return push(kind, x.id, y.id, a - b);
      case Kind::multiply:
        return push(kind, x.id, y.id, a * b);
      case Kind::divide:
        return push(kind, x.id, y.id, a / b);
      case Kind::exp:
        return push(kind, x.id, -1, std::exp(a));
      case Kind::log:
        return push(kind, x.id, -1, std::log(a));
      case Kind::tanh:
        return push(kind, x.id, -1, std::tanh(a));
      case Kind::square_root:
        return push(kind, x.id, -1, std::sqrt(a));
      case Kind::leaf:
        break;
    }
    throw std::logic_error("ScalarGraph::apply: not an operation");
  }

  double value(std::int32_t id) const { return nodes_[static_cast<std::size_t>(id)].value; }

  /// d output / d input, as numbers of the graph: they can be differentiated again.
  std::vector<Real> gradients(const Real& output, std::span<const Real> inputs);

  /// First-order bound, in units of u, of the error of `output` when every operation before it rounds once
  /// with relative error u: the sum over operations n of |d output / d n| |n|.
  double rounding_bound(const Real& output);

 private:
  struct Node {
    Kind kind = Kind::leaf;
    std::int32_t a = -1, b = -1;
    double value = 0;
  };
  Real push(Kind kind, std::int32_t a, std::int32_t b, double value) {
    nodes_.push_back({kind, a, b, value});
    return {this, static_cast<std::int32_t>(nodes_.size() - 1)};
  }

  std::vector<Node> nodes_;
};

inline double Real::value() const { return graph->value(id); }

inline Real operator+(const Real& x, const Real& y) { return x.graph->apply(ScalarGraph::Kind::add, x, y); }
inline Real operator-(const Real& x, const Real& y) {
  return x.graph->apply(ScalarGraph::Kind::subtract, x, y);
}
inline Real operator*(const Real& x, const Real& y) {
  return x.graph->apply(ScalarGraph::Kind::multiply, x, y);
}
inline Real operator/(const Real& x, const Real& y) {
  return x.graph->apply(ScalarGraph::Kind::divide, x, y);
}
inline Real operator+(const Real& x, double y) { return x + x.graph->leaf(y); }
inline Real operator*(const Real& x, double y) { return x * x.graph->leaf(y); }
inline Real operator/(const Real& x, double y) { return x / x.graph->leaf(y); }
inline Real exp(const Real& x) { return x.graph->apply(ScalarGraph::Kind::exp, x); }
inline Real log(const Real& x) { return x.graph->apply(ScalarGraph::Kind::log, x); }
inline Real tanh(const Real& x) { return x.graph->apply(ScalarGraph::Kind::tanh, x); }
inline Real sqrt(const Real& x) { return x.graph->apply(ScalarGraph::Kind::square_root, x); }
inline Real sigmoid(const Real& x) { return x.graph->leaf(1.0) / (exp(x * -1.0) + 1.0); }
inline Real relu(const Real& x) { return x.value() > 0 ? x : x.graph->leaf(0.0); }

inline std::vector<Real> ScalarGraph::gradients(const Real& output, std::span<const Real> inputs) {
  const auto count = static_cast<std::size_t>(output.id) + 1;
  std::vector<bool> active(count, false);
  for (const Real& input : inputs) {
    if (static_cast<std::size_t>(input.id) < count) active[static_cast<std::size_t>(input.id)] = true;
  }
  for (std::size_t id = 0; id < count; ++id) {
    const Node& node = nodes_[id];
    if (node.a >= 0 && active[static_cast<std::size_t>(node.a)]) active[id] = true;
    if (node.b >= 0 && active[static_cast<std::size_t>(node.b)]) active[id] = true;
  }
  std::vector<Real> cotangents(count);
  cotangents.back() = leaf(1.0);
  const auto contribute = [&](std::int32_t id, const Real& share) {
    Real& sum = cotangents[static_cast<std::size_t>(id)];
    sum = sum.id < 0 ? share : sum + share;
  };
  for (std::size_t id = count; id-- > 0;) {
    const Real g = cotangents[id];
    if (g.id < 0 || !active[id]) continue;
    const Node node = nodes_[id];  // a copy: nodes_ grows below
    const Real a{this, node.a}, b{this, node.b}, y{this, static_cast<std::int32_t>(id)};
    const bool to_a = node.a >= 0 && active[static_cast<std::size_t>(node.a)];
    const bool to_b = node.b >= 0 && active[static_cast<std::size_t>(node.b)];
    switch (node.kind) {
      case Kind::leaf:
        break;
      case Kind::add:
        if (to_a) contribute(node.a, g);
        if (to_b) contribute(node.b, g);
        break;
      case Kind::subtract:
        if (to_a) contribute(node.a, g);
        if (to_b) contribute(node.b, g * -1.0);
        break;
      case Kind::multiply:
        if (to_a) contribute(node.a, g * b);
        if (to_b) contribute(node.b, g * a);
        break;
      case Kind::divide:
        if (to_a) contribute(node.a, g / b);
        if (to_b) contribute(node.b, (g * y / b) * -1.0);
        break;
      case Kind::exp:
        contribute(node.a, g * y);
        break;
      case Kind::log:
        contribute(node.a, g / a);
        break;
      case Kind::tanh:
        contribute(node.a, g * (leaf(1.0) - y * y));
        break;
      case Kind::square_root:
        contribute(node.a, g / (y * 2.0));
        break;
    }
  }
  std::vector<Real> results;
  results.reserve(inputs.size());
  for (const Real& input : inputs) {
    const auto id = static_cast<std::size_t>(input.id);
    results.push_back(id < count && cotangents[id].id >= 0 ? cotangents[id] : leaf(0.0));
  }
  return results;
}

inline double ScalarGraph::rounding_bound(const Real& output) {
  const std::size_t count = nodes_.size();
  std::vector<Real> operations;
  for (std::int32_t id = 0; id <= output.id; ++id)
    if (nodes_[static_cast<std::size_t>(id)].kind != Kind::leaf) operations.push_back({this, id});
  double bound = 0.0;
  const std::vector<Real> sensitivities = gradients(output, operations);
  for (std::size_t i = 0; i < operations.size(); ++i)
    bound += std::fabs(sensitivities[i].value() * operations[i].value());
  nodes_.resize(count);
  return bound;
}

}  // namespace fp16lab::engine::test
