// train --live: a panel on the terminal that shows how a run goes, redrawn in place.
//
//   classifier-seed1   step 1200/2000   loss 0.3471   312 steps/s, 3 s left
//   scale 2^16   skipped 3   ▂▂▃▃▄▄▅▅▁▁▂▂▃
//   gradients of step 1200:  . lost  - subnormal  = normal  ! overflow  (of values that are not zero)
//   fc1   ......-------==============================   12.5% lost
// Lost is what the casts of that step made zero. A layer that was not cast shows what FP16 would lose of it:
// "would".
//
// Zones differ by character and by a colour that is distinct with any colour vision (Okabe and Ito 2008).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/train/observer.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/histogram/zones.hpp"

namespace fp16lab::experiments {

/// What train --live asks for.
enum class LiveMode {
  off,
  automatic,  ///< a panel where stderr is a terminal, else the progress line
  always,     ///< a panel wherever stderr goes
};

/// Is there to be a panel?
bool wants_panel(LiveMode mode);

/// All gradients of a layer in the step that was observed last.
struct LiveLayer {
  std::string name;
  CastCounts casts{};     ///< what the casts to their formats did
  RangeCounts zones{};    ///< where the values that were cast are in these formats
  RangeCounts in_fp16{};  ///< what FP16 would make of those that stayed FP32; shown where nothing was cast
};

struct LiveView {
  std::string title;
  std::uint64_t step = 0;
  std::uint64_t total_steps = 0;
  double loss = 0;
  double loss_scale = 1;
  std::uint64_t skipped = 0;
  double steps_per_second = 0;
  std::string left;                 ///< "3 s"
  std::vector<double> log2_scales;  ///< of recent steps, oldest first
  std::uint64_t observed_step = 0;  ///< 0: no step was
  std::vector<LiveLayer> layers;
};

struct PanelSize {
  int columns = 80;
  int rows = 24;
};

struct PanelStyle {
  bool colour = true;
  bool unicode = true;  ///< else ASCII only
};

struct PanelLine {
  std::string text;
  std::size_t marks_begin = 0, marks_end = 0;  ///< between which characters of zones have their colours
};

/// At most size.rows - 1 lines (the cursor needs one), each at most size.columns wide; no newlines in them.
std::vector<PanelLine> render(const LiveView& view, PanelSize size, PanelStyle style);
/// The line with its colours.
std::string painted(const PanelLine& line);

/// How many of `cells` each count gets: in proportion, by largest remainder; a count that is not zero gets
/// one at least, as long as there are cells.
std::vector<int> share_cells(const std::vector<std::uint64_t>& counts, int cells);

/// Draws views on stderr, one over the other, at most ten times a second. The cursor is hidden meanwhile: it
/// comes back with the destructor and with the first Ctrl-C, so that a second one, which kills, finds it
/// there.
class LivePanel {
 public:
  explicit LivePanel(PanelStyle style);
  ~LivePanel();
  LivePanel(const LivePanel&) = delete;
  LivePanel& operator=(const LivePanel&) = delete;

  /// Is it time to draw again?
  bool due() const;
  void draw(const LiveView& view);
  /// A line that stays, above the panel.
  void message(const std::string& line);

 private:
  /// Back to where the panel begins, with everything from there on gone.
  std::string erased() const;
  std::string drawn() const;

  PanelStyle style_;
  std::chrono::steady_clock::time_point last_;
  std::vector<PanelLine> drawn_;
};

/// The size of the terminal of stderr; 80 x 24 where there is none.
PanelSize terminal_size();
/// What the environment allows: NO_COLOR, and UTF-8 in LC_ALL, LC_CTYPE or LANG.
PanelStyle terminal_style();

/// A run's records as the panel.
class LiveFeed {
 public:
  LiveFeed(std::string title, std::uint64_t first_step, std::uint64_t total_steps, PanelStyle style);

  void on_gradient(const HistogramRow& row);
  /// Draws where it is time, and for the last step.
  void on_step(const StepRow& row);
  void message(const std::string& line) { panel_.message(line); }
  /// What is drawn now.
  const LiveView& view() const { return view_; }

 private:
  /// The greatest width of a sparkline.
  static constexpr std::size_t recent_steps = 512;

  LivePanel panel_;
  LiveView view_;
  std::uint64_t first_step_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace fp16lab::experiments
