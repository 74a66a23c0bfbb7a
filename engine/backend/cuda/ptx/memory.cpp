#include "engine/backend/cuda/ptx/memory.hpp"

#include <fmt/format.h>

#include <cstring>
#include <new>

namespace fp16lab::engine::ptx {

namespace {

constexpr std::size_t alignment = 256;
constexpr int poison = 0xa5;

}  // namespace

DeviceMemory::DeviceMemory() : state_(std::make_unique<State>()) {}
DeviceMemory::~DeviceMemory() = default;

std::byte* DeviceMemory::allocate(std::size_t bytes, std::string_view what) {
  // A gap before and behind, so that no two allocations touch.
  const std::size_t all = bytes + 3 * alignment;
  if (all < bytes) return nullptr;
  std::unique_ptr<std::byte[]> storage(new (std::nothrow) std::byte[all]);
  if (storage == nullptr) return nullptr;
  const auto address =
      (reinterpret_cast<std::uintptr_t>(storage.get()) + 2 * alignment - 1) / alignment * alignment;
  Allocation made;
  made.begin = storage.get() + (address - reinterpret_cast<std::uintptr_t>(storage.get()));
  made.bytes = bytes;
  made.what = what;
  made.storage = std::move(storage);
  std::memset(made.begin, poison, bytes);
  std::byte* const begin = made.begin;
  const std::scoped_lock lock(state_->mutex);
  state_->allocations.emplace(address, std::move(made));
  return begin;
}

void DeviceMemory::free(std::byte* address) {
  const std::scoped_lock lock(state_->mutex);
  if (state_->allocations.erase(reinterpret_cast<std::uintptr_t>(address)) == 0)
    throw std::invalid_argument(
        fmt::format("free: {} is not the beginning of an allocation", static_cast<const void*>(address)));
}

void DeviceMemory::require(const std::byte* address, std::size_t bytes) const {
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  if (state_->find(first, bytes) == nullptr)
    throw std::out_of_range(fmt::format("{} bytes at {:#x}: {}", bytes, first, state_->nearest(first)));
}

std::span<std::byte> DeviceMemory::allocation_of(const std::byte* address) const {
  const Allocation* const found = state_->find(reinterpret_cast<std::uintptr_t>(address), 1);
  if (found == nullptr) return {};
  return {found->begin, found->bytes};
}

Allocation* DeviceMemory::State::find(std::uint64_t address, std::size_t bytes) {
  const std::scoped_lock lock(mutex);
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return nullptr;
  Allocation& candidate = std::prev(next)->second;
  const std::uint64_t offset = address - std::prev(next)->first;
  return offset <= candidate.bytes && bytes <= candidate.bytes - offset ? &candidate : nullptr;
}

std::string DeviceMemory::State::nearest(std::uint64_t address) const {
  const std::scoped_lock lock(mutex);
  if (allocations.empty()) return "there is no allocation";
  const auto next = allocations.upper_bound(address);
  const auto describe = [&](const auto& entry) {
    const auto& [begin, allocation] = entry;
    const std::uint64_t end = begin + allocation.bytes;
    if (address < begin)
      return fmt::format("{} bytes before {} of {} bytes", begin - address, allocation.what,
                         allocation.bytes);
    if (address < end)
      return fmt::format("at byte {} of {} of {} bytes", address - begin, allocation.what, allocation.bytes);
    return fmt::format("{} bytes behind the end of {} of {} bytes", address - end, allocation.what,
                       allocation.bytes);
  };
  if (next == allocations.begin()) return describe(*next);
  const auto before = std::prev(next);
  const std::uint64_t end = before->first + before->second.bytes;
  if (next != allocations.end() && address >= end && next->first - address < address - end)
    return describe(*next);
  return describe(*before);
}

}  // namespace fp16lab::engine::ptx
