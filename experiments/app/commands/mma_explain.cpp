#include "experiments/app/commands/mma_explain.hpp"

#include <fmt/format.h>

#include "experiments/app/commands/line_filter.hpp"
#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {

std::string explanation_of(const MmaLine& line, bool json) {
  const ExplainedDot dot = analysis::explained_dot(line);
  if (dot.word != line.d) {
    const auto digits = 2 * size_of(line.row->accumulator());
    throw CommandError(ExitCode::mismatch,
                       fmt::format("mma: line {}: {}: the result of the steps is {:0{}x}, the direct result "
                                   "{:0{}x}; they must agree, so this is a bug in fp16lab",
                                   line.number, quoted(line.text), dot.word, digits, line.d, digits));
  }
  return json ? analysis::json_of(line, dot) : analysis::text_of(line, dot);
}

}  // namespace fp16lab::experiments
