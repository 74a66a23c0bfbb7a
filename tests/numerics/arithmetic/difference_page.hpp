// A committed page of measured tables: cut into sections, compared with what a test measures, rewritten on
// request.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fp16lab::page {

inline const std::filesystem::path page_path =
    std::filesystem::path(FP16LAB_SOURCE_DIR) / "reports" / "where_we_differ.md";

struct Section {
  std::string title, body;
};

/// The committed page, cut at its "## " headings; the first section has no title.
inline std::vector<Section> committed_page() {
  std::vector<Section> sections{{"", ""}};
  std::ifstream file(page_path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## "))
      sections.push_back({line.substr(3), ""});
    else
      sections.back().body += line + "\n";
  }
  return sections;
}

inline std::string committed_section(const std::string& title) {
  for (const Section& section : committed_page())
    if (section.title == title) return section.body;
  return "";
}

inline bool updating() { return std::getenv("FP16LAB_UPDATE") != nullptr; }

inline void check_section(const std::string& title, const std::string& body) {
  if (updating()) {
    std::vector<Section> page = committed_page();
    auto section = page.begin();
    while (section != page.end() && section->title != title) ++section;
    if (section == page.end()) section = page.insert(page.end(), {title, ""});
    section->body = body;
    std::ofstream file(page_path, std::ios::trunc);
    for (const Section& part : page)
      file << (part.title.empty() ? "" : "## " + part.title + "\n") << part.body;
  }
  EXPECT_EQ(committed_section(title), body) << "FP16LAB_UPDATE=1 rewrites " << page_path;
}

/// Differences of one kind: how many, and the first.
struct Tally {
  std::uint64_t inputs = 0, different = 0;
  std::string example;

  template <class Describe>
  void count(bool differs, const Describe& describe) {
    ++inputs;
    if (differs && different++ == 0) example = describe();
  }
};

inline std::string grouped(std::uint64_t n) {
  std::string text = std::to_string(n);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

inline std::string row(const std::string& peer, const std::string& kind, const Tally& tally) {
  if (tally.different == 0) return fmt::format("| {} | {} | none | |\n", peer, kind);
  return fmt::format("| {} | {} | {} of {} | {} |\n", peer, kind, grouped(tally.different),
                     grouped(tally.inputs), tally.example);
}

inline constexpr const char* table_head = "\n| peer | inputs | differ | first example |\n|---|---|---|---|\n";

}  // namespace fp16lab::page
