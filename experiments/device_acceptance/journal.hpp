// Which cases of a section have ended, and how: what a process that is started in the place of one that died
// goes on by.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::experiments::acceptance {

/// A file with one line when a case begins and one when it ends; both are there after a SIGKILL.
class Journal {
 public:
  /// Reads what earlier processes wrote. Empty path: it remembers nothing beyond this process.
  explicit Journal(std::filesystem::path path);

  /// nullptr: the case has not ended yet.
  const VerbRow* ended(const std::string& key) const;
  const std::map<std::string, VerbRow>& ended_cases() const { return rows_; }
  /// Empty: none has.
  const std::string& last_ended() const { return last_; }
  /// The case in which the last process died.
  const std::optional<std::string>& unfinished() const { return begun_; }

  void begin(const std::string& key);
  void end(const std::string& key, const VerbRow& row);

 private:
  void append(const std::string& line);

  std::filesystem::path path_;
  std::map<std::string, VerbRow> rows_;
  std::optional<std::string> begun_;
  std::string last_;
};

}  // namespace fp16lab::experiments::acceptance
