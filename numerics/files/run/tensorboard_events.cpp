#include "numerics/files/run/tensorboard_events.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "numerics/files/disk/crc32c.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {

namespace {

// Field numbers of tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto.
namespace event {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace session_log {
constexpr int status = 1, start = 1;
}
namespace summary {
constexpr int value = 1, tag = 1, simple_value = 2, histogram = 5;
}
namespace histogram_field {
constexpr int min = 1, max = 2, num = 3, sum = 4, sum_squares = 5, bucket_limit = 6, bucket = 7;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// A message in wire format: keys are field * 8 + wire type (0 varint, 1 eight bytes, 2 length-delimited, 5
/// four bytes).
class Message {
 public:
  void varint(int field, std::uint64_t value) {
    key(field, 0);
    raw_varint(value);
  }
  void fixed64(int field, double value) {
    key(field, 1);
    raw_fixed64(value);
  }
  void fixed32(int field, float value) {
    key(field, 5);
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
  }
  void bytes(int field, std::string_view value) {
    key(field, 2);
    raw_varint(value.size());
    text_ += value;
  }
  void raw_fixed64(double value) { little_endian(std::bit_cast<std::uint64_t>(value), 8); }
  const std::string& text() const { return text_; }

 private:
  void key(int field, int wire_type) {
    raw_varint(static_cast<std::uint64_t>(field) * 8 + static_cast<std::uint64_t>(wire_type));
  }
  void raw_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(static_cast<unsigned char>(value | 0x80));
    text_ += static_cast<char>(value);
  }
  void little_endian(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
  std::string text_;
};

Message event_of(double wall_time, std::uint64_t step) {
  Message message;
  message.fixed64(event::wall_time, wall_time);
  if (step != 0) message.varint(event::step, step);  // proto3 leaves out the default, 0
  return message;
}

void append_little_endian(std::string& text, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

std::uint32_t checksum(std::string_view text) {
  return masked_crc(crc32c(std::as_bytes(std::span(text.data(), text.size()))));
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

constexpr std::string_view events_prefix = "events.out.tfevents.";

/// In the name of an event file; nothing for other files.
std::optional<std::uint64_t> seconds_of(std::string_view name) {
  if (!name.starts_with(events_prefix)) return std::nullopt;
  name.remove_prefix(events_prefix.size());
  std::uint64_t seconds = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), seconds);
  return error == std::errc{} ? std::optional(seconds) : std::nullopt;
}

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path, int error) {
  throw std::runtime_error(
      fmt::format("cannot {} {}: {}", what, path.string(), std::generic_category().message(error)));
}

}  // namespace

TensorboardWriter::TensorboardWriter(const std::filesystem::path& folder, std::uint64_t first_step) {
  make_folders(folder);
  const double time = now();
  // TensorBoard reads a folder's files in the order of their names: this one must be the last.
  auto seconds = static_cast<std::uint64_t>(time);
  for (const std::filesystem::path& path : entries_of(folder))
    if (const auto known = seconds_of(path.filename().string())) seconds = std::max(seconds, *known + 1);
  for (int number = 0; descriptor_ < 0; ++number) {
    path_ = folder / fmt::format("{}{:010}.{}.{}.{}", events_prefix, seconds, host_name(), getpid(), number);
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail("create", path_, errno);
  }
  Message version = event_of(time, 0);
  version.bytes(event::file_version, "brain.Event:2");
  write_record(version.text());
  Message status;
  status.varint(session_log::status, session_log::start);
  Message start = event_of(time, first_step);
  start.bytes(event::session_log, status.text());
  write_record(start.text());
}

TensorboardWriter::~TensorboardWriter() {
  if (descriptor_ >= 0) close(descriptor_);
}

void TensorboardWriter::scalars(std::uint64_t step, double wall_time, std::span<const EventScalar> scalars) {
  Message all;
  for (const EventScalar& scalar : scalars) {
    Message value;
    value.bytes(summary::tag, printable(scalar.tag));  // must be UTF-8
    value.fixed32(summary::simple_value, static_cast<float>(scalar.value));
    all.bytes(summary::value, value.text());
  }
  Message message = event_of(wall_time, step);
  message.bytes(event::summary, all.text());
  write_record(message.text());
}

void TensorboardWriter::exponents(std::uint64_t step, double wall_time, std::string_view tag,
                                  const ExponentHistogram& histogram) {
  const std::uint64_t count = histogram.finite_nonzero();
  if (count == 0) return;
  int first = ExponentHistogram::min_exponent, last = ExponentHistogram::max_exponent;
  while (histogram.at(first) == 0) ++first;
  while (histogram.at(last) == 0) --last;
  // An empty bucket below gives the lowest one its left edge.
  Message limits, buckets;
  limits.raw_fixed64(first);
  buckets.raw_fixed64(0);
  double sum = 0, sum_squares = 0;
  for (int exponent = first; exponent <= last; ++exponent) {
    const auto here = static_cast<double>(histogram.at(exponent));
    const double middle = exponent + 0.5;
    limits.raw_fixed64(exponent + 1);
    buckets.raw_fixed64(here);
    sum += here * middle;
    sum_squares += here * middle * middle;
  }
  Message histo;
  histo.fixed64(histogram_field::min, first);
  histo.fixed64(histogram_field::max, last + 1);
  histo.fixed64(histogram_field::num, static_cast<double>(count));
  histo.fixed64(histogram_field::sum, sum);
  histo.fixed64(histogram_field::sum_squares, sum_squares);
  histo.bytes(histogram_field::bucket_limit, limits.text());
  histo.bytes(histogram_field::bucket, buckets.text());
  Message value;
  value.bytes(summary::tag, printable(tag));
  value.bytes(summary::histogram, histo.text());
  Message all;
  all.bytes(summary::value, value.text());
  Message message = event_of(wall_time, step);
  message.bytes(event::summary, all.text());
  write_record(message.text());
}

void TensorboardWriter::write_record(std::string_view message) {
  record_.clear();
  append_little_endian(record_, message.size(), 8);
  append_little_endian(record_, checksum(record_), 4);
  record_ += message;
  append_little_endian(record_, checksum(message), 4);
  std::string_view left = record_;
  while (!left.empty()) {
    const ssize_t written = write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path_, errno);
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

void TensorboardWriter::sync() {
  if (fsync(descriptor_) != 0 && errno != EINVAL) fail("sync", path_, errno);
}

}  // namespace fp16lab
