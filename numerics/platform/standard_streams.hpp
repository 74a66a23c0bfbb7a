// The process's standard descriptors: there before any file is opened, and written to without dying of it.
#pragma once

#include <string_view>

namespace fp16lab {

/// Call it before anything opens a file. If whoever started the process has closed any of the descriptors 0
/// to 2 (`2>&-`), it opens them, so that no file gets one of them and then the text that was meant for it: on
/// /dev/null, the wrong way round (0 for writing, 1 and 2 for reading), so that using one fails with EBADF as
/// on a closed one. If there is no /dev/null, on the root folder.
void open_standard_descriptors() noexcept;

/// Did open_standard_descriptors() find descriptor 1 closed? Then no reader needs a run's output there.
bool standard_output_was_closed() noexcept;

/// Writes all of `text`, in one write(2) where the system lets it, and says whether that went well; `errno` is
/// the reason otherwise. Signals interrupt nothing. A full pipe or terminal that does not block is waited for,
/// but for less than a second in all. A background process is not stopped by `stty tostop` (SIGTTOU).
/// SIGPIPE is the program's affair (experiments/app/process.hpp).
bool write_text(int descriptor, std::string_view text) noexcept;

}  // namespace fp16lab
