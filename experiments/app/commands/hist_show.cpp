#include "experiments/app/commands/hist_show.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <sstream>

#include "experiments/app/commands/array_dumps.hpp"
#include "experiments/app/exit_code.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/formats/dtype_spelling.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {

double parse_scale(const std::string& option, const std::string& text) {
  double scale = 0;
  try {
    scale = parse_number(text).value.to_double();
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, fmt::format("{}: {}", option, error.what()));
  }
  if (!std::isfinite(scale) || scale <= 0)
    throw CommandError(ExitCode::usage,
                       fmt::format("{} {}: expected a finite number above 0, such as 2^15", option, text));
  return scale;
}

std::optional<std::vector<DType>> parse_formats(std::string_view option, std::span<const DType> possible,
                                                const std::vector<std::string>& names) {
  std::vector<DType> formats;
  for (const std::string& name : split_at_commas(fmt::format("{}", fmt::join(names, ",")))) {
    const std::optional<DType> format = dtype_spelled<is_low_precision>(name);
    if (!format || std::ranges::find(possible, *format) == possible.end()) {
      std::vector<std::string_view> known;
      for (const DType dtype : possible) known.push_back(name_of(dtype));
      throw CommandError(ExitCode::usage, fmt::format("{} {}: {}", option, name, known_are(name, known)));
    }
    if (std::find(formats.begin(), formats.end(), *format) == formats.end()) formats.push_back(*format);
  }
  return formats.empty() ? std::nullopt : std::optional(formats);
}

void draw(const HistCommand& command, const Tensors& tensors, const std::string& subject,
          const HistQuestion& question) {
  for (const DType format : question.formats) {
    const reports::RangeFigure figure{.subject = subject,
                                      .name_has_format = question.formats.size() > 1,
                                      .format = format,
                                      .observed = command.observed,
                                      .scale = question.scale};
    const auto [stem, problem] =
        reports::draw_range_figure(figure, tensors.drawn, tensors.report, command.common.out);
    if (!problem.empty())
      say("fp16lab: note: {}", problem);
    else if (!command.common.quiet)
      say("figure: {}", (command.common.out / (stem + ".png")).string());
  }
}

namespace {

using Views = std::span<const analysis::RangeView>;
using Suggestions = std::span<const analysis::SuggestedScale>;

HistJson json_of(const analysis::Account& account) { return parse_json(analysis::account_json(account)); }

HistJson document(const Tensors& tensors, Views views, Suggestions suggestions, const HistAnswer& answer) {
  const bool by_format = answer.accounts.size() == views.size();
  HistJson documents = HistJson::array();
  for (std::size_t i = 0; i < views.size(); ++i) {
    std::ostringstream text;
    analysis::write_json(text, tensors.report, views[i], suggestions[i]);
    documents.push_back(parse_json(text.str()));
    if (by_format) documents.back()["account"] = json_of(answer.accounts[i]);
  }
  HistJson json = views.size() == 1 ? documents[0] : HistJson{{"formats", std::move(documents)}};
  if (!by_format) json["account"] = json_of(answer.accounts.front());
  return json;
}

void print_all(std::ostream& out, const Tensors& tensors, Views views, Suggestions suggestions,
               const HistAnswer& answer) {
  out << answer.before << analysis::findings_text(answer.accounts.front()) << '\n';
  if (views.size() > 1) analysis::print_formats(out, tensors.report, views, suggestions);
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (i > 0) out << '\n';
    analysis::print_table(out, tensors.report, views[i], suggestions[i]);
  }
  analysis::print_casts(out, tensors.report);
  analysis::print_changes(out, tensors.report);
  out << answer.after << "Next: " << answer.next << '\n';
}

void print_answer(std::ostream& out, const Tensors& tensors, Views views, Suggestions suggestions,
                  const HistAnswer& answer) {
  constexpr std::ptrdiff_t most_lines = 25, of_its_table = 3, most_tensors = 10, least_tensors = 3;
  std::ostringstream head, tail;
  head << answer.before << analysis::findings_text(answer.accounts.front()) << '\n';
  if (views.size() > 1) analysis::print_formats(head, tensors.report, views, suggestions);
  tail << '\n';
  analysis::print_changes(tail, tensors.report);
  for (const analysis::SuggestedScale& suggestion : suggestions) tail << suggestion.reasoning << '\n';
  tail << answer.after << "Next: " << answer.next << '\n';
  const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  const std::ptrdiff_t room = most_lines - lines(head.str()) - lines(tail.str()) - of_its_table;
  const bool nearly_all = tensors.report.tensors().size() <= most_tensors + 2;
  out << head.str();
  analysis::print_worst(
      out, tensors.report, views.front(),
      static_cast<std::size_t>(std::clamp(room, least_tensors, most_tensors + (nearly_all ? 2 : 0))));
  out << tail.str();
}

}  // namespace

void show(const HistCommand& command, const Tensors& tensors, const std::string& subject,
          const HistQuestion& question, std::span<const analysis::SuggestedScale> suggestions,
          const HistAnswer& answer, const HistJson& additions) {
  std::vector<analysis::RangeView> views;
  for (const DType format : question.formats) views.push_back({format, question.scale, command.exact_mass});
  if (command.json) {
    HistJson json = document(tensors, views, suggestions, answer);
    json.update(additions);
    std::cout << json.dump(2, ' ', false, HistJson::error_handler_t::replace) << '\n';
  } else if (command.lists_all()) {
    print_all(std::cout, tensors, views, suggestions, answer);
  } else {
    print_answer(std::cout, tensors, views, suggestions, answer);
  }
  if (command.draws()) draw(command, tensors, subject, question);
}

std::vector<analysis::SuggestedScale> suggestions_of(const analysis::RangeReport& report,
                                                     const std::vector<DType>& formats) {
  std::vector<analysis::SuggestedScale> suggestions;
  for (const DType format : formats) suggestions.push_back(analysis::suggest_scale(report, format));
  return suggestions;
}

}  // namespace fp16lab::experiments
