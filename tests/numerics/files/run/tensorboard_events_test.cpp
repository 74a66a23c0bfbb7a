// Event files, read back by a parser that shares nothing with the writer: its own checksum, bit by bit, its
// own wire format. (TensorBoard's own reader was tried on such files by hand.)
#include "numerics/files/run/tensorboard_events.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/disk/crc32c.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing_support::message_of;
using testing_support::TemporaryFolder;

// ---- CRC-32C ----------------------------------------------------------------------------------------------

std::uint32_t crc_of(const std::vector<std::uint8_t>& bytes) {
  return crc32c(std::as_bytes(std::span(bytes)));
}

TEST(Crc32c, PublishedVectors) {
  // RFC 3720 (iSCSI), B.4, read as little-endian words.
  std::vector<std::uint8_t> bytes(32, 0x00);
  EXPECT_EQ(crc_of(bytes), 0x8a9136aau);
  bytes.assign(32, 0xff);
  EXPECT_EQ(crc_of(bytes), 0x62a8ab43u);
  for (std::uint8_t i = 0; i < 32; ++i) bytes[i] = i;
  EXPECT_EQ(crc_of(bytes), 0x46dd794eu);
  for (std::uint8_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::uint8_t>(31 - i);
  EXPECT_EQ(crc_of(bytes), 0x113fdb5cu);
  const std::vector<std::uint8_t> read_command = {
      0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18,
      0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  EXPECT_EQ(crc_of(read_command), 0xd9963a56u);
  // The check value of the CRC catalogues, and the empty message.
  EXPECT_EQ(crc_of({'1', '2', '3', '4', '5', '6', '7', '8', '9'}), 0xe3069283u);
  EXPECT_EQ(crc_of({}), 0u);
}

// ---- an independent reader --------------------------------------------------------------------------------

std::uint32_t slow_crc(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const std::uint32_t in = (static_cast<unsigned char>(c) >> bit) & 1u;
      const bool feedback = ((crc & 1u) ^ in) != 0;
      crc >>= 1;
      if (feedback) crc ^= 0x82f63b78u;
    }
  }
  return ~crc;
}

std::uint64_t little_endian(std::string_view text, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = count; i-- > 0;) value = value * 256 + static_cast<unsigned char>(text.at(i));
  return value;
}

/// The messages of a TFRecord file; throws where a checksum is wrong. A torn last record is left out.
std::vector<std::string> records_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::string_view text = all;
  std::vector<std::string> records;
  const auto unmasked = [](std::uint64_t masked) {
    const auto rotated = static_cast<std::uint32_t>(masked) - 0xa282ead8u;
    return static_cast<std::uint32_t>((rotated >> 17) | (rotated << 15));
  };
  while (text.size() >= 12) {
    const std::uint64_t length = little_endian(text, 8);
    if (unmasked(little_endian(text.substr(8), 4)) != slow_crc(text.substr(0, 8)))
      throw std::runtime_error("bad checksum of a length");
    if (text.size() < 16 + length) break;
    const std::string_view data = text.substr(12, length);
    if (unmasked(little_endian(text.substr(12 + length), 4)) != slow_crc(data))
      throw std::runtime_error("bad checksum of a message");
    records.emplace_back(data);
    text.remove_prefix(16 + length);
  }
  return records;
}

/// Fields of a message, in order: number, and the value as bytes (of varints: 8 bytes, little-endian).
struct Field {
  std::uint64_t number = 0;
  int wire_type = 0;
  std::string bytes;
};

std::uint64_t take_varint(std::string_view& text) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(text.at(0));
    text.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::vector<Field> fields_of(std::string_view text) {
  std::vector<Field> fields;
  while (!text.empty()) {
    const std::uint64_t key = take_varint(text);
    Field field{key >> 3, static_cast<int>(key & 7), {}};
    std::size_t length = 0;
    if (field.wire_type == 0) {
      std::uint64_t value = take_varint(text);
      field.bytes.assign(8, '\0');
      std::memcpy(field.bytes.data(), &value, 8);
    } else {
      length = field.wire_type == 1   ? 8
               : field.wire_type == 5 ? 4
               : field.wire_type == 2 ? static_cast<std::size_t>(take_varint(text))
                                      : throw std::runtime_error("unknown wire type");
      field.bytes = text.substr(0, length);
      if (field.bytes.size() != length) throw std::runtime_error("cut field");
      text.remove_prefix(length);
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

const Field* find(const std::vector<Field>& fields, std::uint64_t number) {
  for (const Field& field : fields)
    if (field.number == number) return &field;
  return nullptr;
}
double f64(const Field& field) { return std::bit_cast<double>(little_endian(field.bytes, 8)); }
std::vector<double> packed(const Field& field) {
  std::vector<double> values;
  for (std::size_t i = 0; i + 8 <= field.bytes.size(); i += 8)
    values.push_back(std::bit_cast<double>(little_endian(std::string_view(field.bytes).substr(i), 8)));
  return values;
}

struct Histogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, buckets;
};

/// An Event, as far as it is used here.
struct Event {
  double wall_time = 0;
  std::uint64_t step = 0;
  std::string file_version;
  bool start = false;
  std::map<std::string, float> scalars;
  std::map<std::string, Histogram> histograms;
};

Event event_of(std::string_view message) {
  Event event;
  for (const Field& field : fields_of(message)) {
    if (field.number == 1) event.wall_time = f64(field);
    if (field.number == 2) event.step = little_endian(field.bytes, 8);
    if (field.number == 3) event.file_version = field.bytes;
    if (field.number == 7) event.start = little_endian(find(fields_of(field.bytes), 1)->bytes, 8) == 1;
    if (field.number != 5) continue;
    for (const Field& value : fields_of(field.bytes)) {
      const std::vector<Field> parts = fields_of(value.bytes);
      const std::string tag = find(parts, 1)->bytes;
      if (const Field* const simple = find(parts, 2))
        event.scalars[tag] =
            std::bit_cast<float>(static_cast<std::uint32_t>(little_endian(simple->bytes, 4)));
      if (const Field* const histo = find(parts, 5)) {
        const std::vector<Field> h = fields_of(histo->bytes);
        event.histograms[tag] = {f64(*find(h, 1)), f64(*find(h, 2)),    f64(*find(h, 3)),   f64(*find(h, 4)),
                                 f64(*find(h, 5)), packed(*find(h, 6)), packed(*find(h, 7))};
      }
    }
  }
  return event;
}

std::vector<Event> events_of(const std::filesystem::path& path) {
  std::vector<Event> events;
  for (const std::string& record : records_of(path)) events.push_back(event_of(record));
  return events;
}

// ---- tests ------------------------------------------------------------------------------------------------

TEST(TensorboardEvents, ScalarsReadBack) {
  const TemporaryFolder folder;
  TensorboardWriter writer(folder.path() / "logs", 1);
  const std::vector<EventScalar> first = {{"loss", 0.1}, {"loss_scale", 65536.0}};
  writer.scalars(1, 1000.5, first);
  const std::vector<EventScalar> second = {{"loss", NAN}, {"grad_norm", INFINITY}};
  writer.scalars(300, 1001.25, second);
  const auto events = events_of(writer.path());  // what is written is there at once
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].step, 0u);
  EXPECT_GT(events[0].wall_time, 1.7e9) << "seconds since 1970";
  EXPECT_TRUE(events[1].start);
  EXPECT_EQ(events[1].step, 1u);
  EXPECT_EQ(events[2].step, 1u);
  EXPECT_EQ(events[2].wall_time, 1000.5);
  EXPECT_EQ(events[2].scalars.at("loss"), 0.1f);
  EXPECT_EQ(events[2].scalars.at("loss_scale"), 65536.0f);
  EXPECT_EQ(events[3].step, 300u) << "two bytes as a varint";
  EXPECT_TRUE(std::isnan(events[3].scalars.at("loss")));
  EXPECT_EQ(events[3].scalars.at("grad_norm"), INFINITY);
}

TEST(TensorboardEvents, BinsBecomeBucketsOfTheExponent) {
  const TemporaryFolder folder;
  ExponentHistogram counts;
  const auto count = [&](float value, int times) {
    for (int i = 0; i < times; ++i) counts.count(std::bit_cast<std::uint32_t>(value));
  };
  count(1.0f, 3);   // (2^-1, 2^0]
  count(1.5f, 2);   // (2^0, 2^1]
  count(-8.0f, 5);  // (2^2, 2^3]
  count(0.0f, 7);
  count(INFINITY, 1);
  count(NAN, 1);
  TensorboardWriter writer(folder.path(), 1);
  writer.exponents(50, 1.0, "exponents/fc1.weight", counts);
  writer.exponents(51, 1.0, "exponents/zeros", ExponentHistogram{.bins = {}, .zero = 4});
  const auto events = events_of(writer.path());
  ASSERT_THAT(events, SizeIs(3)) << "nothing is written of a tensor of zeros";
  EXPECT_EQ(events[2].step, 50u);
  const Histogram& histogram = events[2].histograms.at("exponents/fc1.weight");
  EXPECT_THAT(histogram.limits, ElementsAre(-1, 0, 1, 2, 3));
  EXPECT_THAT(histogram.buckets, ElementsAre(0, 3, 2, 0, 5));
  EXPECT_EQ(histogram.min, -1);
  EXPECT_EQ(histogram.max, 3);
  EXPECT_EQ(histogram.num, 10);
  EXPECT_EQ(histogram.sum, 3 * -0.5 + 2 * 0.5 + 5 * 2.5);
  EXPECT_EQ(histogram.sum_squares, 3 * 0.25 + 2 * 0.25 + 5 * 6.25);
}

TEST(TensorboardEvents, TheExtremeBinsHaveBuckets) {
  const TemporaryFolder folder;
  ExponentHistogram counts;
  counts.count(1);           // the least subnormal
  counts.count(0x7f7fffff);  // the greatest finite number
  TensorboardWriter writer(folder.path(), 1);
  writer.exponents(1, 1.0, "x", counts);
  const Histogram histogram = events_of(writer.path()).at(2).histograms.at("x");
  EXPECT_EQ(histogram.limits.front(), -150);
  EXPECT_EQ(histogram.limits.at(1), -149);
  EXPECT_EQ(histogram.limits.back(), 128);
  EXPECT_EQ(histogram.buckets.at(1), 1);
  EXPECT_EQ(histogram.buckets.back(), 1);
  EXPECT_EQ(histogram.limits.size(), 279u);
}

TEST(TensorboardEvents, AnotherWriterBeginsAnotherFileThatSortsAfterIt) {
  const TemporaryFolder folder;
  std::vector<std::filesystem::path> paths;
  for (const std::uint64_t first : {1, 51, 61})
    paths.push_back(TensorboardWriter(folder.path(), first).path());
  EXPECT_LT(paths[0], paths[1]);
  EXPECT_LT(paths[1], paths[2]) << "readers take them in the order of their names";
  EXPECT_EQ(std::set(paths.begin(), paths.end()).size(), 3u);
  const auto events = events_of(paths[1]);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_TRUE(events[1].start);
  EXPECT_EQ(events[1].step, 51u);
  EXPECT_THAT(paths[0].filename().string(), ::testing::StartsWith("events.out.tfevents."));
}

TEST(TensorboardEvents, ATornRecordHurtsNoneBeforeIt) {
  const TemporaryFolder folder;
  TensorboardWriter writer(folder.path(), 1);
  const std::vector<EventScalar> scalars = {{"loss", 1.0}};
  writer.scalars(1, 1.0, scalars);
  writer.scalars(2, 1.0, scalars);
  const auto whole = std::filesystem::file_size(writer.path());
  std::filesystem::resize_file(writer.path(), whole - 3);
  EXPECT_THAT(events_of(writer.path()), SizeIs(3));
}

TEST(TensorboardEvents, TheReaderOfThisTestSeesDamage) {
  const TemporaryFolder folder;
  TensorboardWriter writer(folder.path(), 1);
  std::fstream file(writer.path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(14);  // a byte of the time, which may be any
  const int byte = file.get();
  file.seekp(14);
  file.put(static_cast<char>(byte ^ 0x55));
  file.close();
  EXPECT_THROW(records_of(writer.path()), std::runtime_error);
}

TEST(TensorboardEvents, AFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_THAT(message_of([&] { TensorboardWriter(folder.path() / "file" / "logs", 1); }),
              HasSubstr((folder.path() / "file" / "logs").string()));
}

}  // namespace
}  // namespace fp16lab
