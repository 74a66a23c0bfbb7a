#include "engine/parallel/shard_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/parallel/chunk_range.hpp"
#include "engine/parallel/nccl_order.hpp"
#include "engine/parallel/tree_fold.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab::engine::parallel {

namespace {

// Values of shards as they travel: divided, rounded to the wire's format, and back.

/// visit(T{}) with the element type that travels.
template <class Visit>
void visit_wire(DType wire, const Visit& visit) {
  switch (wire) {
    case DType::f32:
      return visit(float{});
    case DType::f16:
      return visit(Float16{});
    case DType::bf16:
      return visit(BFloat16{});
    default:
      throw std::invalid_argument(
          fmt::format("shards travel as f32, f16 or bf16; {} is none of them", name_of(wire)));
  }
}

/// Rows are far apart, so that the processor does not foresee where the next block begins.
template <class T>
void prefetch([[maybe_unused]] const T* values, [[maybe_unused]] std::size_t count) {
#if defined(__GNUC__)
  constexpr std::size_t line = 64 / sizeof(T);
  for (std::size_t i = 0; i < count; i += line) __builtin_prefetch(values + i);
#endif
}

/// One block of a shard's values as they travel: divided, then rounded. It returns `room`, or `values` where
/// nothing is to be done.
template <class T>
std::span<const T> as_sent(std::span<const float> values, float divisor, std::span<T> room) {
  if constexpr (std::is_same_v<T, float>) {
    if (divisor == 1) return values;
    divide_row(values, divisor, room);
  } else {
    float divided[TreeFold<T>::block];
    if (divisor != 1) {
      divide_row(values, divisor, std::span(divided).first(values.size()));
      values = std::span(divided).first(values.size());
    }
    narrow(values, room);
  }
  return room;
}

template <class T, class F>
std::span<const T> as_sent(std::span<const SmallFloat<F>> values, float divisor, std::span<T> room) {
  if constexpr (std::is_same_v<T, float>) {
    widen(values, room);
    if (divisor != 1) divide_row(room, divisor, room);
    return room;
  } else {
    float wide[TreeFold<T>::block];
    widen(values, std::span(wide).first(values.size()));
    return as_sent(std::span<const float>(wide).first(values.size()), divisor, room);
  }
}

/// The way back, for any number of values; `sum` may be `out` itself.
template <class T>
void as_received(std::span<const T> sum, float divisor, std::span<float> out) {
  std::span<const float> values;
  if constexpr (std::is_same_v<T, float>) {
    values = sum;
  } else {
    widen(sum, out);
    values = out;
  }
  if (divisor != 1)
    divide_row(values, divisor, out);
  else if (values.data() != out.data())
    std::ranges::copy(values, out.begin());
}

constexpr std::size_t block = TreeFold<float>::block;
/// Elements that one thread adds at a time, where there are enough of them to be shared.
constexpr std::size_t task_elements = 32 * block;

bool is_nccl(SumOrder order) { return order == SumOrder::nccl_ring || order == SumOrder::nccl_tree; }

/// `count` elements of a buffer that grows and is kept.
template <class T>
std::span<T> room_for(std::vector<std::byte>& buffer, std::size_t count) {
  if (buffer.size() < count * sizeof(T)) buffer.resize(count * sizeof(T));
  return {reinterpret_cast<T*>(buffer.data()), count};
}

}  // namespace

/// One call that is under way. The values that this rank sends are in `parts`: for every owner its slices of
/// all nodes of this rank; those that it receives in `arrived`: by rank, slices of that rank's nodes.
struct ShardTree::Transfer {
  WireOptions wire;
  Divisors divisors;
  std::vector<Stack> stacks;  ///< their rows until they have been read
  std::size_t elements = 0;   ///< all parts'
  std::vector<std::byte> parts, arrived, result;
  std::uint64_t ticket = 0;
  bool returning = false;  ///< the slices are summed, and on their way to all
  std::unique_ptr<Exchange> exchange;

  /// All elements in the type that travels: the result's own memory if that is one array of FP32.
  template <class T>
  std::span<T> sums() {
    if constexpr (std::is_same_v<T, float>)
      if (stacks.size() == 1) return stacks.front().out_;
    return room_for<T>(result, elements);
  }

  /// body(stack, offset, at, count) for what stacks have of elements [first, first + size): `count` elements
  /// from the stack's `offset` on, which are [at, at + count) of the range.
  template <class Body>
  void for_each_run(std::size_t first, std::size_t size, const Body& body) const {
    std::size_t begin = 0;
    for (const Stack& stack : stacks) {
      const std::size_t end = begin + stack.out_.size();
      const std::size_t from = std::max(begin, first), to = std::min(end, first + size);
      if (from < to) body(stack, from - begin, from - first, to - from);
      begin = end;
    }
  }
};

class ShardTree::Work {
 public:
  Work(Communicator& communicator, const Shards& shards, int threads)
      : communicator_(&communicator), shards_(shards), threads_(threads) {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Shards run = placed_shards(shards.total, ranks(), rank);
      subtrees_.push_back(aligned_subtrees(run.first, run.local));
      std::vector<Subtree>& each = single_.emplace_back();
      for (std::int64_t i = 0; i < run.local; ++i) each.push_back({0, run.first + i});
    }
  }

  /// Adds what can be added here, and sends the rest.
  void start(const WireOptions& wire, Divisors divisors, std::span<const Stack> stacks) {
    const FloatingPointScope scope;
    if (idle_.empty()) idle_.push_back(std::make_unique<Transfer>());
    Transfer& transfer = *idle_.back();
    transfer.wire = wire;
    transfer.divisors = divisors;
    transfer.stacks.assign(stacks.begin(), stacks.end());
    transfer.elements = 0;
    for (const Stack& stack : stacks) {
      const std::size_t values = stack.rows_.size() / size_of(stack.dtype_);
      if (values != stack.out_.size() * static_cast<std::size_t>(shards_.local))
        throw std::invalid_argument(fmt::format("a sum over shards of {} values has {} of {} local shards",
                                                stack.out_.size(), values, shards_.local));
      transfer.elements += stack.out_.size();
    }
    transfer.returning = false;
    if (nodes_of(wire)[here()].size() == 1 && ranks() == 1)
      return visit_wire(wire.wire, [&]<class T>(T) { add_whole_tree<T>(transfer); });
    visit_wire(wire.wire, [&]<class T>(T) { send_parts<T>(transfer); });
    under_way_.push_back(std::move(idle_.back()));
    idle_.pop_back();
  }

  void poll() {
    const FloatingPointScope scope;
    std::erase_if(under_way_, [&](std::unique_ptr<Transfer>& transfer) {
      if (!advance(*transfer, false)) return false;
      idle_.push_back(std::move(transfer));
      return true;
    });
  }

  void finish() {
    for (poll(); !under_way_.empty(); poll()) finish_one(under_way_.begin());
  }
  /// Starts one, and waits for it alone.
  void form(const WireOptions& wire, Divisors divisors, const Stack& stack) {
    const std::size_t others = under_way_.size();
    start(wire, divisors, {&stack, 1});
    if (under_way_.size() > others) finish_one(under_way_.end() - 1);
  }

 private:
  int ranks() const { return communicator_->size(); }
  std::size_t here() const { return static_cast<std::size_t>(communicator_->rank()); }

  /// What ranks send of their runs: every shard where the order is NCCL's, else whole subtrees.
  const std::vector<std::vector<Subtree>>& nodes_of(const WireOptions& wire) const {
    return is_nccl(wire.order) ? single_ : subtrees_;
  }

  /// By seat (share_tasks).
  template <class T>
  std::vector<TreeFold<T>>& folds() {
    if constexpr (std::is_same_v<T, float>)
      return folds_f32_;
    else if constexpr (std::is_same_v<T, Float16>)
      return folds_f16_;
    else
      return folds_bf16_;
  }

  /// body(first, fold) for blocks that cover [0, n), on several threads where there is enough to do: the fold
  /// is empty and has the block's size.
  template <class T, class Body>
  void for_each_block(std::size_t n, const Body& body) {
    std::vector<TreeFold<T>>& of_seats = folds<T>();
    if (of_seats.empty()) of_seats.resize(static_cast<std::size_t>(threads_));
    share_tasks((n + task_elements - 1) / task_elements, threads_, [&](std::size_t task, std::size_t seat) {
      TreeFold<T>& fold = of_seats[seat];
      const std::size_t end = std::min(n, (task + 1) * task_elements);
      for (std::size_t first = task * task_elements; first < end; first += block) {
        fold.begin(std::min(block, end - first));
        body(first, fold);
      }
    });
  }

  /// A slice of every node of the other ranks.
  template <class T>
  std::span<T> arrived_room(Transfer& transfer, std::size_t slice) {
    const std::vector<std::vector<Subtree>>& nodes = nodes_of(transfer.wire);
    std::size_t others = 0;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) others += rank == here() ? 0 : nodes[rank].size();
    return room_for<T>(transfer.arrived, others * slice);
  }

  /// Pushes the subtree's shards of a stack's elements from `first` on.
  template <class T>
  void push_shards(const Transfer& transfer, const Subtree& subtree, const Stack& stack, std::size_t first,
                   TreeFold<T>& fold) {
    for (std::int64_t shard = subtree.first(); shard < subtree.first() + subtree.count(); ++shard) {
      const auto row = static_cast<std::size_t>(shard - shards_.first);
      const std::size_t at = row * stack.out_.size() + first;
      with_element_type(stack.dtype_, [&]<class Element>(Element) {
        const std::span values(reinterpret_cast<const Element*>(stack.rows_.data()) + at, fold.room().size());
        prefetch(values.data() + block, std::min(block, stack.out_.size() - first - values.size()));
        fold.push(as_sent(values, transfer.divisors.before, fold.room()), 0);
      });
    }
  }

  /// node[i] = the sum of its shards' elements first + i.
  template <class T>
  void add_node(const Transfer& transfer, const Subtree& subtree, std::size_t first, std::span<T> node) {
    transfer.for_each_run(first, node.size(),
                          [&](const Stack& stack, std::size_t offset, std::size_t at, std::size_t count) {
                            for_each_block<T>(count, [&](std::size_t begin, TreeFold<T>& fold) {
                              push_shards(transfer, subtree, stack, offset + begin, fold);
                              std::ranges::copy(fold.result(), node.data() + at + begin);
                            });
                          });
  }

  /// The result, where all shards are here: nothing travels.
  template <class T>
  void add_whole_tree(const Transfer& transfer) {
    for (const Stack& stack : transfer.stacks)
      for_each_block<T>(stack.out_.size(), [&](std::size_t begin, TreeFold<T>& fold) {
        push_shards(transfer, subtrees_[here()].front(), stack, begin, fold);
        as_received(fold.result(), transfer.divisors.after, stack.out_.subspan(begin, fold.result().size()));
      });
  }

  template <class T>
  void send_parts(Transfer& transfer) {
    const std::vector<std::vector<Subtree>>& nodes = nodes_of(transfer.wire);
    const std::vector<Subtree>& own = nodes[here()];
    const std::size_t n = transfer.elements;
    if (transfer.wire.order == SumOrder::library) return sum_by_library<T>(transfer);
    const std::span<T> parts = room_for<T>(transfer.parts, own.size() * n);
    for (int owner = 0; owner < ranks(); ++owner) {
      const ChunkRange slice = chunk_range(n, owner, ranks());
      for (std::size_t i = 0; i < own.size(); ++i)
        add_node<T>(transfer, own[i], slice.begin,
                    parts.subspan(own.size() * slice.begin + i * slice.size(), slice.size()));
    }
    if (ranks() == 1) return;

    const std::size_t mine = chunk_range(n, communicator_->rank(), ranks()).size();
    const std::span<T> arrived = arrived_room<T>(transfer, mine);
    std::vector<Communicator::Outgoing> outgoing;
    std::vector<Communicator::Incoming> incoming;
    std::size_t at = 0;
    for (int other = 0; other < ranks(); ++other) {
      if (other == communicator_->rank()) continue;
      const ChunkRange slice = chunk_range(n, other, ranks());
      const std::size_t count = nodes[static_cast<std::size_t>(other)].size() * mine;
      outgoing.push_back(
          {other, std::as_bytes(parts.subspan(own.size() * slice.begin, own.size() * slice.size()))});
      incoming.push_back({other, std::as_writable_bytes(arrived.subspan(at, count))});
      at += count;
    }
    transfer.ticket = communicator_->next_ticket();
    transfer.exchange = communicator_->start(transfer.ticket, 0, outgoing, incoming);
  }

  void finish_one(std::vector<std::unique_ptr<Transfer>>::iterator transfer) {
    const FloatingPointScope scope;
    advance(**transfer, true);
    idle_.push_back(std::move(*transfer));
    under_way_.erase(transfer);
  }

  /// The subtrees of this rank, one after the other, and then MPI's sum over all ranks.
  template <class T>
  void sum_by_library(Transfer& transfer) {
    const std::span<T> sums = transfer.sums<T>();
    const std::span<T> node = room_for<T>(transfer.parts, sums.size());
    for (std::size_t i = 0; i < subtrees_[here()].size(); ++i) {
      add_node<T>(transfer, subtrees_[here()][i], 0, i == 0 ? sums : node);
      if (i > 0) add_rows(std::span<const T>(sums), std::span<const T>(node), sums);
    }
    communicator_->library_sum(std::as_writable_bytes(sums), transfer.wire.wire);
    if constexpr (std::is_same_v<T, float>)
      for (float& sum : sums) sum = canonicalize(sum);
    transfer.returning = true;
  }

  /// True when the result is there.
  bool advance(Transfer& transfer, bool waits) {
    while (true) {
      if (transfer.exchange != nullptr) {
        if (waits) communicator_->wait(*transfer.exchange);
        if (!transfer.exchange->done()) return false;
        transfer.exchange.reset();
      }
      if (transfer.returning) break;
      visit_wire(transfer.wire.wire, [&]<class T>(T) { add_slice<T>(transfer); });
      transfer.returning = true;
    }
    visit_wire(transfer.wire.wire, [&]<class T>(T) {
      const std::span<const T> sums = transfer.sums<T>();
      std::size_t begin = 0;
      for (const Stack& stack : transfer.stacks) {
        as_received(sums.subspan(begin, stack.out_.size()), transfer.divisors.after, stack.out_);
        begin += stack.out_.size();
      }
    });
    return true;
  }

  /// This rank's slice of the result, and its way to all others.
  template <class T>
  void add_slice(Transfer& transfer) {
    const std::vector<std::vector<Subtree>>& nodes = nodes_of(transfer.wire);
    const std::size_t n = transfer.elements;
    const ChunkRange slice = chunk_range(n, communicator_->rank(), ranks());
    std::vector<std::span<T>> rows;
    std::vector<int> levels;
    const std::span<T> parts = room_for<T>(transfer.parts, nodes[here()].size() * n);
    const std::span<T> arrived = arrived_room<T>(transfer, slice.size());
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank)
      for (std::size_t i = 0; i < nodes[rank].size(); ++i) {
        levels.push_back(nodes[rank][i].level);
        if (rank == here()) {
          rows.push_back(parts.subspan(nodes[rank].size() * slice.begin + i * slice.size(), slice.size()));
        } else {
          rows.push_back(arrived.subspan(at, slice.size()));
          at += slice.size();
        }
      }
    const std::span<T> sums = transfer.sums<T>();
    const std::span<T> own = sums.subspan(slice.begin, slice.size());
    if (is_nccl(transfer.wire.order)) {
      all_reduce<T>(transfer.wire.order, rows, slice.begin, n);
      std::ranges::copy(rows.front(), own.begin());
    } else {
      for_each_block<T>(slice.size(), [&](std::size_t begin, TreeFold<T>& fold) {
        const std::size_t count = fold.room().size();
        for (std::size_t row = 0; row < rows.size(); ++row)
          fold.push(rows[row].subspan(begin, count), levels[row]);
        std::ranges::copy(fold.result(), own.data() + begin);
      });
    }
    if (ranks() == 1) return;

    std::vector<Communicator::Outgoing> outgoing;
    std::vector<Communicator::Incoming> incoming;
    for (int other = 0; other < ranks(); ++other) {
      if (other == communicator_->rank()) continue;
      const ChunkRange theirs = chunk_range(n, other, ranks());
      outgoing.push_back({other, std::as_bytes(own)});
      incoming.push_back({other, std::as_writable_bytes(sums.subspan(theirs.begin, theirs.size()))});
    }
    transfer.exchange = communicator_->start(transfer.ticket, 1, outgoing, incoming);
  }

  Communicator* communicator_;
  Shards shards_;
  std::vector<std::vector<Subtree>> subtrees_, single_;  ///< by rank
  int threads_;
  std::vector<TreeFold<float>> folds_f32_;
  std::vector<TreeFold<Float16>> folds_f16_;
  std::vector<TreeFold<BFloat16>> folds_bf16_;
  std::vector<std::unique_ptr<Transfer>> under_way_, idle_;
};

ShardTree::Stack::Stack(const Tensor& rows, std::span<float> out)
    : rows_(rows.data(), rows.byte_count()), dtype_(rows.dtype()), out_(out) {
  with_element_type(dtype_, []<class Element>(Element) {});
  if (!rows.on_host()) throw std::invalid_argument("a sum over shards of values in a device's memory");
}

ShardTree::ShardTree(Communicator& communicator, const Shards& shards, const WireOptions& wire, int threads)
    : shards_(shards), wire_(wire) {
  const Shards here = placed_shards(shards.total, communicator.size(), communicator.rank());
  if (shards != here)
    throw std::invalid_argument(
        fmt::format("rank {} of {} holds {} shards from {} of {}; expected {} from {}", communicator.rank(),
                    communicator.size(), shards.local, shards.first, shards.total, here.local, here.first));
  visit_wire(wire.wire, [](auto) {});
  work_ = std::make_unique<Work>(communicator, shards, threads);
}
ShardTree::~ShardTree() = default;

void ShardTree::sum(std::span<const float> stack, std::span<float> out) { work_->form({}, {}, {stack, out}); }
void ShardTree::mean(std::span<const float> stack, std::span<float> out) {
  work_->poll();
  work_->form(wire_of_mean(), divisors_of_mean(), {stack, out});
}
void ShardTree::start_mean(std::span<const Stack> stacks) {
  work_->poll();
  work_->start(wire_of_mean(), divisors_of_mean(), stacks);
}
void ShardTree::poll() { work_->poll(); }
void ShardTree::finish() { work_->finish(); }

// One shard is a copy: nothing travels, and nothing is rounded.
WireOptions ShardTree::wire_of_mean() const { return shards_.total == 1 ? WireOptions{} : wire_; }
Divisors ShardTree::divisors_of_mean() const {
  return shards_.total == 1 ? Divisors{} : divisors_of(wire_.predivide, shards_.total);
}

Divisors divisors_of(Predivide predivide, std::int64_t count) {
  const auto all = static_cast<float>(count);
  switch (predivide) {
    case Predivide::one:
      return {1, all};
    case Predivide::root: {
      const float root = std::sqrt(all);
      return {root, all / root};
    }
    case Predivide::all:
      return {all, 1};
  }
  throw std::logic_error("unknown predivide");
}

}  // namespace fp16lab::engine::parallel
