// The numbers of a described row (record.hpp).
#pragma once

#include <optional>
#include <type_traits>

#include "numerics/files/run/record.hpp"

namespace fp16lab {

/// Calls `visit` with each Field that is a double or an std::optional of one.
template <DescribedRecord Row, class Visit>
void for_each_number(const Visit& visit) {
  for_each_field<Row>([&](const auto& field) {
    using Member = std::remove_cvref_t<decltype(field.member)>;
    if constexpr (std::is_same_v<Member, double Row::*> ||
                  std::is_same_v<Member, std::optional<double> Row::*>)
      visit(field);
  });
}

}  // namespace fp16lab
