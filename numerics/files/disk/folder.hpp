// Folders of results: making, listing and removing their contents.
//
// The folder that a user named may be a symbolic link; what is below it may not, because the maker of the
// folder could else choose where we write (atomic_file.hpp). All errors are std::runtime_error "cannot ...
// PATH: REASON".
#pragma once

#include <filesystem>
#include <vector>

namespace fp16lab {

/// Is something of that name there, a link that dangles included? If the system does not say, nothing is.
bool is_there(const std::filesystem::path& path);

/// Is it a folder, or a regular file, or a link that leads to one? If the system does not say, it is none.
bool is_folder(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);

/// Makes a folder that a user named, and its parents; an existing one is fine. Returns whether it made the
/// folder.
bool make_folders(const std::filesystem::path& folder);

/// Makes a folder inside a folder of results, which must be there, so that it survives a power cut. An
/// existing one is fine, but not a symbolic link to one.
void make_folder_inside(const std::filesystem::path& folder);

/// Throws unless `path` is a regular file or not there: what an output of ours may replace (atomic_file.hpp).
void require_replaceable(const std::filesystem::path& path);

/// What a folder holds, in the order of names; nothing if there is no such folder or it may not be read.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

/// Waits until the disk has the name of `file`, in the folder that holds it.
void sync_folder_of(const std::filesystem::path& file);

/// Removes a file, or an empty folder; a link, not what it leads to. A missing file is fine.
void remove_file(const std::filesystem::path& path);

/// Removes a folder with everything in it, or a file; a link loses only the link itself.
void remove_everything(const std::filesystem::path& path);

}  // namespace fp16lab
