// Small pieces of HTML.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fp16lab::reports {

/// Text for element content and double-quoted attributes; printable but for tabs and line breaks.
std::string html_escape(std::string_view text);

/// "data:TYPE;base64,...": a file's content as an address, so that a page needs no second file.
std::string data_url(std::string_view media_type, std::string_view content);

/// An inline script or style in a Content-Security-Policy: 'sha256-...', which allows this content and no other.
std::string policy_hash(std::string_view content);

struct Slot {
  std::string_view name;  ///< capital letters and underscores
  std::string_view content;
};

/// `text` with every @NAME@ replaced by its slot's content, in one pass: the content is not searched again. A
/// name without a slot, or a slot without a place, throws std::logic_error: the page and its builder
/// disagree.
std::string fill_slots(std::string_view text, std::span<const Slot> slots);

}  // namespace fp16lab::reports
