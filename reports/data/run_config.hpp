// The resolved configuration of a run as flat text.
#pragma once

#include <string>
#include <string_view>

#include "numerics/files/run/run_identity.hpp"

namespace fp16lab::reports {

/// "scaler.initial_scale" -> "8.0": every value of the TOML text under its dotted key, strings without
/// quotes.
using FlatConfig = RunIdentity::Keys;

/// `where` names the source in the std::runtime_error of bad TOML. Keys and values are printable, whatever it
/// holds.
FlatConfig flatten_toml(std::string_view toml, std::string_view where);

/// The identity of a run that names only what counts, by sections: [amp], [scaler] and [backend] are its
/// configuration, [model], [data], [train] and [optimizer] its workload. For folders that do not state their
/// identity and were not written by `fp16lab train`: those of lab.watch.
RunIdentity identity_by_sections(const FlatConfig& config);

/// Powers with raised exponents for people: "FP16 S=2^-3" -> "FP16 S=2⁻³".
std::string pretty(std::string_view text);

}  // namespace fp16lab::reports
