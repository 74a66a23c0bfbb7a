// Running gnuplot on the scripts that figures consist of.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::reports {

/// Runs `program SCRIPT` on copies of the script and its data, and puts what it draws beside the script
/// (drawing_program.hpp); its messages go to SCRIPT's name with ".log" where it failed. Returns an empty string, or one line that says what failed ("gnuplot is not
/// installed ...").
std::string run_gnuplot(const std::string& program, const std::filesystem::path& script);

/// Between the blocks of a data file, which scripts find by "index".
inline constexpr std::string_view block_end = "\n\n";

/// STEM.dat and STEM.gp, from which a figure is drawn.
void write_pair(const std::filesystem::path& folder, const std::string& stem, const std::string& data,
                const std::string& script);

/// Makes the folder, writes the pair and runs `program` on it: what run_gnuplot() returns. Data and script
/// stay.
std::string draw_pair(const std::filesystem::path& folder, const std::string& stem, const std::string& data,
                      const std::string& script, const std::string& program = "gnuplot");

// Text of unknown origin enters a script only through the functions below, which make it printable first (numerics/
// text/text.hpp). What gnuplot could take for markup of its own language stands in octal: no way of counting quotes,
// braces or comments that a version of gnuplot has finds any.

/// A text as a gnuplot string constant, quotes included.
std::string gnuplot_string(std::string_view text);

/// The same for the label of a tic, which gnuplot takes for a format of its place.
std::string gnuplot_tic(std::string_view text);

/// Lines, one below the other, as one string expression.
std::string gnuplot_lines(const std::vector<std::string>& lines);

/// The same in bold, for places with enhanced text: what would be markup there is escaped.
std::string gnuplot_bold(std::string_view text);

/// A line of a script or a data file that says something to readers, line break included.
std::string gnuplot_comment(std::string_view text);

/// Throws std::logic_error if `body` has any command but plot, set, unset, a loop or an assignment, a call of system()
/// or a substitution: a figure needs none, so text has been taken for a command.
void require_drawing(std::string_view body);

}  // namespace fp16lab::reports
