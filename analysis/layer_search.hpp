// The shortest list of layers to keep in FP32 that a search by trying finds.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace fp16lab::analysis {

struct LayerList {
  /// In the order given: with these in FP32 the error is at most the margin, and without any one of them it
  /// is not. Empty: none is needed. All: where `restored` is false.
  std::vector<std::string> layers{};
  std::map<std::string, double>
      damage{};        ///< the error with this layer alone in 16 bits; empty where none is needed
  double without = 0;  ///< the error with nothing in FP32
  double within = 0;   ///< with `layers`
  bool restored = true;
  std::size_t tried = 0;  ///< how many sets were asked for
};

/// `error_with`: how far a step is from that in FP32, with these layers in FP32: 0 or more, infinite where it
/// is not finite; asked once for each set, in the order of `layers`. Layers are ranked by the error with that
/// one alone in 16 bits where it is above the margin, then by the greater of it and `harm`: how far the
/// layer's own operations are from wide ones, 0 or more, for each of `layers`, or for none. (A layer that
/// inherits FP32 from the others does no damage alone, whatever its operations do.) The fewest of that
/// ranking which bring the error to the margin are looked for by bisection, and then any that can be left out
/// is, from the least of the ranking on. Another list may be shorter. std::invalid_argument: a `harm` of
/// another size.
LayerList shortest_list(std::span<const std::string> layers, double margin,
                        const std::function<double(const std::vector<std::string>&)>& error_with,
                        std::span<const double> harm = {});

}  // namespace fp16lab::analysis
