// Vjp: a vector-Jacobian product as a function object that is stored in place, without heap memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "engine/autograd/variable.hpp"

namespace fp16lab::engine {

/// Gradient of the outputs with respect to one input of a node, from the gradient of the node's output. It
/// may refer to the node's inputs (by captured handles) and to its output; these are alive when it is called.
///
/// std::function allocates for captures of more than two words; every step records a vjp for every input of
/// every operation, so this one keeps up to `capacity` bytes of captures inside itself. Captures must be
/// copyable and must not throw when moved: nodes move when a tape grows.
class Vjp {
 public:
  static constexpr std::size_t capacity = 192;

  Vjp() = default;  ///< empty: no gradient flows
  template <class Function>
  requires(!std::same_as<Function, Vjp> &&
           std::is_invocable_r_v<Variable, const Function&, const Variable&, const Variable&>)
      Vjp(Function
              function) {  // NOLINT(google-explicit-constructor): lambdas are written where a Vjp is meant
    static_assert(sizeof(Function) <= capacity,
                  "a vjp captures too much: capture handles and shapes, not values");
    static_assert(alignof(Function) <= alignof(std::max_align_t));
    static_assert(std::is_copy_constructible_v<Function> && std::is_nothrow_move_constructible_v<Function>);
    ::new (static_cast<void*>(memory_)) Function(std::move(function));
    table_ = &table_of<Function>;
  }
  Vjp(const Vjp& other) {
    if (other.table_ == nullptr) return;
    other.table_->copy(other.memory_, memory_);
    table_ = other.table_;
  }
  Vjp(Vjp&& other) noexcept { take(other); }
  Vjp& operator=(const Vjp& other) {
    Vjp copy(other);
    return *this = std::move(copy);
  }
  Vjp& operator=(Vjp&& other) noexcept {
    if (this == &other) return *this;
    reset();
    take(other);
    return *this;
  }
  ~Vjp() { reset(); }

  explicit operator bool() const { return table_ != nullptr; }
  /// std::logic_error if empty.
  Variable operator()(const Variable& cotangent, const Variable& output) const {
    if (table_ == nullptr) throw std::logic_error("Vjp: an empty one was called");
    return table_->call(memory_, cotangent, output);
  }

 private:
  struct Table {
    Variable (*call)(const void* held, const Variable& cotangent, const Variable& output);
    void (*copy)(const void* from, void* to);
    void (*relocate)(void* from, void* to) noexcept;  ///< move, and destroy what was moved from
    void (*destroy)(void* held) noexcept;
  };

  template <class Held>
  static constexpr Table table_of = {
      .call = [](const void* held, const Variable& cotangent, const Variable& output) -> Variable {
        return (*static_cast<const Held*>(held))(cotangent, output);
      },
      .copy = [](const void* from, void* to) { ::new (to) Held(*static_cast<const Held*>(from)); },
      .relocate =
          [](void* from, void* to) noexcept {
            auto* const source = static_cast<Held*>(from);
            ::new (to) Held(std::move(*source));
            std::destroy_at(source);
          },
      .destroy = [](void* held) noexcept { std::destroy_at(static_cast<Held*>(held)); },
  };

  void reset() noexcept {
    if (const Table* const table = std::exchange(table_, nullptr)) table->destroy(memory_);
  }
  void take(Vjp& other) noexcept {
    table_ = std::exchange(other.table_, nullptr);
    if (table_ != nullptr) table_->relocate(other.memory_, memory_);
  }

  alignas(std::max_align_t) std::byte memory_[capacity];
  const Table* table_ = nullptr;
};

}  // namespace fp16lab::engine
