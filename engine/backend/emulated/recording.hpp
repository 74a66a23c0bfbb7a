// Recorded verbs of the emulated back end: each is kept with its arguments, and a replay does them in order.
//
// As in a CUDA graph, a recording keeps the address of a tensor that the recorded work made, not a share of
// it: so memory that the work gave back serves its later verbs, and a recording needs no more memory than a
// step. The pool keeps that memory apart (StoragePool::begin_recording). It keeps a share of other tensors.
// Counts go to memory of the back end (CastProbe::pending), which the recording empties before it counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/recording.hpp"
#include "engine/backend/verb_parameters.hpp"
#include "engine/tensor/storage.hpp"

namespace fp16lab::engine {

class VerbRecording final : public Recording {
 public:
  explicit VerbRecording(Backend& backend);
  void replay() override {
    for (const std::function<void()>& verb : verbs_) verb();
  }

  /// The work has made this tensor.
  void note_made(const Tensor& made) { made_.insert(made.data()); }
  /// The work is done.
  void finish() { made_ = {}; }

  /// Keeps verb(arguments...), to be called with the arguments that `kept` returns.
  template <class Verb, class... Arguments>
  void add(const Verb& verb, Arguments&... arguments) {
    const std::tuple kept_arguments{kept(arguments)...};  // in order, because of the braces
    verbs_.emplace_back([verb, kept_arguments] { std::apply(verb, kept_arguments); });
    hand_counts_over();
  }

  // ---- arguments: what they refer to must outlive the recording
  /// A plan, an enumerator, a number. What refers to something has a function of its own below.
  template <class Value>
  Value kept(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value> && std::is_copy_assignable_v<Value> &&
                  !std::is_pointer_v<Value> && !requires { value.data(); });
    return value;
  }
  std::reference_wrapper<Tensor> kept(const Tensor& x) { return tensor(x); }
  std::reference_wrapper<Tensor> kept(Tensor& x) { return tensor(x); }
  std::span<const int> kept(std::span<const int> numbers) {
    return own(std::vector(numbers.begin(), numbers.end()));
  }
  std::span<Tensor> kept(std::span<const Tensor> tensors);
  std::span<Tensor> kept(std::span<Tensor> tensors) { return kept(std::span<const Tensor>(tensors)); }
  /// For a verb that counts the elements of the tensor before this argument.
  CastProbe* kept(CastProbe* probe) { return counting(probe, last_elements_); }
  std::reference_wrapper<CastProbe> kept(CastProbe& probe) { return *counting(&probe, last_elements_); }
  CastCall kept(const CastCall& call);
  BinaryCall kept(const BinaryCall& call);
  DrawCall kept(const DrawCall& call);
  GradientPassCall kept(const GradientPassCall& call);
  UpdateCall kept(const UpdateCall& call);
  LstmCellCall kept(const LstmCellCall& call);
  LstmCellGradientCall kept(const LstmCellGradientCall& call);
  GemmCall kept(const GemmCall& call);
  Conv2dCall kept(const Conv2dCall& call);

 private:
  /// Gives tensors the addresses that it receives, and no memory.
  class Addresses;

  template <class Value>
  Value& own(Value value) {
    const auto holder = std::make_shared<Value>(std::move(value));
    owned_.push_back(holder);
    return *holder;
  }
  Tensor& tensor(const Tensor& x);
  Tensor* tensor(const Tensor* x) { return x == nullptr ? nullptr : &tensor(*x); }
  /// A probe for the replayed verb, which counts `elements`; hand_counts_over moves what it counted to where
  /// `probe` awaits it.
  CastProbe* counting(CastProbe* probe, std::int64_t elements);
  void hand_counts_over();

  Backend* backend_;
  std::vector<std::function<void()>> verbs_;
  std::vector<std::shared_ptr<void>> owned_;
  std::unordered_set<const std::byte*> made_;
  Addresses* addresses_;  ///< pool_'s
  StoragePool pool_;
  std::int64_t last_elements_ = 0;              ///< those of the last tensor that was kept
  std::vector<std::function<void()>> counted_;  ///< after the verb that is being kept
};

/// An emulated back end whose verbs can be recorded.
template <class Base>
class Recordable : public Base {
 public:
  using Base::Base;

  bool records() const override { return true; }
  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    refuse_if_recording("record");
    const RecordingMemory memory(this->pool());
    auto recording = std::make_unique<VerbRecording>(*this);
    const Recorded scope(recording_, recording.get());
    work();
    recording->finish();
    return recording;
  }
  double milliseconds(const std::function<void()>& work) override {
    refuse_if_recording("milliseconds");
    return Base::milliseconds(work);
  }
  Tensor empty(const Shape& shape, DType dtype) override {
    Tensor made = Base::empty(shape, dtype);
    if (recording_ != nullptr) recording_->note_made(made);
    return made;
  }

 protected:
#define FP16LAB_VERB(verb, ...)                                                 \
  void do_##verb(FP16LAB_PARAMETERS(__VA_ARGS__)) override {                    \
    keeper(#verb, [this](auto&&... given) { this->Base::do_##verb(given...); }) \
        FP16LAB_ARGUMENTS(__VA_ARGS__);                                         \
  }
  FP16LAB_BACKEND_VERBS(FP16LAB_VERB)
#undef FP16LAB_VERB

  std::uint64_t do_digest(std::span<const DigestItem> items) override {
    refuse_if_recording("digest");
    return Base::do_digest(items);
  }
  /// In a recording this verb becomes its constituent verbs.
  void do_count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient,
                       UpdateProbes& probes) override {
    if (recording_ == nullptr) return Base::do_count_update(before, weight, gradient, probes);
    Backend::do_count_update(before, weight, gradient, probes);
  }
  /// The memory must be there when the verbs that read it are kept: b is packed now for its size alone.
  Tensor do_pack_b(const GemmCall& call, const checks::GemmPlan& plan) override {
    Tensor packed = Base::do_pack_b(call, plan);
    if (recording_ == nullptr || !packed.defined()) return packed;
    GemmCall uncounted = call;
    uncounted.probe = nullptr;
    recording_->add([this](const GemmCall& kept, const checks::GemmPlan& its_plan,
                           Tensor& out) { this->copy(this->Base::do_pack_b(kept, its_plan), out); },
                    uncounted, plan, packed);
    return packed;
  }
  void rounded(Tensor& out) override {
    if constexpr (!std::is_same_v<Base, EmulatedBackend>)  // which has nothing to do
      keeper("rounded", [this](Tensor& given) { this->Base::rounded(given); })(out);
  }

 private:
  /// Verbs are recorded while it lives.
  class Recorded {
   public:
    Recorded(VerbRecording*& current, VerbRecording* recording) : current_(current) { current_ = recording; }
    ~Recorded() { current_ = nullptr; }
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;

   private:
    VerbRecording*& current_;
  };

  void refuse_if_recording(std::string_view verb) const {
    if (recording_ != nullptr) refuse_in_recording(verb);
  }
  /// Is it memory of the host, or counts that the caller needs at once?
  template <class Argument>
  static constexpr bool is_of_host =
      std::is_same_v<Argument, std::span<const std::byte>> ||
      std::is_same_v<Argument, std::span<std::byte>> || std::is_same_v<Argument, ExponentHistogram> ||
      std::is_same_v<Argument, std::span<CastProbe* const>>;
  template <class Verb, class First, class... Others>
  void keep_or_do(std::string_view name, const Verb& verb, First& first, Others&... others) {
    if (recording_ == nullptr) return verb(first, others...);
    if constexpr (std::is_same_v<First, std::string_view>)  // a transfer begins with its verb's name
      refuse_in_recording(first);
    else if constexpr (is_of_host<First> || (is_of_host<Others> || ...))
      refuse_in_recording(name);
    else
      recording_->add(verb, first, others...);
  }
  /// A function of the verb's arguments.
  template <class Verb>
  auto keeper(std::string_view name, const Verb& verb) {
    return [this, name, verb](auto&... arguments) { this->keep_or_do(name, verb, arguments...); };
  }

  VerbRecording* recording_ = nullptr;  ///< null: verbs are done
};

}  // namespace fp16lab::engine
