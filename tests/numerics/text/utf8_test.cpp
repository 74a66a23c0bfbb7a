// Counting characters of UTF-8, against an encoder and the boundaries of RFC 3629.
#include "numerics/text/text.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace fp16lab {
namespace {

/// RFC 3629, section 3, for any number of bytes, also where a shorter form exists.
std::string encoded(std::uint32_t code, int bytes) {
  if (bytes == 1) return {static_cast<char>(code)};
  std::string text;
  for (int i = 0; i < bytes - 1; ++i, code >>= 6)
    text.insert(text.begin(), static_cast<char>(0x80 | (code & 0x3f)));
  const std::uint32_t mark = bytes == 2 ? 0xc0 : bytes == 3 ? 0xe0 : 0xf0;
  text.insert(text.begin(), static_cast<char>(mark | code));
  return text;
}

TEST(Utf8, EveryCodePointIsOneCharacterInItsShortestFormOnly) {
  for (std::uint32_t code = 0; code <= 0x1fffff; ++code) {
    const int shortest = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    const bool valid = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    ASSERT_EQ(utf8_length(encoded(code, shortest)).value_or(0), valid ? 1u : 0u) << std::hex << code;
    for (int longer = shortest + 1; longer <= 4; ++longer)
      ASSERT_FALSE(utf8_length(encoded(code, longer))) << std::hex << code;
  }
}

TEST(Utf8, TextsAreTheSumOfTheirCharactersAndPartsOfOneAreNone) {
  EXPECT_EQ(utf8_length(""), 0u);
  EXPECT_EQ(utf8_length("abc"), 3u);
  const std::string mixed = "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80z";  // 1, 2, 3, 4 and 1 bytes
  EXPECT_EQ(utf8_length(mixed), 5u);
  for (const std::size_t cut : {2u, 4u, 5u, 7u, 8u, 9u})
    EXPECT_FALSE(utf8_length(mixed.substr(0, cut))) << cut;
  EXPECT_FALSE(utf8_length(mixed.substr(2)));
  EXPECT_FALSE(utf8_length("\xff"));
  EXPECT_FALSE(utf8_length("a\x80"));
  EXPECT_FALSE(utf8_length("caf\xe9"));  // Latin-1
}

}  // namespace
}  // namespace fp16lab
