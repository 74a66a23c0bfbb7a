#include "numerics/files/arrays/safetensors.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {
namespace {

static_assert(std::endian::native == std::endian::little, "elements and the length are moved as bytes");

using Json = nlohmann::ordered_json;

/// The reference implementation's limit; it keeps a damaged length from asking for all memory.
constexpr std::uint64_t header_limit = 100'000'000;
constexpr std::uint64_t length_bytes = 8;
constexpr std::string_view metadata_key = "__metadata__";

std::string at(std::string_view name) { return fmt::format("tensor '{}'", shown(name)); }

/// Bytes of `shape` elements, or nothing where that is beyond 2^64 - 1. Of F4 the last byte may be half full.
std::optional<std::uint64_t> byte_count_of(std::span<const std::uint64_t> shape, unsigned element_bits) {
  std::uint64_t bytes = element_bits < 8 ? 1 : element_bits / 8;
  for (const std::uint64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return element_bits == 4 ? bytes / 2 + bytes % 2 : bytes;
}

/// Reads the header as a stream of events, so that nothing but the format's three levels is ever held: deep
/// nesting ends at the fourth level, and a repeated name is seen (a JSON object in memory would keep one).
/// The methods are those of nlohmann::json_sax; `problem()` says why one returned false.
class HeaderParser final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return unexpected(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override { return unexpected(shown(text)); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      entry_.shape.push_back(value);
    } else if (place_ == Place::offsets && offset_count_ < 2) {
      (offset_count_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      return unexpected(fmt::format("{}", value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      metadata_[key_] = value;
      return true;
    }
    if (place_ != Place::entry || key_ != "dtype") return unexpected(fmt::format("\"{}\"", shown(value)));
    entry_.dtype = value;
    for (const DType type : dtypes<is_file_type>)
      if (file_name_of(type) == value) entry_.type = type;
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::start:
        place_ = Place::top;
        return true;
      case Place::top:
        place_ = key_ == metadata_key ? Place::metadata : Place::entry;
        entry_ = SafetensorsEntry{.name = key_};
        seen_.clear();
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(string_t& value) override {
    key_ = value;
    if (place_ == Place::top) {
      if (value != metadata_key || !std::exchange(metadata_seen_, true)) return true;
      return fail("__metadata__ occurs twice");
    }
    if (place_ == Place::metadata) {
      if (!metadata_.contains(value)) return true;
      return fail(fmt::format("__metadata__: the key '{}' occurs twice", shown(value)));
    }
    if (value != "dtype" && value != "shape" && value != "data_offsets")
      return fail(fmt::format("{}: unknown key '{}'; expected dtype, shape and data_offsets", at(entry_.name),
                              shown(value)));
    if (seen_.insert(value).second) return true;
    return fail(fmt::format("{}: the key {} occurs twice", at(entry_.name), value));
  }

  bool end_object() override {
    if (place_ == Place::entry) {
      for (const char* needed : {"dtype", "shape", "data_offsets"})
        if (!seen_.contains(needed)) return fail(fmt::format("{}: no {}", at(entry_.name), needed));
      entries_.push_back(std::move(entry_));
    }
    place_ = place_ == Place::top ? Place::end : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::entry || key_ == "dtype") return unexpected("an array");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    offset_count_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offset_count_ != 2)
      return fail(fmt::format("{}: data_offsets of length {}, expected [begin, end]", at(entry_.name),
                              offset_count_));
    place_ = Place::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("the header is not valid JSON at its byte {}", position));
  }

  const std::string& problem() const { return problem_; }
  SafetensorsMetadata take_metadata() { return std::move(metadata_); }
  std::vector<SafetensorsEntry> take_entries() { return std::move(entries_); }

 private:
  enum class Place { start, top, metadata, entry, shape, offsets, end };

  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool unexpected(const std::string& what) {
    switch (place_) {
      case Place::start:
        return fail(fmt::format("the header is {}, expected an object", what));
      case Place::metadata:
        return fail(fmt::format("__metadata__: '{}' is {}, expected a string", shown(key_), what));
      case Place::shape:
        return fail(
            fmt::format("{}: {} in the shape, expected whole numbers below 2^64", at(entry_.name), what));
      case Place::offsets:
        return fail(fmt::format("{}: {} in data_offsets, expected two whole numbers below 2^64",
                                at(entry_.name), what));
      case Place::entry:
        return fail(fmt::format("{}: {} is {}, expected {}", at(entry_.name), key_, what,
                                key_ == "dtype" ? "a string" : "an array of whole numbers"));
      default:
        return fail(fmt::format("{} is {}, expected an object",
                                key_ == metadata_key ? std::string(metadata_key) : at(key_), what));
    }
  }

  Place place_ = Place::start;
  std::string key_, problem_;
  std::set<std::string> seen_;
  bool metadata_seen_ = false;
  int offset_count_ = 0;
  SafetensorsEntry entry_;
  SafetensorsMetadata metadata_;
  std::vector<SafetensorsEntry> entries_;
};

/// Shapes against offsets, then the offsets against each other and the file: no overlap, no hole, no rest.
std::string check_layout(std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes) {
  for (const SafetensorsEntry& entry : entries) {
    const auto offsets = [&entry] { return fmt::format("data_offsets [{}, {}]", entry.begin, entry.end); };
    if (entry.end < entry.begin) return fmt::format("{}: {} run backwards", at(entry.name), offsets());
    if (entry.end > data_bytes)
      return fmt::format("{}: {} reach beyond the file's {} data bytes; the file is cut off or damaged",
                         at(entry.name), offsets(), data_bytes);
    const std::optional<std::uint64_t> bytes =
        byte_count_of(entry.shape, entry.type ? file_bits_of(*entry.type) : 8);
    if (!bytes) return fmt::format("{}: {} has more than 2^64 bytes", at(entry.name), entry.describe());
    if (entry.type && entry.byte_count() != *bytes)
      return fmt::format("{}: {} are {} bytes, but {} needs {}", at(entry.name), offsets(),
                         entry.byte_count(), entry.describe(), *bytes);
  }
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t reached = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != reached)
      return fmt::format("{}: data begin at {}, expected {}, the end of the tensor before it ({})",
                         at(entry.name), entry.begin, reached,
                         entry.begin < reached ? "they overlap" : "a hole");
    reached = entry.end;
  }
  if (reached != data_bytes)
    return fmt::format("{} bytes after the last tensor, expected none", data_bytes - reached);
  return {};
}

std::string header_text(const std::filesystem::path& path, std::span<const SafetensorsSource> sources,
                        const SafetensorsMetadata& metadata) {
  const auto refuse = [&path](const std::string& why) {
    throw std::invalid_argument(fmt::format("{}: cannot write {}", path.string(), why));
  };
  Json header = Json::object();
  std::set<std::string_view> names;
  if (!metadata.empty()) header[std::string(metadata_key)] = metadata;
  std::uint64_t begin = 0;
  for (const SafetensorsSource& source : sources) {
    if (source.name.empty()) refuse("a tensor without a name");
    if (source.name == metadata_key) refuse("a tensor of the name __metadata__, which the format reserves");
    if (!names.insert(source.name).second) refuse(fmt::format("two tensors of the name '{}'", source.name));
    if (!is_file_type(source.type))
      refuse(fmt::format("{}: safetensors has no type for {}", at(source.name), name_of(source.type)));
    const std::optional<std::uint64_t> bytes = byte_count_of(source.shape, file_bits_of(source.type));
    std::uint64_t end = 0;
    if (!bytes || __builtin_add_overflow(begin, *bytes, &end))
      refuse(fmt::format("{}: more than 2^64 bytes", at(source.name)));
    header[source.name] = {
        {"dtype", file_name_of(source.type)}, {"shape", source.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::type_error&) {
    refuse("a name or metadata that are not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > header_limit)
    refuse(fmt::format("a header of {} bytes; the format allows {}", text.size(), header_limit));
  return text;
}

}  // namespace

std::string SafetensorsEntry::describe() const {
  return fmt::format("{} ({})", type ? file_name_of(*type) : shown(dtype), fmt::join(shape, ", "));
}

SafetensorsReader::SafetensorsReader(std::filesystem::path path) : file_(std::move(path)) {
  if (file_.size() < length_bytes)
    file_.fail(fmt::format("{} bytes, expected the 8-byte length of a safetensors header", file_.size()));
  std::uint64_t header_bytes = 0;
  file_.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > header_limit)
    file_.fail_at(0, fmt::format("a header of {} bytes, but safetensors allows {}; is it another format?",
                                 header_bytes, header_limit));
  if (header_bytes > file_.size() - length_bytes)
    file_.fail_at(
        0, fmt::format("a header of {} bytes in a file of {}; the file is cut off or of another format",
                       header_bytes, file_.size()));
  std::string header(header_bytes, '\0');
  file_.read(length_bytes, std::as_writable_bytes(std::span(header)));
  // Stricter than JSON, as the format is: no white space before the object.
  if (!header.starts_with('{'))
    file_.fail_at(length_bytes, "the header does not begin with '{'; is it another format?");
  // The JSON parser takes a zero byte for the end of its input.
  if (const std::size_t zero = header.find('\0'); zero != std::string::npos)
    file_.fail_at(length_bytes + zero, "the header is not valid JSON: it holds a zero byte");

  HeaderParser parser;
  if (!Json::sax_parse(header, &parser)) file_.fail(parser.problem());
  metadata_ = parser.take_metadata();
  entries_ = parser.take_entries();
  data_begin_ = length_bytes + header_bytes;
  // A name that occurs twice is the reason for other problems, and the better message.
  const std::string problem = check_layout(entries_, file_.size() - data_begin_);
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (!by_name_.emplace(entries_[i].name, i).second)
      file_.fail(fmt::format("{} occurs twice", at(entries_[i].name)));
  if (!problem.empty()) file_.fail(problem);
}

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

void SafetensorsReader::read(const SafetensorsEntry& entry, std::span<std::byte> out) const {
  if (out.size() != entry.byte_count())
    throw std::invalid_argument(fmt::format("{}: {} has {} bytes, not {}", path().string(), at(entry.name),
                                            entry.byte_count(), out.size()));
  read(entry, 0, out);
}

void SafetensorsReader::read(const SafetensorsEntry& entry, std::uint64_t first,
                             std::span<std::byte> out) const {
  if (first > entry.byte_count() || out.size() > entry.byte_count() - first)
    throw std::invalid_argument(fmt::format("{}: {} has {} bytes, not {} from byte {} on", path().string(),
                                            at(entry.name), entry.byte_count(), out.size(), first));
  file_.read(data_begin_ + entry.begin + first, out);
}

std::vector<std::byte> SafetensorsReader::read(const SafetensorsEntry& entry) const {
  std::vector<std::byte> bytes(entry.byte_count());
  read(entry, bytes);
  return bytes;
}

SafetensorsSource safetensors_source(std::string name, DType type, std::vector<std::uint64_t> shape,
                                     std::span<const std::byte> bytes) {
  SafetensorsSource source{std::move(name), type, std::move(shape), {}};
  if (byte_count_of(source.shape, file_bits_of(type)) != bytes.size())
    throw std::invalid_argument(fmt::format("safetensors: {} bytes for {}, which has another number of them",
                                            bytes.size(), at(source.name)));
  source.fetch = [copy = std::vector<std::byte>(bytes.begin(), bytes.end())](std::span<std::byte> out) {
    std::copy(copy.begin(), copy.end(), out.begin());
  };
  return source;
}

void write_safetensors(const std::filesystem::path& path, std::vector<SafetensorsSource> sources,
                       const SafetensorsMetadata& metadata, NamedBy named_by) {
  std::sort(sources.begin(), sources.end(), [](const SafetensorsSource& a, const SafetensorsSource& b) {
    if (size_of(a.type) != size_of(b.type)) return size_of(a.type) > size_of(b.type);
    return a.name < b.name;
  });
  const std::string header = header_text(path, sources, metadata);
  const std::uint64_t header_bytes = header.size();

  AtomicFile file(path, named_by);
  std::string buffer(sizeof(header_bytes), '\0');
  std::memcpy(buffer.data(), &header_bytes, sizeof(header_bytes));
  file.append(buffer);
  file.append(header);
  for (const SafetensorsSource& source : sources) {
    buffer.resize(*byte_count_of(source.shape, file_bits_of(source.type)));
    source.fetch(std::as_writable_bytes(std::span(buffer)));
    file.append(buffer);
  }
  file.commit();
}

}  // namespace fp16lab
