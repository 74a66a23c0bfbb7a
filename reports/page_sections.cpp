#include "reports/page_sections.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "numerics/files/atomic_file.hpp"
#include "reports/figure_style.hpp"
#include "reports/html.hpp"

namespace fp16lab::reports {
namespace {

using analysis::Verdict;

std::string still_figure(const Figure& figure, const std::filesystem::path& folder,
                         std::string_view css_class) {
  const std::string svg = read_file(folder / (figure.stem + ".svg"));
  return fmt::format(
      "<figure><img class=\"still {}\" alt=\"{}\" "
      "src=\"{}\"><figcaption>figures/{}.svg</figcaption></figure>\n",
      css_class, html_escape(figure.title), data_url("image/svg+xml", svg), figure.stem);
}

const Figure* find_figure(const std::vector<Figure>& figures, const std::string& workload,
                          std::string_view prefix) {
  const auto found = std::find_if(figures.begin(), figures.end(), [&](const Figure& figure) {
    return figure.workload == workload && figure.stem.starts_with(prefix) && figure.drawn;
  });
  return found == figures.end() ? nullptr : &*found;
}

std::string_view css_class_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::diverged:
      return "diverged";
    case Verdict::behind:
      return "behind";
    case Verdict::ahead:
      return "ahead";
    case Verdict::within_spread:
      return "within";
    case Verdict::undecided:
      return "soft";
  }
  return "";
}

std::string summary_html(const WorkloadMaterial& material) {
  const WorkloadSummary& summary = material.summary;
  const std::vector<LineStyle> styles = styles_of(*material.workload);
  const bool loss_too = summary.metric.quantity != Quantity::loss;
  std::string html = fmt::format(
      "<p class=\"soft\">Final {} against FP32. Spread is the largest "
      "minus the smallest seed, the larger one "
      "of the two groups. Underflow is the mean share of non-zero gradients that round to zero, at the scale "
      "of each "
      "step; in brackets, what FP16 would have lost in an FP32 run.</p>\n<div class=\"scroll\"><table "
      "class=\"wide\">\n<thead><tr><th>configuration</th><th>seeds</th><th>{}</th>{}<th>against "
      "FP32</th><th>spread</th>"
      "<th class=\"text\">verdict</th><th>underflow</th><th>skipped</th><th>last "
      "scale</th><th>s/step</th></tr></thead>\n<tbody>\n",
      html_escape(summary.metric.name), html_escape(summary.metric.name), loss_too ? "<th>loss</th>" : "");
  for (std::size_t i = 0; i < summary.rows.size(); ++i) {
    const SummaryRow& row = summary.rows[i];
    const bool fp32 = material.workload->configurations[i].id.precision == Precision::fp32;
    const analysis::Quality quality = analysis::quality_of(row.final_values);
    std::string difference = row.is_reference ? "reference" : "–", spread = "–", verdict;
    std::string_view css;
    if (row.against_reference) {
      difference = difference_text(summary.metric, *row.against_reference);
      spread = spread_text(summary.metric, *row.against_reference);
      verdict = analysis::name_of(row.against_reference->verdict);
      css = css_class_of(row.against_reference->verdict);
    } else if (row.final_values.empty()) {
      verdict = "no finished run";
    }
    html += fmt::format(
        "<tr{}><td><span class=\"swatch\" "
        "style=\"background:{}\"></span>{}</td><td>{}{}</td><td>{}</td>{}<td>{}</td><td>{}</td>"
        "<td class=\"text {}\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.3g}</td></tr>\n",
        row.is_reference ? " class=\"reference\"" : "", styles[i].color, html_escape(pretty(row.label)),
        quality.seeds, row.runs > quality.seeds ? fmt::format(" of {}", row.runs) : "",
        row.final_values.empty() ? "–" : value_text(summary.metric, quality.mean),
        loss_too ? fmt::format("<td>{:.4g}</td>", analysis::quality_of(row.final_losses).mean) : "",
        difference, spread, css, verdict, row.underflow_rate ? underflow_text(row, fp32) : "–",
        row.skipped > 0 ? fmt::format("{} of {}", row.skipped, row.steps) : "0",
        fp32 ? "–" : pretty(scale_text(row.last_scale)), row.seconds_per_step);
  }
  return html + "</tbody></table></div>\n";
}

/// At how many different steps the workload's runs were evaluated on `split`.
std::size_t evaluated_steps(const RunSet& set, const Workload& workload, const std::string& split) {
  std::set<std::uint64_t> steps;
  for (const Configuration& configuration : workload.configurations)
    for (const std::size_t run : configuration.runs)
      for (const EvaluationRow& row : set.runs[run].folder.evaluations)
        if (row.split == split) steps.insert(row.step);
  return steps.size();
}

/// "Overflows, first seed: FP16 dynamic in 3 steps, first in step 7 (fc1.weight, fc1.bias and 2 more)." Empty without any.
std::string overflow_words(const RunSet& set, const Workload& workload) {
  constexpr std::size_t shown = 3;
  std::string words;
  for (const Configuration& configuration : workload.configurations) {
    const std::vector<OverflowRow> rows = read_overflows(set.runs[configuration.runs.front()].folder.path);
    if (rows.empty()) continue;
    const std::vector<std::string>& names = rows.front().parameters;
    std::string what = rows.front().kind == OverflowKind::gradient ? "" : "the loss";
    for (std::size_t i = 0; i < std::min(shown, names.size()); ++i)
      what += (what.empty() ? "" : ", ") + names[i];
    if (names.size() > shown) what += fmt::format(" and {} more", names.size() - shown);
    words += fmt::format("{}{} in {} step{}, first in step {}{}", words.empty() ? "" : "; ",
                         configuration.label, rows.size(), rows.size() == 1 ? "" : "s", rows.front().step,
                         what.empty() ? "" : " (" + what + ")");
  }
  if (words.empty()) return "";
  return "<p class=\"soft\">Overflows, first seed: " + html_escape(pretty(words)) + ".</p>\n";
}

std::string fact(std::string_view name, std::string_view value) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>", name, value);
}

std::string command_line(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& argument : argv) {
    const bool plain =
        !argument.empty() && argument.find_first_of(" \t\n\"'\\$`*?;&|<>()[]{}#~!") == std::string::npos;
    line += (line.empty() ? "" : " ") + (plain ? argument : "'" + argument + "'");
  }
  return line;
}

}  // namespace

std::string summary_section(const RunSet& set, const std::vector<WorkloadMaterial>& material) {
  std::string html = "<section id=\"summary\">\n";
  for (const WorkloadMaterial& item : material)
    html += fmt::format("<p class=\"lead\"><strong>{}.</strong> {}</p>\n", html_escape(item.workload->name),
                        html_escape(pretty(item.summary.words)));
  if (!set.notes.empty()) {
    html += "<ul class=\"notes soft\">\n";
    for (const std::string& note : set.notes) html += fmt::format("<li>{}</li>\n", html_escape(note));
    html += "</ul>\n";
  }
  return html + "</section>\n";
}

std::string workload_section(const RunSet& set, const WorkloadMaterial& material, std::size_t index,
                             const std::vector<Figure>& figures, const std::filesystem::path& folder,
                             bool with_charts) {
  const std::string& name = material.workload->name;
  std::string html = fmt::format("<section>\n<h2>{}</h2>\n", html_escape(name));
  html += summary_html(material);
  if (const Figure* figure = find_figure(figures, name, "quality-"))
    html += still_figure(*figure, folder, "half");

  const auto chart = [&](std::string_view kind, std::string_view prefix, std::string_view caption,
                         std::string_view split) {
    if (with_charts) {
      html += fmt::format(
          "<figure><div data-chart=\"{}\" data-workload=\"{}\" "
          "data-split=\"{}\"></div><figcaption>{}</figcaption></figure>\n",
          kind, index, html_escape(split), caption);
    } else if (const Figure* figure = prefix.empty() ? nullptr : find_figure(figures, name, prefix)) {
      html += still_figure(*figure, folder, "");
    } else if (!prefix.empty()) {
      html += fmt::format(
          "<p class=\"soft\">{} This figure was not drawn; its script and data are in figures/.</p>\n",
          caption);
    }
  };
  html += "<h3>Training loss</h3>\n<div class=\"pair\">\n";
  chart("loss", "loss-" + slug(name),
        "Mean over seeds of the training loss, averaged over short stretches of steps; bands reach from the "
        "lowest to the "
        "highest seed.",
        "");
  chart("loss-end", "", "The last third of it.", "");
  html += "</div>\n";
  // One point in time is no curve; its number is in the table.
  if (const std::string split = evaluation_split(set, *material.workload);
      with_charts && evaluated_steps(set, *material.workload, split) > 1) {
    const Quantity quantity = material.summary.metric.quantity;
    const bool loss_only = quantity == Quantity::loss;
    html += fmt::format("<h3>Loss{} on the {} set</h3>\n",
                        loss_only ? "" : fmt::format(" and {}", name_of(quantity)), html_escape(split));
    if (!loss_only) html += "<div class=\"pair\">\n";
    chart("evaluation", "",
          "Mean and band over seeds; the dots on the first line are at the steps of the evaluations.", split);
    if (!loss_only) {
      chart("quality", "",
            quantity == Quantity::accuracy ? "Accuracy likewise." : "Bits per character likewise.",
            material.summary.metric.name);
      html += "</div>\n";
    }
  }
  html += "<h3>Loss scale</h3>\n";
  chart("scale", "loss-scale-", "First seed of each configuration; crosses mark skipped steps.", "");
  html += overflow_words(set, *material.workload);
  if (!with_charts)
    if (const Figure* figure = find_figure(figures, name, "underflow-against-scale-")) {
      html += "<h3>Underflow against loss scale</h3>\n" + still_figure(*figure, folder, "");
    }
  return html + "</section>\n";
}

std::string provenance_section(const RunSet& set) {
  std::string html = "<section id=\"provenance\">\n<h2>Provenance</h2>\n";
  // Facts that runs share are told once, for the group of runs that share them.
  struct Group {
    std::string facts;
    std::vector<const Run*> runs;
  };
  std::vector<Group> groups;
  for (const Run& run : set.runs) {
    const Manifest& m = run.folder.manifest;
    std::string data;
    for (const DataFile& file : m.data)
      data += fmt::format("{}{}<br><code>sha256 {}</code>", data.empty() ? "" : "<br>",
                          html_escape(file.path), html_escape(file.sha256));
    const std::string facts =
        fact("sources", "git <code>" + html_escape(m.git_hash) + "</code>") +
        fact("CPU",
             html_escape(fmt::format("{}, {} threads, products on {}", m.cpu, m.threads, m.gemm_target))) +
        fact("GPU", m.gpu ? html_escape(*m.gpu + (m.driver ? ", driver " + *m.driver : "")) : "none") +
        fact("compiler", html_escape(m.compiler) + " <code>" + html_escape(m.flags) + "</code>") +
        fact("data", data.empty() ? "none" : data);
    const auto found =
        std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.facts == facts; });
    if (found == groups.end())
      groups.push_back({facts, {&run}});
    else
      found->runs.push_back(&run);
  }
  for (const Group& group : groups) {
    std::vector<std::string> commands;  // one of a sweep, many of single trainings
    for (const Run* run : group.runs) {
      std::string command = html_escape(command_line(run->folder.manifest.argv));
      if (std::find(commands.begin(), commands.end(), command) == commands.end())
        commands.push_back(std::move(command));
    }
    const std::string command =
        commands.size() == 1 ? fact("command", "<code>" + commands.front() + "</code>") : "";
    html += fmt::format(
        "<dl class=\"facts\">{}{}</dl>\n<details><summary>{} run{}</summary>\n<div "
        "class=\"scroll\"><table>\n",
        command, group.facts, group.runs.size(), group.runs.size() == 1 ? "" : "s");
    html +=
        "<thead><tr><th>run</th><th class=\"text\">state</th><th>seed</th><th>steps</th><th "
        "class=\"text\">start</th><th class=\"text\">end</th>"
        "<th class=\"text\">last state_hash</th></tr></thead>\n<tbody>\n";
    for (const Run* run : group.runs) {
      const Manifest& m = run->folder.manifest;
      html += fmt::format(
          "<tr><td>{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td><td "
          "class=\"text\">{}</td><td class=\"text\"><code>{}</code></td></tr>\n",
          html_escape(run->name), name_of(m.state), run->seed, run->folder.steps.size(), html_escape(m.start),
          html_escape(m.end.value_or("–")),
          run->folder.steps.empty() ? "–" : fmt::format("{:016x}", run->folder.steps.back().state_hash));
    }
    html += "</tbody></table></div>\n";
    if (commands.size() > 1) {
      html += "<p class=\"soft\">Commands:</p>\n<pre>";
      for (const std::string& line : commands) html += line + "\n";
      html += "</pre>\n";
    }
    html += fmt::format("<p class=\"soft\">Resolved configuration of {}:</p>\n<pre>{}</pre>\n</details>\n",
                        html_escape(group.runs.front()->name),
                        html_escape(group.runs.front()->folder.manifest.config));
  }
  return html + "</section>\n";
}

}  // namespace fp16lab::reports
