// The dialects' op lists against those that the installed frameworks report (tests/golden/amp_op_lists.tsv).
// apex is not there: its amp is gone from every package.
#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/amp/levels/op_lists.hpp"

namespace fp16lab::engine {
namespace {

using amp::Dialect;
using amp::Level;
using amp::OpList;

struct PeerRow {
  Dialect dialect;
  Level level;
  std::vector<DType> dtypes;
  OpList list;
  std::string name;
};

OpList list_from(const std::string& text) {
  if (text == "white") return OpList::white;
  if (text == "black") return OpList::black;
  if (text == "banned") return OpList::banned;
  EXPECT_TRUE(text == "promote" || text == "unlisted") << text;
  return OpList::follows;
}

const std::vector<PeerRow>& peer_rows() {
  static const std::vector<PeerRow> rows = [] {
    std::vector<PeerRow> all;
    std::ifstream file(std::string(FP16LAB_SOURCE_DIR) + "/tests/golden/amp_op_lists.tsv");
    EXPECT_TRUE(file) << "tests/golden/amp_op_lists.tsv cannot be read";
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with('#')) continue;
      std::istringstream fields(line);
      std::string dialect, level, dtype, list, name;
      fields >> dialect >> level >> dtype >> list >> name;
      all.push_back({enumerator_called<amp::Dialect>(dialect).value(),
                     enumerator_called<amp::Level>(level).value(),
                     dtype == "any"   ? std::vector{DType::f16, DType::bf16}
                     : dtype == "f16" ? std::vector{DType::f16}
                                      : std::vector{DType::bf16},
                     list_from(list), name});
    }
    return all;
  }();
  return rows;
}

std::string where(const PeerRow& row, DType dtype) {
  return std::string(name_of(row.dialect)) + " " + std::string(name_of(row.level)) + " " +
         std::string(name_of(dtype)) + " " + row.name;
}

TEST(PeerLists, EveryListedOpThatWeHaveIsInTheSameListHere) {
  std::map<Dialect, int> compared;
  for (const PeerRow& row : peer_rows()) {
    const std::optional<Op> op = amp::op_from_name(row.dialect, row.name);
    if (!op) continue;  // an op that this engine does not have
    for (const DType dtype : row.dtypes) {
      ++compared[row.dialect];
      EXPECT_EQ(name_of(amp::row_of(row.dialect, row.level, dtype, *op).list), name_of(row.list))
          << where(row, dtype) << ", here " << name_of(*op);
    }
  }
  // The number of their ops that exist here; fewer would mean that names were lost.
  EXPECT_GE(compared[Dialect::torch], 2 * 25);
  EXPECT_GE(compared[Dialect::paddle], 2 * 20);
  EXPECT_GE(compared[Dialect::mindspore], 2 * 8);
}

TEST(PeerLists, EveryNamedRowHereIsInTheirList) {
  for (const Dialect dialect : {Dialect::torch, Dialect::paddle, Dialect::mindspore}) {
    for (const Level named : amp::levels_of(dialect)) {
      const Level level = named == Level::automatic_r1_7 ? Level::O2 : named;  // its meaning
      for (const DType dtype : {DType::f16, DType::bf16}) {
        for (const amp::OpListRow& row : amp::op_lists(dialect, level, dtype)) {
          if (row.name.empty() || row.list == OpList::follows) continue;
          const bool theirs = std::any_of(peer_rows().begin(), peer_rows().end(), [&](const PeerRow& peer) {
            return peer.dialect == dialect && peer.level == level && peer.list == row.list &&
                   peer.name == row.name &&
                   std::find(peer.dtypes.begin(), peer.dtypes.end(), dtype) != peer.dtypes.end();
          });
          EXPECT_TRUE(theirs) << name_of(dialect) << " " << name_of(level) << " " << name_of(dtype) << ": "
                              << row.name << " is not in their " << name_of(row.list) << " list";
        }
      }
    }
  }
}

}  // namespace
}  // namespace fp16lab::engine
