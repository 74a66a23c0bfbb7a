#include "engine/parallel/shard_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/parallel/chunk_range.hpp"
#include "engine/parallel/nccl_order.hpp"
#include "engine/parallel/tree_fold.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::engine::parallel {

namespace {

constexpr std::size_t block = TreeFold<float>::block;

/// body(first, count) for blocks that cover [0, n).
template <class Body>
void for_each_block(std::size_t n, const Body& body) {
  for (std::size_t first = 0; first < n; first += block) body(first, std::min(block, n - first));
}

/// out[i] = values[i] / divisor, NaN canonical.
void divide(std::span<const float> values, float divisor, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = canonicalize(values[i] / divisor);
}

/// One block of a shard's values as they travel: divided, then rounded. The span that is returned is `room`,
/// or `values` where nothing is to be done.
template <class T>
std::span<const T> as_sent(std::span<const float> values, float divisor, std::span<T> room) {
  if constexpr (std::is_same_v<T, float>) {
    if (divisor == 1) return values;
    divide(values, divisor, room);
  } else {
    float divided[block];
    if (divisor != 1) {
      divide(values, divisor, std::span(divided).first(values.size()));
      values = std::span(divided).first(values.size());
    }
    narrow(values, room);
  }
  return room;
}

/// The way back, of any number of values; `sum` may be `out` itself.
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
    divide(values, divisor, out);
  else if (values.data() != out.data())
    std::ranges::copy(values, out.begin());
}

bool is_nccl(SumOrder order) { return order == SumOrder::nccl_ring || order == SumOrder::nccl_tree; }

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

/// `count` elements of a buffer that grows and is kept.
template <class T>
std::span<T> room_for(std::vector<std::byte>& buffer, std::size_t count) {
  if (buffer.size() < count * sizeof(T)) buffer.resize(count * sizeof(T));
  return {reinterpret_cast<T*>(buffer.data()), count};
}

}  // namespace

/// One result that is being formed. The values that this rank sends lie in `parts`: for every owner its
/// slices of all nodes of this rank; those that it receives in `arrived`: by rank, slices of that rank's
/// nodes.
struct ShardTree::Transfer {
  WireOptions wire;
  Divisors divisors;
  std::span<float> out;
  std::vector<std::byte> parts, arrived, result;
  std::uint64_t ticket = 0;
  bool returning = false;  ///< the slices are summed, and on their way to all
  std::unique_ptr<Exchange> exchange;

  std::size_t elements() const { return out.size(); }
  /// All elements in the type that travels: the result's own memory if that is FP32.
  template <class T>
  std::span<T> sums() {
    if constexpr (std::is_same_v<T, float>)
      return out;
    else
      return room_for<T>(result, out.size());
  }
};

class ShardTree::Work {
 public:
  Work(Communicator& communicator, const Shards& shards) : communicator_(&communicator), shards_(shards) {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Shards run = placed_shards(shards.total, ranks(), rank);
      subtrees_.push_back(aligned_subtrees(run.first, run.local));
      std::vector<Subtree>& each = single_.emplace_back();
      for (std::int64_t i = 0; i < run.local; ++i) each.push_back({0, run.first + i});
    }
  }

  /// Adds what can be added here, and sends the rest.
  void start(const WireOptions& wire, Divisors divisors, std::span<const float> stack, std::span<float> out) {
    if (stack.size() != out.size() * static_cast<std::size_t>(shards_.local))
      throw std::invalid_argument(fmt::format("a sum over shards of {} values has {} of {} local shards",
                                              out.size(), stack.size(), shards_.local));
    const FloatingPointScope scope;
    if (idle_.empty()) idle_.push_back(std::make_unique<Transfer>());
    std::unique_ptr<Transfer> transfer = std::move(idle_.back());
    idle_.pop_back();
    transfer->wire = wire;
    transfer->divisors = divisors;
    transfer->out = out;
    transfer->returning = false;
    visit_wire(wire.wire, [&]<class T>(T) { send_parts<T>(*transfer, stack); });
    under_way_.push_back(std::move(transfer));
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
  /// The one that was started last.
  void finish_last() { finish_one(under_way_.end() - 1); }

 private:
  int ranks() const { return communicator_->size(); }
  std::size_t here() const { return static_cast<std::size_t>(communicator_->rank()); }

  /// What ranks send of their runs: every shard where the order is NCCL's, else whole subtrees.
  const std::vector<std::vector<Subtree>>& nodes_of(const WireOptions& wire) const {
    return is_nccl(wire.order) ? single_ : subtrees_;
  }

  template <class T>
  TreeFold<T>& fold() {
    if constexpr (std::is_same_v<T, float>)
      return fold_f32_;
    else if constexpr (std::is_same_v<T, Float16>)
      return fold_f16_;
    else
      return fold_bf16_;
  }

  /// A slice of every node of the other ranks.
  template <class T>
  std::span<T> arrived_room(Transfer& transfer, std::size_t slice) {
    const std::vector<std::vector<Subtree>>& nodes = nodes_of(transfer.wire);
    std::size_t others = 0;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) others += rank == here() ? 0 : nodes[rank].size();
    return room_for<T>(transfer.arrived, others * slice);
  }

  /// node[i] = the sum of its shards' elements first + i.
  template <class T>
  void add_node(const Transfer& transfer, const Subtree& subtree, std::span<const float> stack,
                std::size_t first, std::span<T> node) {
    for_each_block(node.size(), [&](std::size_t begin, std::size_t count) {
      fold<T>().begin(count);
      for (std::int64_t shard = subtree.first(); shard < subtree.first() + subtree.count(); ++shard) {
        const auto row = static_cast<std::size_t>(shard - shards_.first);
        const auto values = stack.subspan(row * transfer.elements() + first + begin, count);
        fold<T>().push(as_sent<T>(values, transfer.divisors.before, fold<T>().room()), 0);
      }
      std::ranges::copy(fold<T>().result(), node.begin() + static_cast<std::ptrdiff_t>(begin));
    });
  }

  template <class T>
  void send_parts(Transfer& transfer, std::span<const float> stack) {
    const std::vector<std::vector<Subtree>>& nodes = nodes_of(transfer.wire);
    const std::vector<Subtree>& own = nodes[here()];
    const std::size_t n = transfer.elements();
    if (ranks() == 1 && own.size() == 1) {
      add_node<T>(transfer, own.front(), stack, 0, transfer.sums<T>());
      transfer.returning = true;
      return;
    }
    if (transfer.wire.order == SumOrder::library) return sum_by_library<T>(transfer, stack);
    const std::span<T> parts = room_for<T>(transfer.parts, own.size() * n);
    for (int owner = 0; owner < ranks(); ++owner) {
      const ChunkRange slice = chunk_range(n, owner, ranks());
      for (std::size_t i = 0; i < own.size(); ++i)
        add_node<T>(transfer, own[i], stack, slice.begin,
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

  /// The subtrees of this rank, one after the other, and then what MPI makes of all ranks'.
  template <class T>
  void sum_by_library(Transfer& transfer, std::span<const float> stack) {
    const std::span<T> sums = transfer.sums<T>();
    const std::span<T> node = room_for<T>(transfer.parts, sums.size());
    for (std::size_t i = 0; i < subtrees_[here()].size(); ++i) {
      add_node<T>(transfer, subtrees_[here()][i], stack, 0, i == 0 ? sums : node);
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
      as_received<T>(transfer.sums<T>(), transfer.divisors.after, transfer.out);
    });
    return true;
  }

  /// This rank's slice of the result, and its way to all others.
  template <class T>
  void add_slice(Transfer& transfer) {
    const std::vector<std::vector<Subtree>>& nodes = nodes_of(transfer.wire);
    const std::size_t n = transfer.elements();
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
      for_each_block(slice.size(), [&](std::size_t begin, std::size_t count) {
        fold<T>().begin(count);
        for (std::size_t row = 0; row < rows.size(); ++row)
          fold<T>().push(rows[row].subspan(begin, count), levels[row]);
        std::ranges::copy(fold<T>().result(), own.begin() + static_cast<std::ptrdiff_t>(begin));
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
  TreeFold<float> fold_f32_;
  TreeFold<Float16> fold_f16_;
  TreeFold<BFloat16> fold_bf16_;
  std::vector<std::unique_ptr<Transfer>> under_way_, idle_;
};

ShardTree::ShardTree(Communicator& communicator, const Shards& shards, const WireOptions& wire)
    : shards_(shards), wire_(wire) {
  const Shards here = placed_shards(shards.total, communicator.size(), communicator.rank());
  if (shards != here)
    throw std::invalid_argument(
        fmt::format("rank {} of {} holds {} shards from {} of {}; expected {} from {}", communicator.rank(),
                    communicator.size(), shards.local, shards.first, shards.total, here.local, here.first));
  visit_wire(wire.wire, [](auto) {});
  work_ = std::make_unique<Work>(communicator, shards);
}
ShardTree::~ShardTree() = default;

void ShardTree::sum(std::span<const float> stack, std::span<float> out) {
  work_->start({}, {}, stack, out);
  work_->finish_last();
}
void ShardTree::mean(std::span<const float> stack, std::span<float> out) {
  start_mean(stack, out);
  work_->finish_last();
}
void ShardTree::start_mean(std::span<const float> stack, std::span<float> out) {
  work_->poll();
  // One shard is a copy: nothing travels, and nothing is rounded.
  if (shards_.total == 1)
    work_->start({}, {}, stack, out);
  else
    work_->start(wire_, divisors_of(wire_.predivide, shards_.total), stack, out);
}
void ShardTree::poll() { work_->poll(); }
void ShardTree::finish() { work_->finish(); }

}  // namespace fp16lab::engine::parallel
