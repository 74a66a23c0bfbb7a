// Ranks as threads of one process, whose messages wait in memory: for tests of what computes over ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/parallel/communicator.hpp"

namespace fp16lab::engine::parallel {

/// The ranks' shared state. `late` > 0: a message is visible at the `late`-th look at the earliest, by a
/// pattern of ticket, phase and ranks, so that exchanges finish in another order than they started in.
struct Mailbox {
  using Key = std::tuple<std::uint64_t, int, int, int>;  ///< ticket, phase, from, to
  struct Letter {
    std::vector<std::byte> bytes;
    int looks_left = 0;
  };
  int ranks = 1, late = 0;
  double time_limit = 20;  ///< seconds
  std::mutex mutex;
  std::condition_variable news;
  std::map<Key, Letter> letters;
  std::uint64_t messages = 0;
};

class ThreadRank final : public Communicator {
 public:
  ThreadRank(Mailbox& box, int rank)
      : Communicator(rank, std::vector<std::string>(static_cast<std::size_t>(box.ranks), "thread"),
                     "threads"),
        box_(&box) {}

  void library_sum(std::span<std::byte>, DType) override {
    throw std::logic_error("threads have no library");
  }
  [[noreturn]] void abort(int) override { throw std::logic_error("abort"); }
  void wait(Exchange& exchange) override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(box_->time_limit);
    while (!exchange.done()) {
      std::unique_lock lock(box_->mutex);
      if (box_->news.wait_for(lock, std::chrono::milliseconds(box_->late > 0 ? 0 : 20)) ==
              std::cv_status::timeout &&
          std::chrono::steady_clock::now() > end)
        throw CommunicationError("rank " + std::to_string(rank()) + " waited too long");
    }
  }

 protected:
  std::unique_ptr<Exchange> begin(std::uint64_t ticket, int phase, std::span<const Outgoing> outgoing,
                                  std::span<const Incoming> incoming) override {
    {
      const std::scoped_lock lock(box_->mutex);
      for (const Outgoing& message : outgoing) {
        const auto mixed = (ticket * 7 + static_cast<std::uint64_t>(phase) * 3 +
                            static_cast<std::uint64_t>(rank()) * 5 + static_cast<std::uint64_t>(message.to));
        const int looks =
            box_->late == 0 ? 0 : static_cast<int>(mixed % static_cast<std::uint64_t>(box_->late));
        const bool fresh = box_->letters
                               .emplace(Mailbox::Key{ticket, phase, rank(), message.to},
                                        Mailbox::Letter{{message.bytes.begin(), message.bytes.end()}, looks})
                               .second;
        if (!fresh) throw std::logic_error("two messages with one address");
        ++box_->messages;
      }
    }
    box_->news.notify_all();
    return std::make_unique<Pending>(*box_, rank(), ticket, phase, incoming);
  }

 private:
  class Pending final : public Exchange {
   public:
    Pending(Mailbox& box, int rank, std::uint64_t ticket, int phase, std::span<const Incoming> incoming)
        : box_(&box), rank_(rank), ticket_(ticket), phase_(phase), left_(incoming.begin(), incoming.end()) {}
    bool done() override {
      const std::scoped_lock lock(box_->mutex);
      std::erase_if(left_, [&](const Incoming& message) {
        const auto found = box_->letters.find({ticket_, phase_, message.from, rank_});
        if (found == box_->letters.end() || found->second.looks_left-- > 0) return false;
        if (found->second.bytes.size() != message.bytes.size())
          throw CommunicationError("rank " + std::to_string(message.from) + " sent another length");
        std::memcpy(message.bytes.data(), found->second.bytes.data(), message.bytes.size());
        box_->letters.erase(found);
        return true;
      });
      return left_.empty();
    }

   private:
    Mailbox* box_;
    int rank_;
    std::uint64_t ticket_;
    int phase_;
    std::vector<Incoming> left_;
  };

  Mailbox* box_;
};

/// body(communicator) on `ranks` threads; the first rank's exception, if any. No letter is left.
inline std::uint64_t on_thread_ranks(int ranks, const std::function<void(Communicator&)>& body,
                                     int late = 0) {
  Mailbox box;
  box.ranks = ranks;
  box.late = late;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ThreadRank communicator(box, rank);
        body(communicator);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  if (!box.letters.empty()) throw std::logic_error("letters that nobody read");
  return box.messages;
}

}  // namespace fp16lab::engine::parallel
