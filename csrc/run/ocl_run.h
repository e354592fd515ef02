/* csrc/run/ocl_run.h: runs packages that torch_ocl_compile.package.save() has written, on any OpenCL device, without PyTorch
   and Python.

   A function that can fail returns an ocl_status. If it is not OCL_OK, ocl_error() has the message, and no result was written.
   Text in results belongs to the object that it describes. All functions may be called from several threads at once. Work on a
   device runs in the order of the calls; only ocl_tensor_read, ocl_event_wait and ocl_synchronize wait for it. */
#ifndef OCL_RUN_H
#define OCL_RUN_H

#include <stddef.h>
#include <stdint.h>

#ifndef OCL_API
#define OCL_API /* The library itself is built with a definition that exports the functions. */
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  OCL_OK = 0,
  OCL_BAD_INPUT,     /* A file, an argument or an option is wrong. */
  OCL_UNSUPPORTED,   /* The device cannot do it. */
  OCL_DEVICE,        /* A driver has failed. */
  OCL_BUILD,         /* The driver's compiler refused a kernel. */
  OCL_OUT_OF_MEMORY, /* The device or the host is full. */
  OCL_INTERNAL       /* A bug of this library. */
} ocl_status;

typedef enum { OCL_BOOL, OCL_U8, OCL_I8, OCL_I16, OCL_I32, OCL_I64, OCL_F16, OCL_BF16, OCL_F32, OCL_F64 } ocl_dtype;

typedef struct ocl_model ocl_model;   /* An open package on a device. */
typedef struct ocl_tensor ocl_tensor; /* A tensor on a device. */
typedef struct ocl_event ocl_event;   /* A point in the work of a device. */

/* An argument or a result of a method. */
typedef enum { OCL_NOTHING, OCL_TENSOR, OCL_INTEGER, OCL_REAL } ocl_kind;
typedef struct {
  ocl_kind kind;
  ocl_tensor* tensor; /* OCL_TENSOR */
  int64_t integer;    /* OCL_INTEGER */
  double real;        /* OCL_REAL */
} ocl_value;

/* Set all other members to 0 for the defaults: ocl_options options = {sizeof(ocl_options)}; */
typedef struct {
  size_t size;        /* sizeof(ocl_options), by which a later library knows which members there are. */
  const char* device; /* Number of the device in ocl_device_name, or a part of its name. NULL: the first device. */
  const char* cache;  /* File in which built kernels are kept for later processes. NULL: none are kept. Kernels are native code,
                         so the folder must be yours alone. */
  int trust_binaries; /* Not 0: uses the kernels in the package, which are native code. Only for packages that you made. */
  int64_t kept_bytes; /* Limit on the device memory for packed copies of weights. 0: 4 GiB. Below 0: none. */
} ocl_options;

/* Describes an argument or a result. The members are valid until the model is closed. */
typedef struct {
  const char* name;  /* Its path in the containers that hold it: "x", "past.0.key". A single result is "result". */
  ocl_kind kind;     /* OCL_TENSOR or OCL_INTEGER; of results also OCL_REAL, OCL_NOTHING. */
  ocl_dtype dtype;   /* Of a tensor. */
  const char* sizes; /* Of a tensor: "[s0, 3, 224, 224]". s0, s1, ... are sizes and integers that each call chooses, see
                        ocl_condition_text. Of an integer: its expression, such as "s1", or "3" if it must be 3. */
} ocl_info;

/* Returns the version of the library, such as "0.1.0". */
OCL_API const char* ocl_version(void);

/* Returns the message of the last error of this thread, or "". */
OCL_API const char* ocl_error(void);

/* Adds an OpenCL runtime that the system does not list: the path of its library, of an .icd file, or of a folder with .icd
   files. Call it before any function that uses a device. */
OCL_API ocl_status ocl_add_runtime(const char* path);
/* Return the number of OpenCL devices, and the name of one: "platform / device"; NULL if there is no such device. */
OCL_API int ocl_device_count(void);
OCL_API const char* ocl_device_name(int device);

/* Opens a package: reads and checks it. Its weights are uploaded meanwhile; what needs them waits, and reports it if they are
   damaged. ocl_synchronize waits for them too. `options` may be NULL. */
OCL_API ocl_status ocl_open(const char* path, const ocl_options* options, ocl_model** model);
/* Closes a model. Its tensors stay valid. NULL is allowed. */
OCL_API void ocl_close(ocl_model* model);

OCL_API int ocl_method_count(const ocl_model* model);
OCL_API const char* ocl_method_name(const ocl_model* model, int method); /* NULL if there is no such method. */
/* Returns the number of the method with this name. */
OCL_API ocl_status ocl_method_find(const ocl_model* model, const char* name, int* method);
/* Return -1 if there is no such method. */
OCL_API int ocl_argument_count(const ocl_model* model, int method);
OCL_API int ocl_result_count(const ocl_model* model, int method);
OCL_API ocl_status ocl_argument_info(const ocl_model* model, int method, int argument, ocl_info* info);
OCL_API ocl_status ocl_result_info(const ocl_model* model, int method, int result, ocl_info* info);
/* Return the number of the argument or result with this name. */
OCL_API ocl_status ocl_argument_find(const ocl_model* model, int method, const char* name, int* argument);
OCL_API ocl_status ocl_result_find(const ocl_model* model, int method, const char* name, int* result);
/* Return how many conditions the arguments of a method must fulfil (-1 if there is no such method), and one of them: "the size
   of dimension 0 of x must be at most 64"; NULL if there is no such condition. */
OCL_API int ocl_condition_count(const ocl_model* model, int method);
OCL_API const char* ocl_condition_text(const ocl_model* model, int method, int condition);
/* Returns how the results belong together: "value", "tuple", "list" or "dict" (the names of the results are its keys). For
   containers in containers it is a text with the number of each result in its place: "{'a': [0, 1], 'b': (2, 3)}". */
OCL_API const char* ocl_result_structure(const ocl_model* model, int method);

/* Makes the plan of a method and builds its kernels. The first ocl_call does this otherwise. */
OCL_API ocl_status ocl_prepare(ocl_model* model, int method);
/* Enqueues a call. `results` gets ocl_result_count values; the caller releases the tensors among them. */
OCL_API ocl_status ocl_call(ocl_model* model, int method, const ocl_value* arguments, int argument_count, ocl_value* results,
                            int result_count);
/* Gives the model's state, such as a cache of keys and values, its first contents again. */
OCL_API ocl_status ocl_reset(ocl_model* model);
/* Sets the seed of random numbers. It is 0 at first. */
OCL_API ocl_status ocl_seed(ocl_model* model, uint64_t seed);
/* Waits for all work of the model's device. Reports errors of that work, and damaged weights. */
OCL_API ocl_status ocl_synchronize(ocl_model* model);

/* Makes an event that is done when all work that this device got so far is done: for a call, make it after ocl_call. It needs
   no thread, and stays valid when the model is closed. */
OCL_API ocl_status ocl_event_create(ocl_model* model, ocl_event** event);
/* Waits until an event is done, at most `seconds`: 0 only asks, and below 0 there is no limit. `done` gets 1, or 0 if the time
   is over. OCL_DEVICE if the work has failed. ocl_tensor_read and ocl_synchronize also report indices out of range. */
OCL_API ocl_status ocl_event_wait(const ocl_event* event, double seconds, int* done);
/* NULL is allowed. */
OCL_API void ocl_event_release(ocl_event* event);

/* OpenCL objects: cl_context, cl_device_id and cl_command_queue. */
struct _cl_context;
struct _cl_device_id;
struct _cl_command_queue;
struct _cl_mem;
struct _cl_event;
typedef struct {
  struct _cl_context* context;
  struct _cl_device_id* device;
  struct _cl_command_queue* queue;
} ocl_opencl;
/* Makes all models on a device use your context and your in-order queue; without a queue (NULL), they get one of their own.
   They are retained as long as the process lives. `device` gets the device's number. Call it before the first model is opened
   on the device: a process has one context for each device. */
OCL_API ocl_status ocl_opencl_share(const ocl_opencl* own, int* device);
/* Returns what the models on the device use; not retained. What you enqueue in the queue runs in order with their work. */
OCL_API ocl_status ocl_opencl_get(ocl_model* model, ocl_opencl* found);
/* Makes later work on the device wait for an event of its context. The host does not wait. */
OCL_API ocl_status ocl_opencl_wait(ocl_model* model, struct _cl_event* event);
/* Returns the cl_event, not retained: commands of your own queues can wait for it. NULL for NULL. */
OCL_API struct _cl_event* ocl_event_opencl(const ocl_event* event);
/* Makes a tensor of a cl_mem of the model's context, from the byte `offset` on, without a copy. The buffer must be readable and
   writable for kernels; it is retained until the tensor is released. OCL_BAD_INPUT if it is too small, or if the tensor begins
   at a byte that is no multiple of the device's alignment, which the message names (128 on most devices). */
OCL_API ocl_status ocl_tensor_wrap(ocl_model* model, ocl_dtype dtype, int dims, const int64_t* sizes, struct _cl_mem* memory,
                                   size_t offset, ocl_tensor** tensor);
/* Returns the cl_mem of a tensor, not retained, and the byte at which its elements begin, in row-major order. Other tensors may
   lie in the same cl_mem. Keep the tensor until your commands have run. */
OCL_API ocl_status ocl_tensor_memory(const ocl_tensor* tensor, struct _cl_mem** memory, size_t* offset);

/* Makes a tensor on the model's device. `sizes` has `dims` sizes. `data` are its elements in row-major order, or NULL if their
   values do not matter. It may change as soon as the function returns. */
OCL_API ocl_status ocl_tensor_create(ocl_model* model, ocl_dtype dtype, int dims, const int64_t* sizes, const void* data,
                                     ocl_tensor** tensor);
/* Copies `data`, in row-major order, into a tensor after the work that is already enqueued. It may change as soon as the
   function returns. OCL_BAD_INPUT if `bytes` is not the tensor's size, or if the tensor is a result that shares memory with
   another tensor. */
OCL_API ocl_status ocl_tensor_write(ocl_tensor* tensor, const void* data, size_t bytes);
/* For NULL, these return OCL_BOOL, -1, NULL and 0. */
OCL_API ocl_dtype ocl_tensor_dtype(const ocl_tensor* tensor);
OCL_API int ocl_tensor_dims(const ocl_tensor* tensor);
OCL_API const int64_t* ocl_tensor_sizes(const ocl_tensor* tensor);
OCL_API size_t ocl_tensor_bytes(const ocl_tensor* tensor); /* Of its elements. */
/* Waits for the tensor and copies its elements to `data` in row-major order. OCL_BAD_INPUT if `bytes` is not their size. */
OCL_API ocl_status ocl_tensor_read(const ocl_tensor* tensor, void* data, size_t bytes);
/* Frees a tensor. Work that is already enqueued may still use it. NULL is allowed. */
OCL_API void ocl_tensor_release(ocl_tensor* tensor);

#ifdef __cplusplus
}
#endif
#endif
