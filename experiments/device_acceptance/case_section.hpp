// What the sections that compare cases have in common.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/cuda/product/product_plan.hpp"
#include "experiments/device_acceptance/section.hpp"

namespace fp16lab::experiments::acceptance {

/// The device gives nothing but errors from now on (CUDA calls them sticky): another process can still use
/// it.
class DeviceLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the planner of tiles cuts for.
engine::tile::Gpu tile_gpu(const Settings& settings);

/// Runs the cases on the emulated back end and on the device, each by its route; one row for each verb. Of a
/// case that differs or fails a bundle (bundle.hpp) is written, which the row names. With a journal,
/// cases that ended in an earlier process are not run again. DeviceLost after a case that left the device
/// unusable: it has ended, those behind it have not.
std::vector<VerbRow> compare_on_device(const Settings& settings, const CaseList& list);

/// Sums of the rows whose verb begins with `prefix`.
struct RowSums {
  std::uint64_t rows = 0, failed = 0, elements = 0, differing = 0;
};
RowSums sums_of(const std::vector<VerbRow>& rows, std::string_view prefix = {});

/// A table of the rows, with what differs and the bundles as notes. `what`: "verbs".
SectionResult result_of(const std::vector<VerbRow>& rows, const std::string& what,
                        std::vector<Claim> claims = {});

/// "all WHAT against the emulated back end" and "WHAT that ran on both back ends", and their claims.
Goals case_goals(const std::string& what);
std::vector<Claim> case_claims(const Settings& settings, const Goals& goals,
                               const std::vector<VerbRow>& rows);

}  // namespace fp16lab::experiments::acceptance
