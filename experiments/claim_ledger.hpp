// Claims with hand-typed expectations and what the library computed, judged line by line.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "numerics/rounding.hpp"
#include "numerics/small_float.hpp"

namespace fp16lab::experiments {

template <class F>
std::string text_of(SmallFloat<F> x) {
  return fmt::format("0x{:0{}x}", x.bits(), (F::width + 3) / 4);
}
inline std::string text_of(const std::string& text) { return text; }
inline std::string text_of(std::uint64_t count) { return fmt::format("{}", count); }

inline std::string text_of(const ExceptionFlags& flags) {
  std::string text;
  const auto add = [&text](bool flag, const char* name) {
    if (flag) text += (text.empty() ? "" : " ") + std::string(name);
  };
  add(flags.invalid, "invalid");
  add(flags.divide_by_zero, "divide_by_zero");
  add(flags.overflow, "overflow");
  add(flags.underflow, "underflow");
  add(flags.inexact, "inexact");
  return text.empty() ? "none" : text;
}
/// One claim a line on stdout, grouped by topic, and the same as CSV. A claim holds if what was computed reads
/// like what was expected.
class Ledger {
 public:
  /// Heads the claims that follow; `source` is where their expected values come from.
  void topic(const char* title, const char* source) {
    topic_ = title;
    fmt::print("{}{}  [{}]\n", csv_.empty() ? "" : "\n", title, source);
    if (csv_.empty()) csv_ = "topic,claim,expected,computed,verdict\n";
  }

  template <class Computed>
  void claim(const char* words, const char* expected, const Computed& computed) {
    const std::string text = text_of(computed);
    const bool holds = text == expected;
    ++(holds ? passed_ : failed_);
    const char* const verdict = holds ? "PASS" : "FAIL";
    fmt::print("  {}  {:<82} {}{}\n", verdict, words, text,
               holds ? "" : fmt::format(" (expected {})", expected));
    csv_ += fmt::format("\"{}\",\"{}\",{},{},{}\n", topic_, words, expected, text, verdict);
  }

  int passed() const { return passed_; }
  int failed() const { return failed_; }
  const std::string& csv() const { return csv_; }

 private:
  std::string topic_, csv_;
  int passed_ = 0;
  int failed_ = 0;
};

}  // namespace fp16lab::experiments
