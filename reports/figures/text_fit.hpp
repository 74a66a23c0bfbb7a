// How much room words take in a figure, so that nothing is cut off: gnuplot clips what is longer than the
// picture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::reports {

/// Pixels that `text` (UTF-8) takes in DejaVu Sans of `size` pixels, rounded up by class of letters: no
/// shorter than drawn. `bold` widens by an eighth.
double text_width(std::string_view text, double size, bool bold = false);

/// Lines of at most `pixels`, broken at spaces; a word that is longer by itself is broken anywhere. At least
/// one line.
std::vector<std::string> wrapped(std::string_view text, double pixels, double size);

/// The text, or "…" and as much of its end as fits: ends of names tell them apart.
std::string shortened(std::string_view text, double pixels, double size, bool bold = false);

}  // namespace fp16lab::reports
