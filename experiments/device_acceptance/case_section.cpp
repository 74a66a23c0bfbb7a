#include "experiments/device_acceptance/case_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/device_acceptance/bundle.hpp"
#include "experiments/device_acceptance/journal.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

/// Does the device still do the least that there is to do?
bool is_usable(engine::Backend& backend) {
  try {
    engine::Tensor tensor = backend.empty({1}, DType::f32);
    backend.fill(tensor, 1);
    std::vector<std::byte> bytes(tensor.byte_count());
    backend.download(tensor, bytes);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// The device, opened when a case first wants it, and again where the route changes.
class Device {
 public:
  explicit Device(const Settings& settings) : settings_(&settings) {}

  engine::Backend& by(engine::GemmRoute route) {
    if (backend_ == nullptr || route != route_) {
      backend_.reset();
      backend_ = settings_->side.make({.gemm = route});
      route_ = route;
    }
    return *backend_;
  }

 private:
  const Settings* settings_;
  engine::GemmRoute route_{};
  std::unique_ptr<engine::Backend> backend_;
};

}  // namespace

engine::tile::Gpu tile_gpu(const Settings& settings) {
  return {settings.side.multiprocessors, settings.side.shared_per_block,
          settings.side.shared_per_multiprocessor};
}

std::vector<VerbRow> compare_on_device(const Settings& settings, const CaseList& list) {
  const auto emulated =
      engine::make_emulated_backend(tensor_core_model(settings.side.tensor_core), settings.threads);
  Device device(settings);
  Journal journal(settings.journal);
  std::vector<VerbRow> rows;
  for (const VerbCase& one : list.cases) {
    if (!runs_on(one, *emulated)) continue;
    const std::string key = key_of(one);
    if (const VerbRow* const row = journal.ended(key)) {
      add_row(rows, *row);
      continue;
    }
    if (settings.progress) settings.progress(key);
    journal.begin(key);
    engine::Backend& backend = device.by(one.route);
    ComparedCase compared = compare_case(one, *emulated, backend, list.size, settings.seed);
    if (!compared.row.same()) {
      const std::string failure = compared.row.notes.empty() ? "" : compared.row.notes.front();
      compared.row.bundles.push_back(
          write_case_bundle(settings, one, list.size, compared.actual, failure).string());
    }
    journal.end(key, compared.row);
    const bool lost = compared.row.failed && !is_usable(backend);
    add_row(rows, compared.row);
    if (lost) throw DeviceLost(fmt::format("after the case {} the device gives nothing but errors", key));
  }
  return rows;
}

RowSums sums_of(const std::vector<VerbRow>& rows, std::string_view prefix) {
  RowSums sums;
  for (const VerbRow& row : rows) {
    if (!row.verb.starts_with(prefix)) continue;
    ++sums.rows;
    sums.failed += row.failed ? 1 : 0;
    sums.elements += row.elements;
    sums.differing += row.differing_elements;
  }
  return sums;
}

SectionResult result_of(const std::vector<VerbRow>& rows, const std::string& what,
                        std::vector<Claim> claims) {
  SectionResult result{.tables = {}, .notes = {}, .claims = std::move(claims)};
  Table table{.caption = "Against the emulated back end, bit for bit",
              .columns = {what, "cases", "elements", "differing elements", "differing bits", "same"},
              .rows = {}};
  for (const VerbRow& row : rows) {
    table.rows.push_back({row.verb, fmt::format("{}", row.cases), fmt::format("{}", row.elements),
                          fmt::format("{}", row.differing_elements), fmt::format("{}", row.differing_bits),
                          row.same()   ? "yes"
                          : row.failed ? "FAILED"
                                       : "NO"});
    for (const std::string& note : row.notes) result.notes.push_back(row.verb + ": " + note);
    for (const std::string& bundle : row.bundles) result.notes.push_back("bundle: " + bundle);
  }
  result.tables.push_back(std::move(table));
  return result;
}

Goals case_goals(const std::string& what) {
  return {no_difference(fmt::format("all {} against the emulated back end", what)),
          {.claim = {.claim = fmt::format("{} that ran on both back ends", what), .criterion = "all"}}};
}

std::vector<Claim> case_claims(const Settings& settings, const Goals& goals,
                               const std::vector<VerbRow>& rows) {
  const RowSums sums = sums_of(rows);
  return {none_differ(settings, goals[0], sums.differing, sums.elements, "elements"),
          must_hold(settings, goals[1], fmt::format("{} of {}", sums.rows - sums.failed, sums.rows),
                    sums.failed == 0)};
}

}  // namespace fp16lab::experiments::acceptance
