#include "engine/parallel/communicator.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "engine/parallel/chunk_range.hpp"

namespace fp16lab::engine::parallel {

namespace {

/// One rank: no message is ever under way.
class SingleProcess final : public Communicator {
 public:
  SingleProcess(std::string host) : Communicator(0, {std::move(host)}, "one process") {}

  void library_sum(std::span<std::byte> /*values*/, DType /*dtype*/) override {}
  void wait(Exchange& /*exchange*/) override {}
  [[noreturn]] void abort(int exit_code) override {
    std::fflush(nullptr);
    std::_Exit(exit_code);
  }

 protected:
  std::unique_ptr<Exchange> begin(std::uint64_t /*ticket*/, int /*phase*/,
                                  std::span<const Outgoing> /*outgoing*/,
                                  std::span<const Incoming> /*incoming*/) override {
    class Nothing final : public Exchange {
     public:
      bool done() override { return true; }
    };
    return std::make_unique<Nothing>();
  }
};

void check_peer(const char* what, int peer, int rank, int size, bool seen) {
  if (peer < 0 || peer >= size || peer == rank || seen)
    throw std::logic_error(fmt::format(
        "rank {} of {} starts {} rank {}: expected each other rank at most once", rank, size, what, peer));
}

}  // namespace

Communicator::Communicator(int rank, std::vector<std::string> hosts, std::string library)
    : rank_(rank), hosts_(std::move(hosts)), library_(std::move(library)) {}

std::unique_ptr<Exchange> Communicator::start(std::uint64_t ticket, int phase,
                                              std::span<const Outgoing> outgoing,
                                              std::span<const Incoming> incoming) {
  if (phase < 0 || phase > 3) throw std::logic_error(fmt::format("phase {}: expected 0 to 3", phase));
  std::vector<bool> to(hosts_.size()), from(hosts_.size());
  std::vector<Outgoing> sent;
  std::vector<Incoming> received;
  for (const Outgoing& message : outgoing) {
    if (message.bytes.empty()) continue;
    check_peer("a message to", message.to, rank_, size(), to[static_cast<std::size_t>(message.to)]);
    to[static_cast<std::size_t>(message.to)] = true;
    sent_bytes_ += message.bytes.size();
    sent.push_back(message);
  }
  for (const Incoming& message : incoming) {
    if (message.bytes.empty()) continue;
    check_peer("a message from", message.from, rank_, size(), from[static_cast<std::size_t>(message.from)]);
    from[static_cast<std::size_t>(message.from)] = true;
    received.push_back(message);
  }
  // Every rank begins with the next one, so that no rank is every other's first.
  const auto distance = [&](int peer) { return (peer - rank_ + size()) % size(); };
  std::ranges::sort(sent, {}, [&](const Outgoing& message) { return distance(message.to); });
  std::ranges::sort(received, std::greater{},
                    [&](const Incoming& message) { return distance(message.from); });
  return begin(ticket, phase, sent, received);
}

void Communicator::all_to_all(std::span<const std::span<const std::byte>> send,
                              std::span<const std::span<std::byte>> receive) {
  const std::size_t own = static_cast<std::size_t>(rank_);
  if (send.size() != hosts_.size() || receive.size() != hosts_.size() ||
      send[own].size() != receive[own].size())
    throw std::logic_error(
        fmt::format("all_to_all of rank {}: {} and {} messages for {} ranks, or its own of two sizes", rank_,
                    send.size(), receive.size(), size()));
  std::ranges::copy(send[own], receive[own].begin());
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    outgoing.push_back({other, send[static_cast<std::size_t>(other)]});
    incoming.push_back({other, receive[static_cast<std::size_t>(other)]});
  }
  wait(*start(next_ticket(), 0, outgoing, incoming));
}

void Communicator::all_gather(std::span<std::byte> bytes, std::span<const std::size_t> ends) {
  if (ends.size() != hosts_.size() || ends.back() != bytes.size() || !std::ranges::is_sorted(ends))
    throw std::logic_error(
        fmt::format("all_gather of rank {}: expected {} ascending ends, the last of them {}", rank_, size(),
                    bytes.size()));
  const auto piece = [&](int rank) {
    const std::size_t first = rank == 0 ? 0 : ends[static_cast<std::size_t>(rank) - 1];
    return bytes.subspan(first, ends[static_cast<std::size_t>(rank)] - first);
  };
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    outgoing.push_back({other, piece(rank_)});
    incoming.push_back({other, piece(other)});
  }
  wait(*start(next_ticket(), 0, outgoing, incoming));
}

std::vector<std::string> Communicator::all_gather(std::string_view own) {
  std::vector<std::uint64_t> lengths(hosts_.size());
  lengths[static_cast<std::size_t>(rank_)] = own.size();
  max(lengths);
  std::vector<std::size_t> ends(hosts_.size());
  std::inclusive_scan(lengths.begin(), lengths.end(), ends.begin());
  std::string all(ends.back(), '\0');
  const auto begin_of = [&](std::size_t rank) { return rank == 0 ? 0 : ends[rank - 1]; };
  std::ranges::copy(own,
                    all.begin() + static_cast<std::ptrdiff_t>(begin_of(static_cast<std::size_t>(rank_))));
  all_gather(std::as_writable_bytes(std::span(all)), ends);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    texts.push_back(all.substr(begin_of(rank), lengths[rank]));
  return texts;
}

/// Words go to their owners, who combine them and send them back.
template <class Combine>
void Communicator::reduce(std::span<std::uint64_t> values, const Combine& combine) {
  if (size() == 1) return;
  const auto slice = [&](int rank) {
    const ChunkRange range = chunk_range(values.size(), rank, size());
    return values.subspan(range.begin, range.size());
  };
  const std::span<std::uint64_t> mine = slice(rank_);
  std::vector<std::uint64_t> room(mine.size() * hosts_.size());
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  std::vector<std::size_t> ends;
  for (int rank = 0; rank < size(); ++rank) {
    send.push_back(std::as_bytes(slice(rank)));
    receive.push_back(std::as_writable_bytes(
        std::span(room).subspan(static_cast<std::size_t>(rank) * mine.size(), mine.size())));
    ends.push_back((ends.empty() ? 0 : ends.back()) + send.back().size());
  }
  all_to_all(send, receive);
  std::copy_n(room.begin(), mine.size(), mine.begin());
  for (std::size_t i = mine.size(); i < room.size(); ++i) {
    std::uint64_t& value = mine[i % mine.size()];
    value = combine(value, room[i]);
  }
  all_gather(std::as_writable_bytes(values), ends);
}

void Communicator::sum(std::span<std::uint64_t> values) { reduce(values, std::plus<>{}); }
void Communicator::max(std::span<std::uint64_t> values) {
  reduce(values, [](std::uint64_t a, std::uint64_t b) { return std::max(a, b); });
}
bool Communicator::any(bool mine) {
  std::uint64_t word = mine ? 1 : 0;
  max(std::span(&word, 1));
  return word != 0;
}

void Communicator::broadcast(std::span<std::byte> bytes, int from) {
  if (from < 0 || from >= size())
    throw std::logic_error(fmt::format("broadcast from rank {} of {} ranks", from, size()));
  if (size() == 1) return;
  // A slice to each, then the slices to all: the sender puts twice the bytes on the wire, for any number of
  // ranks.
  std::vector<std::size_t> ends;
  std::vector<std::span<const std::byte>> send(hosts_.size());
  std::vector<std::span<std::byte>> receive(hosts_.size());
  for (int rank = 0; rank < size(); ++rank) {
    const ChunkRange range = chunk_range(bytes.size(), rank, size());
    ends.push_back(range.end);
    const std::span<std::byte> slice = bytes.subspan(range.begin, range.size());
    if (rank_ == from && rank != rank_) send[static_cast<std::size_t>(rank)] = slice;
    if (rank_ == rank && rank != from) receive[static_cast<std::size_t>(from)] = slice;
  }
  all_to_all(send, receive);
  all_gather(bytes, ends);
}

std::unique_ptr<Communicator> make_single_process() {
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "localhost");
  return std::make_unique<SingleProcess>(host);
}

}  // namespace fp16lab::engine::parallel
