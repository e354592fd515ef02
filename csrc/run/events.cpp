// csrc/run/events.cpp: the C functions of ocl_run.h for events.
#include <memory>

#include "csrc/package/tensor.h"
#include "csrc/run/handles.h"
#include "csrc/runtime/queues/event.h"

using ocl::run::expect;
using ocl::run::guarded;

struct ocl_event {
  ocl::runtime::Event event;
};

extern "C" {

ocl_status ocl_event_create(ocl_model* model, ocl_event** event) {
  return guarded([&] {
    expect(model && event, "ocl_event_create: a pointer is NULL");
    *event = new ocl_event{{model->model.device().queue(ocl::package::kStream), /*timed=*/false}};
  });
}

ocl_status ocl_event_wait(const ocl_event* event, double seconds, int* done) {
  return guarded([&] {
    expect(event && (done || seconds < 0), "ocl_event_wait: a pointer is NULL");
    expect(seconds == seconds, "ocl_event_wait: the time is no number");
    bool complete = true;
    if (seconds < 0)
      event->event.wait();
    else
      complete = event->event.wait_for(std::chrono::duration<double>(seconds));
    if (done) *done = complete;
  });
}

struct _cl_event* ocl_event_opencl(const ocl_event* event) { return event ? event->event.get() : nullptr; }

void ocl_event_release(ocl_event* event) { delete event; }

}  // extern "C"
