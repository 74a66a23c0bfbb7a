/* What libfp16lab_mpi_openmpi.so and libfp16lab_mpi_mpich.so offer, in plain C: one source, mpi/plugin.cpp, compiled
   with the header of each MPI, because their binaries do not fit each other. A program loads the one of the launcher
   that started it (mpi/mpi_communicator.cpp), so one build of fp16lab serves both, and starts where there is neither.

   Functions that can fail return NULL, or a text that says what MPI said, valid until the next call. One thread calls
   them. Nothing waits but `start` and `finish`. */
#ifndef FP16LAB_MPI_PLUGIN_H
#define FP16LAB_MPI_PLUGIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { fp16lab_mpi_f32, fp16lab_mpi_f16, fp16lab_mpi_bf16 }; /* what all_reduce adds */

/* into[i] = into[i] + from[i] for `count` codes of `type` (f16 or bf16). */
typedef void (*fp16lab_mpi_add)(int type, const void* from, void* into, size_t count);

typedef struct fp16lab_mpi_request fp16lab_mpi_request;

typedef struct {
  const char*
      seam; /* FP16LAB_MPI_SEAM of its build, a digest of this file: equal where it fits the program */

  /* MPI_Init, and what this process then is. `add` is called inside `test`. */
  const char* (*start)(fp16lab_mpi_add add, int* rank, int* ranks);
  /* The library's own description of itself (MPI_Get_library_version), and this host's name. */
  const char* (*library)(void);
  const char* (*host)(void);

  /* MPI_Isend and MPI_Irecv of at most 2^30 bytes; the memory stays where it is until the request is done. */
  const char* (*send)(const void* bytes, size_t size, int to, int tag, fp16lab_mpi_request** request);
  const char* (*receive)(void* bytes, size_t size, int from, int tag, fp16lab_mpi_request** request);
  /* MPI_Iallreduce with MPI_SUM (f32), or with `add` (16-bit words), in place; at most 2^30 elements. */
  const char* (*all_reduce)(void* values, size_t count, int type, fp16lab_mpi_request** request);
  /* MPI_Test: is it done? Then the request is gone, and `size` is how many bytes a receive got, SIZE_MAX if more came
     than there was room for. After a failure the request is gone too. */
  const char* (*test)(fp16lab_mpi_request* request, int* done, size_t* size);

  void (*abort)(int exit_code); /* MPI_Abort, or the end of this process if MPI has not started */
  void (*finish)(void);         /* MPI_Finalize */
} fp16lab_mpi_plugin;

/* The one exported function. */
const fp16lab_mpi_plugin* fp16lab_mpi(void);

#ifdef __cplusplus
}
#endif

#endif
