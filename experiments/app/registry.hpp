// The names that users may type, asked from the modules that own them.
#pragma once

#include <string>
#include <vector>

namespace fp16lab::experiments {

std::vector<std::string> dataset_names();      ///< data.name
std::vector<std::string> policy_names();       ///< scaler.policy
std::vector<std::string> tensor_core_names();  ///< backend.tensor_core: generations, then chips
/// backend.library: the plans whose rule asks nothing that only a user can tell, such as a split of K.
std::vector<std::string> library_names();

}  // namespace fp16lab::experiments
