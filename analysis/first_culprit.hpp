// What would have saved a value that overflowed: advice from the facts of a culprit. Only lower scales have
// been tried (`finite_scale`).
//
// A value that is finite in FP32, but beyond what its 16-bit dtype rounds to a finite number, would have been
// saved by a cast to FP32; in a backward pass, by a lower loss scale too, because gradients carry S as a
// factor: dividing S by 2^k takes k binades off every one of them. A value that is no finite number in FP32
// of the same operands either is the model's, or the data's; with zeros among them it may be that 16 bits
// rounded these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "numerics/files/run/run_schema.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::analysis {

/// The least k >= 0 with which magnitude * 2^-k does not overflow (FormatRange::overflows).
/// std::invalid_argument unless `magnitude` is finite and >= 0, and for a dtype without a range.
std::uint64_t binades_above(double magnitude, DType dtype);

/// Fills verdict, black, excluded, binades and advice from the other members. The culprit hides what comes
/// after it: `finite_scale` is about the whole step, everything else about this culprit only, and the advice
/// says which is which.
void advise(CulpritRow& row);

/// "linear in fc2 gave fc2.output (8, 10)[2, 3] = inf (f16) of finite operands, 91234.5 in FP32; |input| in
/// [0.01, 2], 3 of 64 zero"
std::string description(const CulpritRow& row);

/// One line for a terminal: step, pass, description and advice.
std::string culprit_line(const CulpritRow& row);

/// Reports a step in full the first time; later steps in which the same happened share one line at the end:
/// "the same in steps 2 to 20, at scales from 2^59 down to 2^41".
class ToldOnce {
 public:
  /// Is it the first of its kind?
  bool is_new(const std::string& kind, std::uint64_t step, double loss_scale);
  /// A line for each kind that came again; it names the kind where there were several.
  std::vector<std::string> again() const;

 private:
  struct Kind {
    std::string name;
    std::uint64_t told = 0;                        ///< the step in which it was new
    std::uint64_t count = 0, first = 0, last = 0;  ///< steps after it
    double lowest = 0, highest = 0;
  };
  std::vector<Kind> kinds_;
};
/// "the backward of cast in loss gave loss.prediction": what two culprits have in common that are the same.
std::string kind_of(const CulpritRow& row);

}  // namespace fp16lab::analysis
