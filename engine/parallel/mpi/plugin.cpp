// The functions of plugin.h, compiled once for each MPI.
#include "engine/parallel/mpi/plugin.h"

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct fp16lab_mpi_request {
  MPI_Request request = MPI_REQUEST_NULL;
  bool receives = false;
};

namespace {

fp16lab_mpi_add add_codes = nullptr;
MPI_Comm ours = MPI_COMM_NULL;  // a duplicate, so that no message of others comes in between
MPI_Op add_f16 = MPI_OP_NULL, add_bf16 = MPI_OP_NULL;

const char* text_of(int code) {
  static char text[MPI_MAX_ERROR_STRING + 1];
  int length = 0;
  if (code == MPI_SUCCESS) return nullptr;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
    std::snprintf(text, sizeof text, "error %d of MPI", code);
  text[std::strcspn(text, "\n")] = '\0';  // MPICH goes on with a stack
  return text;
}

template <int type>
void add(void* from, void* into, int* count, MPI_Datatype* /*datatype*/) {
  add_codes(type, from, into, static_cast<std::size_t>(*count));
}

const char* start(fp16lab_mpi_add add_function, int* rank, int* ranks) {
  add_codes = add_function;
  int provided = 0;
  if (const char* error = text_of(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided)))
    return error;
  if (provided < MPI_THREAD_FUNNELED)
    return "it does not work in a process that has threads (MPI_THREAD_FUNNELED)";
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (const char* error = text_of(MPI_Comm_dup(MPI_COMM_WORLD, &ours))) return error;
  MPI_Comm_set_errhandler(ours, MPI_ERRORS_RETURN);
  MPI_Comm_rank(ours, rank);
  MPI_Comm_size(ours, ranks);
  if (const char* error = text_of(MPI_Op_create(&add<fp16lab_mpi_f16>, 1, &add_f16))) return error;
  return text_of(MPI_Op_create(&add<fp16lab_mpi_bf16>, 1, &add_bf16));
}

const char* library() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING + 1];
  int length = 0;
  return MPI_Get_library_version(text, &length) == MPI_SUCCESS ? text : "MPI";
}
const char* host() {
  static char text[MPI_MAX_PROCESSOR_NAME + 1];
  int length = 0;
  return MPI_Get_processor_name(text, &length) == MPI_SUCCESS ? text : "?";
}

/// What `begun` returned, with the request or without it.
const char* handed_over(int begun, fp16lab_mpi_request* made, fp16lab_mpi_request** request) {
  const char* const error = text_of(begun);
  if (error != nullptr)
    delete made;
  else
    *request = made;
  return error;
}

const char* send(const void* bytes, size_t size, int to, int tag, fp16lab_mpi_request** request) {
  auto* const made = new fp16lab_mpi_request;
  return handed_over(MPI_Isend(bytes, static_cast<int>(size), MPI_BYTE, to, tag, ours, &made->request), made,
                     request);
}
const char* receive(void* bytes, size_t size, int from, int tag, fp16lab_mpi_request** request) {
  auto* const made = new fp16lab_mpi_request{.receives = true};
  return handed_over(MPI_Irecv(bytes, static_cast<int>(size), MPI_BYTE, from, tag, ours, &made->request),
                     made, request);
}
const char* all_reduce(void* values, size_t count, int type, fp16lab_mpi_request** request) {
  auto* const made = new fp16lab_mpi_request;
  const bool wide = type == fp16lab_mpi_f32;
  return handed_over(
      MPI_Iallreduce(MPI_IN_PLACE, values, static_cast<int>(count), wide ? MPI_FLOAT : MPI_UINT16_T,
                     wide ? MPI_SUM : (type == fp16lab_mpi_f16 ? add_f16 : add_bf16), ours, &made->request),
      made, request);
}

const char* test(fp16lab_mpi_request* request, int* done, size_t* size) {
  MPI_Status status;
  const int code = MPI_Test(&request->request, done, &status);
  if (code == MPI_SUCCESS && *done == 0) return nullptr;
  int error_class = MPI_SUCCESS, count = 0;
  MPI_Error_class(code, &error_class);
  const bool too_long = error_class == MPI_ERR_TRUNCATE;
  const char* error = too_long ? nullptr : text_of(code);
  if (code == MPI_SUCCESS && request->receives) error = text_of(MPI_Get_count(&status, MPI_BYTE, &count));
  *done = 1;
  *size = too_long ? SIZE_MAX : static_cast<size_t>(count);
  delete request;
  return error;
}

void abort_all(int exit_code) {
  int started = 0, finished = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&finished);
  if (started != 0 && finished == 0) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

void finish() {
  MPI_Op_free(&add_f16);
  MPI_Op_free(&add_bf16);
  MPI_Comm_free(&ours);
  MPI_Finalize();
}

}  // namespace

const fp16lab_mpi_plugin* fp16lab_mpi() {
  static const fp16lab_mpi_plugin offered{.seam = FP16LAB_MPI_SEAM,
                                          .start = &start,
                                          .library = &library,
                                          .host = &host,
                                          .send = &send,
                                          .receive = &receive,
                                          .all_reduce = &all_reduce,
                                          .test = &test,
                                          .abort = &abort_all,
                                          .finish = &finish};
  return &offered;
}
