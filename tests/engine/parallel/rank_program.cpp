// One rank of what mpi_ranks_test.cpp starts: rank_program SCENARIO SHARDS TIME_LIMIT PIECE_BYTES.
//
// Scenarios: "sums" checks every verb and prints on rank 0 a digest of means and sums, which does not depend
// on ranks. The others make the last rank fail in step 3 of 5: "killed" (SIGKILL), "stopped" (SIGSTOP),
// "throws" (an exception), "diverges" (it sums another number of values), "absent" (it never joins).
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/parallel/communicator.hpp"
#include "engine/parallel/shard_tree.hpp"
#include "numerics/convert/convert.hpp"

namespace {

using namespace fp16lab::engine::parallel;

void expect(bool is_so, const char* what) {
  if (!is_so) throw std::runtime_error(fmt::format("wrong: {}", what));
}

/// Shards of many magnitudes, a pure function of shard and element.
float value_of(std::int64_t shard, std::size_t i) {
  std::uint64_t x = static_cast<std::uint64_t>(shard) * 0x9e3779b97f4a7c15U + i * 0xbf58476d1ce4e5b9U + 1;
  x ^= x >> 31;
  x *= 0x94d049bb133111ebU;
  x ^= x >> 29;
  const float magnitude =
      std::ldexp(1.0F + static_cast<float>(x % 65536) / 65536.0F, static_cast<int>(x / 65536 % 24) - 12);
  return x >> 63 == 0 ? magnitude : -magnitude;
}
std::vector<float> stack_of(const Shards& shards, std::size_t elements) {
  std::vector<float> stack;
  for (std::int64_t shard = shards.first; shard < shards.first + shards.local; ++shard)
    for (std::size_t i = 0; i < elements; ++i) stack.push_back(value_of(shard, i));
  return stack;
}
/// The mean by plain recursion.
float mean_of(std::int64_t first, std::int64_t count, std::int64_t total, std::size_t i) {
  if (count == 1) return value_of(first, i) / static_cast<float>(total);
  return mean_of(first, count / 2, total, i) + mean_of(first + count / 2, count / 2, total, i);
}

std::uint64_t digest_of(std::uint64_t digest, const std::vector<float>& values) {
  for (const float value : values) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, sizeof word);
    digest = (digest ^ word) * 0x100000001b3U;
  }
  return digest;
}

void check_verbs(Communicator& communicator) {
  const int ranks = communicator.size(), rank = communicator.rank();
  const auto length = [](int from, int to) {
    return static_cast<std::size_t>((from * 7 + to * 13) % 11) * 100;
  };
  const auto byte = [](int from, int to) { return static_cast<std::byte>(from * 16 + to + 1); };
  std::vector<std::vector<std::byte>> sent, received;
  for (int other = 0; other < ranks; ++other) {
    sent.emplace_back(length(rank, other), byte(rank, other));
    received.emplace_back(length(other, rank));
  }
  const std::vector<std::span<const std::byte>> send(sent.begin(), sent.end());
  const std::vector<std::span<std::byte>> receive(received.begin(), received.end());
  communicator.all_to_all(send, receive);
  for (int other = 0; other < ranks; ++other)
    expect(received[static_cast<std::size_t>(other)] ==
               std::vector<std::byte>(length(other, rank), byte(other, rank)),
           "all_to_all");

  std::vector<std::uint64_t> sums(100), largest(100);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = largest[i] = static_cast<std::uint64_t>(rank) * i;
  communicator.sum(sums);
  communicator.max(largest);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    expect(sums[i] == static_cast<std::uint64_t>(ranks * (ranks - 1) / 2) * i, "sum");
    expect(largest[i] == static_cast<std::uint64_t>(ranks - 1) * i, "max");
  }
  expect(communicator.any(rank == ranks - 1) && !communicator.any(false), "any");
  std::vector<std::byte> text(1000, rank == ranks - 1 ? std::byte{7} : std::byte{0});
  communicator.broadcast(text, ranks - 1);
  expect(text == std::vector<std::byte>(1000, std::byte{7}), "broadcast");
  expect(static_cast<int>(communicator.hosts().size()) == ranks && !communicator.hosts().front().empty(),
         "hosts");

  // What a library's all-reduce is judged by: small integers, exact in every order and format.
  std::vector<float> floats(50, static_cast<float>(rank + 1));
  communicator.library_sum(std::as_writable_bytes(std::span(floats)), fp16lab::DType::f32);
  std::vector<fp16lab::Float16> halves(50, fp16lab::Float16::from_bits(0x3c00));    // 1
  std::vector<fp16lab::BFloat16> brains(50, fp16lab::BFloat16::from_bits(0x3f80));  // 1
  communicator.library_sum(std::as_writable_bytes(std::span(halves)), fp16lab::DType::f16);
  communicator.library_sum(std::as_writable_bytes(std::span(brains)), fp16lab::DType::bf16);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const auto count = static_cast<float>(ranks);
    expect(floats[i] == count * (count + 1) / 2, "library_sum of f32");
    expect(fp16lab::widen(halves[i]) == count, "library_sum of f16");
    expect(fp16lab::widen(brains[i]) == count, "library_sum of bf16");
  }
}

void sums(Communicator& communicator, std::int64_t total) {
  check_verbs(communicator);
  const Shards shards = placed_shards(total, communicator.size(), communicator.rank());
  ShardTree tree(communicator, shards);
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (int step = 0; step < 3; ++step) {
    communicator.set_place(fmt::format("step {}, gradients", step));
    std::vector<std::vector<float>> out;
    for (const std::size_t elements : {5, 1000, 70001}) out.emplace_back(elements);
    for (std::vector<float>& bucket : out) {
      const std::vector<float> rows = stack_of(shards, bucket.size());
      const ShardTree::Stack stack{rows, bucket};
      tree.start_mean({&stack, 1});
      tree.poll();
    }
    std::vector<float> loss(1);
    tree.sum(stack_of(shards, 1), loss);
    tree.finish();
    digest = digest_of(digest, loss);
    for (const std::vector<float>& bucket : out) {
      digest = digest_of(digest, bucket);
      for (std::size_t i = 0; i < bucket.size(); i += 97)
        expect(bucket[i] == mean_of(0, total, total, i), "a mean");
    }
  }
  // All ranks have the same.
  std::uint64_t pair[] = {digest, ~digest};
  communicator.max(pair);
  expect(pair[0] == digest && ~pair[1] == digest, "the digest of another rank");
  if (communicator.rank() == 0) fmt::print("{} ranks: {:016x}\n", communicator.size(), digest);
}

void fail_in_step_3(Communicator& communicator, std::int64_t total, const std::string& scenario) {
  const Shards shards = placed_shards(total, communicator.size(), communicator.rank());
  ShardTree tree(communicator, shards);
  for (int step = 0; step < 5; ++step) {
    communicator.set_place(fmt::format("step {}, gradients", step));
    std::vector<float> out(5000);
    if (step == 3 && communicator.rank() == communicator.size() - 1) {
      if (scenario == "killed") raise(SIGKILL);
      if (scenario == "stopped") raise(SIGSTOP);
      if (scenario == "throws") throw std::runtime_error("a rank without its data");
      if (scenario == "diverges") out.resize(4000);
    }
    tree.sum(stack_of(shards, out.size()), out);
  }
  fmt::print("rank {} came to the end\n", communicator.rank());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) throw std::runtime_error("rank_program SCENARIO SHARDS TIME_LIMIT PIECE_BYTES");
  const std::string scenario = argv[1];
  if (scenario == "absent" && launch_of_environment().ranks > 1) {
    const char* const open_mpi = std::getenv("OMPI_COMM_WORLD_RANK");
    const char* const rank = open_mpi != nullptr ? open_mpi : std::getenv("PMI_RANK");
    if (rank != nullptr && std::stoi(rank) == launch_of_environment().ranks - 1) pause();
  }
  const std::unique_ptr<Communicator> communicator =
      join_mpi({.time_limit = std::stod(argv[3]), .piece_bytes = std::stoul(argv[4])});
  if (communicator->rank() == 0) fmt::print("over {}\n", communicator->library());
  if (scenario == "sums")
    sums(*communicator, std::stoll(argv[2]));
  else
    fail_in_step_3(*communicator, std::stoll(argv[2]), scenario);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "rank_program: error: {}\n", error.what());
  return 1;
}
