#include "engine/backend/emulated/recording.hpp"

#include <new>

namespace fp16lab::engine {

namespace {

/// What CastProbe::pending holds here.
struct PendingCounts {
  ExponentHistogram before, after;
};

PendingCounts& counts_in(const Tensor& pending) { return *reinterpret_cast<PendingCounts*>(pending.data()); }

}  // namespace

class VerbRecording::Addresses final : public MemoryResource {
 public:
  std::byte* allocate(std::size_t) noexcept override { return next; }
  void deallocate(std::byte*, std::size_t) noexcept override {}
  bool host_accessible() const override { return true; }

  std::byte* next = nullptr;
};

VerbRecording::VerbRecording(Backend& backend)
    : backend_(&backend), addresses_(new Addresses), pool_(std::unique_ptr<MemoryResource>(addresses_)) {
  pool_.begin_recording();  // a block may be known here by several sizes, all of which may be used
}

Tensor& VerbRecording::tensor(const Tensor& x) {
  last_elements_ = x.element_count();
  if (!x.defined() || !made_.contains(x.data())) return own(x);
  addresses_->next = x.data();
  return own(Tensor(pool_.allocate(x.byte_count()), x.shape(), x.dtype()));
}

std::span<Tensor> VerbRecording::kept(std::span<const Tensor> tensors) {
  std::vector<Tensor>& all = own(std::vector<Tensor>());
  for (const Tensor& one : tensors) all.push_back(tensor(one));
  return all;
}

// ---- counts ----

CastProbe* VerbRecording::counting(CastProbe* probe, std::int64_t elements) {
  if (probe == nullptr) return nullptr;
  probe->counted += static_cast<std::uint64_t>(elements);
  if (!probe->pending.defined()) {
    probe->pending = backend_->empty({static_cast<std::int64_t>(sizeof(PendingCounts))}, DType::u8);
    verbs_.emplace_back([at = probe->pending.data()] { new (at) PendingCounts; });
  }
  CastProbe& replayed = own(CastProbe());
  counted_.emplace_back([&replayed, &pending = counts_in(probe->pending)] {
    pending.before += replayed.before;
    pending.after += replayed.after;
    replayed = {};
  });
  return &replayed;
}

void VerbRecording::hand_counts_over() {
  for (std::function<void()>& counted : counted_) verbs_.push_back(std::move(counted));
  counted_.clear();
}

/// Counts are pending in recordings alone.
void EmulatedBackend::do_settle(std::span<CastProbe* const> probes) {
  for (CastProbe* const probe : probes) {
    if (!probe->pending.defined()) continue;
    const PendingCounts& counts = counts_in(probe->pending);
    probe->before += counts.before;
    probe->after += counts.after;
    probe->pending = {};
  }
}

// ---- calls ----

CastCall VerbRecording::kept(const CastCall& call) {
  return {.x = tensor(call.x),
          .out = tensor(call.out),
          .probe = counting(call.probe, call.out.element_count()),
          .stream = call.stream == nullptr ? nullptr : &own(*call.stream),
          .step = tensor(call.step)};
}

BinaryCall VerbRecording::kept(const BinaryCall& call) {
  return {.op = call.op,
          .a = tensor(call.a),
          .b = tensor(call.b),
          .scalar = call.scalar,
          .out = tensor(call.out)};
}

DrawCall VerbRecording::kept(const DrawCall& call) {
  return {.distribution = call.distribution,
          .first = call.first,
          .second = call.second,
          .stream = own(call.stream),
          .step = tensor(call.step),
          .out = tensor(call.out)};
}

GradientPassCall VerbRecording::kept(const GradientPassCall& call) {
  return {.pass = call.pass,
          .gradients = kept(call.gradients),
          .step = tensor(call.step),
          .limit = call.limit,
          .optimizer = call.optimizer};
}

UpdateCall VerbRecording::kept(const UpdateCall& call) {
  UpdateCall copy{.rule = call.rule,
                  .options = call.options,
                  .weight = tensor(call.weight),
                  .gradient = tensor(call.gradient),
                  .optimizer = call.optimizer,
                  .step = tensor(call.step),
                  .store = call.store};
  for (std::size_t i = 0; i < copy.states.size(); ++i) copy.states[i] = tensor(call.states[i]);
  for (std::size_t i = 0; i < copy.norms.size(); ++i) copy.norms[i] = tensor(call.norms[i]);
  copy.store.compensation = tensor(call.store.compensation);
  return copy;
}

LstmCellCall VerbRecording::kept(const LstmCellCall& call) {
  return {.step = call.step,
          .products = tensor(call.products),
          .recurrent = tensor(call.recurrent),
          .gates = tensor(call.gates),
          .cells = tensor(call.cells),
          .outputs = tensor(call.outputs),
          .hidden = tensor(call.hidden)};
}

LstmCellGradientCall VerbRecording::kept(const LstmCellGradientCall& call) {
  const Tensor* const previous = call.previous_cell_gradient;
  return {.step = call.step,
          .gates = tensor(call.gates),
          .cells = tensor(call.cells),
          .gradient = tensor(call.gradient),
          .hidden_gradient = tensor(call.hidden_gradient),
          .cell_gradient = tensor(call.cell_gradient),
          .gate_gradients = tensor(call.gate_gradients),
          .step_gradients = tensor(call.step_gradients),
          .previous_cell_gradient = tensor(previous),
          .probe = counting(call.probe, call.step_gradients.element_count()),
          .cell_probe = previous == nullptr ? nullptr : counting(call.cell_probe, previous->element_count())};
}

GemmCall VerbRecording::kept(const GemmCall& call) {
  if (call.a_format.quantizer != nullptr)
    throw std::invalid_argument(
        "gemm: operands with scales for blocks cannot be recorded, since the host keeps what they lost; "
        "expected train.graph = false with amp.recipe");
  return {.a = tensor(call.a),
          .b = tensor(call.b),
          .out = tensor(call.out),
          .transpose_a = call.transpose_a,
          .transpose_b = call.transpose_b,
          .bias = tensor(call.bias),
          .addend = tensor(call.addend),
          .probe = counting(call.probe, call.out.element_count()),
          .a_format = call.a_format,
          .b_format = call.b_format,
          .tf32 = call.tf32,
          .packed_b = tensor(call.packed_b)};
}

Conv2dCall VerbRecording::kept(const Conv2dCall& call) {
  return {.product = call.product,
          .a = tensor(call.a),
          .b = tensor(call.b),
          .geometry = own(call.geometry),
          .bias = tensor(call.bias),
          .out = tensor(call.out),
          .probe = counting(call.probe, call.out.element_count())};
}

}  // namespace fp16lab::engine
