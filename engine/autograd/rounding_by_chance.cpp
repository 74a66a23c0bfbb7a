// Rounding by chance: gradients that a backward pass rounds to 16 bits stochastically
// (StepContext::stochastic_gradients), and the names of the streams that each rounding draws from.
#include <fmt/format.h>

#include <iterator>
#include <stdexcept>

#include "engine/autograd/backward_pass.hpp"
#include "engine/autograd/by_shard.hpp"

namespace fp16lab::engine {

void BackwardPass::count_occurrences() {
  std::vector<std::uint32_t>& counts = scratch_.op_counts;
  counts.assign(tape_.scopes_.size() * op_count, 0);
  for (std::uint32_t id = 0; id < start_; ++id) {
    const Tape::Node& node = tape_.nodes_[id];
    entries_[id].occurrence = counts[node.scope * op_count + static_cast<std::size_t>(node.op)]++;
  }
}

BackwardPass::RoundedByChance::RoundedByChance(BackwardPass& pass, std::uint32_t id, std::uint32_t slot)
    : tape_(pass.tape_), outer_(pass.tape_.rounding_), rounding_{pass.scratch_.rounding_name, 0} {
  if (!tape_.context_.draws_roundings()) return;
  const Tape::Node& node = tape_.nodes_[id];
  const std::string& path = tape_.scopes_[node.scope].path;
  std::string& name = rounding_.name;
  name.clear();
  fmt::format_to(std::back_inserter(name), "{}{}{}.{}.{}", path, path.empty() ? "" : ".", name_of(node.op),
                 pass.entries_[id].occurrence, slot);
  rounding_.place = name.size();
  if (const Tape::Node& input = tape_.nodes_[tape_.slots_[node.first_slot + slot].input];
      input.row_steps > 1 && input.shape.rank() > 0) {
    rounding_.rows = input.shape[0];
    rounding_.steps = input.row_steps;
  }
  tape_.rounding_ = &rounding_;
}

BackwardPass::RoundedByChance::RoundedByChance(BackwardPass& pass, const Parameter& parameter)
    : tape_(pass.tape_), outer_(pass.tape_.rounding_), rounding_{pass.scratch_.rounding_name, 0} {
  if (!tape_.context_.stochastic_gradients) return;
  rounding_.name = parameter.name;
  rounding_.place = rounding_.name.size();
  tape_.rounding_ = &rounding_;
}

PhiloxStream Tape::next_rounding(std::string_view what) {
  if (rounding_ == nullptr)
    throw std::logic_error(
        "Tape: a stochastic rounding outside of a backward pass, or without "
        "StepContext::stochastic_gradients "
        "or stochastic_operands, has no random words");
  std::string& name = rounding_->name;
  fmt::format_to(std::back_inserter(name), ".{}/{}", rounding_->count++, what);
  const PhiloxStream stream{.seed = context_.seed,
                            .stream = stream_id(name),
                            .iteration = 0,  // context_.step has it
                            .micro_batch = context_.micro_batch};
  name.resize(rounding_->place);
  return stream;
}

void Tape::round_stochastically(const Tensor& wide, Tensor& out, CastProbe* probe) {
  const PhiloxStream stream = next_rounding("gradient");
  const bool time_major = wide.shape().rank() > 0 && wide.shape()[0] == rounding_->rows;
  bool whole = false;
  for_each_drawn_part(context_.shards, time_major ? rounding_->steps : 1, wide.element_count(), 8, stream,
                      [&](const DrawnPart& part) {
                        whole = part.whole();
                        if (whole)
                          return backend_->cast_stochastic(wide, out, part.stream, context_.step, probe);
                        Tensor padded = backend_->empty({part.before + part.count}, DType::f32);
                        backend_->fill(padded, 0.0);
                        Tensor own = backend_->empty({part.count}, DType::f32);
                        backend_->slice(wide.reshaped({wide.element_count()}), 0, part.begin, own);
                        backend_->insert(own, 0, part.before, padded);
                        Tensor drawn = backend_->empty(padded.shape(), out.dtype());
                        backend_->cast_stochastic(padded, drawn, part.stream, context_.step, nullptr);
                        part.take(*backend_, drawn, out);
                      });
  if (whole || probe == nullptr) return;
  backend_->histogram(wide, probe->before);
  backend_->histogram(out, probe->after);
  probe->counted += static_cast<std::uint64_t>(out.element_count());
}

}  // namespace fp16lab::engine
