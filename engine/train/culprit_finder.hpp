// CulpritFinder: follows every value of a training step, and knows which operation made the first Inf or NaN.
//
// Every value is counted (Backend::histogram) when it is recorded. One that is not finite, from operands that
// all are, is an event, whose facts are all recorded at once, while operands are still there; values that
// come from it inherit its number. At the end of the step those events count that have reached the loss or
// the gradient of a parameter: a mask of -infinity in front of a softmax is an event too, and a harmless one.
// A zero that rounding to 16 bits made is followed as well: an operand that holds one is called "relu of act
// (rounded to zero by scale of act)".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/autograd/tape.hpp"
#include "engine/backend/backend.hpp"
#include "engine/train/observer.hpp"

namespace fp16lab::engine {

/// The facts about a value.
struct ValueMark {
  bool known = false;
  bool nan = false;          ///< it holds a NaN
  std::uint16_t origin = 0;  ///< the number of what made it non-finite; 0: all finite, if known
  bool finite() const { return known && origin == 0; }
};

class CulpritFinder final : public Tap {
 public:
  explicit CulpritFinder(Backend& backend) : backend_(&backend) {}

  /// A new step begins.
  void clear();
  /// `variable` is what the network gets of `inputs`: themselves, or their cast to 16 bits.
  void on_network_input(Tape& tape, const Variable& variable, const Tensor& inputs);
  /// A loss of 16 bits, S in its dtype, and their product.
  void on_scaled_loss(Tape& tape, const Tensor& loss, const Tensor& seed, const Tensor& scaled);
  /// The first culprit of each pass in the step so far; those that have reached nothing only without others.
  std::vector<CulpritRow> culprits() const;

  bool wants(const Site& site) override { return site.what == What::values; }
  void see(const Event& event) override;

 private:
  struct Found {
    bool weak = false;  ///< an infinity that a model may well intend: it only counts where nothing else does
    CulpritRow facts;
  };
  /// The facts about the node with this number, in its generation.
  struct Known {
    std::uint64_t generation = 0;
    ValueMark mark;
    std::uint16_t rounding = 0;  ///< 1 + index in roundings_ of what rounded its zeros; 0: nothing known did
  };
  struct NamedTensor {
    std::string name;
    Tensor tensor;
  };

  void see(const Recorded& recorded);
  void see(const Seeded& seeded);
  void see(const VjpGave& gave);
  void see(const GradientAdded& added);
  void see(const ParameterGradient& whole);
  ValueMark mark_of(Tape& tape, const Variable& variable);
  void adopt(const Variable& variable, ValueMark mark);
  /// The mark of the gradient of a node's result, in the pass that runs.
  ValueMark& gradient_mark(std::uint32_t node);

  ValueMark counted(const Tensor& tensor);
  ValueMark counted(const Tensor& tensor, ExponentHistogram& counts);
  std::uint16_t rounding_of(const Variable& variable) const;
  /// Known::rounding of a result with these counts: rounded to zero here, elementwise, or before.
  std::uint16_t rounding_in(const Recorded& recorded, const ExponentHistogram& counts);
  std::uint16_t worse(std::uint16_t a, std::uint16_t b) const;
  std::uint16_t inherited(std::span<const ValueMark> marks) const;
  bool weak(std::uint16_t origin) const { return origin != 0 && events_[origin - 1].weak; }
  void reached(std::uint16_t origin);
  /// Records the facts of an event, and numbers it. `element`: the first value that matters.
  std::uint16_t add(CulpritRow facts, const Tensor& value, std::span<const NamedTensor> operands,
                    const Tensor& wide, std::uint64_t element, bool is_weak = false);
  CulpritRow site_of(Tape& tape, Op op) const;
  std::string name_of_operand(Tape& tape, const Variable& operand, SlotLabel label) const;
  std::vector<float> host_values(const Tensor& tensor);
  std::uint64_t first_nonfinite(const Tensor& tensor);
  /// The first element of an elementwise result that is not finite although its operands are; the count if
  /// there is none.
  std::uint64_t first_new(const Tensor& value, std::span<const NamedTensor> operands);

  Backend* backend_;
  std::vector<Known> known_;  ///< by node id
  /// By the depth of nested passes, and by node id.
  std::vector<std::vector<ValueMark>> gradient_marks_;
  std::size_t depth_ = 0;
  ValueMark given_;  ///< the mark given last to a gradient
  std::vector<Found> events_;
  std::vector<std::string> roundings_;  ///< "multiply of act": 16 bits rounded some of its results to zero
  double loss_scale_ = 1;
};

}  // namespace fp16lab::engine
