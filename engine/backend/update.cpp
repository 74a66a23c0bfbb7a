#include "engine/backend/update.hpp"

#include "engine/backend/update_rules.hpp"

namespace fp16lab::engine {

const UpdateRuleInfo& info_of(UpdateRule rule) {
#define FP16LAB_INFO(row, functor)                                         \
  {functions::updates::functor::name, functions::updates::functor::states, \
   &functions::updates::functor::uses,                                     \
   UpdateRule::row == UpdateRule::follow || UpdateRule::row == UpdateRule::normalise},
  static constexpr UpdateRuleInfo table[] = {FP16LAB_UPDATE_RULES(FP16LAB_INFO)};
#undef FP16LAB_INFO
  return table[static_cast<std::size_t>(rule)];
}

}  // namespace fp16lab::engine
